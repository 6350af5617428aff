//! The programs of other crates, which tests start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

/// The program of another package, in the directory of a test's own program. It is built if it is missing or older than its sources.
/// Cargo builds the programs of all crates for the tests of the workspace, but for those of one crate only its own.
///
/// # Panics
/// It cannot be built.
pub fn beside(own: &Path, package: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _building = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = own.with_file_name(package);
    if !is_fresh(&program).unwrap_or(false) {
        let profile = own.parent().and_then(Path::file_name).filter(|directory| *directory != "debug");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", package, "--profile"]).arg(profile.unwrap_or("dev".as_ref()));
        assert!(cargo.status().expect("cargo starts").success(), "{package} cannot be built");
    }
    program
}

/// Whether a program is as new as its sources, which the file that cargo writes beside it lists.
fn is_fresh(program: &Path) -> io::Result<bool> {
    let built = fs::metadata(program)?.modified()?;
    let listed = fs::read_to_string(program.with_extension("d"))?;
    let (_, sources) = listed.split_once(": ").ok_or(io::ErrorKind::InvalidData)?;
    let changed = |source: &str| -> io::Result<SystemTime> { fs::metadata(source)?.modified() };
    let sources = sources.trim_end().replace("\\ ", "\0");
    let mut times = sources.split(' ').map(|source| changed(&source.replace('\0', " ")));
    times.try_fold(true, |is_fresh, changed| Ok(is_fresh && changed? <= built))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_fresh_until_a_source_changes() {
        let folder = std::env::temp_dir().join(format!("dunlin-programs-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let [program, one, other] = ["program", "one.rs", "the other.rs"].map(|name| folder.join(name));
        let built = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let write = |file: &Path, changed: SystemTime| {
            fs::write(file, "")
                .and_then(|()| fs::File::options().append(true).open(file)?.set_modified(changed))
                .expect("a file");
        };
        assert!(is_fresh(&program).is_err(), "it is missing");
        write(&program, built);
        assert!(is_fresh(&program).is_err(), "nothing says of what it is built");
        let escaped = other.display().to_string().replace(' ', "\\ ");
        let listed = format!("{}: {} {escaped}\n", program.display(), one.display());
        fs::write(folder.join("program.d"), listed).expect("a list");
        write(&one, built);
        assert!(is_fresh(&program).is_err(), "a source is gone");
        for (changed, expected) in [(built, true), (built + Duration::from_secs(1), false)] {
            write(&other, changed);
            assert_eq!(is_fresh(&program).expect("all are there"), expected);
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
