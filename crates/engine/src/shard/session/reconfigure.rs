//! Applies new options to the existing sessions.

use dunlin_protocol::UnsubscribeCode;

use crate::{SessionKey, hub::LocalChannelId, pace::Pace, shard::NamespaceChange};

use super::{Context, Sessions};

impl Sessions {
    pub(in crate::shard) fn set_paces(&mut self, context: &Context) {
        let (options, count) = (&context.options, context.identity.count);
        self.connects.set_pace(Pace::share(options.client.connects_per_second, count));
        self.recoveries.set_pace(Pace::share(options.client.recoveries_per_second, count));
        self.openers.set_limits(options.room_openings, count);
    }

    /// Ends subscriptions whose channels became unknown, or whose positions became invalid.
    pub(in crate::shard) fn end_subscriptions_of(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let mut ended: Vec<(SessionKey, LocalChannelId, UnsubscribeCode)> = Vec::new();
        for session in self.table.iter() {
            for subscription in &session.subscriptions {
                let namespace = self.hub.channel(subscription.channel).namespace;
                let code = match changes.get(usize::from(namespace.0)) {
                    Some(NamespaceChange::Retired) => UnsubscribeCode::SERVER,
                    // A client cannot resubscribe where it did not subscribe itself: such a subscription continues
                    // without a position.
                    Some(NamespaceChange::StreamGone)
                        if subscription.flags.positioned && !subscription.flags.server_side =>
                    {
                        UnsubscribeCode::INSUFFICIENT_STATE
                    }
                    _ => continue,
                };
                ended.push((session.key, subscription.channel, code));
            }
        }
        for (key, id, code) in ended {
            self.end_subscription(context, key, id, code);
        }
    }
}
