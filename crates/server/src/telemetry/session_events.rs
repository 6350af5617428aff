//! Log events about sessions, from the engine's records, and about connections that are not sessions yet.
//!
//! The engine limits the number of records. This module limits the number of lines about connections, per kind.

use std::{net::IpAddr, time::Duration};

use dunlin_engine::{
    ShardIndex,
    record::{CommandSubject, SessionIncident, SessionRecord},
};
use dunlin_net::{ConnectionKey, Traffic};
use dunlin_protocol::{Disconnect, ErrorCode};
use tracing::{debug, info, trace, warn};

use super::{events::now_s, log::Outside, throttle::LineRate};

/// Lines per second for each kind of connection event.
pub(super) const CONNECTION_LINES_PER_SECOND: u64 = 200;

/// Closes with this code are normal: there is one per session at shutdown.
const SHUTDOWN: u16 = Disconnect::SHUTDOWN.code;

/// Writes one log line for the record, at the level of its kind.
pub fn log_record(shard: ShardIndex, record: &SessionRecord) {
    let SessionRecord { session, info, what, suppressed } = record;
    let session = format_args!("{}/{}/{}", shard.0, session.index, session.generation);
    let client = info.as_ref().map(|info| tracing::field::display(Outside(&info.client)));
    let user = info.as_ref().map(|info| tracing::field::display(Outside(&info.user)));
    let suppressed = Some(*suppressed).filter(|suppressed| *suppressed > 0);
    match what {
        SessionIncident::CommandRefused { subject, command_id, code, why } => {
            let (command, channel) = (subject.command, channel_of(Some(subject)));
            let error = ErrorCode::ALL.iter().find(|known| known.code() == *code).map(|known| known.message());
            info!(%session, client, user, command, channel, id = command_id, code, error, why, suppressed,
                "command failed");
        }
        SessionIncident::Disconnected { subject, code, reason, why, queued } => {
            let (command, channel) = (subject.as_ref().map(|subject| subject.command), channel_of(subject.as_ref()));
            let (reason, (queued_bytes, queued_frames)) = (Outside(reason), *queued);
            if *code == SHUTDOWN {
                debug!(%session, client, user, command, channel, code, %reason, why, queued_bytes, queued_frames,
                    suppressed, "session closed by the server");
            } else {
                info!(%session, client, user, command, channel, code, %reason, why, queued_bytes, queued_frames,
                    suppressed, "session closed by the server");
            }
        }
        SessionIncident::Connected => debug!(%session, client, user, suppressed, "session connected"),
        SessionIncident::Left { code } => {
            debug!(%session, client, user, code, suppressed, "session closed by the client");
        }
        SessionIncident::Gone => debug!(%session, client, user, suppressed, "session ended"),
        SessionIncident::Unsubscribed { channel, code } => {
            let channel = Outside(channel);
            debug!(%session, client, user, %channel, code, suppressed, "subscription ended by the server");
        }
        SessionIncident::CommandReceived { subject, command_id } => {
            let (command, channel) = (subject.command, channel_of(Some(subject)));
            trace!(%session, client, user, command, channel, id = command_id, suppressed, "command received");
        }
    }
}

fn channel_of(subject: Option<&CommandSubject>) -> Option<tracing::field::DisplayValue<Outside<'_>>> {
    subject.and_then(|subject| subject.channel.as_deref()).map(|channel| tracing::field::display(Outside(channel)))
}

/// Log lines were dropped because the queue was full.
pub struct LogLinesDropped {
    /// Lines since the previous event of this kind.
    pub lines: u64,
}

impl LogLinesDropped {
    /// Logs it.
    pub fn emit(&self) {
        warn!(lines = self.lines, "log lines dropped because the log queue was full (log.queue_limit)");
    }
}

/// A summary of clients' errors in an interval.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientsMisbehaved {
    /// The length of the interval.
    pub interval_s: u64,
    /// Messages that violate the client protocol.
    pub malformed_frames: u64,
    /// Violations of the WebSocket protocol.
    pub violations: u64,
    /// Sessions closed because they read too slowly.
    pub slow_sessions: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// The most frequent reason, if any were refused.
    pub refused_mostly: Option<&'static str>,
    /// Connections that could not be accepted.
    pub accept_failures: u64,
}

impl ClientsMisbehaved {
    /// Logs the summary unless all counts are zero. Only failed accepts are a warning.
    pub fn emit(&self) {
        let Self { interval_s, malformed_frames, violations, slow_sessions, refused, refused_mostly, .. } = *self;
        if self.accept_failures > 0 {
            warn!(interval_s, accept_failures = self.accept_failures, "failed to accept connections");
        }
        if malformed_frames + violations + slow_sessions + refused > 0 {
            info!(
                interval_s,
                malformed_frames, violations, slow_sessions, refused, refused_mostly, "clients closed or refused"
            );
        }
    }
}

/// Connections were closed because all shards had as many as they may have.
pub struct ShardsFull {
    /// The length of the interval.
    pub interval_s: u64,
    /// The number of connections that were closed.
    pub refused: u64,
    /// Maximum number of connections of each shard.
    pub connections_max: u64,
}

impl ShardsFull {
    /// Logs it, unless there were none.
    pub fn emit(&self) {
        let Self { interval_s, refused, connections_max } = *self;
        if refused > 0 {
            warn!(
                interval_s,
                refused,
                connections_max,
                "closed new connections, because each shard has connections_max; raise net.shard_connections_limit and the \
                 hard limit of open files (LimitNOFILE in systemd, ulimit -Hn in a shell), the lower of which counts, or \
                 use more shards"
            );
        }
    }
}

/// Whether lines about connections are written.
pub fn logs_connections() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// A connection was accepted.
pub struct ConnectionAccepted {
    /// The shard of the connection.
    pub shard: ShardIndex,
    /// The connection; its session will have the same key.
    pub connection: ConnectionKey,
    /// The peer's address, if it is known.
    pub address: Option<IpAddr>,
}

impl ConnectionAccepted {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let ConnectionKey { index, generation } = self.connection;
            let address = self.address.map(tracing::field::display);
            debug!(session = %format_args!("{}/{index}/{generation}", self.shard.0), address, suppressed,
                "connection accepted");
        }
    }
}

/// A connection was closed by either side.
pub struct ConnectionEnded {
    /// The shard of the connection.
    pub shard: ShardIndex,
    /// Identifies the session in other log lines.
    pub connection: ConnectionKey,
    /// The stage of the connection.
    pub stage: &'static str,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
    /// Time since its beginning, if lines about connections were written then.
    pub took: Option<Duration>,
    /// Its bytes.
    pub traffic: Option<Traffic>,
}

impl ConnectionEnded {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let ConnectionKey { index, generation } = self.connection;
            let address = self.address.map(tracing::field::display);
            let duration_ms = self.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            let received_bytes = self.traffic.map(|traffic| traffic.received_bytes);
            let acknowledged_bytes = self.traffic.map(|traffic| traffic.acknowledged_bytes);
            debug!(session = %format_args!("{}/{index}/{generation}", self.shard.0), stage = self.stage, address,
                duration_ms, received_bytes, acknowledged_bytes, suppressed, "connection ended");
        }
    }
}

/// A connection was refused before it became a session.
pub struct ConnectionRefused {
    /// The shard of the connection.
    pub shard: ShardIndex,
    /// Identifies the session in other log lines.
    pub connection: ConnectionKey,
    /// The reason as a metric label.
    pub reason: &'static str,
}

impl ConnectionRefused {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let ConnectionKey { index, generation } = self.connection;
            debug!(session = %format_args!("{}/{index}/{generation}", self.shard.0), reason = self.reason, suppressed,
                "connection refused");
        }
    }
}

/// A ring between shards is full, or no longer full.
pub struct RingOverflow {
    /// The sending shard.
    pub shard: ShardIndex,
    /// Number of waiting messages; 0 at the end of the overflow.
    pub waiting: usize,
}

impl RingOverflow {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let (shard, waiting) = (self.shard.0, self.waiting);
            if waiting > 0 {
                debug!(shard, waiting, suppressed, "ring overflow; the shard stops reading sockets");
            } else {
                debug!(shard, suppressed, "ring overflow ended; the shard reads sockets again");
            }
        }
    }
}

/// A room was opened or has ended.
pub struct RoomChanged<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The code with which its players are unsubscribed; `None` if the room was opened.
    pub ended: Option<u32>,
}

impl RoomChanged<'_> {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let channel = Outside(self.channel);
            match self.ended {
                None => debug!(%channel, suppressed, "room opened"),
                Some(code) => debug!(%channel, code, suppressed, "room ended"),
            }
        }
    }
}

/// A request was sent to a backend.
pub struct BackendAsked<'a> {
    /// The proxy's name in the configuration.
    pub proxy: &'a str,
    /// The kind of request.
    pub kind: &'static str,
    /// The result.
    pub outcome: &'static str,
    /// The duration.
    pub took: Duration,
}

impl BackendAsked<'_> {
    /// Logs it.
    pub fn emit(&self) {
        static RATE: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(suppressed) = RATE.admit(now_s())
        {
            let took_ms = self.took.as_secs_f64() * 1e3;
            debug!(
                proxy = self.proxy,
                kind = self.kind,
                outcome = self.outcome,
                took_ms,
                suppressed,
                "backend request"
            );
        }
    }
}
