//! `dunlin new-game`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{Failure, output};

/// Maximum length of a name.
const NAME_CHARS_MAX: usize = 40;

/// Names that would shadow a crate that the game needs, or that Cargo refuses.
const TAKEN: [&str; 12] = [
    "core",
    "std",
    "alloc",
    "test",
    "dunlin",
    "dunlin-game",
    "dunlin_game",
    "proc-macro",
    "build",
    "deps",
    "examples",
    "incremental",
];

/// Keywords of Rust, which Cargo refuses as names.
const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final fn \
                        for gen if impl in let loop macro match mod move mut override priv pub ref return self static \
                        struct super trait true try type typeof unsafe unsized use virtual where while yield";

/// The simulations that every server has.
const BUILT_IN: [&str; 3] = ["crowd", "tag", "treasure_hunt"];

/// The default source of Dunlin's crates.
const REPOSITORY: &str = r#"git = "https://github.com/dunlin-project/dunlin""#;

/// The game of a new crate: the example of `docs/rooms.md`.
const GAME: &str = include_str!("../../../game/examples/own_game.rs");

/// The other files: path and text, with places for the name and the source of Dunlin's crates.
const FILES: [(&str, &str); 10] = [
    ("Cargo.toml", include_str!("new_game/Cargo.toml.in")),
    ("src/tests.rs", include_str!("new_game/tests.rs.in")),
    ("config.json", include_str!("new_game/config.json")),
    ("page/index.html", include_str!("new_game/page/index.html")),
    ("page/style.css", include_str!("new_game/page/style.css")),
    ("page/game.js", include_str!("new_game/page/game.js")),
    ("Dockerfile", include_str!("new_game/Dockerfile.in")),
    ("README.md", include_str!("new_game/README.md.in")),
    (".gitignore", include_str!("new_game/gitignore")),
    (".dockerignore", include_str!("new_game/dockerignore")),
];

/// The client of rooms: `web/room-client`, bundled. With it, a page needs no build step.
const ROOM_CLIENT: &str = include_str!("new_game/page/room-client.min.js");

/// Write a crate with a game, its tests, a page and a Dockerfile.
#[derive(Debug, Args)]
pub(super) struct NewGameArgs {
    /// Name of the game, of its crate, and of the new folder
    #[arg(value_name = "NAME")]
    name: String,
    /// Directory of Dunlin's crates, to use a checkout instead of the repository
    #[arg(long, value_name = "DIR")]
    crates: Option<PathBuf>,
}

pub(super) fn run(args: &NewGameArgs) -> Result<(), Failure> {
    let NewGameArgs { name, crates } = args;
    check_name(name).map_err(|why| Failure::Usage(format!("{name:?} cannot be the name of a game: {why}")))?;
    let checkout = crates.as_deref().map(checked).transpose()?;
    let folder = Path::new(name);
    if let Err(error) = fs::create_dir(folder) {
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::Usage(format!("{name} exists here already: use another name, or remove it"))
            }
            _ => Failure::File(folder.to_owned(), error),
        });
    }
    let source = match &checkout {
        None => REPOSITORY.to_owned(),
        Some(crates) => format!("path = {:?}", crates.join("game").display().to_string()),
    };
    write(folder, "src/main.rs", &main_of(name))?;
    for (path, text) in FILES {
        write(folder, path, &text.replace("NAME", name).replace("SOURCE", &source))?;
    }
    write(folder, "page/room-client.min.js", ROOM_CLIENT)?;
    if let Some(crates) = &checkout {
        use_same_versions(crates, folder)?;
    }
    output::line(format_args!("wrote {name}; play it with: cd {name} && dunlin dev"))
}

/// The example's game under this name, with tests.
fn main_of(name: &str) -> String {
    let named = GAME.replace(".with(\"stars\"", &format!(".with(\"{name}\""));
    named.replace("\nfn main()", "\n#[cfg(test)]\nmod tests;\n\nfn main()")
}

/// Checks that Cargo accepts the name as a crate and Dunlin as a simulation.
fn check_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_".contains(letter);
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err("write a name that begins with a letter from a to z");
    }
    if !name.chars().all(is_allowed) {
        return Err("write letters from a to z, digits, \"-\" and \"_\"");
    }
    if name.len() > NAME_CHARS_MAX {
        return Err("write at most 40 characters");
    }
    if TAKEN.contains(&name) || KEYWORDS.split_whitespace().any(|word| word == name) {
        return Err("Rust or Cargo uses it: choose another one");
    }
    if BUILT_IN.contains(&name) {
        return Err("a game of this name ships with Dunlin: choose another one");
    }
    Ok(())
}

/// The directory of Dunlin's crates as an absolute path.
fn checked(crates: &Path) -> Result<PathBuf, Failure> {
    if !crates.join("game/Cargo.toml").is_file() {
        let text = format!(
            "--crates {}: there is no game/Cargo.toml: name the folder `crates` of a checkout",
            crates.display()
        );
        return Err(Failure::Usage(text));
    }
    fs::canonicalize(crates).map_err(|error| Failure::File(crates.to_owned(), error))
}

/// Starts with the versions of other crates in the checkout's lock file, with which Dunlin was compiled and tested.
fn use_same_versions(crates: &Path, folder: &Path) -> Result<(), Failure> {
    let Some(lock) = crates.parent().map(|checkout| checkout.join("Cargo.lock")).filter(|lock| lock.is_file()) else {
        return Ok(());
    };
    fs::copy(&lock, folder.join("Cargo.lock")).map(|_| ()).map_err(|error| Failure::File(lock, error))
}

fn write(folder: &Path, path: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(path);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    written.map_err(|error| Failure::File(path, error))
}

#[cfg(test)]
mod tests {
    use dunlin_games::Registry;

    use super::*;

    #[test]
    fn names_that_cargo_or_dunlin_use_are_refused() {
        for name in ["stars", "my-game", "my_game2", &"x".repeat(NAME_CHARS_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        let bad =
            ["", "2d", "-x", "_x", "Stars", "my game", "a/b", "..", "é", "fn", "test", "dunlin", "tag", "deps", &long];
        for name in bad {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert_eq!(Registry::built_in().names().collect::<Vec<_>>(), BUILT_IN);
    }

    #[test]
    fn the_game_has_its_name_and_its_tests() {
        let main = main_of("comets");
        assert!(main.contains(r#"Registry::built_in().with("comets", "#), "{main}");
        assert!(main.contains("#[cfg(test)]\nmod tests;\n"), "{main}");
    }
}
