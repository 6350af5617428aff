//! Matchmaking queues while the creation of a world hangs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use dunlin::matchmaking::{self, MatchHandle, TicketAnswer, TicketCommand, TicketParams, TicketTarget};
use dunlin_config::{MatchSettings, RoomSettings, RoomsOptions};
use dunlin_engine::options::{NamespaceOptions, RoomLimits};
use dunlin_games::{BadParams, Crowd, Registry};
use dunlin_matchmaking::MatchRules;
use dunlin_rooms::Simulation;
use serde_json::{Value, json};

use crate::node::rig::{Rig, engine_options, wait_until};

/// A timeout that no test reaches.
const FOREVER_MS: u64 = 1_000_000_000;

/// The gates of constructors, by the number in their parameters.
static GATES: (Mutex<BTreeMap<u64, Gate>>, Condvar) = (Mutex::new(BTreeMap::new()), Condvar::new());

#[derive(Clone, Copy, Default)]
struct Gate {
    is_shut: bool,
    waiting: u32,
}

fn gates() -> MutexGuard<'static, BTreeMap<u64, Gate>> {
    GATES.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The constructor of a game, which blocks while its gate is shut.
fn gated(params: &Value) -> Result<Box<dyn Simulation>, BadParams> {
    let number = params["gate"].as_u64().expect("a number");
    let mut gates = gates();
    gates.entry(number).or_default().waiting += 1;
    let mut gates = GATES.1.wait_while(gates, |gates| gates[&number].is_shut).unwrap_or_else(PoisonError::into_inner);
    gates.entry(number).or_default().waiting -= 1;
    drop(gates);
    Ok(Box::new(Crowd::new(&Value::Null)?))
}

/// A node with a queue for rooms of two players.
struct Queue {
    gate: u64,
    handle: MatchHandle,
    rig: Rig,
}

impl Queue {
    fn start(tick_stuck_timeout_ms: u64) -> Self {
        let gate = {
            let mut gates = gates();
            let gate = gates.len() as u64;
            gates.insert(gate, Gate::default());
            gate
        };
        let mut engine = engine_options();
        engine.room_threads = 1;
        let (name, room) = ("arena".to_owned(), Some(RoomLimits::default()));
        engine.namespaces.push(NamespaceOptions { name, room, ..NamespaceOptions::default() });
        let settings = RoomSettings {
            simulation: "gated".to_owned(),
            params: json!({ "gate": gate }),
            empty_timeout_ms: FOREVER_MS,
            tick_stuck_timeout_ms,
            ..RoomSettings::default()
        };
        let rooms = RoomsOptions {
            registry: Arc::new(Registry::default().with("gated", gated)),
            namespaces: vec![None, Some(Arc::new(settings))],
            ..RoomsOptions::default()
        };
        let rig = Rig::with_rooms(engine, rooms);
        let queue = MatchSettings {
            namespace: "arena".to_owned(),
            channel_prefix: "arena:".to_owned(),
            rules: MatchRules {
                players_min: 1,
                players_max: 2,
                fill_wait_ms: 0,
                ticket_timeout_ms: FOREVER_MS,
                reserve_timeout_ms: FOREVER_MS,
                ..MatchRules::default()
            },
            allow_for_client: false,
            trust_client_skill: false,
            proxy: None,
            fill_opened_rooms: false,
            criteria_params: vec!["map".into()],
            region_param: Some("place".into()),
            tickets_per_second: 0,
            address_users_max: 0,
            binds_places: true,
            notify_prefix: None,
        };
        let task = matchmaking::prepare(&[queue], &[], 1, "", 0).expect("a queue");
        let handle = task.handle();
        rig.runtime.spawn(task.run(rig.node.clone(), "".into()));
        Self { gate, handle, rig }
    }

    fn set_shut(&self, is_shut: bool) {
        gates().entry(self.gate).or_default().is_shut = is_shut;
        GATES.1.notify_all();
    }

    fn waiting(&self) -> u32 {
        gates()[&self.gate].waiting
    }

    fn ask(&self, command: TicketCommand) -> TicketAnswer {
        self.rig.runtime.block_on(self.handle.ask(command)).expect("an answer")
    }

    /// Submits a ticket for a room with this map. Returns its name.
    fn submit(&self, user: &str, map: &str) -> String {
        let params = TicketParams {
            namespace: Some("arena".to_owned()),
            users: Some(vec![user.to_owned()]),
            criteria: Some(BTreeMap::from([("map".to_owned(), map.to_owned())])),
            ..TicketParams::default()
        };
        self.ask(params.into_command().expect("a good ticket")).ticket.expect("a name")
    }

    fn status(&self, ticket: &str) -> TicketAnswer {
        self.ask(TicketCommand::Status(TicketTarget::Named(ticket.parse().expect("a name"))))
    }

    /// Waits until a ticket has this status.
    fn wait_for(&self, ticket: &str, status: &str) -> TicketAnswer {
        let mut answer = self.status(ticket);
        wait_until(status, || {
            answer = self.status(ticket);
            answer.status == status
        });
        answer
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.set_shut(false);
    }
}

#[test]
fn queues_fill_other_rooms_while_a_world_hangs() {
    let queue = Queue::start(FOREVER_MS);
    let meadow = queue.wait_for(&queue.submit("ann", "meadow"), "placed").channel;
    queue.set_shut(true);
    let hangs = queue.submit("ben", "desert");
    // The queue answers requests while the constructor hangs.
    wait_until("the constructor", || queue.status(&hangs).status == "waiting" && queue.waiting() == 1);
    let placed = queue.wait_for(&queue.submit("cid", "meadow"), "placed").channel;
    assert_eq!(placed, meadow, "the room has a free place");
    assert_eq!((&*queue.status(&hangs).status, queue.waiting()), ("waiting", 1), "the other one is still being made");
    queue.set_shut(false);
    assert_ne!(queue.wait_for(&hangs, "placed").channel, meadow);
}

#[test]
fn a_hanging_opening_times_out() {
    let queue = Queue::start(100);
    let meadow = queue.wait_for(&queue.submit("ann", "meadow"), "placed").channel;
    queue.set_shut(true);
    // The ticket waits for another room until four rooms have failed.
    let ended = queue.wait_for(&queue.submit("ben", "desert"), "ended");
    assert_eq!(ended.reason.as_deref(), Some("room_failed"));
    assert_eq!(queue.wait_for(&queue.submit("cid", "meadow"), "placed").channel, meadow);
}

#[test]
fn a_room_gets_its_criteria_and_region() {
    let queue = Queue::start(FOREVER_MS);
    let params_of = |criteria: &[(&str, &str)], region: Option<&str>, user: &str| {
        let criteria = criteria.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let params = TicketParams {
            namespace: Some("arena".to_owned()),
            users: Some(vec![user.to_owned()]),
            criteria: Some(criteria.collect()),
            region: region.map(str::to_owned),
            ..TicketParams::default()
        };
        let ticket = queue.ask(params.into_command().expect("a good ticket")).ticket.expect("a name");
        let channel = queue.wait_for(&ticket, "placed").channel.expect("a room");
        let mut params = Value::Null;
        wait_until("the report of the room", || {
            let rooms = queue.rig.node.rooms();
            let room = rooms.iter().find(|room| *room.channel == *channel && !room.params.is_empty());
            params = room.map_or(Value::Null, |room| serde_json::from_str(&room.params).expect("JSON"));
            room.is_some()
        });
        params
    };
    let gate = queue.gate;
    // A criterion that is not in the list is not passed to the room.
    let both = params_of(&[("map", "a \"b\""), ("mode", "duel")], Some("eu"), "ann");
    assert_eq!(both, json!({ "gate": gate, "map": "a \"b\"", "place": "eu" }));
    assert_eq!(params_of(&[("mode", "duel")], None, "ben"), json!({ "gate": gate }));
}

on_io_uring![
    queues_fill_other_rooms_while_a_world_hangs,
    a_hanging_opening_times_out,
    a_room_gets_its_criteria_and_region,
];
