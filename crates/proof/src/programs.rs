//! The programs of other crates, which tests start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// The variable that names a folder in which the tested programs are built already: `make test` builds them once, for all stages.
const TESTED: &str = "TESTED";

/// The program of another package, in the directory of a test's own program. It is built if it is missing or older than its sources,
/// unless it lies in the folder that `TESTED` names. Cargo builds the programs of all crates for the tests of the workspace, but for those of one crate only its own.
///
/// # Panics
/// It cannot be built, or it is missing in the folder that `TESTED` names.
pub fn beside(own: &Path, package: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _building = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = own.with_file_name(package);
    if is_tested(own) {
        assert!(program.is_file(), "{} is missing: build it, or unset {TESTED}", program.display());
    } else if !is_fresh(&program).unwrap_or(false) {
        let profile = own.parent().and_then(Path::file_name).filter(|directory| *directory != "debug");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", package, "--profile"]).arg(profile.unwrap_or("dev".as_ref()));
        assert!(cargo.status().expect("cargo starts").success(), "{package} cannot be built");
    }
    program
}

/// Whether `TESTED` names the folder of a test's own program. Programs in another folder are not those that were built for it.
fn is_tested(own: &Path) -> bool {
    std::env::var_os(TESTED).is_some_and(|tested| {
        let tested = fs::canonicalize(&tested).unwrap_or_else(|error| panic!("{TESTED}={}: {error}", tested.display()));
        own.parent().and_then(|folder| fs::canonicalize(folder).ok()) == Some(tested)
    })
}

/// Whether a program is as new as all files that it was compiled from. Cargo lists them beside it: sources of all its crates, what these
/// include of `schema/` and other folders. A change of features or profiles in a `Cargo.toml` is not seen.
fn is_fresh(program: &Path) -> io::Result<bool> {
    let built = fs::metadata(program)?.modified()?;
    for input in inputs(&fs::read_to_string(program.with_extension("d"))?) {
        if fs::metadata(input)?.modified()? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files that a list for `make` names. There are spaces between them; those in names have a backslash before them.
fn inputs(list: &str) -> Vec<String> {
    const SPACE: &str = "\0";
    let line = list.lines().next().unwrap_or_default().replace("\\ ", SPACE);
    let files = line.split_once(": ").map_or("", |(_, files)| files);
    files.split_whitespace().map(|file| file.replace(SPACE, " ")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_program_is_fresh_until_one_of_its_files_changes() {
        let folder = std::env::temp_dir().join(format!("dunlin programs-{}", std::process::id()));
        let [program, list, source, schema, apart] =
            ["program", "program.d", "crates/server/src/main.rs", "schema/some.json", "crates/sim/src/main.rs"]
                .map(|file| folder.join(file));
        let built = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let write = |file: &Path, text: &str, changed: SystemTime| {
            fs::create_dir_all(file.parent().expect("a folder")).expect("a directory");
            fs::write(file, text)
                .and_then(|()| fs::File::options().write(true).open(file)?.set_modified(changed))
                .expect("a file");
        };
        let text = [&program, &source, &schema].map(|file| file.display().to_string().replace(' ', "\\ "));
        write(&source, "", built);
        write(&schema, "", built);
        assert!(is_fresh(&program).is_err(), "it is missing");
        write(&program, "", built);
        assert!(is_fresh(&program).is_err(), "the list is missing");
        let later = built + Duration::from_secs(1);
        write(&list, &format!("{}: {} {}\n", text[0], text[1], text[2]), later);
        write(&apart, "", later);
        assert!(is_fresh(&program).expect("all are there"));
        for file in [&source, &schema] {
            write(file, "", later);
            assert!(!is_fresh(&program).expect("all are there"), "{}", file.display());
            write(file, "", built);
        }
        fs::remove_file(&schema).expect("it is there");
        assert!(is_fresh(&program).is_err(), "a file that it was compiled from is missing");
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
