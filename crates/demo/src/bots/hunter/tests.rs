use dunlin_games::TreasureHunt;
use dunlin_rooms::{Base, FormatSet, Mirror, Room, RoomOptions, Scoped, Visitor, wire};
use serde_json::json;

use super::*;

const ENCODING: Encoding = Encoding::Protobuf;

/// A hunt with bots, connected directly instead of through sockets.
struct Hunt {
    room: Room,
    mirror: Mirror,
    bots: Vec<(dunlin_rooms::PlayerId, Hunter, Base)>,
    inputs: u32,
}

impl Hunt {
    fn new(params: &serde_json::Value, bots: u64) -> Self {
        let simulation = Box::new(TreasureHunt::new(params).expect("good parameters"));
        let mut room = Room::new(RoomOptions::default(), 1, simulation).expect("a possible map");
        let keyframe = room.keyframe(FormatSet::default().with(ENCODING));
        let mirror = Mirror::new(room.grid().clone(), 60, keyframe, [&[], &[]]);
        let join = |seed| {
            let joined = room.join(&Visitor::of_user(""), ENCODING, b"").expect("let in");
            (joined.player, Hunter::new(seed), Base::default())
        };
        let bots = (0..bots).map(join).collect();
        Self { room, mirror, bots, inputs: 0 }
    }

    /// Runs one tick. The bots act every quarter of a second.
    fn tick(&mut self) {
        let outcome = self.room.tick(0);
        self.mirror.apply(outcome.update);
        for (player, bot, base) in &mut self.bots {
            for scoped in &outcome.scoped {
                match scoped {
                    Scoped::Event { players, data } if players.as_ref().is_none_or(|all| all.contains(player)) => {
                        bot.on_event(data);
                    }
                    _ => {}
                }
            }
            let own = outcome.players.iter().find(|change| change.player == *player);
            let (avatar, own) = (self.room.world().avatar_of(*player), own.and_then(|change| change.own.as_deref()));
            let view = self.room.world().view_of(*player).expect("here");
            let mut snapshot = Vec::new();
            wire::write_player_header(ENCODING, 1, avatar.expect("an avatar").0, own, &mut snapshot);
            let body = self.mirror.body(ENCODING, view, *base);
            snapshot.extend_from_slice(&body.bytes);
            *base = Base { tick: body.tick, view };
            assert_eq!(bot.see(&snapshot), Ok(()));
            if self.room.tick_number().is_multiple_of(15)
                && let Some(input) = bot.act()
            {
                self.inputs += 1;
                assert!(self.room.input(*player, self.inputs, &input), "{input:?}");
            }
        }
    }

    fn places(&self) -> Vec<Position> {
        let place =
            |player| self.room.world().object(self.room.world().avatar_of(player)?).map(|object| object.position);
        self.bots.iter().filter_map(|(player, ..)| place(*player)).collect()
    }

    fn found(&self) -> u32 {
        let purses = self.room.world().objects().filter(|(_, object)| object.kind == PURSE);
        purses.map(|(_, purse)| u32::from(purse.state[4])).sum()
    }
}

#[test]
fn bots_find_treasures() {
    let params = json!({"columns": 8, "rows": 8, "treasures": 200, "obstacles": 50, "clue_interval_s": 0});
    let mut hunt = Hunt::new(&params, 5);
    for _ in 0..60 * 30 {
        hunt.tick();
    }
    assert!(hunt.found() >= 25, "one in six seconds at least: {}", hunt.found());
    assert!(hunt.inputs < 5 * 30 * 4, "not more than they have acts");
}

#[test]
fn bots_run_to_a_clue_and_dig_there() {
    let params = json!({"columns": 8, "rows": 8, "treasures": 0, "obstacles": 0, "clue_interval_s": 15});
    let mut hunt = Hunt::new(&params, 20);
    let clue = |hunt: &Hunt| {
        hunt.room.world().objects().find(|(_, object)| object.kind == 6).map(|(_, object)| object.position)
    };
    for _ in 0..60 * 15 {
        hunt.tick();
    }
    let place = clue(&hunt).expect("a clue has dropped");
    let near = |at: &Position| at.x.abs_diff(place.x).max(at.y.abs_diff(place.y)) < 512;
    let mut gathered = 0;
    for _ in 0..60 * 12 {
        hunt.tick();
        gathered = gathered.max(hunt.places().iter().filter(|at| near(at)).count());
    }
    assert!(hunt.found() == 10 && clue(&hunt).is_none(), "all shares are found");
    assert!(gathered >= 8, "{gathered} of 20");
}

#[test]
fn invalid_events_and_snapshots_are_ignored() {
    let mut bot = Hunter::new(1);
    for event in [&b""[..], b"{}", b"[]", br#"{"event":{"clue":{"x":-1}}}"#, &[0xff; 9]] {
        bot.on_event(event);
    }
    assert_eq!((bot.clue, bot.act()), (None, None));
    assert_eq!(bot.see(&[0xff; 20]), Err(Lost::Closed));
}
