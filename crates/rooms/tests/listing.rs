//! The listing of a room and its lock: changes by the game and by the backend, saved, recorded and replayed.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, InputError, ListingChange, PlayerId, Refusal, RestoreError, Room, RoomOptions, Simulation, Visitor,
    World, WorldError,
    recording::{Header, Recorder, replay},
};

/// Each input locks the room, and sets the metadata to the bytes of the input.
struct Lock;

impl Simulation for Lock {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 64, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, _: PlayerId, data: &[u8]) -> Result<(), InputError> {
        world.set_locked(true);
        let metadata = std::str::from_utf8(data).map_err(|_| InputError)?;
        world.set_metadata(metadata).map_err(|_| InputError)
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn options() -> RoomOptions {
    RoomOptions { players_max: 3, metadata_bytes_max: 8, ..RoomOptions::default() }
}

fn room() -> Room {
    Room::new(options(), 1, Box::new(Lock)).expect("a map")
}

fn join(room: &mut Room) -> Result<PlayerId, u16> {
    let joined = room.join(&Visitor::of_user("ann"), Encoding::Json, b"");
    joined.map(|joined| joined.player).map_err(|refusal| refusal.code)
}

#[test]
fn a_locked_room_refuses_new_players() {
    let mut room = room();
    let ann = join(&mut room).expect("the room is open");
    assert!(room.input(ann, 1, b"[1]"));
    assert_eq!((room.world().listing().is_locked, &*room.world().listing().metadata), (true, "[1]"));
    assert_eq!(join(&mut room), Err(423));
    let spectator = Visitor { is_spectator: true, ..Visitor::of_user("eve") };
    let refusal = room.join(&spectator, Encoding::Json, b"").expect_err("the room is locked");
    assert_eq!((refusal.code, &*refusal.message), (423, "the room is locked"));
    room.away(ann);
    assert!(room.back(ann, &Visitor::of_user("ann"), Encoding::Json), "a returning player is not a new player");
    assert_eq!(room.change_listing(&ListingChange { is_locked: Some(false), ..ListingChange::default() }), Ok(()));
    assert!(join(&mut room).is_ok());
    assert_eq!(&*room.world().listing().metadata, "[1]", "a field that is not given keeps its value");
}

#[test]
fn the_player_limit_can_be_changed_up_to_the_configured_limit() {
    let mut room = room();
    let set = |room: &mut Room, players_max| {
        let players_max = Some(players_max);
        room.change_listing(&ListingChange { players_max, ..ListingChange::default() }).expect("any number");
        room.world().players_max()
    };
    assert_eq!(set(&mut room, 1), 1);
    assert_eq!((join(&mut room).is_ok(), join(&mut room)), (true, Err(400)));
    assert_eq!(set(&mut room, 4), 3);
    assert_eq!((join(&mut room).is_ok(), join(&mut room).is_ok(), join(&mut room)), (true, true, Err(400)));
    assert_eq!(set(&mut room, 0), 0, "a lower limit removes no player");
    assert_eq!(room.player_count(), 3);
}

#[test]
fn metadata_is_json_of_limited_length() {
    let mut room = room();
    let set = |room: &mut Room, metadata: &str| {
        room.change_listing(&ListingChange {
            metadata: Some(metadata.into()),
            is_locked: Some(true),
            ..ListingChange::default()
        })
    };
    for bad in ["{", "1234567 8", "123456789"] {
        assert_eq!(set(&mut room, bad), Err(WorldError::BadMetadata), "{bad}");
        assert!(!room.world().listing().is_locked, "a refused change changes nothing");
    }
    assert_eq!(set(&mut room, "12345678"), Ok(()));
    assert_eq!(set(&mut room, ""), Ok(()));
}

#[test]
fn the_listing_is_saved_and_recorded() {
    let header = Header {
        simulation: "lock".to_owned(),
        params: "{}".to_owned(),
        seed: 1,
        channel: String::new(),
        options: options(),
    };
    let mut recorder = Recorder::new(&header, Vec::new());
    let mut room = Room::open(options(), header.info(), Box::new(Lock)).expect("a map");
    let mut hashes = vec![room.state_hash()];
    for listing in [
        ListingChange { players_max: Some(0), ..ListingChange::default() },
        ListingChange { is_locked: Some(true), ..ListingChange::default() },
        ListingChange { metadata: Some("{}".into()), ..ListingChange::default() },
        ListingChange { metadata: Some("{".into()), ..ListingChange::default() },
        ListingChange { is_locked: Some(false), ..ListingChange::default() },
        ListingChange { is_unlisted: Some(true), ..ListingChange::default() },
    ] {
        let mut written = Vec::new();
        listing.write(&mut written);
        assert_eq!(ListingChange::read(&written).as_ref(), Some(&listing));
        recorder.change_listing(&listing);
        let _ = room.change_listing(&listing);
        hashes.push(room.state_hash());
    }
    assert_eq!(hashes[3], hashes[4], "a refused change changes nothing");
    hashes.dedup();
    assert_eq!(hashes.len(), 6, "each change is in the state hash");
    room.tick_without_update();
    recorder.tick(&room);
    let recording = std::mem::take(recorder.written());
    assert_eq!(replay(&recording, |_| Box::new(Lock)).expect("a recording").finish(), Ok(1));

    let mut saved = Vec::new();
    room.save(&mut saved);
    let restored = Room::restore(options(), &saved, Box::new(Lock)).expect("the state is valid");
    assert_eq!(restored.world().listing(), room.world().listing());
    assert_eq!(restored.state_hash(), room.state_hash());
}

#[test]
fn a_kick_of_the_backend_is_recorded_and_replayed() {
    let header = Header {
        simulation: "lock".to_owned(),
        params: "null".to_owned(),
        seed: 1,
        channel: "arena:1".to_owned(),
        options: options(),
    };
    let (mut room, mut recorder) = (room(), Recorder::new(&header, Vec::new()));
    for user in ["ann", "ben"] {
        recorder.join(&Visitor::of_user(user), Encoding::Json, b"");
        room.join(&Visitor::of_user(user), Encoding::Json, b"").expect("there is room");
    }
    room.tick_without_update();
    recorder.tick(&room);
    recorder.kick(PlayerId(1), "enough");
    assert!(room.kick(PlayerId(1), "enough"));
    let removals = room.tick_without_update();
    recorder.tick(&room);
    assert_eq!(removals.kicked, [(PlayerId(1), "enough".into())]);
    assert!(!room.kick(PlayerId(1), "enough"), "the player has already left");
    let recording = std::mem::take(recorder.written());
    let mut replay = replay(&recording, |_| Box::new(Lock)).expect("a recording");
    replay.watch();
    assert_eq!((replay.next_tick(), replay.next_tick()), (Some(Ok(1)), Some(Ok(2))));
    let [step] = replay.steps() else { panic!("{:?}", replay.steps()) };
    assert_eq!(step.to_string(), r#"the backend removes player 1: "enough""#);
    assert_eq!(replay.room().player_count(), 1);
}

#[test]
fn each_kind_of_listing_change_round_trips() {
    let choices = [None, Some(false), Some(true)];
    for (is_locked, is_unlisted) in choices.into_iter().flat_map(|locked| choices.map(|unlisted| (locked, unlisted))) {
        let change = ListingChange { is_locked, is_unlisted, ..ListingChange::default() };
        let mut written = Vec::new();
        change.write(&mut written);
        assert_eq!(ListingChange::read(&written).as_ref(), Some(&change));
    }
    // The format of earlier versions: a limit of 1 player, locked, no metadata.
    let earlier = ListingChange { players_max: Some(1), is_locked: Some(true), ..ListingChange::default() };
    assert_eq!(ListingChange::read(&[2, 2, 0]), Some(earlier));
    assert!(ListingChange::read(&[0, 8, 0]).is_some());
    assert_eq!(ListingChange::read(&[0, 9, 0]), None);
}

#[test]
fn a_room_is_saved_as_unlisted() {
    let mut room = room();
    let restored = |room: &Room| {
        let mut saved = Vec::new();
        room.save(&mut saved);
        let restored = Room::restore(options(), &saved, Box::new(Lock)).expect("the state is valid");
        (restored.world().listing().is_locked, restored.world().listing().is_unlisted)
    };
    for (is_locked, is_unlisted) in [(true, false), (true, true), (false, true), (false, false)] {
        let (locked, unlisted) = (Some(is_locked), Some(is_unlisted));
        let change = ListingChange { is_locked: locked, is_unlisted: unlisted, ..ListingChange::default() };
        room.change_listing(&change).expect("any choice");
        assert_eq!(restored(&room), (is_locked, is_unlisted));
    }
}
