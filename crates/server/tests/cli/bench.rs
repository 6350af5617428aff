//! `dunlin bench` finds and starts the load generator.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{Folder, stderr, stdout};

/// A program that prints where it is, which server called it, and its arguments.
const LOAD_GENERATOR: &str = "#!/bin/sh\necho \"$0\" \"$CALLER_OF_DUNLIN_BENCH\" \"$@\"\nexit 7\n";

/// Copies a program in another process. If this one had the copy open for writing while another test forks, the copy could not be
/// executed until that test's child has closed it.
fn copy(from: impl AsRef<OsStr>, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().expect("it runs").success());
}

fn directory_with(folder: &Folder, name: &str, mode: u32) -> PathBuf {
    let directory = folder.0.join(name);
    fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("dunlin-bench");
    copy(folder.file("load-generator", LOAD_GENERATOR), &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("its mode");
    directory
}

fn bench(server: &Path, path: impl AsRef<OsStr>) -> Output {
    let mut command = Command::new(server);
    command.args(["bench", "idle", "--sessions=1,2", "--help"]).env_clear().env("PATH", path);
    command.output().expect("it runs")
}

#[test]
fn the_load_generator_is_found_beside_the_server_and_then_in_path() {
    let folder = Folder::new("bench");
    // A directory without other programs.
    let server = folder.0.join("dunlin");
    copy(env!("CARGO_BIN_EXE_dunlin"), &server);
    let calls = |output: &Output, directory: &Path| {
        let expected =
            format!("{}/dunlin-bench {} idle --sessions=1,2 --help\n", directory.display(), server.display());
        assert_eq!((stdout(output), stderr(output), output.status.code()), (expected.as_str(), "", Some(7)));
    };

    let missing = bench(&server, "/none");
    assert_eq!((stdout(&missing), missing.status.code()), ("", Some(1)));
    for words in ["dunlin: dunlin-bench is neither beside this program nor in PATH", "cargo build --release"] {
        assert!(stderr(&missing).contains(words), "{}", stderr(&missing));
    }
    let in_path = directory_with(&folder, "bin", 0o755);
    // One that cannot be executed is passed over.
    let not_executable = directory_with(&folder, "data", 0o644);
    calls(&bench(&server, format!("/none:{}:{}", not_executable.display(), in_path.display())), &in_path);
    let beside = directory_with(&folder, ".", 0o755);
    calls(&bench(&server, &in_path), &beside.canonicalize().expect("it is there"));

    directory_with(&folder, ".", 0o644);
    let refused = bench(&server, &in_path);
    assert_eq!((stdout(&refused), refused.status.code()), ("", Some(1)));
    assert!(stderr(&refused).contains("cannot start "), "{}", stderr(&refused));

    // It is there, and its interpreter is not.
    copy(folder.file("broken", "#!/none/sh\n"), &beside.join("dunlin-bench"));
    fs::set_permissions(beside.join("dunlin-bench"), fs::Permissions::from_mode(0o755)).expect("its mode");
    let broken = bench(&server, &in_path);
    let expected =
        format!("dunlin: cannot start {}/dunlin-bench: ", beside.canonicalize().expect("it is there").display());
    assert!(stderr(&broken).starts_with(&expected), "{}", stderr(&broken));
}
