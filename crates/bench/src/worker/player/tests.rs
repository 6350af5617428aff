use dunlin_games::Registry;

use dunlin_rooms::wire::write_player_header;
use dunlin_rooms::{Base, FormatSet, Mirror, Room, RoomOptions, Visitor};

use super::*;
use crate::commands::EncodingOption;
use crate::room::player_commands::PlayerBehavior;

#[test]
fn only_a_players_own_stamp_is_read() {
    let state = [&stamp(7, 300)[..], &[1, 2, 3, 4]].concat();
    assert_eq!(shown_number(7, &state), Some(300));
    assert_eq!(shown_number(8, &state), None);
    assert_eq!(shown_number(7, &state[..7]), None);
}

#[test]
fn hunters_send_every_kind_of_input() {
    let inputs: Vec<Vec<u8>> = (1..500).map(|number| hunt(1, number)).collect();
    for kind in 0..3 {
        assert!(inputs.iter().any(|input| input[0] == kind), "{kind}");
    }
    assert_ne!(hunt(1, 5), hunt(2, 5));
}

/// A room, a shard's mirror of it, and its only player.
struct Table {
    room: Room,
    mirror: Option<Mirror>,
    player: LoadPlayer,
    played: Played,
    encoding: EncodingOption,
    base: Base,
    ack: u32,
    avatar: u32,
    view: dunlin_rooms::CellIndex,
}

const PLAYER: u32 = 41;

impl Table {
    fn new(encoding: EncodingOption) -> Self {
        let params = serde_json::json!({"objects": 40, "player_objects": true, "columns": 6, "rows": 6});
        let crowd = Registry::built_in().make("crowd", &params).unwrap().unwrap();
        let mut room = Room::new(RoomOptions::default(), 3, crowd).unwrap();
        room.join(&Visitor::of_user(""), encoding.of_rooms(), b"").unwrap();
        let target = Target {
            address: ([127, 0, 0, 1], 1).into(),
            path: String::new(),
            encoding,
            channel: "c".into(),
            join: None,
            content: MessageContent::Protocol,
            tls: false,
        };
        let player = LoadPlayer::new(None, PLAYER, 5, Rc::new(target));
        let (base, view) = (Base::default(), dunlin_rooms::CellIndex::default());
        Table { room, mirror: None, player, played: Played::default(), encoding, base, ack: 0, avatar: 0, view }
    }

    /// Runs a tick. Returns the message for the player.
    fn tick(&mut self) -> Vec<u8> {
        let encoding = self.encoding.of_rooms();
        let outcome = self.room.tick(1_000);
        for change in outcome.players {
            (self.ack, self.avatar, self.view) = (change.ack, change.avatar, change.view);
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.apply(outcome.update);
        } else {
            let keyframe = self.room.keyframe(FormatSet::default().with(encoding));
            self.mirror = Some(Mirror::new(self.room.grid().clone(), 60, keyframe, [b"", b""]));
        }
        let body = self.mirror.as_mut().unwrap().body(encoding, self.view, self.base);
        self.base = Base { tick: body.tick, view: self.view };
        let mut data = Vec::new();
        write_player_header(encoding, self.ack, self.avatar, None, &mut data);
        data.extend_from_slice(&body.bytes[..body.data_bytes]);
        match self.encoding {
            EncodingOption::Json => [br#"{"push":{"channel":"c","pub":{"data":"#, &data[..], b"}}}"].concat(),
            EncodingOption::Protobuf => wrapped(&wrapped(&wrapped(&data))),
        }
    }

    /// Passes a message to the player.
    fn read(&mut self, message: &[u8], observations: &mut Observations) -> Option<Ended> {
        let mut sink = PlayerSink {
            played: &mut self.played,
            observations: Some(observations),
            play: PlayerBehavior::Stamp { shared_objects: None },
            looks_from_own: true,
            snapshots_ever: &mut 0,
            failed: &mut None,
            clock: Clock::default(),
        };
        let mut reading = Reading { player: &mut self.player, sink: &mut sink, ended: None };
        assert!(reading.message(message));
        reading.ended
    }
}

/// Field 4: the push of a reply, the publication of a push, the data of a publication.
fn wrapped(bytes: &[u8]) -> Vec<u8> {
    let mut length = bytes.len();
    let mut out = vec![4 << 3 | 2];
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

#[test]
fn a_player_sees_the_world_and_its_own_inputs_in_both_encodings() {
    for encoding in [EncodingOption::Json, EncodingOption::Protobuf] {
        let path = std::env::temp_dir().join(format!("dunlin-player-{}-{encoding:?}", std::process::id()));
        let mut observations = Observations::create(&path).unwrap();
        let mut table = Table::new(encoding);
        let player = table.room.world().players().next().unwrap();
        for number in 1..=130_u32 {
            // Every third tick applies an input of the player.
            if number % 3 == 0 {
                let input = number / 3;
                table.player.waiting.push_back(Sent { number: input, intended_ns: proc::now_ns() });
                assert!(table.room.input(player, input, &stamp(PLAYER, input)));
            }
            let message = table.tick();
            assert_eq!(table.read(&message, &mut observations), None);
        }
        assert_eq!(table.played.broken, std::collections::BTreeMap::new());
        assert_eq!(
            (table.played.snapshots, table.played.acknowledged, table.played.shown, table.played.ticks_skipped),
            (130, 43, 43, 0)
        );
        assert_eq!((table.played.looked_through, table.played.inconsistent, table.played.misplaced), (2, 0, 0));
        observations.flush().unwrap();
        let seen = crate::room::observation::read(&path).unwrap();
        assert_eq!(seen.len(), 130);
        assert!(seen.iter().all(|(seen, times)| seen.room == 5 && *times == 1));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_snapshot_with_an_unknown_base_is_broken_and_an_unsubscribe_ends_the_player() {
    let path = std::env::temp_dir().join(format!("dunlin-player-broken-{}", std::process::id()));
    let mut observations = Observations::create(&path).unwrap();
    let mut table = Table::new(EncodingOption::Json);
    table.tick();
    let message = table.tick();
    table.read(&message, &mut observations);
    assert_eq!((table.played.snapshots, table.played.broken.values().sum::<u64>()), (0, 1));
    let ended = table.read(br#"{"push":{"channel":"c","unsubscribe":{"code":2510}}}"#, &mut observations);
    assert_eq!(ended.as_deref(), Some("unsubscribed: 2510"));
    std::fs::remove_file(&path).unwrap();
}
