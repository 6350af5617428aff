//! The server-side subscriptions of `connect`: from the token or a backend, the user's personal channel, and those that
//! the client requests.

use dunlin_protocol::{Disconnect, ErrorCode};

use crate::{
    event::ServerSubscription,
    refused::RefusedCommand,
    session::{ConnectGrant, ConnectParams},
};

use super::{Context, refresh::TimeToLive};

impl Context {
    /// Adds the personal channel and the channels that the client requested, and checks all subscriptions.
    pub(super) fn complete_plan(
        &self,
        grant: &mut ConnectGrant,
        params: &ConnectParams,
        may_choose: bool,
    ) -> Result<(), RefusedCommand> {
        if let Some(channel) = self.personal_channel(&grant.user) {
            grant.plan(ServerSubscription { channel, ..ServerSubscription::default() });
        }
        let channels_max = self.options.client.channel_limit;
        for (channel, position) in &params.subs {
            // Each is compared with all previous ones, so the loop stops one past the limit.
            if grant.subscriptions.len() > channels_max {
                return Err(Disconnect::CHANNEL_LIMIT.into());
            }
            if may_choose && self.may_choose(&grant.user, channel)? {
                grant.plan(ServerSubscription { channel: channel.clone(), ..ServerSubscription::default() });
            }
            let planned = grant.subscriptions.iter_mut().find(|planned| planned.channel == *channel);
            match (planned, position) {
                (Some(planned), Some(position)) => planned.recover_since = Some(position.clone()),
                (None, Some(position)) if grant.positions.len() < channels_max => {
                    grant.positions.push((channel.clone(), position.clone()));
                }
                _ => {}
            }
        }
        if grant.subscriptions.len() > channels_max {
            return Err(Disconnect::CHANNEL_LIMIT.into());
        }
        if TimeToLive::until(grant.expires_at_ms, self.now).is_err() {
            return Err(ErrorCode::Expired.into());
        }
        for planned in &grant.subscriptions {
            self.check_server_side(planned)?;
        }
        Ok(())
    }

    /// The name of the user's personal channel; `None` for the anonymous user, or if there are no personal channels.
    fn personal_channel(&self, user: &str) -> Option<Box<str>> {
        let personal = self.options.client.personal_channel.as_ref().filter(|_| !user.is_empty())?;
        let channel = &self.options.channel;
        let (namespace, mark) = (&personal.namespace, channel.user_boundary);
        Some(if namespace.is_empty() {
            format!("{mark}{user}").into()
        } else {
            format!("{namespace}{}{mark}{user}", channel.namespace_boundary).into()
        })
    }

    /// Whether the server may subscribe a session of `user` to `channel` on the client's request: only if the client
    /// could subscribe by itself, without a token or a backend.
    fn may_choose(&self, user: &str, channel: &str) -> Result<bool, RefusedCommand> {
        let namespace = match self.names.resolve(channel) {
            Ok(namespace) => namespace,
            Err(ErrorCode::UnknownChannel) => {
                return Err(RefusedCommand::bad_request("connect names a channel whose namespace is not configured"));
            }
            Err(_) => return Ok(false),
        };
        let options = self.namespace(namespace);
        let is_ours = options.subscribe_proxy.is_none() && options.room.is_none();
        Ok(is_ours && !self.names.is_private(channel) && self.is_open_to(user, channel, namespace))
    }
}

impl ConnectGrant {
    /// Adds a subscription, unless the channel has one already.
    pub(super) fn plan(&mut self, subscription: ServerSubscription) {
        let is_new = self.subscriptions.iter().all(|planned| planned.channel != subscription.channel);
        if is_new && !subscription.channel.is_empty() {
            self.subscriptions.push(subscription);
        }
    }
}
