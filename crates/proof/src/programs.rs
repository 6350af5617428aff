//! The programs of other crates, which tests start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

/// The folder of all crates.
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The crates whose code is in no program that another crate's tests start.
const APART: [&str; 5] = ["bench", "demo", "game", "proof", "sim"];

/// The program of another package, in the directory of a test's own program. It is built if it is missing or older than the sources of the
/// crates. Cargo builds the programs of all crates for the tests of the workspace, but for those of one crate only its own.
///
/// # Panics
/// It cannot be built.
pub fn beside(own: &Path, package: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _building = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = own.with_file_name(package);
    if !is_fresh(&program, Path::new(CRATES)).unwrap_or(false) {
        let profile = own.parent().and_then(Path::file_name).filter(|directory| *directory != "debug");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", package, "--profile"]).arg(profile.unwrap_or("dev".as_ref()));
        assert!(cargo.status().expect("cargo starts").success(), "{package} cannot be built");
    }
    program
}

/// Whether a program is as new as the sources of the crates.
fn is_fresh(program: &Path, crates: &Path) -> io::Result<bool> {
    let built = fs::metadata(program)?.modified()?;
    for folder in fs::read_dir(crates)? {
        let folder = folder?;
        let is_apart = APART.iter().any(|apart| folder.file_name() == *apart);
        if !is_apart && newest(&folder.path().join("src"))? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

/// When the newest file in a folder was changed.
fn newest(folder: &Path) -> io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        newest = newest.max(if is_folder { self::newest(&entry.path())? } else { entry.metadata()?.modified()? });
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_fresh_until_a_source_changes() {
        let folder = std::env::temp_dir().join(format!("dunlin-programs-{}", std::process::id()));
        let [program, source, apart] =
            ["program", "crates/server/src/cli/serve.rs", "crates/demo/src/main.rs"].map(|file| folder.join(file));
        let built = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let write = |file: &Path, changed: SystemTime| {
            fs::create_dir_all(file.parent().expect("a folder")).expect("a directory");
            fs::File::create(file).and_then(|file| file.set_modified(changed)).expect("a file");
        };
        let crates = folder.join("crates");
        write(&source, built);
        assert!(is_fresh(&program, &crates).is_err(), "it is missing");
        write(&program, built);
        for (changed, expected) in [(built, true), (built + Duration::from_secs(1), false)] {
            write(&apart, built + Duration::from_secs(9));
            write(&source, changed);
            assert_eq!(is_fresh(&program, &crates).expect("all are there"), expected);
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
