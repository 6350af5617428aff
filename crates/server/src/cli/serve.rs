//! `dunlin serve`.

use std::{fs, path::PathBuf, sync::Arc};

use clap::Args;
use dunlin_config::{Flag, Loaded, RoomSurvival};
use dunlin_games::Registry;
use dunlin_token::Verifier;

use super::{ConfigFile, Failure, warn};
use crate::{serve::Purpose, telemetry::token_events::log_token_event};

/// Run a node.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// IP address to listen on (`http_server.address`)
    #[arg(short, long, value_name = "ADDRESS")]
    address: Option<String>,
    /// TCP port; 0: any free port (`http_server.port`)
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// Number of I/O threads; 0: one per core (`shards`)
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// I/O interface of the kernel: auto, `io_uring` or epoll (`reactor`)
    #[arg(long, value_name = "KIND")]
    reactor: Option<String>,
    /// Log level: none, error, warn, info, debug or trace (`log.level`)
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Serve the demo pages in DIR at / (`demo.dir`). The program `dunlin-demo` publishes their prices
    #[arg(long, value_name = "DIR")]
    demo: Option<PathBuf>,
    /// Open the storage however long its last run is ago by the clock (`storage.clock_ahead_limit`). What has expired
    /// by the clock is removed
    #[arg(long)]
    accept_clock: bool,
    /// Keep all rooms in DIR from one run to the next, and begin those anew that this build cannot read (`dunlin dev`)
    #[arg(long, value_name = "DIR", hide = true)]
    keep_rooms: Option<PathBuf>,
}

pub(super) fn run(args: &ServeArgs, registry: &Registry) -> Result<(), Failure> {
    // A reload reads the file of the start, and not another default file, or none because it was removed.
    let file = args.config.with_path();
    let mut loaded = file.load_to_start(args.flags(), registry)?;
    warn(&loaded.warnings);
    let purpose = match &args.keep_rooms {
        None => Purpose::Production,
        Some(dir) => {
            fs::create_dir_all(dir).map_err(|error| Failure::File(dir.clone(), error))?;
            let storage = Flag { name: "--keep-rooms", path: "storage.path", value: dir.display().to_string() };
            let flags = args.flags().into_iter().chain([storage]).collect();
            keep_rooms(&mut loaded, file.load_whole(flags, registry)?);
            Purpose::Development
        }
    };
    let verifier = Verifier::new(&loaded.config.token, log_token_event).map_err(Failure::TokenThread)?;
    let (flags, registry) = (args.flags(), registry.clone());
    let reread = Arc::new(move || file.reread(flags.clone(), &registry));
    crate::serve::run(loaded, Arc::new(verifier), reread, purpose).map_err(Failure::Serve)
}

/// Has all rooms survive in the other configuration's storage. The storage of the configuration stays as it is, because
/// what is there may not be for this build, and so do its backups.
fn keep_rooms(loaded: &mut Loaded, with_storage: Loaded) {
    loaded.config.storage = with_storage.config.storage;
    loaded.config.backup = None;
    for room in loaded.config.rooms.namespaces.iter_mut().flatten() {
        let room = Arc::make_mut(room);
        if room.survival == RoomSurvival::None {
            room.survival = RoomSurvival::Checkpoint;
        }
    }
}

impl ServeArgs {
    fn flags(&self) -> Vec<Flag> {
        let demo = self.demo.as_ref().map(|dir| dir.display().to_string());
        [
            ("--address", "http_server.address", self.address.clone()),
            ("--port", "http_server.port", self.port.map(|port| port.to_string())),
            ("--shards", "shards", self.shards.map(|shards| shards.to_string())),
            ("--reactor", "reactor", self.reactor.clone()),
            ("--log-level", "log.level", self.log_level.clone()),
            ("--demo", "demo.dir", demo),
            ("--accept-clock", "storage.clock_ahead_limit", self.accept_clock.then(|| "0s".to_owned())),
        ]
        .into_iter()
        .filter_map(|(name, path, value)| Some(Flag { name, path, value: value? }))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use dunlin_config::Config;

    use super::*;

    #[test]
    fn rooms_are_kept_apart_from_the_storage_and_the_backups_of_the_configuration() {
        let path = std::env::temp_dir().join(format!("dunlin-keep-rooms-{}.json", std::process::id()));
        let text = r#"{
            "storage": { "path": "/real", "backup": { "path": "/backups", "interval": "1h", "keep": 3 } },
            "channel": { "namespaces": [
                { "name": "field", "room": { "simulation": "treasure_hunt" }, "history_size": 1, "history_ttl": "1m" }
            ] }
        }"#;
        fs::write(&path, text).expect("a file");
        let file = ConfigFile { path: Some(path.clone()) };
        let load = |flags| file.load_whole(flags, &Registry::built_in()).expect("a configuration");
        let mut loaded = load(Vec::new());
        assert!(loaded.config.backup.is_some());
        keep_rooms(&mut loaded, load(vec![Flag { name: "", path: "storage.path", value: "/kept".into() }]));
        let Config { storage, backup, rooms, .. } = loaded.config;
        assert_eq!(storage.map(|storage| storage.path), Some(PathBuf::from("/kept")));
        assert_eq!(backup, None, "they would be of other rooms, and real ones would be deleted");
        let survival: Vec<RoomSurvival> = rooms.namespaces.iter().flatten().map(|room| room.survival).collect();
        assert_eq!(survival, [RoomSurvival::Checkpoint]);
        fs::remove_file(path).expect("it is there");
    }
}
