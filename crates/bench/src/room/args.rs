//! The command line of `dunlin bench room`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::player_commands::PlayerBehavior;
use super::rig::RoomSetup;
use crate::args::RunArgs;
use crate::control::MessageContent;
use crate::error::Error;
use crate::proc::Cores;

/// Measure rooms.
#[derive(Debug, clap::Args)]
pub struct RoomArgs {
    /// The benchmark to run.
    #[command(subcommand)]
    pub scenario: RoomScenario,
}

#[derive(Debug, Subcommand)]
pub enum RoomScenario {
    /// One room in which every player sees everything, compared with a Go server and its naive mode
    Everyone(EveryoneArgs),
    /// Players that see a part of the map, compared with players that see everything
    Views(ViewsArgs),
    /// All players send ten times as many inputs at once
    Spike(SpikeArgs),
    /// Players that stop reading and resume
    Slow(SlowArgs),
    /// Many small rooms
    Rooms(RoomsArgs),
    /// A recorded treasure hunt, replayed, and replayed with one input changed
    Record(RecordArgs),
    /// One room without `survival`, with checkpoints, and with the log of its ticks, in turn
    Survival(SurvivalArgs),
}

#[derive(Debug, Clone, clap::Args)]
pub struct PlayArgs {
    /// Players
    #[arg(long, default_value_t = 500)]
    pub players: usize,
    /// Inputs per player and second
    #[arg(long, default_value_t = 2.0)]
    pub inputs_per_second: f64,
    /// Share of players that use JSON; the others use Protobuf
    #[arg(long, default_value_t = 0.0)]
    pub json_share: f64,
    /// Measured time of each part
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Warmup before the measurement
    #[arg(long, default_value_t = 2.0)]
    pub warm_up_seconds: f64,
    /// One of this many players decodes each snapshot completely; the others check only its header, to limit the CPU time
    /// of the load generator. In verified runs, all players decode all snapshots
    #[arg(long, default_value_t = 1)]
    pub full_every: u32,
    /// Ticks per second
    #[arg(long, default_value_t = 60)]
    pub ticks_per_second: u32,
    /// Number of worker processes [default: one per 4000 players]
    #[arg(long)]
    pub workers: Option<usize>,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("full_every", |arg| arg.default_value("16")))]
pub struct EveryoneArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Objects in the world; all move and change at every tick
    #[arg(long, default_value_t = 100)]
    pub objects: u32,
    /// Number of alternations between the servers
    #[arg(long, default_value_t = 3)]
    pub turns: u32,
    /// Path of the Go server [default: the output of bench/peers/build]
    #[arg(long, value_name = "PROGRAM")]
    pub peer: Option<PathBuf>,
    /// Measure only Dunlin
    #[arg(long, conflicts_with = "peer")]
    pub no_peer: bool,
    /// Measure only the Go server
    #[arg(long, conflicts_with = "no_peer")]
    pub only_peer: bool,
    /// States have fields (a stamp and a heading) instead of 10 bytes, and Dunlin runs once more with clients that ask for them
    #[arg(long)]
    pub typed: bool,
    /// Duration of an additional recorded run that verifies the snapshots of the players; 0: none
    #[arg(long, default_value_t = 3.0)]
    pub verify_seconds: f64,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("full_every", |arg| arg.default_value("16")), mut_arg("players", |arg| arg.default_value("2000")))]
pub struct ViewsArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Objects in the world
    #[arg(long, default_value_t = 2_000)]
    pub objects: u32,
    /// Thousandths of the objects that move and change at every tick
    #[arg(long, default_value_t = 100)]
    pub moving_permille: u32,
    /// Cells per side of the square map; a player sees 5 × 5 cells
    #[arg(long, default_value_t = 22)]
    pub cells: u32,
    /// Duration of an additional recorded run that verifies the snapshots of the players; 0: none
    #[arg(long, default_value_t = 3.0)]
    pub verify_seconds: f64,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("seconds", |arg| arg.default_value("5")))]
pub struct SpikeArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Factor by which the number of inputs increases
    #[arg(long, default_value_t = 10.0)]
    pub factor: f64,
    /// Duration
    #[arg(long, default_value_t = 2.0)]
    pub spike_seconds: f64,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("players", |arg| arg.default_value("200")), mut_arg("seconds", |arg| arg.default_value("3")))]
pub struct SlowArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Number of players that stop reading
    #[arg(long, default_value_t = 20)]
    pub slow_players: usize,
    /// Duration
    #[arg(long, default_value_t = 10.0)]
    pub pause_seconds: f64,
    /// Receive buffer of these players
    #[arg(long, default_value_t = 4096)]
    pub slow_receive_bytes: usize,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("full_every", |arg| arg.default_value("16")), mut_arg("players", |arg| arg.hide(true)), mut_arg("seconds", |arg| arg.default_value("5")))]
pub struct RoomsArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Number of rooms [default: search for the largest number without skipped ticks]
    #[arg(long)]
    pub rooms: Option<usize>,
    /// Number of rooms at which the search starts
    #[arg(long, default_value_t = 64)]
    pub from: usize,
    /// Players in each room
    #[arg(long, default_value_t = 8)]
    pub players_per_room: usize,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("players", |arg| arg.default_value("100")), mut_arg("seconds", |arg| arg.hide(true)))]
pub struct RecordArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Duration of the game
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("full_every", |arg| arg.default_value("16")))]
pub struct SurvivalArgs {
    #[command(flatten)]
    pub play: PlayArgs,
    /// Objects in the world; all move and change at every tick
    #[arg(long, default_value_t = 100)]
    pub objects: u32,
    /// Number of alternations between the settings
    #[arg(long, default_value_t = 3)]
    pub turns: u32,
    /// Time between two checkpoints
    #[arg(long, default_value = "2s")]
    pub checkpoint_interval: String,
    #[command(flatten)]
    pub run: RunArgs,
}

impl PlayArgs {
    pub fn check(&self) -> Result<(), Error> {
        in_range("players", self.players as f64, 1.0, 100_000.0)?;
        in_range("inputs-per-second", self.inputs_per_second, 0.0, 1_000.0)?;
        in_range("json-share", self.json_share, 0.0, 1.0)?;
        in_range("seconds", self.seconds, 0.1, 86_400.0)?;
        in_range("warm-up-seconds", self.warm_up_seconds, 0.0, 86_400.0)?;
        in_range("full-every", self.full_every.into(), 1.0, 100_000.0)?;
        in_range("ticks-per-second", self.ticks_per_second.into(), 1.0, 240.0)
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up_seconds)
    }

    /// The setup with all players in one room of Dunlin, which send stamps as inputs.
    pub fn setup(&self, cores: &Cores) -> RoomSetup {
        RoomSetup {
            players: self.players,
            players_per_room: self.players,
            slow: 0,
            json_share: self.json_share,
            play: PlayerBehavior::Stamp { shared_objects: None },
            looks_from_own: false,
            full_every: self.full_every,
            content: MessageContent::Protocol,
            join: None,
            workers: self.workers,
            slow_receive_bytes: 4_096,
            cores: cores.clone(),
            keeps_observations: false,
        }
    }
}

/// Refuses an option out of its range.
pub fn in_range(name: &'static str, value: f64, min: f64, max: f64) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::Setting { name, value: value.to_string(), remedy: format!("give {min} to {max}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_past_their_limits_are_refused() {
        assert!(in_range("json-share", 0.0, 0.0, 1.0).is_ok());
        assert!(in_range("json-share", 1.0, 0.0, 1.0).is_ok());
        for share in [-0.01, 1.01, f64::NAN] {
            assert!(in_range("json-share", share, 0.0, 1.0).is_err(), "{share}");
        }
    }
}
