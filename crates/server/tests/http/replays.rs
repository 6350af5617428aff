//! Replays of recordings by the real binary.

use std::{fs, path::Path, process::Command};

/// The output of `dunlin replay` with these arguments for the only recording in `directory`. The replay must succeed.
pub fn replay_only_recording(directory: &Path, arguments: &[&str]) -> String {
    let recordings: Vec<_> = fs::read_dir(directory).expect("a folder").collect();
    let [Ok(recording)] = &recordings[..] else { panic!("{recordings:?}") };
    let mut replay = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let replay = replay.arg("replay").arg(recording.path()).args(arguments).env_clear().output();
    let replay = replay.expect("it starts");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    String::from_utf8(replay.stdout).expect("text")
}
