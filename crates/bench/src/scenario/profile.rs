//! A profile: the description of a scenario in TOML. `docs/load-testing.md` explains its keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::crew_commands::{CrewPlan, PlayPlan, SocketKind, Subscribe, Via};
use super::document::{Section, set, set_value, shown, suggestion};
use super::gate::Gate;
use super::stamp::STAMPED_BYTES_MIN;
use crate::commands::EncodingOption;
use crate::peer::PeerProtocol;

/// The profiles in `bench/scenarios`, which are part of this program.
const BUILT_IN: &[(&str, &str)] = &[
    ("capacity", include_str!("../../../../bench/scenarios/capacity.toml")),
    ("channels", include_str!("../../../../bench/scenarios/channels.toml")),
    ("channels-many", include_str!("../../../../bench/scenarios/channels-many.toml")),
    ("churn", include_str!("../../../../bench/scenarios/churn.toml")),
    ("durable-disk", include_str!("../../../../bench/scenarios/durable-disk.toml")),
    ("durable-disk-sync", include_str!("../../../../bench/scenarios/durable-disk-sync.toml")),
    ("durable-memory", include_str!("../../../../bench/scenarios/durable-memory.toml")),
    ("fanout", include_str!("../../../../bench/scenarios/fanout.toml")),
    ("idle", include_str!("../../../../bench/scenarios/idle.toml")),
    ("idle-many", include_str!("../../../../bench/scenarios/idle-many.toml")),
    ("idle-million", include_str!("../../../../bench/scenarios/idle-million.toml")),
    ("own-game", include_str!("../../../../bench/scenarios/own-game.toml")),
    ("publish", include_str!("../../../../bench/scenarios/publish.toml")),
    ("soak", include_str!("../../../../bench/scenarios/soak.toml")),
    ("spike", include_str!("../../../../bench/scenarios/spike.toml")),
];

const CONNECTIONS_MAX: u64 = 1_000_000;
const CHANNELS_MAX: u64 = 1_000_000;
/// Subscriptions of one client. More take too long in one greeting.
const SUBSCRIPTIONS_MAX: u64 = 10_000;
const RATE_MAX: f64 = 1e6;
const PAYLOAD_BYTES_MAX: u64 = 60_000;

/// A scenario, as its profile describes it.
#[derive(Debug)]
pub struct Profile {
    /// Its file's name without the ending.
    pub name: String,
    pub about: String,
    pub gates: Vec<Gate>,
    /// Stop after the first phase in which a gate is broken.
    pub stops_at_broken_gate: bool,
    /// Length of the intervals in which latencies are collected, and time between two samples of the server.
    pub interval: Duration,
    /// Settings of a fresh server, as `key=value`.
    pub server: Vec<String>,
    pub message: MessagePlan,
    pub channels: ChannelsPlan,
    pub crews: Vec<CrewPlan>,
    pub phases: Vec<PhasePlan>,
    /// The document after all changes, for the result.
    pub document: Table,
}

/// What clients send and receive.
#[derive(Debug)]
pub struct MessagePlan {
    pub encoding: EncodingOption,
    pub payload_bytes: usize,
    pub tls: bool,
    /// What another server speaks instead of the client protocol. Profiles have no key for it: `dunlin bench idle` sets it.
    pub speaks: Option<PeerProtocol>,
}

/// The channels of a run: their names are this one with a number.
#[derive(Debug)]
pub struct ChannelsPlan {
    pub name: String,
    pub count: u32,
}

/// A phase of the load.
#[derive(Debug, Clone)]
pub struct PhasePlan {
    pub name: String,
    pub duration: Duration,
    /// Whether its figures count.
    pub is_measured: bool,
    pub repeat: u32,
    /// Factor of the crews' rates of publications.
    pub rate: f64,
    /// The time in which the factor changes from that of the phase before.
    pub rise: Duration,
    /// Factor of the crews' churn.
    pub churn: f64,
    /// Connections of crews, by name. They stay for later phases.
    pub connections: BTreeMap<String, u64>,
}

/// Names of the built-in profiles.
pub fn built_in_names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// A profile before it is checked.
struct Document {
    name: String,
    table: Table,
}

impl Document {
    /// Reads a file, or a built-in profile by its name.
    fn load(source: &str, is_short: bool) -> Result<Self, String> {
        let built_in = BUILT_IN.iter().find(|(name, _)| *name == source);
        let (name, text) = match built_in {
            Some((name, text)) => ((*name).to_owned(), (*text).to_owned()),
            None if !is_toml(source) => {
                let remedy = suggestion(source, &built_in_names());
                return Err(format!("there is no profile {source}; {remedy} A file's name ends with .toml"));
            }
            None => {
                let text = fs::read_to_string(source).map_err(|err| format!("could not read {source}: {err}"))?;
                let stem = Path::new(source).file_stem().unwrap_or_default();
                (stem.to_string_lossy().into_owned(), text)
            }
        };
        Document::parse(name, &text, is_short).map_err(|why| format!("profile {source}: {why}"))
    }

    fn parse(name: String, text: &str, is_short: bool) -> Result<Self, String> {
        let mut table: Table = text.parse().map_err(|err: toml::de::Error| err.to_string().trim().to_owned())?;
        let short = table.remove("short");
        if let Some(short) = short.as_ref().filter(|_| is_short) {
            let short = short.as_table().ok_or("short is no table: write [short]")?;
            for (path, value) in short {
                set_value(&mut table, path, value.clone()).map_err(|why| format!("short: {why}"))?;
            }
        }
        Ok(Document { name, table })
    }

    /// The phases and gates of this one with everything else from another one. Its crews have the connections of its last
    /// phase, and its gates about phases are left out.
    fn on(self, load: Document) -> Document {
        let mut table = load.table;
        let last = |crew: &str| {
            let mut phases = table.get("phase").and_then(Value::as_array).into_iter().flatten().rev();
            phases.find_map(|phase| phase.get("connections")?.get(crew)).cloned()
        };
        let named = |crew: &Value| crew.get("name").and_then(Value::as_str).map(ToOwned::to_owned);
        let crews = table.get("crew").and_then(Value::as_array).into_iter().flatten();
        let connections: Vec<_> = crews.map(|crew| last(&named(crew)?)).collect();
        let crews = table.get_mut("crew").and_then(Value::as_array_mut).into_iter().flatten();
        for (crew, connections) in crews.zip(connections) {
            if let (Some(crew), Some(connections)) = (crew.as_table_mut(), connections) {
                crew.insert("connections".to_owned(), connections);
            }
        }
        let text = |table: &Table, key: &str| table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let of_load = text(&table, "gates");
        let of_load = of_load.split(',').filter(|gate| !Gate::text_names_phase(gate));
        let of_phases = text(&self.table, "gates");
        let mut gates: Vec<&str> = of_load.chain(of_phases.split(',')).map(str::trim).collect();
        gates.sort_unstable();
        gates.dedup();
        let (phases_of, load_of) = (text(&self.table, "about"), text(&table, "about"));
        let about = format!("Phases of {}: {phases_of}. Load of {}: {load_of}", self.name, load.name);
        let gates = gates.into_iter().filter(|gate| !gate.is_empty()).collect::<Vec<_>>().join(",");
        table.insert("about".to_owned(), Value::String(about));
        table.remove("gates");
        table.extend((!gates.is_empty()).then(|| ("gates".to_owned(), Value::String(gates))));
        for key in ["phase", "stop_at_broken_gate"] {
            table.remove(key);
            table.extend(self.table.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        Document { name: format!("{}-on-{}", self.name, load.name), table }
    }
}

impl Profile {
    /// Reads a profile. `changes` are `key=value`; with `is_short`, the profile's own changes for a short run come before
    /// them.
    pub fn load(source: &str, is_short: bool, changes: &[String]) -> Result<Profile, String> {
        let document = Document::load(source, is_short)?;
        Profile::of(document, changes).map_err(|why| format!("profile {source}: {why}"))
    }

    /// The phases and gates of one profile with the load of another one.
    pub fn load_on(source: &str, load: &str, is_short: bool, changes: &[String]) -> Result<Profile, String> {
        let document = Document::load(source, is_short)?.on(Document::load(load, is_short)?);
        Profile::of(document, changes).map_err(|why| format!("profile {source} on {load}: {why}"))
    }

    /// Reads a profile that is not in a file.
    pub fn parse(name: &str, text: &str, changes: &[String]) -> Result<Profile, String> {
        let of = |document| Profile::of(document, changes);
        Document::parse(name.to_owned(), text, false).and_then(of).map_err(|why| format!("profile {name}: {why}"))
    }

    fn of(mut document: Document, changes: &[String]) -> Result<Profile, String> {
        for change in changes {
            let (path, value) = change.split_once('=').ok_or_else(|| format!("--set {change}: give KEY=VALUE"))?;
            set(&mut document.table, path.trim(), value.trim()).map_err(|why| format!("--set {change}: {why}"))?;
        }
        let mut profile = read(&document.name, &Section::new("", &document.table))?;
        profile.document = document.table;
        profile.check()?;
        Ok(profile)
    }

    /// The connections of a crew in a phase: those of the last phase that names the crew, or else those of the crew.
    pub fn connections(&self, crew: &CrewPlan, phase: usize) -> u64 {
        let before = self.phases.iter().take(phase + 1).rev();
        before.filter_map(|phase| phase.connections.get(&crew.name)).copied().next().unwrap_or(crew.connections)
    }

    /// Whether the number of connections differs between phases, so that memory per connection is a figure.
    pub fn connections_vary(&self) -> bool {
        self.phases.iter().skip(1).any(|phase| !phase.connections.is_empty())
    }

    /// The largest number of connections of a crew.
    pub fn connections_max(&self, crew: &CrewPlan) -> u64 {
        (0..self.phases.len()).map(|phase| self.connections(crew, phase)).max().unwrap_or(0)
    }

    fn check(&self) -> Result<(), String> {
        let names: Vec<&str> = self.crews.iter().map(|crew| crew.name.as_str()).collect();
        distinct("crew", &names)?;
        distinct("phase", &self.phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>())?;
        for phase in &self.phases {
            if let Some(crew) = phase.connections.keys().find(|crew| !names.contains(&crew.as_str())) {
                let remedy = suggestion(crew, &names);
                return Err(format!("phase.{}.connections names no crew {crew}; {remedy}", phase.name));
            }
        }
        for crew in &self.crews {
            self.check_crew(crew)?;
        }
        for gate in &self.gates {
            self.check_gate(gate)?;
        }
        if !self.phases.iter().any(|phase| phase.is_measured) {
            return Err("no phase is measured; remove measure = false from one".to_owned());
        }
        Ok(())
    }

    /// A gate of a phase names a measured one: otherwise nothing is there to be checked.
    pub fn check_gate(&self, gate: &Gate) -> Result<(), String> {
        let Some(named) = &gate.phase else { return Ok(()) };
        match self.phases.iter().find(|phase| phase.name == *named) {
            Some(phase) if phase.is_measured => Ok(()),
            Some(_) => Err(format!(
                "gate {}: phase {named} is not measured; remove its measure = false, or name another phase",
                String::from(gate.clone())
            )),
            None => {
                let phases: Vec<&str> = self.phases.iter().map(|phase| phase.name.as_str()).collect();
                let remedy = suggestion(named, &phases);
                Err(format!("gate {}: there is no phase {named}; {remedy}", String::from(gate.clone())))
            }
        }
    }

    fn check_crew(&self, crew: &CrewPlan) -> Result<(), String> {
        let at = format!("crew.{}", crew.name);
        let subscriptions = match crew.subscribe {
            Subscribe::None => 0,
            Subscribe::All => self.channels.count,
            Subscribe::Single => 1,
            Subscribe::Random => crew.channels_per_client,
        };
        if u64::from(subscriptions) > SUBSCRIPTIONS_MAX {
            return Err(format!(
                "{at} subscribes to {subscriptions} channels; at most {SUBSCRIPTIONS_MAX} are possible"
            ));
        }
        if crew.subscribe == Subscribe::Random && crew.channels_per_client > self.channels.count {
            return Err(format!("{at}.channels_per_client is more than channels.count = {}", self.channels.count));
        }
        if crew.publish > 0.0 {
            let varies = self.phases.iter().any(|phase| phase.connections.contains_key(&crew.name));
            if crew.churn > 0.0 || varies {
                return Err(format!(
                    "{at} publishes, so its connections stay: remove its churn and its connections in phases"
                ));
            }
            if crew.connections == 0 {
                return Err(format!("{at} publishes, but has no connections"));
            }
        }
        if crew.play.is_some() && (crew.subscribe != Subscribe::None || crew.publish > 0.0 || crew.via == Via::Api) {
            return Err(format!("{at} plays in a room: remove its subscribe, publish and via"));
        }
        let only_receives = crew.publish <= 0.0 && crew.play.is_none() && crew.via == Via::Client;
        if crew.sockets == SocketKind::Direct && !only_receives {
            return Err(format!(
                "{at}: clients with direct sockets only receive: give sockets = \"descriptors\", or remove its publish, \
                 room and via"
            ));
        }
        if crew.via == Via::Api && crew.subscribe != Subscribe::None {
            return Err(format!("{at} uses the HTTP API, so it cannot subscribe: give subscribe = \"none\""));
        }
        Ok(())
    }
}

fn distinct(kind: &str, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("there is no {kind}; write [[{kind}]]"));
    }
    for (at, name) in names.iter().enumerate() {
        let is_fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_fit) {
            return Err(format!("{kind} {name:?}: a name has a-z, 0-9, - and _"));
        }
        if names[..at].contains(name) {
            return Err(format!("two {kind}s are named {name}"));
        }
    }
    Ok(())
}

fn read(name: &str, root: &Section<'_>) -> Result<Profile, String> {
    let about = root.text("about")?.unwrap_or_default().to_owned();
    let gates = root.text("gates")?.map_or(Ok(Vec::new()), Gate::parse_all)?;
    let stops_at_broken_gate = root.flag("stop_at_broken_gate")?.unwrap_or(false);
    let interval = root.duration("interval")?.unwrap_or(Duration::from_millis(500));
    if interval < Duration::from_millis(10) {
        return Err("interval: give at least 10ms".to_owned());
    }
    let mut server = Vec::new();
    if let Some(table) = root.table("server")? {
        flatten("", table, &mut server);
    }
    let (message, channels) = (read_message(root)?, read_channels(root)?);
    let crews = root.tables("crew")?.into_iter().map(|section| read_crew(&section)).collect::<Result<_, _>>()?;
    let phases = root.tables("phase")?.into_iter().map(|section| read_phase(&section)).collect::<Result<_, _>>()?;
    let profile = Profile {
        name: name.to_owned(),
        about,
        gates,
        stops_at_broken_gate,
        interval,
        server,
        message,
        channels,
        crews,
        phases,
        document: Table::new(),
    };
    root.finish()?;
    Ok(profile)
}

fn read_message(root: &Section<'_>) -> Result<MessagePlan, String> {
    let empty = Table::new();
    let message = Section::new("message", root.table("message")?.unwrap_or(&empty));
    let encodings = [("json", EncodingOption::Json), ("protobuf", EncodingOption::Protobuf)];
    let encoding = message.choice("encoding", &encodings)?.unwrap_or(EncodingOption::Json);
    let payload_bytes = message.count("bytes", STAMPED_BYTES_MIN as u64, PAYLOAD_BYTES_MAX)?.unwrap_or(128) as usize;
    let tls = message.flag("tls")?.unwrap_or(false);
    message.finish()?;
    Ok(MessagePlan { encoding, payload_bytes, tls, speaks: None })
}

fn read_channels(root: &Section<'_>) -> Result<ChannelsPlan, String> {
    let empty = Table::new();
    let channels = Section::new("channels", root.table("channels")?.unwrap_or(&empty));
    let name = channels.text("name")?.unwrap_or("bench").to_owned();
    let count = channels.count("count", 1, CHANNELS_MAX)?.unwrap_or(1) as u32;
    channels.finish()?;
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_:.-".contains(c)) {
        return Err(format!("channels.name = {name:?}: give letters, digits and _ : . -"));
    }
    Ok(ChannelsPlan { name, count })
}

/// Whether this is the name of a file with a profile.
pub fn is_toml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

fn read_crew(section: &Section<'_>) -> Result<CrewPlan, String> {
    let name = section.text("name")?.ok_or_else(|| format!("{} is missing", section.path_of("name")))?;
    let modes = [
        ("none", Subscribe::None),
        ("all", Subscribe::All),
        ("single", Subscribe::Single),
        ("random", Subscribe::Random),
    ];
    let sockets = [("descriptors", SocketKind::Descriptors), ("direct", SocketKind::Direct)];
    let crew = CrewPlan {
        name: name.to_owned(),
        connections: section.count("connections", 0, CONNECTIONS_MAX)?.unwrap_or(1),
        connect_rate: section.number("connect_rate", RATE_MAX)?.filter(|&rate| rate > 0.0),
        subscribe: section.choice("subscribe", &modes)?.unwrap_or(Subscribe::None),
        channels_per_client: section.count("channels_per_client", 1, SUBSCRIPTIONS_MAX)?.unwrap_or(1) as u32,
        churn: section.number("churn", RATE_MAX)?.unwrap_or(0.0),
        publish: section.number("publish", RATE_MAX)?.unwrap_or(0.0),
        via: section.choice("via", &[("client", Via::Client), ("api", Via::Api)])?.unwrap_or(Via::Client),
        sockets: section.choice("sockets", &sockets)?.unwrap_or(SocketKind::Descriptors),
        play: read_play(section)?,
        workers: section.count("workers", 1, 60)?,
    };
    section.finish()?;
    Ok(crew)
}

/// The keys of crews in rooms.
fn read_play(section: &Section<'_>) -> Result<Option<PlayPlan>, String> {
    let room = section.text("room")?;
    let wrong = |key: &str, remedy: &str| format!("{}: {remedy}", section.path_of(key));
    let join = section.text("join")?;
    if join.is_some_and(|join| serde_json::from_str::<serde_json::Value>(join).is_err()) {
        return Err(wrong("join", "give a JSON document as a text, such as '{\"name\":\"bot\"}'"));
    }
    let inputs = section.number("inputs", RATE_MAX)?;
    let input = |value: &Value| match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Array(bytes) => bytes.iter().map(|byte| u8::try_from(byte.as_integer()?).ok()).collect(),
        _ => None,
    };
    let script: Option<Vec<Vec<u8>>> = section.list("script")?.iter().map(input).collect();
    let script =
        script.ok_or_else(|| wrong("script", "give each input as a text or as a list of bytes, [[0, 5], [1]]"))?;
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let expect: Option<Vec<String>> = section.list("expect")?.iter().map(text).collect();
    let expect = expect.ok_or_else(|| wrong("expect", "give a list of texts"))?;
    let Some(room) = room else {
        let given = [("join", join.is_some()), ("inputs", inputs.is_some()), ("script", !script.is_empty())];
        return match given.into_iter().chain([("expect", !expect.is_empty())]).find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(wrong(key, "give the channel of the room as well, room = \"game:1\"")),
            None => Ok(None),
        };
    };
    if inputs.is_some() && script.is_empty() {
        return Err(wrong("inputs", "give the inputs as well, script = [[0, 5], [1]]"));
    }
    let join = join.map(ToOwned::to_owned);
    Ok(Some(PlayPlan { room: room.to_owned(), join, inputs: inputs.unwrap_or(0.0), script, expect }))
}

fn read_phase(section: &Section<'_>) -> Result<PhasePlan, String> {
    let name = section.text("name")?.ok_or_else(|| format!("{} is missing", section.path_of("name")))?;
    let duration =
        section.duration("duration")?.ok_or_else(|| format!("{} is missing", section.path_of("duration")))?;
    let mut connections = BTreeMap::new();
    for (crew, value) in section.table("connections")?.into_iter().flatten() {
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|&number| number <= CONNECTIONS_MAX).ok_or_else(|| {
            format!(
                "{}.{crew} = {}: give a whole number from 0 to {CONNECTIONS_MAX}",
                section.path_of("connections"),
                shown(value)
            )
        })?;
        connections.insert(crew.clone(), number);
    }
    let phase = PhasePlan {
        name: name.to_owned(),
        duration,
        is_measured: section.flag("measure")?.unwrap_or(true),
        repeat: section.count("repeat", 1, 1000)?.unwrap_or(1) as u32,
        rate: section.number("rate", 1e4)?.unwrap_or(1.0),
        rise: section.duration("rise")?.unwrap_or_default(),
        churn: section.number("churn", 1e4)?.unwrap_or(1.0),
        connections,
    };
    section.finish()?;
    Ok(phase)
}

/// The settings of a table as `key=value`.
fn flatten(path: &str, table: &Table, settings: &mut Vec<String>) {
    for (key, value) in table {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Table(inner) => flatten(&path, inner, settings),
            Value::String(text) => settings.push(format!("{path}={text}")),
            value => settings.push(format!("{path}={}", serde_json::json!(value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "gates = \"lost=0\"\n[server]\nclient.channel_limit = 500\n[channels]\ncount = 10\n\
        [[crew]]\nname = \"audience\"\nconnections = 5\nsubscribe = \"random\"\nchannels_per_client = 3\n\
        [[crew]]\nname = \"press\"\npublish = 2.5\n\
        [[phase]]\nname = \"warm\"\nduration = \"1s\"\nmeasure = false\nconnections = { audience = 2 }\n\
        [[phase]]\nname = \"hold\"\nduration = \"10s\"\n[[phase]]\nname = \"more\"\nduration = \"10s\"\nconnections = { audience = 9 }\n\
        [short]\n\"phase.hold.duration\" = \"1s\"\n";

    fn parse(changes: &[&str]) -> Result<Profile, String> {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        Profile::of(Document::parse("p".to_owned(), TEXT, false)?, &changes)
    }

    #[test]
    fn a_profile_is_read_with_its_changes() {
        let profile = parse(&["crew.press.publish=5"]).unwrap();
        assert_eq!(profile.server, ["client.channel_limit=500"]);
        assert_eq!((profile.channels.count, profile.crews[0].subscribe), (10, Subscribe::Random));
        assert!((profile.crews[1].publish - 5.0).abs() < 1e-9);
        let connections = |phase| profile.connections(&profile.crews[0], phase);
        assert_eq!((connections(0), connections(1), connections(2)), (2, 2, 9));
        assert_eq!(profile.connections_max(&profile.crews[0]), 9);
        assert_eq!(profile.phases[1].duration, Duration::from_secs(10));
        let short = Document::parse("p".to_owned(), TEXT, true).unwrap();
        let short = Profile::of(short, &["phase.warm.duration=2s".to_owned()]).unwrap();
        assert_eq!(short.phases[1].duration, Duration::from_secs(1));
        assert_eq!(short.phases[0].duration, Duration::from_secs(2));
    }

    #[test]
    fn the_phases_of_one_profile_run_with_the_load_of_another_one() {
        let load = Document::parse("p".to_owned(), TEXT, false).unwrap();
        let phases = "about = \"Tenfold\"\ngates = \"peak.p99<1s,lost=0\"\n[[crew]]\nname = \"own\"\n\
            [[phase]]\nname = \"calm\"\nduration = \"1s\"\n[[phase]]\nname = \"peak\"\nduration = \"1s\"\nrate = 10\n";
        let phases = Document::parse("tenfold".to_owned(), phases, false).unwrap();
        let mixed = Profile::of(phases.on(load), &["gates=calm.lost=0".to_owned()]).unwrap();
        assert_eq!(
            (mixed.name.as_str(), mixed.about.as_str()),
            ("tenfold-on-p", "Phases of tenfold: Tenfold. Load of p: ")
        );
        let names: Vec<&str> = mixed.crews.iter().map(|crew| crew.name.as_str()).collect();
        assert_eq!(names, ["audience", "press"]);
        assert_eq!(mixed.crews[0].connections, 9, "those of the last phase of the load");
        assert_eq!(mixed.phases.iter().map(|phase| phase.rate).collect::<Vec<_>>(), [1.0, 10.0]);
        assert_eq!((mixed.server.len(), mixed.channels.count), (1, 10));
    }

    #[test]
    fn the_spike_runs_on_every_built_in_load() {
        for load in built_in_names() {
            let mixed = Profile::load_on("spike", load, true, &[]).unwrap();
            let spike = mixed.phases.iter().find(|phase| phase.name == "spike").unwrap();
            assert!((spike.rate - 10.0).abs() < 1e-9 && spike.rise == Duration::from_millis(500), "{load}");
            let gates: Vec<String> = mixed.gates.iter().cloned().map(String::from).collect();
            assert!(gates.contains(&"spike.p99<168ms".to_owned()), "{load}: {gates:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (change, expected) in [
            ("gate=lost=0", "gate is unknown; did you mean gates?"),
            ("crew.press.publishes=1", "crew.press.publishes is unknown; did you mean publish?"),
            ("phase.hold.mesure=true", "phase.hold.mesure is unknown; did you mean measure?"),
            ("message.byte=128", "message.byte is unknown; did you mean bytes?"),
            ("message.bytes=10", "message.bytes = 10: give a whole number from 74 to 60000"),
            ("crew.press.churn=1", "crew.press publishes, so its connections stay"),
            ("crew.press.via=api", ""),
            ("crew.audience.via=api", "crew.audience uses the HTTP API"),
            ("crew.audience.room=game:1", "crew.audience plays in a room: remove its subscribe"),
            ("crew.audience.sockets=direct", ""),
            ("crew.press.sockets=direct", "crew.press: clients with direct sockets only receive"),
            ("crew.press.sockets=indirect", "give descriptors, direct"),
            ("crew.audience.inputs=5", "crew.audience.inputs: give the channel of the room as well"),
            ("crew.audience.script=[[300]]", "crew.audience.script: give each input as a text or as a list of bytes"),
            ("crew.audience.join={", "crew.audience.join: give a JSON document"),
            ("crew.audience.channels_per_client=11", "is more than channels.count = 10"),
            ("crew.audience.subscribe=some", "give none, all, single, random"),
            ("phase.hold.connections={ audiense = 3 }", "names no crew audiense; did you mean audience?"),
            ("phase.hold.name=warm", "two phases are named warm"),
            ("gates=warm.p99<5ms", "phase warm is not measured"),
            ("gates=", "gate \"\": write FIGURE<VALUE"),
            ("gates=hodl.p99<5ms", "there is no phase hodl; did you mean hold?"),
            ("crew.audience", "give KEY=VALUE"),
            ("phase.none.rate=1", "there is no phase.none"),
        ] {
            let found = parse(&[change]).err().unwrap_or_default();
            assert!(found.contains(expected) && (found.is_empty() == expected.is_empty()), "{change}: {found}");
        }
    }

    #[test]
    fn each_file_of_the_folder_is_built_in_and_valid_also_in_short() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/scenarios");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = files.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
        names.sort();
        assert_eq!(names, built_in_names());
        for name in names {
            for is_short in [false, true] {
                let profile = Profile::load(&name, is_short, &[]).unwrap();
                assert!(!profile.about.is_empty(), "{name} says what it is for");
                let gates: Vec<String> = profile.gates.iter().cloned().map(String::from).collect();
                for gate in ["connect_failed=0", "closed=0"] {
                    assert!(
                        gates.iter().any(|one| one == gate),
                        "{name}: without {gate}, clients that are gone lose nothing"
                    );
                }
            }
        }
        let error = Profile::load("capasity", false, &[]).unwrap_err();
        assert!(error.contains("did you mean capacity?"), "{error}");
    }
}
