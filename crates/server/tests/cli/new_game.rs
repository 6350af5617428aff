//! `dunlin new-game`. `make guides` also builds what it writes.

use std::fs;

use super::{Folder, dunlin, stderr, stdout};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn a_new_game_is_a_crate_with_a_page() {
    let folder = Folder::new("new-game");
    let made = dunlin(&folder, &["new-game", "comets"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert_eq!(stdout(&made), "wrote comets; try it with: cd comets && cargo test\n");
    let read = |file: &str| fs::read_to_string(folder.0.join("comets").join(file)).expect(file);
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("name = \"comets\"\n"), "{manifest}");
    let source = r#"dunlin-game = { git = "https://github.com/dunlin-project/dunlin" }"#;
    assert!(manifest.contains(source), "{manifest}");
    assert!(read("src/main.rs").contains(r#".with("comets", "#));
    assert!(read("config.json").contains(r#""simulation": "comets""#));
    for file in ["src/tests.rs", "index.html", "Dockerfile", "README.md", ".gitignore", ".dockerignore"] {
        let text = read(file);
        assert!(!text.is_empty() && !text.contains("NAME") && !text.contains("SOURCE"), "{file}");
    }
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
    assert!(folder.0.join("comets/Cargo.lock").exists(), "the versions of the checkout");
}

#[test]
fn bad_names_and_folders_that_exist_are_refused() {
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
