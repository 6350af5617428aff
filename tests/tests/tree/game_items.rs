//! Each public item of `dunlin-game` has an example in its documentation, which `cargo test --doc` compiles.

use std::collections::BTreeSet;

use crate::{production_files, read};

const FACADE: &str = "crates/game/src/lib.rs";
/// The crates whose items the facade exports. Only `run` is documented in the facade itself.
const SOURCES: [&str; 2] = ["crates/games/src/", "crates/rooms/src/"];
/// The module of the facade whose items are not for games.
const INTERNALS: &str = "pub mod room_internals";
/// Minimum number of types, functions and methods that a game can use, which shows that the scan finds them. Raise it
/// when the interface grows.
const ITEMS_MIN: usize = 180;

#[test]
fn each_public_item_of_the_game_crate_has_an_example() {
    let facade = read(FACADE);
    let names = exported_names(&facade);
    let mut items = Vec::new();
    for file in production_files().into_iter().filter(|file| SOURCES.iter().any(|source| file.starts_with(source))) {
        items.extend(public_items(&read(&file), &names));
    }
    for name in &names {
        assert!(items.iter().any(|item| item.name == *name), "{FACADE} exports {name}, which the scan does not find");
    }
    assert!(items.len() >= ITEMS_MIN, "the scan finds {} items", items.len());
    let bare: Vec<&str> = items.iter().filter(|item| !item.has_example).map(|item| &*item.name).collect();
    assert!(bare.is_empty(), "{} of {} items have no example: {bare:#?}", bare.len(), items.len());
    assert!(facade.contains("/// ```no_run\n"), "`run` has an example");
}

/// The names after `pub use dunlin_…`, without those of the internals and without `run`.
fn exported_names(facade: &str) -> BTreeSet<String> {
    let facade = facade.split(INTERNALS).next().unwrap_or(facade);
    let uses = facade.split("pub use dunlin_").skip(1).filter_map(|rest| rest.split(';').next());
    let names = uses.flat_map(|path| path.split(['{', '}', ',', ':']).skip(1)).map(str::trim);
    names.filter(|name| !name.is_empty() && *name != "script").map(str::to_owned).collect()
}

struct Item {
    /// `Type`, `function` or `Type::method`.
    name: String,
    has_example: bool,
}

/// The items of a file that belong to these names. Relies on the formatter, as the other checks do.
fn public_items(text: &str, names: &BTreeSet<String>) -> Vec<Item> {
    let mut items = Vec::new();
    let (mut has_example, mut owner) = (false, None);
    // Unit tests are last in a file. A declaration `mod tests;` may come first, before the items.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    for line in text.lines() {
        let code = line.trim_start();
        if let Some(doc) = code.strip_prefix("///") {
            has_example |= doc.trim_start().starts_with("```");
            continue;
        }
        if code.starts_with("#[") {
            continue;
        }
        if line == "}" {
            owner = None;
        }
        if let Some(of) = line.strip_prefix("impl") {
            owner = owner_of(of).filter(|owner| names.contains(owner));
        }
        let name = match (item_name(code), line.starts_with(' '), &owner) {
            (Some(name), false, _) if names.contains(name) => Some(name.to_owned()),
            (Some(name), true, Some(owner)) => Some(format!("{owner}::{name}")),
            _ => None,
        };
        if code.starts_with("pub trait ") && !line.starts_with(' ') {
            owner.clone_from(&name);
        } else if owner.is_some() && line.starts_with("    fn ") && is_trait(text, owner.as_deref()) {
            let method = code.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next()).unwrap_or_default();
            items.push(Item { name: format!("{}::{method}", owner.as_deref().unwrap_or_default()), has_example });
        }
        items.extend(name.map(|name| Item { name, has_example }));
        has_example = false;
    }
    items
}

fn is_trait(text: &str, owner: Option<&str>) -> bool {
    owner.is_some_and(|owner| text.contains(&format!("\npub trait {owner}")))
}

/// The type of an inherent `impl`; `None` for the `impl` of a trait.
fn owner_of(rest: &str) -> Option<String> {
    let rest = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest.strip_prefix(' ')? };
    let (head, _) = rest.split_once('{')?;
    (!head.contains(" for ")).then(|| head.split(['<', ' ']).next().unwrap_or(head).to_owned())
}

/// The name of a public type, trait, function or constant.
fn item_name(code: &str) -> Option<&str> {
    let mut rest = code.strip_prefix("pub ")?;
    if let Some(function) = rest.strip_prefix("const fn ") {
        return function.split(['(', '<']).next();
    }
    for keyword in ["struct ", "enum ", "trait ", "type ", "fn ", "const "] {
        if let Some(named) = rest.strip_prefix(keyword) {
            rest = named;
            return rest.split(['(', '<', ' ', ':', ';', '{']).next();
        }
    }
    None
}

#[test]
fn an_item_without_an_example_is_found() {
    let text = "/// A thing.\n///\n/// ```\n/// assert!(true);\n/// ```\n#[derive(Debug)]\npub struct Thing<'a>(&'a u8);\n\n\
                impl<'a> Thing<'a> {\n    /// Makes one.\n    pub fn new() -> Self {\n        fn inner() {}\n    }\n\n    \
                /// ```\n    /// ```\n    pub const ONE: u8 = 1;\n\n    pub(crate) fn hidden() {}\n}\n\n\
                impl fmt::Debug for Thing<'_> {\n    fn fmt() {}\n}\n\n/// A rule.\npub trait Rule {\n    /// One.\n    \
                fn one(&self);\n\n    /// ```\n    /// ```\n    fn two(&self) {}\n}\n\npub fn other() {}\n";
    let names = ["Thing", "Rule"].map(str::to_owned).into();
    let found: Vec<(String, bool)> =
        public_items(text, &names).into_iter().map(|item| (item.name, item.has_example)).collect();
    let expected = [
        ("Thing", true),
        ("Thing::new", false),
        ("Thing::ONE", true),
        ("Rule", false),
        ("Rule::one", false),
        ("Rule::two", true),
    ];
    assert_eq!(found, expected.map(|(name, has_example)| (name.to_owned(), has_example)));
}

#[test]
fn exported_names_are_read() {
    let facade = "pub use dunlin::run;\npub use dunlin_games::{A, B};\n/// Why.\npub use dunlin_rooms::C;\npub mod testing {\n    \
                  pub use dunlin_games::script::{D, e};\n}\npub mod room_internals {\n    pub use dunlin_rooms::F;\n}\n";
    assert_eq!(exported_names(facade), ["A", "B", "C", "D", "e"].map(str::to_owned).into());
}
