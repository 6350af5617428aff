//! Makes records of session events. If nothing is recorded, this costs one comparison.

use dunlin_protocol::{Disconnect, Request};

use crate::{
    SessionKey,
    counters::CommandKind,
    pace::{Bucket, Pace},
    record::{CommandSubject, RecordLevel, RecordOptions, SessionIncident, SessionRecord},
};

use super::{Context, Sessions, close::Cause, commands::CommandRef};

/// Rate limits on records.
pub(super) struct Recording {
    /// This shard's share of the rate limit, by level.
    buckets: [Bucket; 3],
    of_session: Option<Pace>,
    suppressed: u64,
}

impl Recording {
    pub(super) fn new(options: RecordOptions, shards: u16) -> Self {
        let bucket = Bucket::full(Pace::share(options.node_per_second, shards));
        Self { buckets: [bucket; 3], of_session: Pace::new(options.session_per_second), suppressed: 0 }
    }
}

impl Sessions {
    /// Records a command.
    pub(super) fn record_command(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &Request<'_>,
    ) {
        if context.records(RecordLevel::Commands) {
            let channel = channel_of(request).map(|channel| self.channel_name(channel));
            let subject = CommandSubject { command: CommandKind::of(request).name(), channel };
            self.record(context, key, SessionIncident::CommandReceived { subject, command_id });
        }
    }

    /// Records that a command is answered with an error.
    pub(super) fn record_refusal(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command: CommandRef<'_>,
        (code, why): (u32, Option<&'static str>),
    ) {
        if context.records(RecordLevel::Refusals) {
            let (subject, command_id) = (self.subject(command), command.id);
            self.record(context, key, SessionIncident::CommandRefused { subject, command_id, code, why });
        }
    }

    /// Records that the server closes a session. Call it before the session's queue is dropped.
    pub(super) fn record_disconnect(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        Cause { command, why }: Cause<'_>,
    ) {
        if context.records(RecordLevel::Refusals) {
            let subject = command.map(|command| self.subject(command));
            let outbox = self.table.outbox(key.index);
            let queued = (outbox.queued_bytes(), outbox.queued_frames());
            let (code, reason) = (disconnect.code, disconnect.reason.clone());
            self.record(context, key, SessionIncident::Disconnected { subject, code, reason, why, queued });
        }
    }

    fn subject(&self, CommandRef { command, channel, .. }: CommandRef<'_>) -> CommandSubject {
        CommandSubject { command, channel: channel.map(|channel| self.channel_name(channel)) }
    }

    /// Records an event of a session.
    pub(super) fn record(&mut self, context: &mut Context, key: SessionKey, what: SessionIncident) {
        let level = what.level();
        if !context.records(level) {
            return;
        }
        let Self { table: sessions, recording, .. } = self;
        let Context { counters, .. } = context;
        let Some(session) = sessions.get_mut(key) else { return };
        let of_session = recording.of_session.filter(|_| level == RecordLevel::Refusals);
        let then_ns = of_session.map(|pace| pace.take(session.records_full_at_ns, context.now.mono_us));
        let bucket = &mut recording.buckets[level as usize - 1];
        if then_ns == Some(None) || !bucket.try_take(context.now.mono_us) {
            recording.suppressed += 1;
            counters.records_suppressed += 1;
            return;
        }
        session.records_full_at_ns = then_ns.flatten().unwrap_or(session.records_full_at_ns);
        let suppressed = std::mem::take(&mut recording.suppressed);
        context.effects.records.push(SessionRecord { session: key, info: session.info.clone(), what, suppressed });
    }
}

/// The channel that a command names.
pub(super) fn channel_of<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    match request {
        Request::Subscribe(subscribe) => Some(&subscribe.channel),
        Request::Unsubscribe { channel } | Request::Presence { channel } | Request::PresenceStats { channel } => {
            Some(channel)
        }
        Request::Publish(publish) => Some(&publish.channel),
        Request::History(history) => Some(&history.channel),
        Request::SubRefresh(refresh) => Some(&refresh.channel),
        Request::Connect(_) | Request::Ping | Request::Send { .. } | Request::Rpc(_) | Request::Refresh { .. } => None,
    }
}
