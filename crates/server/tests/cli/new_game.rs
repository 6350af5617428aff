//! `dunlin new-game`. `make guides` also builds the new crate.

use std::fs;

use serde_json::Value;

use super::{Folder, dunlin, stderr, stdout};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn a_new_game_is_a_crate_with_a_page() {
    let folder = Folder::new("new-game");
    let made = dunlin(&folder, &["new-game", "comets"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert_eq!(stdout(&made), "wrote comets; play it with: cd comets && dunlin dev\n");
    let read = |file: &str| fs::read_to_string(folder.0.join("comets").join(file)).expect(file);
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("name = \"comets\"\n"), "{manifest}");
    let source = r#"dunlin-game = { git = "https://github.com/dunlin-project/dunlin" }"#;
    assert!(manifest.contains(source), "{manifest}");
    assert!(read("src/main.rs").contains(r#".with("comets", "#));
    assert!(read("config.json").contains(r#""simulation": "comets""#));
    for file in [
        "src/tests.rs",
        "page/index.html",
        "page/style.css",
        "page/game.js",
        "Dockerfile",
        "README.md",
        ".gitignore",
        ".dockerignore",
    ] {
        let text = read(file);
        assert!(!text.is_empty() && !text.contains("NAME") && !text.contains("SOURCE"), "{file}");
    }
    assert!(read("page/room-client.min.js").contains("with centrifuge (MIT"));
    assert!(!folder.0.join("comets/Cargo.lock").exists());
}

#[test]
fn a_game_can_use_a_checkout() {
    let folder = Folder::new("new-game-checkout");
    let made = dunlin(&folder, &["new-game", "comets", "--crates", CRATES]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let manifest = fs::read_to_string(folder.0.join("comets/Cargo.toml")).expect("a manifest");
    let crates = fs::canonicalize(CRATES).expect("the crates");
    let source = format!("dunlin-game = {{ path = {:?} }}", crates.join("game").display().to_string());
    assert!(manifest.contains(&source), "{manifest}");
    let locked = fs::read_to_string(folder.0.join("comets/Cargo.lock")).expect("the versions of the checkout");
    // Cargo warns at each build of an optimised package that does not exist.
    let optimised: Vec<_> =
        manifest.split("\n[profile.dev.package.").skip(1).filter_map(|rest| rest.split(']').next()).collect();
    assert!(optimised.contains(&"dunlin-rooms"), "{manifest}");
    for package in optimised.into_iter().filter(|package| *package != "\"*\"") {
        assert!(locked.contains(&format!("name = \"{package}\"\n")), "{package}");
    }
}

#[test]
fn invalid_names_and_existing_folders_are_refused() {
    let folder = Folder::new("new-game-refused");
    folder.file("kept", "text");
    let cases: [(&[&str], &str); 6] = [
        (
            &["new-game", "Stars"],
            "\"Stars\" cannot be the name of a game: write a name that begins with a letter from a to z",
        ),
        (
            &["new-game", "a/b"],
            "\"a/b\" cannot be the name of a game: write letters from a to z, digits, \"-\" and \"_\"",
        ),
        (&["new-game", "fn"], "\"fn\" cannot be the name of a game: Rust or Cargo uses it: choose another one"),
        (
            &["new-game", "tag"],
            "\"tag\" cannot be the name of a game: a game of this name ships with Dunlin: choose another one",
        ),
        (&["new-game", "kept"], "kept exists here already: use another name, or remove it"),
        (
            &["new-game", "x", "--crates", "/nowhere"],
            "--crates /nowhere: there is no game/Cargo.toml: name the folder `crates` of a checkout",
        ),
    ];
    for (args, message) in cases {
        let refused = dunlin(&folder, args);
        assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), ""), "{args:?}");
        assert!(stderr(&refused).contains(message), "{}", stderr(&refused));
    }
    let files: Vec<_> = fs::read_dir(&folder.0).expect("the folder").collect();
    assert_eq!(files.len(), 1, "nothing was written");
    assert_eq!(fs::read_to_string(folder.0.join("kept")).ok().as_deref(), Some("text"));
}

/// The instructions of a Dockerfile: name and arguments.
fn instructions(dockerfile: &str) -> Vec<(String, String)> {
    let is_comment = |line: &&str| line.starts_with('#') || line.is_empty();
    let lines: Vec<&str> = dockerfile.lines().filter(|line| !is_comment(line)).collect();
    let text = lines.join("\n").replace("\\\n", " ");
    let parsed = text.lines().map(|line| line.split_once(' ').expect("an instruction with arguments"));
    parsed.map(|(name, arguments)| (name.to_owned(), arguments.trim().to_owned())).collect()
}

/// `make packages` builds the image and runs it.
#[test]
fn the_dockerfile_fits_the_crate_its_configuration_and_the_command_line() {
    let folder = Folder::new("new-game-image");
    assert_eq!(dunlin(&folder, &["new-game", "comets"]).status.code(), Some(0));
    let game = folder.0.join("comets");
    let read = |file: &str| fs::read_to_string(game.join(file)).expect(file);
    let instructions = instructions(&read("Dockerfile"));
    let all = |name: &str| -> Vec<&str> {
        instructions.iter().filter(|(is, _)| is == name).map(|(_, arguments)| arguments.as_str()).collect()
    };
    let known = ["FROM", "WORKDIR", "RUN", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"];
    assert!(instructions.iter().all(|(name, _)| known.contains(&name.as_str())), "{instructions:?}");

    // The Dockerfile uses the compiler of the manifest, and Cargo.lock, which determines the versions, is part of the
    // build context.
    let version = read("Cargo.toml").split("rust-version = \"").nth(1).expect("a version")[..4].to_owned();
    assert_eq!(all("FROM"), [format!("rust:{version}-slim-bookworm AS build").as_str(), "debian:bookworm-slim"]);
    assert!(all("RUN").contains(&"cargo build --release --locked --target-dir /target"), "{instructions:?}");
    let ignored = read(".dockerignore");
    for file in ["Cargo.lock", "Cargo.toml", "config.json", "src"] {
        assert!(
            !ignored.lines().chain(read(".gitignore").lines()).any(|line| line.trim_matches('/') == file),
            "{file}"
        );
    }

    // The copied files exist, and the image runs the copied binary.
    let copied = all("COPY");
    assert_eq!(copied[..2], [". .", "--from=build /target/release/comets /usr/bin/comets"]);
    let (source, configuration) = copied[2].split_once(' ').expect("a source and a target");
    assert!(copied.len() == 3 && game.join(source).is_file(), "{copied:?}");
    assert_eq!(all("ENTRYPOINT"), [r#"["/usr/bin/comets"]"#]);
    let command: Vec<String> = serde_json::from_str(all("CMD")[0]).expect("a list");
    assert_eq!(command, ["serve", "-c", configuration, "--address", "0.0.0.0"]);
    let help = dunlin(&folder, &["serve", "--help"]);
    assert!(stdout(&help).contains("-c, --config") && stdout(&help).contains("--address"), "{}", stdout(&help));

    let config: Value = serde_json::from_str(&read("config.json")).expect("JSON");
    assert_eq!(all("EXPOSE"), [config["http_server"]["port"].to_string()]);
    let user: Vec<u32> = all("USER")[0].split(':').map(|id| id.parse().expect("a number")).collect();
    assert!(user.iter().all(|id| *id > 0), "not root: {user:?}");
}
