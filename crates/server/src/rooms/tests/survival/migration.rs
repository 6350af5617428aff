//! Stored rooms whose game has changed since.

use dunlin_config::RoomsOptions;
use dunlin_games::{Make, Registry};
use dunlin_rooms::{
    GridShape, InputError, NewObject, NotMigrated, OldRoom, PlayerId, Position, Refusal, RestoreError, RoomOverrides,
    Simulation, Visibility, Visitor, World,
};
use serde_json::{Value, json};

use super::*;

/// A game that counts its ticks, and tells everybody its version, its parameters and the count.
struct Ledger {
    version: u32,
    migrates: Migrates,
    params: Value,
    count: u32,
}

#[derive(Clone, Copy)]
enum Migrates {
    Never,
    /// The count is negative from now on.
    Negates,
    Refuses,
    Panics,
    /// It saves what it refuses to restore.
    CannotReadItself,
}

impl Simulation for Ledger {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 100, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let object = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state: b"" };
        let avatar = world.spawn(object).expect("there is room");
        world.set_avatar(player, Some(avatar));
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        self.count = self.count.wrapping_add(1);
        let told = json!({ "version": self.version, "params": self.params, "count": self.count.cast_signed() });
        world.publish("told", &told.to_string()).expect("there is room");
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        if matches!(self.migrates, Migrates::CannotReadItself) {
            out.push(0);
        }
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.count = u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?);
        Ok(())
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn migrate(&mut self, _: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
        match self.migrates {
            Migrates::Never => return Err(NotMigrated::Unsupported),
            Migrates::Refuses => return Err(NotMigrated::Unusable("a round runs".into())),
            Migrates::Panics => panic!("on purpose"),
            Migrates::Negates | Migrates::CannotReadItself => {}
        }
        self.restore(old.saved)?;
        self.count = self.count.wrapping_neg();
        Ok(())
    }
}

const FIRST: Make = |params| Ok(Box::new(Ledger { version: 1, ..second(params, Migrates::Never) }));
/// As the first one, with a migration for other parameters.
const FIRST_WITH: Make = |params| Ok(Box::new(Ledger { version: 1, ..second(params, Migrates::Negates) }));
const SECOND: Make = |params| Ok(Box::new(second(params, Migrates::Negates)));
const SECOND_WITHOUT: Make = |params| Ok(Box::new(second(params, Migrates::Never)));
const SECOND_THAT_REFUSES: Make = |params| Ok(Box::new(second(params, Migrates::Refuses)));
const SECOND_THAT_PANICS: Make = |params| Ok(Box::new(second(params, Migrates::Panics)));
const SECOND_THAT_CANNOT_READ_ITSELF: Make = |params| Ok(Box::new(second(params, Migrates::CannotReadItself)));

fn second(params: &Value, migrates: Migrates) -> Ledger {
    Ledger { version: 2, migrates, params: params.clone(), count: 0 }
}

fn ledger(survival: RoomSurvival) -> RoomSettings {
    // With this interval, the only checkpoints are those at the begin and at a clean stop.
    let checkpoint_interval_ms = 1_000_000;
    RoomSettings { simulation: "ledger".to_owned(), checkpoint_interval_ms, ..kept(survival) }
}

/// A node whose game is this one.
fn node_with(storage: &Arc<NodeStorage>, settings: RoomSettings, make: Make) -> Rig {
    let registry = Arc::new(Registry::default().with("ledger", make));
    let options = RoomsOptions { registry, ..options(vec![settings]) };
    Rig::with_storage(1, 1, options, Some(Arc::clone(storage)))
}

/// The same, and its room.
fn start_with(storage: &Arc<NodeStorage>, settings: RoomSettings, make: Make) -> (Rig, RoomKey) {
    let mut rig = node_with(storage, settings, make);
    let room = rig.open(0, "a");
    (rig, room)
}

/// What the game tells next after it has counted to `count`, in either direction.
fn told(rig: &mut Rig, count: i64) -> Value {
    let mut told = Value::Null;
    rig.take_until("what the game tells", |message| {
        let FromRoom::Publish { data, .. } = message else { return false };
        told = serde_json::from_slice(data.bytes()).expect("JSON");
        told["count"].as_i64().is_some_and(|counted| counted.abs() >= count)
    });
    told
}

/// The room cannot be restored.
fn see_refused(mut rig: Rig, storage: &Arc<NodeStorage>) {
    wait_until("the room to be refused", || survival(&rig).not_restored > 0);
    let refused = loop {
        let room = rig.open(0, "a");
        let ann = rig.join(room, "ann");
        match rig.wait_joined(ann) {
            Err(NotJoined::Refused(refusal)) => break refusal,
            // The room failed before the join arrived.
            Err(NotJoined::Gone | NotJoined::Unavailable) => {}
            outcome => panic!("{outcome:?}"),
        }
    };
    assert_eq!((refused.code, &*refused.message), (400, "the room cannot be restored"));
    end(rig, storage);
}

/// The storage of a node that was killed: later writes of its threads are lost.
fn crash(directory: &Directory, rig: Rig, storage: Arc<NodeStorage>) -> Arc<NodeStorage> {
    storage.storage().close();
    drop((rig, storage));
    loop {
        // The directory stays locked until the threads of the node have ended.
        match NodeStorage::open(&StorageOptions::at(&directory.0), ShardQueues::new(1)) {
            Ok((storage, _)) => return Arc::new(storage),
            Err(error) if error.fault.label() == "locked" => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_room_continues_with_the_next_version_after_a_clean_stop() {
    for mode in [RoomSurvival::Checkpoint, RoomSurvival::Exact] {
        let directory = Directory::new();
        let storage = directory.open();
        let (mut rig, room) = start_with(&storage, ledger(mode), FIRST);
        let ann = join_as(&mut rig, room, "", 7, None);
        assert_eq!(rig.wait_joined(ann), Ok(()));
        let (_, avatar) = see_player(&mut rig, ann);
        let before = told(&mut rig, 20);
        assert_eq!(before["version"], 1);
        end(rig, &storage);
        drop(storage);

        let storage = directory.open();
        let (mut rig, room) = start_with(&storage, ledger(mode), SECOND);
        let ann = join_as(&mut rig, room, "", 8, Some(SeatToken(7)));
        assert_eq!(rig.wait_joined(ann), Ok(()));
        let (_, again) = see_player(&mut rig, ann);
        assert_eq!(again, avatar, "{mode:?}: the player is back");
        let after = told(&mut rig, 1);
        assert_eq!(after["version"], 2);
        assert!(after["count"].as_i64() < Some(0), "{mode:?}: {after} after {before}");
        let report = survival(&rig);
        assert_eq!((report.migrated, report.restored, report.not_restored), (1, 0, 0), "{mode:?}");
        // From now on, the room is of the second version: after a crash as well.
        wait_until("the checkpoint of the second version", || survival(&rig).checkpoints > 0);
        let storage = crash(&directory, rig, storage);
        let (rig, _) = start_with(&storage, ledger(mode), SECOND_WITHOUT);
        wait_until("the room to be restored", || survival(&rig).restored == 1);
        end(rig, &storage);
    }
}

#[test]
fn a_room_that_is_not_migrated_stays_as_it_was() {
    for make in [SECOND_WITHOUT, SECOND_THAT_REFUSES, SECOND_THAT_PANICS, SECOND_THAT_CANNOT_READ_ITSELF] {
        let directory = Directory::new();
        let storage = directory.open();
        let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), FIRST);
        told(&mut rig, 20);
        end(rig, &storage);
        drop(storage);
        let storage = directory.open();
        let (rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), make);
        see_refused(rig, &storage);
        drop(storage);
        let storage = directory.open();
        let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), FIRST);
        let after = told(&mut rig, 1);
        assert!(after["count"].as_i64() > Some(20), "{after}");
        end(rig, &storage);
    }
}

#[test]
fn a_log_of_other_rules_is_not_given_up_unasked() {
    let directory = Directory::new();
    let storage = directory.open();
    let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), FIRST);
    told(&mut rig, 40);
    let storage = crash(&directory, rig, storage);
    let (rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), SECOND);
    see_refused(rig, &storage);
    drop(storage);
    // The version that ran the ticks can replay them, and its clean stop leaves no log.
    let storage = directory.open();
    let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), FIRST);
    told(&mut rig, 41);
    end(rig, &storage);
    drop(storage);
    let storage = directory.open();
    let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), SECOND);
    let after = told(&mut rig, 1);
    assert!(after["count"].as_i64() < Some(0), "{after}");
    assert_eq!(survival(&rig).migrated, 1);
    end(rig, &storage);
}

#[test]
fn an_operator_may_give_up_a_log_of_other_rules() {
    let directory = Directory::new();
    let storage = directory.open();
    let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), FIRST);
    told(&mut rig, 40);
    let storage = crash(&directory, rig, storage);
    let (mut rig, _) = start_with(&storage, ledger(RoomSurvival::Checkpoint), SECOND);
    let after = told(&mut rig, 0);
    assert!(after["count"].as_i64().is_some_and(|count| count.abs() < 40), "{after}: at the checkpoint");
    assert_eq!(survival(&rig).migrated, 1);
    wait_until("the checkpoint of the second version", || survival(&rig).checkpoints > 0);
    let storage = crash(&directory, rig, storage);
    // Nothing of the old log follows.
    let (rig, _) = start_with(&storage, ledger(RoomSurvival::Exact), SECOND);
    wait_until("the room to be restored", || survival(&rig).restored == 1);
    assert_eq!(survival(&rig).replayed_ticks, 0);
    end(rig, &storage);
}

#[test]
fn a_room_keeps_its_own_parameters_when_the_configured_ones_change() {
    let with = |params: Value| RoomSettings { params, ..ledger(RoomSurvival::Exact) };
    let before = || with(json!({"speed": 1, "map": "ice"}));
    let now = || with(json!({"speed": 2, "map": "ice", "wind": 3}));
    for (own, expected) in [
        ("", json!({"speed": 2, "map": "ice", "wind": 3})),
        (r#"{"map":"sand"}"#, json!({"speed": 2, "map": "sand", "wind": 3})),
    ] {
        let directory = Directory::new();
        let storage = directory.open();
        let mut rig = node_with(&storage, before(), FIRST);
        rig.open_with("a", RoomOverrides { params: own.into(), ..RoomOverrides::default() });
        told(&mut rig, 20);
        end(rig, &storage);
        drop(storage);
        let storage = directory.open();
        let (rig, _) = start_with(&storage, now(), FIRST);
        see_refused(rig, &storage);
        drop(storage);
        let storage = directory.open();
        let (mut rig, _) = start_with(&storage, now(), FIRST_WITH);
        let after = told(&mut rig, 1);
        assert_eq!(after["params"], expected);
        assert!(after["count"].as_i64() < Some(0), "{after}");
        end(rig, &storage);
    }
}
