//! Plays scripts. A case begins with `== WHAT IT SHOWS`; its lines are
//!
//! | line | effect |
//! |---|---|
//! | `shards 2` | the node has two shards; the default is one |
//! | `permissive` | anonymous sessions may do everything in channels without a namespace |
//! | `options NAME=VALUE …` | sets options, see `options.rs` |
//! | `open NAME json`, `open NAME protobuf 1` | opens a session, on shard 1 |
//! | `open NAME@7 json` | opens a session from address 7 |
//! | `open NAME Sse 1` | opens a session on another wire; the name is a variant of [`Wire`] |
//! | `NAME {…} && {…}` | the session sends one frame with these commands |
//! | `NAME raw TEXT` | the session sends these bytes; `\n` and `\xNN` are escapes |
//! | `NAME ping TEXT`, `NAME bye 1000`, `NAME breaks 1002 WHY` | WebSocket ping, close frame, violation |
//! | `NAME gone` | the transport of the session is closed |
//! | `NAME takes 10`, `NAME takes all` | the socket of the session accepts 10 more bytes; accepts everything again |
//! | `NAME token TOKEN` | answers the pending validation of a token |
//! | `NAME backend {…}` | the backend's answer to the oldest request of the session |
//! | `lost CHANNEL` | the channel loses its stream while it has subscribers |
//! | `node CHANNEL {…}` | another node of the cluster broadcasts a publication, a join or a leave |
//! | `keys CHANNEL {…}` | other nodes answer with the newest publications of the channel's keys |
//! | `hold proposals`, `store`, `refuse` | the log answers no proposal; stores, or refuses those that it held |
//! | `elsewhere USER 2` | the user has two sessions on other nodes of the cluster |
//! | `find ID` | shows which shard finds a session by its secret id |
//! | `wait 10s`, `wait 5ms` | time passes, and shards run at their deadlines |
//! | `jump 10s` | time passes, and shards run only at the end |
//! | `apart`, `pass`, `together` | messages between shards are held back; are delivered once; are delivered immediately again |
//! | `api {…}` | a request of the server API, to the owner or to all shards |
//! | `count FIELD …` | shows counters, summed over the shards |
//! | `reconfigure NAME=VALUE … -NAMESPACE` | changes these options and removes this namespace; on one shard only if the first word is `shard=0` |
//! | `holdings` | shows the numbers of sessions, local channels, owned channels and users of the shards |
//! | `drain` | the node shuts down |
//! | `drain 3` | each shard closes three sessions |
//! | `times 3 LINE` | repeats the line three times; `$i` is 1, 2, 3 and `$[N]` is a text of N letters |
//!
//! In input and output, `<NAME>` stands for the client id of a session, and `<E1>` for an epoch.

use std::fmt::Write;

use dunlin_engine::{
    Event, Options, Shard, ShardIndex, Wire,
    counters::{CounterMetric, Counters, NamespaceCounters},
    message::{Notice, ShardMessage},
};
use serde_json::Value;

use super::{Node, api, broadcasts, options, wire};

/// The cases of a file; text before the first case belongs to it.
pub fn cases(file: &str) -> Vec<&str> {
    let mut starts: Vec<usize> =
        file.match_indices("== ").map(|(at, _)| at).filter(|at| *at == 0 || file[..*at].ends_with('\n')).collect();
    if let Some(first) = starts.first_mut() {
        *first = 0;
    }
    starts.push(file.len());
    starts.windows(2).map(|pair| &file[pair[0]..pair[1]]).collect()
}

/// The first line in which the two differ.
pub fn difference(expected: &str, came: &str) -> String {
    let title = expected.lines().find(|line| line.starts_with("== ")).unwrap_or_default();
    let (mut one, mut other) = (expected.lines(), came.lines());
    for number in 1.. {
        match (one.next(), other.next()) {
            (None, None) => break,
            (expected, came) if expected != came => {
                return format!(
                    "{title}, line {number}\n  expected {expected:?}\n  came     {came:?}\n{came_all}",
                    came_all = came_after(came, &mut other)
                );
            }
            _ => {}
        }
    }
    format!("{title}: blank lines")
}

fn came_after<'a>(first: Option<&'a str>, rest: &mut std::str::Lines<'a>) -> String {
    let lines: Vec<&str> = first.into_iter().chain(rest).take(8).collect();
    format!("  | {}", lines.join("\n  | "))
}

/// Plays one case. Returns it with the output after each line.
pub fn play(case: &str) -> String {
    let mut player = Player {
        options: Options { version: "0", ..Options::default() },
        shards: 1,
        node: None,
        running: None,
        names: Vec::new(),
    };
    let mut transcript = String::new();
    for line in case.lines().filter(|line| !line.starts_with('<')) {
        transcript += line;
        transcript += "\n";
        if line.is_empty() || line.starts_with(['#', '=']) {
            continue;
        }
        for came in player.line(line) {
            writeln!(transcript, "< {came}").expect("a string takes everything");
        }
    }
    transcript
}

struct Player {
    options: Options,
    shards: u16,
    node: Option<Node>,
    /// The options that the node continued with after `reconfigure`.
    running: Option<Options>,
    /// Placeholders and the values they stand for.
    names: Vec<(String, String)>,
}

impl Player {
    fn line(&mut self, line: &str) -> Vec<String> {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            "shards" => self.shards = rest.parse().expect("a number"),
            "permissive" => options::permissive(&mut self.options),
            "options" => rest.split_whitespace().for_each(|setting| options::set(&mut self.options, setting)),
            "times" => {
                let (count, line) = rest.split_once(' ').expect("a number and a line");
                let count: usize = count.parse().expect("a number");
                return (1..=count).flat_map(|i| self.line(&line.replace("$i", &i.to_string()))).collect();
            }
            _ => {
                let meant = self.names.iter().fold(fill(rest), |text, (written, meant)| text.replace(written, meant));
                return self.act(first, &meant);
            }
        }
        Vec::new()
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each word")]
    fn act(&mut self, first: &str, rest: &str) -> Vec<String> {
        let node = self.node.get_or_insert_with(|| Node::new(self.shards, self.options.clone()));
        let mut shown = Vec::new();
        match first {
            "open" => {
                let mut words = rest.split(' ');
                let (name, encoding) = (words.next().expect("a name"), words.next().expect("an encoding"));
                let wire = match encoding {
                    "json" => Wire::WebSocketJson,
                    "protobuf" => Wire::WebSocketProtobuf,
                    name => Wire::ALL.into_iter().find(|wire| format!("{wire:?}") == name).expect("a wire"),
                };
                node.open_on(name, wire, words.next().map_or(0, |shard| shard.parse().expect("a shard")));
            }
            // The log is kept.
            "restart" => {
                let log = std::mem::take(&mut node.log);
                *node = Node { log, ..Node::new(self.shards, self.options.clone()) };
            }
            "wait" => node.wait(milliseconds(rest)),
            "jump" => node.jump(milliseconds(rest)),
            "apart" => node.holds_rings = true,
            "together" | "pass" => {
                node.holds_rings = false;
                node.settle();
                node.holds_rings = first == "pass";
            }
            "reconfigure" => {
                let only = rest.split_whitespace().find_map(|word| word.strip_prefix("shard="));
                let before = self.options.clone();
                for word in rest.split_whitespace().filter(|word| !word.starts_with("shard=")) {
                    match word.strip_prefix('-') {
                        Some(gone) => self.options.namespaces.retain(|namespace| namespace.name != gone),
                        None => options::set(&mut self.options, word),
                    }
                }
                let (next, held) = self.running.take().unwrap_or(before).succeeded_by(&self.options);
                shown.extend(held.iter().map(|held| format!("held {}: {}", held.name, held.why)));
                let next = std::sync::Arc::new(next);
                self.running = Some((*next).clone());
                let only = only.map(|shard| shard.parse::<u16>().expect("a shard"));
                for shard in (0..self.shards).filter(|shard| only.is_none_or(|only| only == *shard)) {
                    node.handle(shard, Event::Reconfigured { options: std::sync::Arc::clone(&next) });
                }
            }
            "api" => node.ask_api(&serde_json::from_str(rest).expect("JSON")),
            "drain" if !rest.is_empty() => (0..self.shards).for_each(|shard| {
                node.handle(shard, Event::DrainSome { sessions_max: rest.parse().expect("a number") });
            }),
            "lost" | "unfollowed" => (0..self.shards).for_each(|shard| {
                let channel = rest.into();
                let is_lost = first == "lost";
                let notice = if is_lost { Notice::PositionLost { channel } } else { Notice::FollowingLost { channel } };
                node.handle(shard, Event::Message { from: ShardIndex(0), message: ShardMessage::Notice(notice) });
            }),
            "node" => broadcasts::arrives(node, rest),
            "keys" => broadcasts::keys_arrive(node, rest),
            "hold" if rest == "following" => node.holds_following = true,
            "hold" if rest == "proposals" => node.log.hold(),
            "hold" if rest == "loads" => node.log.hold_loads(),
            "stored" => {
                let mut words = rest.split(' ');
                let channel = words.next().expect("a channel");
                words.for_each(|offset| node.log.store_elsewhere(channel, offset.parse().expect("an offset")));
            }
            "load" => {
                for (shard, effect) in node.log.take_held_loads() {
                    let event = node.log.read_for(effect);
                    node.handle(shard, event);
                }
            }
            "store" | "refuse" => {
                for (shard, event) in node.log.release(first == "refuse") {
                    node.handle(shard, event);
                }
            }
            "followed" => broadcasts::followed(node, rest),
            "elsewhere" => {
                let (user, sessions) = rest.split_once(' ').expect("a user and a number");
                let sessions = sessions.parse().expect("a number");
                for shard in 0..self.shards {
                    node.handle(shard, Event::UserSessionsElsewhere { user: user.into(), sessions });
                }
            }
            "find" => {
                let found = node.shards.iter().position(|shard| shard.find_session(rest).is_some());
                let events = dunlin_engine::shard_of_session(rest).map(|shard| usize::from(shard.0));
                shown.push(format!("found {found:?}, looked for on {events:?}"));
            }
            "drain" => (0..self.shards).for_each(|shard| node.handle(shard, Event::Drain)),
            "count" => shown.extend(rest.split(' ').map(|field| format!("{field} {}", count(&node.shards, field)))),
            "holdings" => {
                let sums = node.shards.iter().map(Shard::holdings);
                let sums = sums.fold([0; 4], |sums, more| std::array::from_fn(|place| sums[place] + more[place]));
                shown.push(format!("holdings {sums:?}"));
                let homes: usize = node.shards.iter().map(Shard::users_at_home).sum();
                shown.extend((homes > 0).then(|| format!("homes {homes}")));
            }
            name => client_acts(node, name, rest),
        }
        self.look();
        let node = self.node.as_mut().expect("made above");
        let mut came = Vec::new();
        for (name, client) in &mut node.clients {
            for thing in wire::take(client.wire, &mut client.received) {
                came.push(match thing {
                    wire::Came::Message(message) => format!("{name} {message}"),
                    wire::Came::Close(close) => format!("{name} close {close}"),
                    wire::Came::Pong(payload) => format!("{name} pong {payload}"),
                });
            }
        }
        came.append(&mut node.sent);
        came.extend(node.answers.drain(..).map(|answer| format!("api {}", api::answer_with_reason(&answer))));
        came.append(&mut shown);
        for line in &mut came {
            self.learn(line);
            *line = self.names.iter().fold(line.clone(), |text, (written, meant)| text.replace(meant, written));
        }
        came
    }

    /// Retries sockets that were full.
    fn look(&mut self) {
        let node = self.node.as_mut().expect("made before");
        let places: Vec<_> =
            node.clients.values().filter(|client| !client.is_gone).map(|client| client.place).collect();
        for place in places {
            node.write(place);
        }
    }

    /// Learns the ids and epochs in a line.
    fn learn(&mut self, line: &str) {
        let Some((name, message)) = line.split_once(' ') else { return };
        let Ok(message) = serde_json::from_str::<Value>(message) else { return };
        if let Some(client) = message["connect"]["client"].as_str() {
            self.names.push((format!("<{name}>"), client.to_owned()));
            if let Some(secret) = message["connect"]["session"].as_str() {
                self.names.push((format!("<{name}'s>"), secret.to_owned()));
            }
        }
        self.learn_epochs(&message);
    }

    fn learn_epochs(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(epoch) = fields.get("epoch").and_then(Value::as_str).filter(|epoch| !epoch.is_empty())
                    && !self.names.iter().any(|(_, meant)| meant == epoch)
                {
                    let number = self.names.iter().filter(|(written, _)| written.starts_with("<E")).count() + 1;
                    self.names.push((format!("<E{number}>"), epoch.to_owned()));
                }
                fields.values().for_each(|value| self.learn_epochs(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.learn_epochs(value)),
            _ => {}
        }
    }
}

fn client_acts(node: &mut Node, name: &str, what: &str) {
    let (shard, session) = node.client(name).place;
    let encoding = node.client(name).encoding;
    let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
    match verb {
        "raw" => node.receive(name, unescape(rest)),
        "ping" => node.handle(shard, Event::Pinged { session, payload: rest.as_bytes() }),
        "bye" => node.handle(shard, Event::CloseReceived { session, code: rest.parse().ok() }),
        "breaks" => {
            let (code, why) = rest.split_once(' ').expect("a code and a reason");
            let what = Box::leak(Box::from(why));
            node.handle(shard, Event::Violated { session, code: code.parse().expect("a code"), what });
        }
        "gone" => {
            node.client(name).is_gone = true;
            node.handle(shard, Event::Gone { session });
        }
        "takes" => node.client(name).room_bytes = rest.parse().unwrap_or(usize::MAX),
        "token" => node.answer(name, rest),
        "backend" => {
            let answer = serde_json::from_str(rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
            node.answer_backend(name, &answer);
        }
        _ => {
            let commands: Vec<Value> = what
                .split(" && ")
                .map(|text| serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}")))
                .collect();
            node.receive(name, wire::commands(encoding, &commands));
        }
    }
}

fn count(shards: &[Shard], field: &str) -> u64 {
    let (place, field) = field.split_once('.').unwrap_or(("", field));
    let one = |shard: &Shard| {
        let counters = shard.counters();
        if let Ok(namespace) = place.parse::<usize>() {
            let namespace = &counters.namespaces[namespace];
            if let Some(value) = metric(&NamespaceCounters::METRICS, namespace, field) {
                return value;
            }
            return match field {
                "suppressed_by_key" => namespace.suppressed[0],
                "suppressed_by_version" => namespace.suppressed[1],
                "keys_gathered" => namespace.keys_gathered,
                "keys_missed" => namespace.keys_missed,
                "answers_encoded" => namespace.answers_encoded,
                "answers_shared" => namespace.answers_shared,
                "recovered" => namespace.recovered,
                "unrecovered" => namespace.unrecovered,
                "subscriptions" => namespace.subscriptions,
                "paced_subscriptions" => namespace.paced_subscriptions,
                other => panic!("no counter {other} of a namespace"),
            };
        }
        if let Some(value) = metric(&Counters::METRICS, counters, field) {
            return value;
        }
        match field {
            "slow_bytes" => counters.slow_bytes,
            "channels_kept" => counters.channels_kept,
            "channels_refused" => counters.channels_refused.iter().sum(),
            "history_bytes" => counters.history_bytes,
            "slow_frames" => counters.slow_frames,
            "commands_refused" => counters.commands_refused,
            "connects_refused" => counters.connects_refused,
            "recoveries_refused" => counters.recoveries_refused,
            "written_bytes" => counters.written_bytes,
            other => panic!("no counter {other}"),
        }
    };
    shards.iter().map(one).sum()
}

/// The value of a counter that is a metric by itself.
fn metric<T>(metrics: &[CounterMetric<T>], counts: &T, field: &str) -> Option<u64> {
    metrics.iter().find(|metric| metric.field == field).map(|metric| (metric.value)(counts))
}

fn milliseconds(text: &str) -> u64 {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().expect("a number"),
        (None, Some(s)) => s.parse::<u64>().expect("a number") * 1_000,
        _ => panic!("{text} has no unit"),
    }
}

/// Replaces `$[N]` by N letters.
fn fill(text: &str) -> String {
    let mut filled = text.to_owned();
    while let Some(start) = filled.find("$[") {
        let end = start + filled[start..].find(']').expect("a closing bracket");
        let count: usize = filled[start + 2..end].parse().expect("a number");
        filled.replace_range(start..=end, &"x".repeat(count));
    }
    filled
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'\\', [b'n', after @ ..]) => {
                bytes.push(b'\n');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("a byte"));
                rest = after;
            }
            _ => bytes.push(*byte),
        }
    }
    bytes
}
