//! `dunlin explain`.

use std::fmt;

use clap::Args;
use dunlin_games::Registry;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    ConfigFile, Failure, api_call,
    output::{self, Shown},
};
use crate::insight::{Bytes, Millis};

/// Say why clients are behind: what waits for them, how their network is, and which limit acts.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Client id of a session, as presence and `dunlin explain` show it. Without it, the sessions that are furthest behind are
    /// explained
    #[arg(value_name = "SESSION")]
    client: Option<String>,
    /// Only sessions of this user; empty for anonymous users
    #[arg(long)]
    user: Option<String>,
    /// Only sessions that are subscribed to this channel
    #[arg(long)]
    channel: Option<String>,
    /// Only sessions of clients with this IP address
    #[arg(long, value_name = "IP")]
    address: Option<String>,
    /// Number of sessions to explain [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100))]
    slowest: Option<u64>,
    /// Print the answer of the node as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Explained {
    sessions: Vec<Session>,
    #[serde(default)]
    more: Option<String>,
    #[serde(default)]
    missing: Vec<Missing>,
    #[serde(default)]
    partial: bool,
}

#[derive(Deserialize)]
struct Missing {
    node: String,
    why: String,
}

#[derive(Deserialize)]
struct Session {
    client: String,
    user: String,
    #[serde(default)]
    address: Option<String>,
    node: Node,
    transport: String,
    encoding: String,
    num_subs: u64,
    verdict: Verdict,
    #[serde(default)]
    commands_wait_for: Option<String>,
    #[serde(default)]
    limits: Vec<Limit>,
    queue: Queue,
    socket: Socket,
    ping: Ping,
    shard: Shard,
}

#[derive(Deserialize)]
struct Node {
    uid: String,
    name: String,
}

#[derive(Deserialize)]
struct Verdict {
    text: String,
}

#[derive(Deserialize)]
struct Limit {
    key: String,
    #[serde(default)]
    value: Option<u64>,
    #[serde(default)]
    used: Option<u64>,
    effect: String,
}

#[derive(Deserialize)]
struct Queue {
    age_ms: u64,
    replaced: u64,
    reliable: Lane,
    latest: Lane,
    room_bytes: u64,
    rooms_due: u64,
    #[serde(default)]
    channels: Vec<Channel>,
    #[serde(default)]
    channels_cut: bool,
    #[serde(default)]
    unexamined_frames: u64,
}

#[derive(Deserialize)]
struct Lane {
    frames: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Channel {
    #[serde(default)]
    channel: Option<String>,
    lane: String,
    frames: u64,
    bytes: u64,
    replaced: u64,
    oldest_ms: u64,
    newest_ms: u64,
}

#[derive(Deserialize)]
struct Socket {
    full: bool,
    #[serde(default)]
    tls_bytes: u64,
    #[serde(flatten)]
    kernel: Option<Kernel>,
    #[serde(flatten)]
    network: Option<Network>,
}

#[derive(Deserialize)]
struct Kernel {
    kernel_bytes: u64,
    not_sent_bytes: u64,
    #[serde(default)]
    receive_window_bytes: Option<u64>,
    last_send_ms: u64,
    last_ack_ms: u64,
}

#[derive(Deserialize)]
struct Network {
    rtt_ms: f64,
    rtt_var_ms: f64,
    #[serde(default)]
    recent_seconds: Option<u64>,
    recent_sent_segments: u64,
    recent_retransmitted_segments: u64,
    delivery_bytes_per_second: u64,
}

#[derive(Deserialize)]
struct Ping {
    #[serde(default)]
    pong_age_ms: Option<u64>,
    #[serde(default)]
    round_trip_ms: Option<f64>,
    #[serde(default)]
    unanswered_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Shard {
    index: u64,
    busy_percent: f64,
    longest_turn_ms: f64,
}

impl ExplainArgs {
    fn params(&self) -> Value {
        let texts =
            [("client", &self.client), ("user", &self.user), ("channel", &self.channel), ("address", &self.address)];
        let mut params: Map<String, Value> =
            texts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?)))).collect();
        if let Some(slowest) = self.slowest {
            params.insert("slowest".to_owned(), json!(slowest));
        }
        params.into()
    }
}

pub(super) fn run(args: &ExplainArgs, registry: &Registry) -> Result<(), Failure> {
    let loaded = args.config.load_whole(Vec::new(), registry)?;
    let result = api_call::call(&loaded, "explain", &args.params())?;
    if args.json {
        return output::json(&result);
    }
    let explained: Explained = serde_json::from_value(result)
        .map_err(|error| Failure::Api(format!("the answer of the node is not understood: {error}")))?;
    if explained.sessions.is_empty() {
        output::line("no session matches")?;
    }
    for (index, session) in explained.sessions.iter().enumerate() {
        output::text(format_args!("{}{session}", if index > 0 { "\n" } else { "" }))?;
    }
    if explained.more.is_some() {
        output::line("\nmore sessions match: raise --slowest, or list all with the API method `sessions`")?;
    }
    for Missing { node, why } in &explained.missing {
        output::error_line(format_args!("no answer: node {}: {}", Shown(node), Shown(why)));
    }
    if explained.partial && explained.missing.is_empty() {
        output::error_line("the node does not reach the cluster: these are its own sessions only");
    }
    Ok(())
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = if self.node.name.is_empty() { &self.node.uid } else { &self.node.name };
        let user = if self.user.is_empty() { "anonymous".to_owned() } else { format!("user {}", Shown(&self.user)) };
        let address = self.address.as_deref().unwrap_or("unknown address");
        writeln!(f, "{}  {user}  {}  node {}", Shown(&self.client), Shown(address), Shown(node))?;
        writeln!(f, "  {}", Shown(&self.verdict.text))?;
        self.fmt_queue(f)?;
        self.fmt_socket(f)?;
        let Shard { index, busy_percent, longest_turn_ms } = self.shard;
        writeln!(f, "  shard    number {index}, {busy_percent} % busy, turns of up to {longest_turn_ms:.1} ms")?;
        let Self { transport, encoding, num_subs, .. } = self;
        writeln!(f, "  session  {}, {}, {num_subs} subscriptions", Shown(transport), Shown(encoding))?;
        if let Some(what) = &self.commands_wait_for {
            writeln!(f, "           its next command waits for: {}", Shown(what))?;
        }
        for Limit { key, value, used, effect } in &self.limits {
            write!(f, "  limit    {}", Shown(key))?;
            match (used, value) {
                (Some(taken), Some(value)) => write!(f, ": {taken} of {value}")?,
                (Some(taken), None) => write!(f, ": {taken}")?,
                _ => {}
            }
            writeln!(f, "; {}", Shown(effect))?;
        }
        Ok(())
    }
}

impl Session {
    fn fmt_queue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Queue { age_ms, replaced, reliable, latest, room_bytes, rooms_due, channels, .. } = &self.queue;
        if reliable.frames + latest.frames + room_bytes + rooms_due == 0 {
            writeln!(f, "  queue    empty")?;
        } else {
            write!(f, "  queue    the oldest frame waits since {}: ", Millis(*age_ms))?;
            write!(f, "{} frames ({}) reliable, ", reliable.frames, Bytes(reliable.bytes))?;
            writeln!(
                f,
                "{} frames ({}) latest, {replaced} replaced by newer ones",
                latest.frames,
                Bytes(latest.bytes)
            )?;
        }
        if room_bytes + rooms_due > 0 {
            writeln!(f, "           {rooms_due} rooms with a newer tick, {} of a snapshot", Bytes(*room_bytes))?;
        }
        for Channel { channel, lane, frames, bytes, replaced, oldest_ms, newest_ms } in channels {
            let channel = channel.as_deref().unwrap_or("(replies)");
            write!(f, "           {}, {}: {frames} frames ({}), ", Shown(channel), Shown(lane), Bytes(*bytes))?;
            writeln!(f, "{replaced} replaced, from {} to {} old", Millis(*newest_ms), Millis(*oldest_ms))?;
        }
        match (self.queue.unexamined_frames, self.queue.channels_cut) {
            (0, false) => Ok(()),
            (0, true) => writeln!(f, "           and more channels"),
            (frames, _) => writeln!(f, "           and {frames} frames whose channels were not looked at"),
        }
    }

    fn fmt_socket(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Socket { full, tls_bytes, kernel, network } = &self.socket;
        let state = if *full { "full" } else { "takes data" };
        write!(f, "  socket   {state}")?;
        if *tls_bytes > 0 {
            write!(f, ", {} encrypted and not taken", Bytes(*tls_bytes))?;
        }
        if let Some(kernel) = kernel {
            let (held, not_sent) = (Bytes(kernel.kernel_bytes), Bytes(kernel.not_sent_bytes));
            writeln!(f, ", the kernel holds {held}, of which {not_sent} are not sent")?;
        } else {
            writeln!(f)?;
        }
        if let Some(network) = network {
            write!(f, "{network}")?;
        }
        if let Some(kernel) = kernel {
            write!(f, "           ")?;
            if let Some(window) = kernel.receive_window_bytes {
                write!(f, "receive window {}, ", Bytes(window))?;
            }
            let (sent, answered) = (Millis(kernel.last_send_ms), Millis(kernel.last_ack_ms));
            writeln!(f, "last data sent {sent} ago, last answer {answered} ago")?;
        }
        match &self.ping {
            Ping { unanswered_ms: Some(waits), .. } => writeln!(f, "  ping     not answered since {}", Millis(*waits)),
            Ping { pong_age_ms: Some(age), round_trip_ms, .. } => {
                write!(f, "  ping     answered {} ago", Millis(*age))?;
                round_trip_ms.map_or(Ok(()), |ms| write!(f, " after {ms:.1} ms"))?;
                writeln!(f)
            }
            Ping { .. } => writeln!(f, "  ping     none yet"),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rtt_ms, rtt_var_ms) = (self.rtt_ms, self.rtt_var_ms);
        let (lost, sent) = (self.recent_retransmitted_segments, self.recent_sent_segments);
        write!(
            f,
            "  network  rtt {rtt_ms:.1} ms (varies by {rtt_var_ms:.1}), {lost} of {sent} segments retransmitted"
        )?;
        if let Some(seconds) = self.recent_seconds {
            write!(f, " in the last {seconds} s")?;
        }
        writeln!(f, ", {}/s", Bytes(self.delivery_bytes_per_second))
    }
}
