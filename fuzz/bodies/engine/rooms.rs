//! The node's room thread, with a small game.

use std::collections::BTreeMap;

use dunlin_engine::{
    host::{HostOptions, RoomHost, RoutedMessage, Runner},
    room::{FromRoom, NotJoined, RoomKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{
    GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Scope, Simulation,
    Visibility, Visitor, World,
};

use super::{NODE_SEED, SHARDS};

const EMPTY_TICKS_MAX: u32 = 2;

#[derive(Default)]
pub(super) struct Rooms {
    open: BTreeMap<RoomKey, (RoomHost, Runner)>,
}

impl Rooms {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes in what a shard has said.
    pub(super) fn take(&mut self, message: ToRoom, outgoing: &mut Vec<RoutedMessage>) {
        match message {
            ToRoom::Open { room, channel, .. } => {
                let world = Room::new(RoomOptions::default(), room.number, Box::new(Meadow)).expect("a map");
                let terms = HostOptions {
                    shard_count: SHARDS,
                    node_seed: NODE_SEED,
                    empty_ticks_max: EMPTY_TICKS_MAX,
                    ticks_per_second: 60,
                    seat_grace_ticks: 0,
                    away_per_user_max: 2,
                    call_bytes_max: 1_024,
                    is_recorded: true,
                };
                outgoing.push((room.owner, FromRoom::Made { room, channel: channel.clone() }));
                let host = RoomHost::new(room, channel, world.grid().clone(), terms);
                assert!(self.open.insert(room, (host, Runner::new(world))).is_none(), "opened once");
                assert!(self.open.len() <= 2, "no more rooms than there may be");
            }
            ToRoom::Close { room, code, reason } => {
                // One that has failed meanwhile is not there.
                if let Some((mut host, _)) = self.open.remove(&room) {
                    host.end(code, reason.as_ref(), &NotJoined::Gone, outgoing);
                }
            }
            message => {
                let room = message.room();
                // Messages after a failure find no room. A pending join is refused.
                match (self.open.get_mut(&room), message) {
                    (Some((host, _)), message) => host.take(message),
                    (None, ToRoom::Join { request, .. }) => {
                        let outcome = Err(NotJoined::Gone);
                        outgoing.push((room.owner, FromRoom::Joined { room, request, outcome }));
                    }
                    (None, _) => {}
                }
            }
        }
    }

    /// One of the rooms does what it should not, and is no more.
    pub(super) fn fail(&mut self, outgoing: &mut Vec<RoutedMessage>) {
        if let Some((room, (mut host, _))) = self.open.pop_first() {
            host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Unavailable, outgoing);
            outgoing.push((room.owner, FromRoom::Failed { room, channel: host.channel().clone(), refusal: None }));
        }
    }

    pub(super) fn tick(&mut self, time_us: u64, outgoing: &mut Vec<RoutedMessage>) {
        for (host, runner) in self.open.values_mut() {
            let batch = host.begin();
            let done = runner.run(&batch, time_us);
            host.finish(done, outgoing);
        }
    }
}

/// Players stand somewhere, and shout.
struct Meadow;

impl Simulation for Meadow {
    fn grid(&self) -> GridShape {
        GridShape { columns: 2, rows: 2, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data == br#""no""# {
            return Err(Refusal { code: 450, message: "not today".into() });
        }
        let position = Position { x: player.0 * 30 % 200, y: 10 };
        let avatar = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"me" };
        let avatar = world.spawn(avatar).map_err(|_| Refusal { code: 400, message: "full".into() })?;
        world.set_avatar(player, Some(avatar));
        world.set_viewpoint(player, position);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(avatar) = world.avatar_of(player) {
            world.despawn(avatar);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let emitted = match data {
            b"shout" => world.emit(Scope::All, r#""shout""#),
            b"whisper" => world.emit(Scope::Player(player), r#""whisper""#),
            b"news" => world.publish("a", r#""news""#),
            _ => return Err(InputError),
        };
        emitted.map_err(|_| InputError)
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let full = |_| Refusal { code: 400, message: "full".into() };
        world.emit(Scope::All, r#""news""#).map_err(full).map(|()| data.repeat(2))
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}
