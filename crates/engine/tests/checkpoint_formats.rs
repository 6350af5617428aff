//! The on-disk formats of a room: this version writes exactly its fixture, and reads the fixtures of all released
//! versions.

use std::{
    collections::BTreeMap,
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    api::{KickOrder, KickTarget},
    host::{AwayTerms, CHECKPOINT_VERSION, Checkpoint, NotRestored, RoomOrigin, Runner, Step, TickRecord},
    room::{SeatClaim, SeatKey, SeatToken},
};
use dunlin_protocol::{ClientInfo, Encoding, Payload};
use dunlin_rooms::{
    CallError, CallId, GridShape, InputError, ListingChange, NewObject, NotMigrated, OldRoom, PlayerId, Position,
    Refusal, RestoreError, Room, RoomOptions, Simulation, Visibility, Visitor, World,
};

/// One name with hexadecimal bytes per line, as each version wrote them. Each released version has its own file, which
/// is never changed.
const VERSIONS: [&str; 5] = [
    include_str!("fixtures/checkpoint-1.txt"),
    include_str!("fixtures/checkpoint-2.txt"),
    include_str!("fixtures/checkpoint-3.txt"),
    include_str!("fixtures/checkpoint-4.txt"),
    include_str!("fixtures/checkpoint-5.txt"),
];
/// The fixture of this version is written here with `DUNLIN_WRITE=1`, until the version is released.
const THIS_VERSION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/checkpoint-5.txt");

/// The state hash after the steps of the fixture.
const STATE_HASH: u64 = 0x4ed6_86f3_72b4_90e0;

/// Each player has an object, which inputs change and ticks move.
#[derive(Default)]
struct Stones {
    ticks: u8,
    /// Whether this is the next version, which takes rooms of the first one over or does not.
    next: Option<bool>,
}

impl Simulation for Stones {
    fn grid(&self) -> GridShape {
        GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        for (kind, visibility) in [(1, Visibility::Everyone), (2, Visibility::Nobody)] {
            let position = Position { x: 150, y: 250 };
            world.spawn(NewObject { position, kind, visibility, state: b"stone" }).expect("there is room");
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let position = Position { x: 10, y: 20 };
        let visibility = Visibility::Owner(player);
        let made = world.spawn(NewObject { position, kind: 3, visibility, state: data });
        world.set_avatar(player, made.ok());
        world.set_viewpoint(player, position);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(avatar) = world.avatar_of(player) {
            world.despawn(avatar);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let avatar = world.avatar_of(player).ok_or(InputError)?;
        world.set_state(avatar, data).map_err(|_| InputError)
    }

    fn tick(&mut self, world: &mut World) {
        self.ticks += 1;
        let avatars: Vec<_> = world.players().filter_map(|player| world.avatar_of(player)).collect();
        for avatar in avatars {
            let position = Position { x: world.random_below(400), y: world.random_below(400) };
            world.move_to(avatar, position);
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.push(self.ticks);
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let [ticks] = saved else { return Err(RestoreError) };
        self.ticks = *ticks;
        Ok(())
    }

    fn version(&self) -> u32 {
        if self.next.is_some() { 2 } else { 1 }
    }

    fn migrate(&mut self, _: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
        assert_eq!((old.version, old.params, old.ticks_per_second), (1, origin().params.as_str(), 60));
        if self.next == Some(true) { Ok(self.restore(old.saved)?) } else { Err(NotMigrated::Unsupported) }
    }
}

fn origin() -> RoomOrigin {
    let params = r#"{"stones":2}"#.to_owned();
    RoomOrigin { simulation: "stones".to_owned(), params, options: RoomOptions::default() }
}

fn seat(index: u32) -> SeatKey {
    SeatKey { shard: ShardIndex(1), index, generation: 300 }
}

fn join(index: u32, user: &str, encoding: Encoding, claim: SeatClaim) -> Step {
    let info = Arc::new(ClientInfo {
        client: Arc::from(if index == 0 { "c-0" } else { "" }),
        conn_info: (index == 0).then(|| Payload::from_opaque(Bytes::from_static(b"[1]"))),
        ..ClientInfo::of_user(user)
    });
    let data = Bytes::from_static(b"{}");
    let address = match user {
        "ada" => Some(Ipv4Addr::new(192, 0, 2, 7).into()),
        "bob" => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    };
    Step::Join { seat: seat(index), info, address, is_spectator: user == "eve", format: encoding.into(), data, claim }
}

fn claim(given: u128, returned: Option<u128>) -> SeatClaim {
    let returned = returned.map(SeatToken);
    SeatClaim { given: Some(SeatToken(given)), returned, is_one_per_user: given == 2, keeps_returned: true }
}

/// The ticks before and after the checkpoint. They contain every kind of step.
fn ticks() -> [(Option<u64>, Vec<Step>); 5] {
    let input = |index, number, data: &'static [u8]| Step::Input { seat: seat(index), number, data: data.into() };
    [
        (
            None,
            vec![
                join(0, "ada", Encoding::Json, claim(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, None)),
                join(1, "", Encoding::Protobuf, claim(2, Some(7))),
                join(2, "bob", Encoding::Json, SeatClaim::default()),
            ],
        ),
        (
            None,
            vec![input(0, 300, b"\x00\xff"), Step::Leave { seat: seat(2) }, Step::Away { seat: seat(1), stay: None }],
        ),
        (
            Some(STATE_HASH),
            vec![
                input(0, 301, b"on"),
                Step::Message { id: 300, data: Bytes::from_static(b"{}") },
                change_listing(),
                answer(Ok(Bytes::from_static(b"{}"))),
                answer(Err(CallError::Refused(Refusal { code: 300, message: "no".into() }))),
                answer(Err(CallError::Timeout)),
                answer(Err(CallError::Failed)),
                answer(Err(CallError::Busy)),
                answer(Err(CallError::TooLong)),
                answer(Err(CallError::Lost)),
            ],
        ),
        (None, vec![Step::AllAway { grace_ticks: 1_000 }]),
        (
            None,
            vec![
                join(9, "", Encoding::Json, claim(3, Some(2))),
                input(9, 1, b"back"),
                Step::Away { seat: seat(9), stay: Some(AwayTerms { grace_ticks: 1_000, per_user_max: 4 }) },
                kick(KickTarget::User("eve".into())),
                kick(KickTarget::Client("c-300".into())),
                kick(KickTarget::Player(PlayerId(300))),
            ],
        ),
    ]
}

/// The number of ticks in the checkpoint.
const TICKS_SAVED: usize = 2;

fn run(runner: &mut Runner, ticks: &[(Option<u64>, Vec<Step>)]) {
    for (state_hash, steps) in ticks {
        let record = TickRecord { state_hash: *state_hash, steps: steps.clone() };
        runner.replay(runner.ticks_run() + 1, &record).expect("the state matches the record");
    }
}

fn checkpoint() -> Vec<u8> {
    let room = Room::new(origin().options, 7, Box::<Stones>::default()).expect("a map");
    let mut runner = Runner::new(room);
    run(&mut runner, &ticks()[..TICKS_SAVED]);
    let mut saved = Vec::new();
    runner.save(&origin(), &mut saved);
    saved
}

fn record((state_hash, steps): &(Option<u64>, Vec<Step>)) -> Vec<u8> {
    let mut record = Vec::new();
    TickRecord::write(steps, *state_hash, &mut record);
    record
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

fn fixture(version: usize) -> BTreeMap<&'static str, Vec<u8>> {
    VERSIONS[version - 1]
        .lines()
        .map(|line| line.split_once(' ').expect("a name"))
        .map(|(name, hex)| (name, unhex(hex)))
        .collect()
}

fn answer(outcome: Result<Bytes, CallError>) -> Step {
    Step::Answer { call: CallId(300), outcome }
}

fn kick(target: KickTarget) -> Step {
    let order = KickOrder { target, reason: "enough".into() };
    Step::Kick { id: 302, order: order.into(), seats: vec![seat(300)] }
}

fn change_listing() -> Step {
    let change =
        ListingChange { players_max: Some(300), is_locked: Some(true), is_unlisted: None, metadata: Some("{}".into()) };
    Step::ChangeListing { id: 301, change: change.into() }
}

#[test]
fn this_version_writes_the_fixture() {
    let mut text = format!("checkpoint {}\n", hex(&checkpoint()));
    for (number, tick) in ticks().iter().enumerate() {
        writeln!(text, "record-{} {}", number + 1, hex(&record(tick))).expect("a string takes all");
    }
    if std::env::var_os("DUNLIN_WRITE").is_some() {
        std::fs::write(THIS_VERSION, &text).expect("the fixture is written");
    }
    assert_eq!(text, VERSIONS[usize::from(CHECKPOINT_VERSION) - 1]);
}

#[test]
fn checkpoints_of_every_version_are_restored() {
    for version in 1..=VERSIONS.len() {
        assert_continues_from(&fixture(version));
    }
}

fn assert_continues_from(fixture: &BTreeMap<&'static str, Vec<u8>>) {
    let saved = Checkpoint::read(&fixture["checkpoint"]).expect("it is read");
    // Version 1 has no limits on spectators, metadata and calls, because it does not support them.
    let options = RoomOptions {
        spectators_max: saved.origin().options.spectators_max,
        metadata_bytes_max: saved.origin().options.metadata_bytes_max,
        calls_max: saved.origin().options.calls_max,
        call_bytes_max: saved.origin().options.call_bytes_max,
        ..origin().options
    };
    assert_eq!((saved.origin(), saved.ticks_run()), (&RoomOrigin { options, ..origin() }, TICKS_SAVED as u64));
    saved.check_origin(&origin()).expect("it is of this room");
    // Compares the state hash.
    let mut runner = saved.restore(origin().options, Box::<Stones>::default()).expect("it is restored");
    assert_eq!(runner.room().state_hash(), STATE_HASH);
    let seats: Vec<(PlayerId, String)> = runner.seat_users().map(|(player, user)| (player, user.to_string())).collect();
    assert_eq!(seats, [(PlayerId(1), "ada".to_owned()), (PlayerId(2), String::new())]);
    for number in TICKS_SAVED + 1..=ticks().len() {
        let record = TickRecord::read(&fixture[format!("record-{number}").as_str()]).expect("it is read");
        runner.replay(number as u64, &record).expect("it follows");
    }
    // The client that came back with the token has its away player again, and the input changed that player's object.
    let world = runner.room().world();
    assert_eq!(world.players().collect::<Vec<_>>(), [PlayerId(1), PlayerId(2)]);
    let avatar = world.avatar_of(PlayerId(2)).and_then(|avatar| world.object(avatar)).expect("it has an object");
    assert_eq!(avatar.state, b"back");
}

#[test]
fn checkpoints_of_every_version_are_migrated_or_refused_by_name() {
    for version in 1..=VERSIONS.len() {
        let fixture = fixture(version);
        let migrate = |next: Option<bool>, difference: Option<NotRestored>| {
            let saved = Checkpoint::read(&fixture["checkpoint"]).expect("it is read");
            let stones = Box::new(Stones { next, ..Stones::default() });
            let reason = saved.reason_to_migrate(difference, &*stones);
            saved.migrate(origin().options, &origin().params, stones, reason)
        };
        let continued = migrate(Some(true), None).expect("it is taken over");
        assert!(continued.has_new_state);
        let players: Vec<PlayerId> = continued.runner.seat_users().map(|(player, _)| player).collect();
        assert_eq!(players, [PlayerId(1), PlayerId(2)]);
        let same = migrate(None, None).expect("nothing has changed");
        assert!(!same.has_new_state);
        assert_eq!(same.runner.room().state_hash(), STATE_HASH);

        let refused = migrate(Some(false), None).expect_err("there is no migration");
        assert_eq!(refused, NotRestored::OtherVersion { was: 1, is: 2 });
        let name = "the checkpoint is of version 1 of the game, and this is version 2, which has no migration for it";
        assert_eq!(refused.to_string(), name);
        let params = NotRestored::OtherParams("{}".to_owned());
        assert_eq!(migrate(None, Some(params.clone())).expect_err("no migration either"), params);
    }
}

#[test]
fn fixture_records_decode_to_their_values() {
    let fixture = fixture(CHECKPOINT_VERSION.into());
    for (number, tick) in ticks().iter().enumerate() {
        let bytes = &fixture[format!("record-{}", number + 1).as_str()];
        let read = TickRecord::read(bytes).expect("it is read");
        assert_eq!((read.state_hash, format!("{:?}", read.steps)), (tick.0, format!("{:?}", tick.1)));
        // `Debug` hides tokens, so their bytes are compared.
        assert_eq!(&record(&(read.state_hash, read.steps)), bytes);
    }
}

#[test]
fn an_unknown_version_is_reported() {
    let fixture = fixture(CHECKPOINT_VERSION.into());
    let newer = CHECKPOINT_VERSION + 1;
    let mut saved = fixture["checkpoint"].clone();
    saved[0] = newer;
    let error = Checkpoint::read(&saved).expect_err("it is newer");
    assert_eq!(error, NotRestored::NewerVersion(newer));
    assert_eq!(error.to_string(), "the checkpoint has version 6, and this Dunlin reads versions up to 5");
    saved[0] = 0;
    assert_eq!(Checkpoint::read(&saved).expect_err("there is none"), NotRestored::Malformed);

    let mut record = fixture["record-1"].clone();
    record[0] = newer;
    assert_eq!(TickRecord::read(&record).expect_err("it is newer"), NotRestored::NewerVersion(newer));

    // The state of the room has its own version.
    let mut state = Vec::new();
    let room = Room::new(origin().options, 7, Box::<Stones>::default()).expect("a map");
    room.save(&mut state);
    let mut saved = Vec::new();
    Runner::new(room).save(&origin(), &mut saved);
    let at = saved.len() - state.len();
    saved[at] = 9;
    let error = Checkpoint::read(&saved).expect_err("it is newer");
    assert_eq!(error, NotRestored::NewerState(9));
    assert_eq!(error.to_string(), "the state in the checkpoint has version 9, and this Dunlin reads versions up to 2");
}
