//! Checks the rows against the table of keys, and the conversions of samples.

use std::collections::BTreeSet;

use super::*;
use crate::{Config, ConfigInput, Format, key_support, nearest::without_indices};

#[test]
fn every_path_of_the_rows_is_a_key_of_dunlin() {
    for (name, path) in &ROWS.keys {
        assert!(keys::at(path).is_some(), "{name}: there is no {path}");
    }
    for (name, path) in &ROWS.namespace_keys {
        let path = format!("channel.namespaces[].{path}");
        assert!(keys::at(&path).is_some(), "{name}: there is no {path}");
    }
    for (name, path) in ROWS.common_proxy_keys.iter().chain(&ROWS.proxy_keys) {
        assert!(keys::at(&format!("proxies[].{path}")).is_some(), "{name}: there is no {path}");
    }
    for path in ROWS.used_proxies.values() {
        assert!(keys::at(path).is_some(), "there is no {path}");
    }
    for (path, name) in ROWS.rpc_namespace_keys.iter().map(|(name, path)| (format!("rpc.namespaces[].{path}"), name)) {
        assert!(keys::at(&path).is_some(), "{name}: there is no {path}");
    }
}

#[test]
fn a_key_has_one_fate() {
    let maps = [&ROWS.keys, &ROWS.common_proxy_keys, &ROWS.used_proxies, &ROWS.needless, &ROWS.decisions, &ROWS.pro];
    let mut seen = BTreeSet::new();
    for name in maps.into_iter().flat_map(|map| map.keys()) {
        assert!(seen.insert(name), "{name} is there twice");
    }
}

/// The keys that v5 reads; in tables and lists with a path.
const OF_V5: &str = include_str!("keys_of_v5.txt");

#[test]
fn every_key_of_v5_is_known() {
    let names: Vec<_> = OF_V5.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(names.len() > 300, "the list was found");
    for name in names {
        let is_known = if let Some((list, key)) = name.split_once("[].") {
            let (path, renamed) = match list {
                "namespaces" => ("channel.namespaces", &ROWS.namespace_keys),
                "rpc_namespaces" => ("rpc.namespaces", &ROWS.rpc_namespace_keys),
                _ => (list, &ROWS.proxy_keys),
            };
            let is_current = keys::at(&format!("{path}.{key}")).is_some();
            is_current || renamed.contains_key(key) || ROWS.decisions.contains_key(key)
        } else {
            let variable = format!("CENTRIFUGO_{}", name.to_ascii_uppercase().replace('.', "_"));
            let migrated = migrate(None, &[(variable, "1".to_owned())]).expect(name);
            let is_set = !migrated.fates.iter().any(|(_, fate)| matches!(fate, Fate::Ignored(_)));
            let top = name.split('.').next().unwrap_or_default();
            is_set && (ROWS.has(top) || keys::at(top).is_some())
        };
        assert!(is_known, "schema/migration.json has no row for {name}");
    }
}

/// Version 6 has these under the same name, so they say nothing about the version of a file.
#[test]
fn tables_of_centrifugo_pro_do_not_show_the_version() {
    for name in ROWS.pro.keys() {
        assert!(former_keys(&[(name.clone(), Tree::Bool(true))]).is_empty(), "{name}");
        let migrated = of_json(&format!(r#"{{"{name}": {{"enabled": true}}, "consumers": [{{"name": "outbox"}}]}}"#));
        assert_eq!(migrated.decisions(), 1, "{name}");
        assert_eq!(
            migrated.tree.get("consumers").map(|list| list.to_json().to_string()).as_deref(),
            Some(r#"[{"name":"outbox"}]"#)
        );
    }
}

/// Keys that v6 brought: they have no row.
const NEW: &str = include_str!("new_in_v6.txt");

#[test]
fn every_key_of_centrifugo_has_a_row_or_is_new_in_v6() {
    let new: BTreeSet<_> = NEW.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect();
    let (mut missing, mut used) = (Vec::new(), BTreeSet::new());
    for leaf in key_support::leaves().into_iter().filter(|leaf| leaf.holding != key_support::Holding::Own) {
        let path = without_indices(&leaf.path).replace("[]", "");
        // Namespaces have the same keys as channels without one.
        let path = path.replace("channel.namespaces.", "channel.without_namespace.");
        let of_backend = backends::TABLES.iter().find_map(|table| path.strip_prefix(&format!("{table}.")));
        let listed = new
            .iter()
            .find(|table| is_in(&path, table) || of_backend.is_some_and(|key| is_in(&format!("backend.{key}"), table)));
        let mut rows = ROWS.keys.values();
        let is_converted = rows.any(|row| is_in(&path, row))
            || of_backend.is_some_and(|key| ROWS.common_proxy_keys.values().any(|row| is_in(key, row)));
        used.extend(listed.cloned());
        if !is_converted
            && listed.is_none()
            && path != "channel.without_namespace.name"
            && !path.starts_with("rpc.namespaces")
        {
            missing.push(path);
        }
    }
    assert!(missing.is_empty(), "no row, and not in new_in_v6.txt:\n{}", missing.join("\n"));
    let unused: Vec<_> = new.difference(&used).collect();
    assert!(unused.is_empty(), "in new_in_v6.txt, and no such key: {unused:?}");
}

fn is_in(path: &str, table: &str) -> bool {
    path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A value that the key at `path` accepts, and that is not its default where possible.
fn sample(path: &str) -> &'static str {
    match keys::at(path).map(|key| key.kind) {
        Some(ValueKind::Bool) => "true",
        Some(ValueKind::Int(..)) => "9",
        Some(ValueKind::Duration | ValueKind::DurationOrOff) => "\"9s\"",
        Some(ValueKind::Texts | ValueKind::Tables(_)) => "[]",
        Some(ValueKind::Table(_) | ValueKind::Any) => "{}",
        _ => "\"text\"",
    }
}

#[test]
fn every_row_puts_its_value_where_dunlin_reads_it() {
    // The names of backends count only with another key, and `cases.txt` has them.
    for (name, path) in ROWS.keys.iter().filter(|(name, _)| !name.ends_with("proxy_name")) {
        let value = sample(path);
        let migrated = of_json(&format!("{{{name:?}: {value}}}"));
        assert_eq!(migrated.fates, [(name.clone(), Fate::Renamed(path.clone()))], "{name}");
        let expected: Tree = serde_json::from_str(value).expect(value);
        assert_eq!(migrated.tree.get(path), Some(&expected), "{name}");
        let variable = format!("CENTRIFUGO_{}", name.to_ascii_uppercase());
        let migrated = migrate(None, &[(variable, value.trim_matches('"').to_owned())]).expect(name);
        if value != "[]" {
            assert_eq!(migrated.tree.get(path), Some(&expected), "{name}");
        }
        let former = [(name.clone(), expected)];
        assert_eq!(former_keys(&former), [name.as_str()], "{name} alone shows the version");
    }
}

fn of_json(text: &str) -> Migrated {
    migrate(Some(&document(Format::Json, text)), &[]).expect(text)
}

fn document(format: Format, text: &str) -> Document {
    Document { name: "old".to_owned(), format, text: text.to_owned() }
}

/// Each case: what it shows, the file, then `--- variables` (optional), `--- becomes`, `--- fates`.
const CASES: &str = include_str!("cases.txt");

#[test]
fn each_case_becomes_what_it_says() {
    let mut written = Vec::new();
    for case in CASES.trim().split("\n=== ") {
        let (head, _) = case.split_once("--- becomes").unwrap_or_else(|| panic!("{case}"));
        let (title, input) = head.trim_start_matches("=== ").split_once('\n').expect(head);
        let (file, variables) = input.split_once("--- variables\n").unwrap_or((input, ""));
        let format = match title.rsplit('.').next() {
            Some("yaml") => Format::Yaml,
            Some("toml") => Format::Toml,
            _ => Format::Json,
        };
        let variables: Vec<_> = variables
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let migrated = migrate(Some(&document(format, file)), &variables).expect(title);
        let text = migrated.text(format);
        // As JSON, because TOML has an order of its own.
        assert_eq!(Tree::parse(format, &text).expect(&text).to_json(), migrated.tree.to_json(), "{title}");
        let fates: Vec<_> = migrated.fates.iter().map(|(label, fate)| format!("{label}: {fate}")).collect();
        let input = ConfigInput { document: Some(document(format, &text)), ..ConfigInput::default() };
        let checked = match Config::from_input(&input) {
            Ok((_, warnings)) => warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>(),
            Err(problems) => problems.errors.iter().map(|error| format!("error: {error}")).collect(),
        };
        written.push(format!(
            "{title}\n{}--- becomes\n{text}--- fates\n{}\n--- check-config\n{}\n",
            head.trim_start_matches("=== ").split_once('\n').map_or("", |(_, input)| input),
            fates.join("\n"),
            checked.join("\n")
        ));
    }
    let written = format!("=== {}", written.join("\n=== "));
    if std::env::var_os("DUNLIN_WRITE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/migrate/cases.txt");
        std::fs::write(path, &written).expect(path);
        return;
    }
    assert_eq!(written.trim(), CASES.trim(), "look at the difference, and write the cases with DUNLIN_WRITE=1");
}

#[test]
fn a_converted_file_stays_as_it_is() {
    for case in
        CASES.trim().split("\n=== ").filter(|case| case.lines().next().is_some_and(|title| title.ends_with("json")))
    {
        let (_, rest) = case.split_once("--- becomes\n").expect(case);
        let (text, _) = rest.split_once("--- fates").expect(case);
        let again = of_json(text);
        assert_eq!(again.text(Format::Json), text);
        assert!(again.fates.iter().all(|(_, fate)| *fate == Fate::Kept), "{:?}", again.fates);
    }
}

#[test]
fn what_is_no_table_is_refused() {
    for text in ["[]", "3", "{", "\"text\""] {
        migrate(Some(&document(Format::Json, text)), &[]).expect_err(text);
    }
}
