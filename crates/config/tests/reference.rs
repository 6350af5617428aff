//! The reference page and other pages of the documentation, compared with the table of keys.

use std::{fs, path::Path};

use dunlin_config::{Config, ConfigInput, Format, reference};

use crate::messages::input;

#[test]
fn the_committed_reference_matches_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, form, written) in [
        ("docs/configuration.md", "markdown", reference::markdown()),
        ("schema/config.json", "json-schema", reference::json_schema()),
    ] {
        let committed = fs::read_to_string(root.join(path)).expect(path);
        assert!(committed == written, "{path} is stale: write it with `dunlin config-reference {form} > {path}`");
    }
}

/// A row of a table of the reference page: path, value, default, example, meaning.
fn rows_of_the_reference() -> Vec<[String; 5]> {
    let page = reference::markdown();
    let supported = page.split("\n## Ignored with a warning").next().unwrap_or_default();
    let rows = supported.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.strip_suffix(" |")?.splitn(5, " | ").map(str::trim).collect();
        let [path, value, default, example, meaning] = cells.try_into().expect("five cells");
        let path = path.split('`').next().unwrap_or_default();
        Some([path, value, default.trim_matches('`'), example, meaning].map(ToOwned::to_owned))
    });
    rows.collect()
}

/// A line of TOML that sets the key at a path to a value.
pub fn assignment(path: &str, value: &str) -> String {
    let in_list = |list: &str, beside: &str, key: &str| format!("{list} = [{{ {beside}{key} = {value} }}]");
    match path.split_once("[].") {
        Some((list @ "proxies", key)) => in_list(list, r#"name = "backend", endpoint = "http://localhost/", "#, key),
        Some((list, key)) if list.ends_with("namespaces") => in_list(list, r#"name = "chat", "#, key),
        Some((list, key)) => in_list(list, "", key),
        None => format!("{path} = {value}"),
    }
}

fn assert_accepted(toml: &str) {
    match Config::from_input(&input(Format::Toml, toml)) {
        Ok((_, warnings)) => assert_eq!(warnings, [], "{toml}"),
        Err(problems) => panic!("{toml}\n{problems}"),
    }
}

/// Whether a document of TOML sets the key at a path.
fn sets(document: &toml::Value, path: &str) -> bool {
    path.split('.')
        .try_fold(document, |table, part| match part.strip_suffix("[]") {
            Some(list) => table.get(list)?.get(0),
            None => table.get(part),
        })
        .is_some()
}

#[test]
fn defaults_and_examples_of_the_reference_are_valid() {
    let rows = rows_of_the_reference();
    assert!(!rows.is_empty());
    for [path, value, default, example, meaning] in &rows {
        assert!(meaning.ends_with('.'), "{path}: {meaning}");
        // Tables are described key by key.
        if value == "table" {
            continue;
        }
        assert!(!default.is_empty() || !example.is_empty(), "{path} has neither a default nor an example");
        if !default.is_empty() {
            assert_accepted(&assignment(path, default));
        }
        if !default.is_empty() && !path.contains("[]") {
            let text = default.trim_matches('"').to_owned();
            let variables = vec![(format!("DUNLIN_{}", path.to_ascii_uppercase().replace('.', "_")), text)];
            let read = Config::from_input(&ConfigInput { variables, ..ConfigInput::default() });
            assert_eq!(read.unwrap_or_else(|problems| panic!("{problems}")).1, []);
        }
        if !example.is_empty() {
            let example: Vec<_> = example.split("<br>").map(|line| line.trim_matches('`')).collect();
            let example = example.join("\n");
            assert_accepted(&example);
            let document: toml::Value = toml::from_str(&example).expect("TOML");
            assert!(sets(&document, path), "the example of {path} does not set it");
        }
    }
}

/// Texts in backticks that are paths of keys, as far as their first part tells.
fn keys_in(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |text: &&str| {
        let tops =
            ["client.", "channel.", "net.", "room.", "shutdown.", "websocket.", "http_server.", "http_api.", "rpc."];
        tops.iter().any(|top| text.starts_with(top))
            && text.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_'))
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

#[test]
fn other_pages_agree_with_the_reference_about_keys() {
    let rows = rows_of_the_reference();
    let default_of = |path: &str| rows.iter().find(|row| row[0] == path).map(|row| row[2].as_str());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = 0;
    for page in ["security.md", "operating.md", "tokens.md", "migrating-from-centrifugo.md"] {
        let text = fs::read_to_string(root.join(page)).expect(page);
        for line in text.lines() {
            for key in keys_in(line) {
                found += 1;
                let known = default_of(key).is_some()
                    || keys_in_namespaces(key).iter().any(|path| default_of(path).is_some())
                    || Config::from_input(&input(Format::Toml, &format!("{key} = 0")))
                        .is_err_and(|problems| !problems.to_string().contains("is unknown"));
                assert!(known, "{page} names {key}, which is no key: {line}");
            }
            for (before, _) in line.match_indices("off by default").map(|(at, _)| line.split_at(at)) {
                let Some(key) =
                    before.trim_end_matches([' ', ',', ';']).strip_suffix('`').and_then(|text| text.rsplit('`').next())
                else {
                    continue;
                };
                let default = default_of(key).unwrap_or_default();
                assert!(["", "0", "false"].contains(&default), "{page}: {key} is {default} by default: {line}");
            }
        }
    }
    assert!(found > 50, "{found} keys were found");
}

/// Where `room.memory_limit` is found: in the options of a namespace.
fn keys_in_namespaces(key: &str) -> [String; 2] {
    [format!("channel.namespaces[].{key}"), format!("client.{key}")]
}

#[test]
fn the_examples_of_the_reference_are_equal_in_three_formats() {
    let page = reference::markdown();
    let read = |language: &str, format| {
        let text =
            page.split(&format!("```{language}\n")).nth(1).and_then(|text| text.split("```").next()).expect(language);
        let (mut config, warnings) = Config::from_input(&input(format, text)).expect(language);
        assert_eq!(warnings, []);
        config.file = None;
        format!("{config:?}")
    };
    let toml = read("toml", Format::Toml);
    assert!(toml.contains("https://example.com"));
    assert_eq!(read("yaml", Format::Yaml), toml);
    assert_eq!(read("json", Format::Json), toml);
}
