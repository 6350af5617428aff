//! Configurations and the messages about them: `tests/messages.txt` contains the cases. After an intended change of a
//! message, `UPDATE_EXPECT=1 cargo test -p dunlin-config messages` rewrites the file; review the diff.

use std::{fmt::Write as _, fs, path::Path};

use dunlin_config::{Config, ConfigInput, Document, Flag, Format, Problems, reference};
use proptest::prelude::*;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");

/// One case: a title, then parts that each begin with a line `--- name`.
struct Case<'t> {
    title: &'t str,
    parts: Vec<(&'t str, &'t str)>,
}

#[test]
fn every_case_has_the_expected_message() {
    let text = fs::read_to_string(CASES).expect("the cases are there");
    let (introduction, cases) = parse_cases(&text);
    assert!(!cases.is_empty(), "the cases were found");
    let mut written = introduction.to_owned();
    for case in &cases {
        write_case(&mut written, case);
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(CASES, written).expect("the cases can be written");
        return;
    }
    for (expected, found) in text.split("\n=== ").zip(written.split("\n=== ")) {
        assert_eq!(expected, found);
    }
    assert_eq!(text.len(), written.len());
}

/// The page says "copy its keys". The case with these namespaces is in `messages.txt`.
#[test]
fn a_namespace_with_the_keys_of_each_line_of_the_page_is_accepted() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/choosing.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let (table, _) = page.split_once("\n## ").expect("the first table has a heading behind it");
    let lines: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let cases = fs::read_to_string(CASES).expect("the cases are there");
    let (_, cases) = parse_cases(&cases);
    let case = cases.iter().find(|case| case.title == "every line of docs/choosing.md").expect("the case is there");
    let (_, file) = case.parts.first().expect("it has a file");
    let file: serde_json::Value = serde_json::from_str(file).expect("it is JSON");
    let namespaces = file["channel"]["namespaces"].as_array().expect("it has namespaces");
    let mut of_chat = Vec::new();
    // The last line is about rooms.
    for (line, namespace) in lines.iter().rev().skip(1).rev().zip(namespaces) {
        let mut told = keys_of_line(line);
        if line.contains("as above") || line.contains("as for chat") {
            told.extend(of_chat.iter().filter(|(key, _)| key != "durability").cloned());
        } else if of_chat.is_empty() {
            of_chat.clone_from(&told);
        }
        told.sort();
        let mut copied: Vec<_> = namespace.as_object().expect("it is a table").keys().cloned().collect();
        copied.retain(|key| key != "name");
        copied.sort();
        assert_eq!(told.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), copied, "{line}");
        for (key, value) in told.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            let copied = namespace[&key].as_str().map_or_else(|| namespace[&key].to_string(), ToOwned::to_owned);
            assert_eq!(copied, value, "{key} in {line}");
        }
    }
    assert!(lines.len() == 8 && namespaces.len() >= 7, "all lines were found");
}

/// The keys that a line of the page names, and their values where it has them.
fn keys_of_line(line: &str) -> Vec<(String, Option<String>)> {
    let cells: Vec<_> = line.trim_matches('|').split(" | ").map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let [_, delivery, history, durability, _] = cells.as_slice() else { panic!("{line}") };
    let (mut delivery, mut durability) = (delivery.clone(), durability.clone());
    // What is the default need not be copied.
    let delivered = delivery.next().filter(|value| *value != "reliable").map(|value| ("delivery", Some(value)));
    let durability = durability.next().filter(|value| *value != "memory").map(|value| ("durability", Some(value)));
    let named = delivery.chain(history.clone()).map(|key| match key.split_once(": ") {
        Some((key, value)) => (key, Some(value)),
        None => (key, None),
    });
    let all = named.chain(delivered).chain(durability);
    all.map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned))).collect()
}

#[test]
fn namespaces_of_the_file_reach_the_engine() {
    let text = r#"{"channel": {"history_meta_ttl": "1h", "namespaces": [{"name": "chat", "history_size": 7, "history_ttl": "90s",
        "force_recovery": true, "presence": true}, {"name": "prices", "delivery": "latest", "conflation_key": "symbol"}]}}"#;
    let (config, warnings) = Config::from_input(&input(Format::Json, text)).expect("it is good");
    assert!(warnings.is_empty());
    let [chat, prices] = config.engine.namespaces.as_slice() else { panic!("two namespaces") };
    assert_eq!((chat.name.as_str(), chat.history_size, chat.history_ttl_ms), ("chat", 7, 90_000));
    assert_eq!((chat.history_meta_ttl_ms, chat.force_recovery, chat.presence), (3_600_000, true, true));
    assert_eq!(prices.delivery, dunlin_engine::options::Lane::Latest);
    assert_eq!(prices.conflation_key.as_deref(), Some("symbol"));
}

#[test]
fn empty_tables_are_the_defaults() {
    let defaults = format!("{:?}", Config::default());
    for (format, text) in [
        (Format::Json, "{}"),
        (Format::Json, r#"{"client": {}, "channel": null}"#),
        (Format::Yaml, "{}\n"),
        (Format::Yaml, "client:\nchannel:\n"),
        (Format::Toml, "[client]\n"),
    ] {
        let (mut config, warnings) = Config::from_input(&input(format, text)).expect(text);
        assert!(warnings.is_empty(), "{text}");
        assert_eq!(config.file.take().as_deref(), Some("test"));
        assert_eq!(format!("{config:?}"), defaults, "{text}");
    }
}

#[test]
fn no_message_shows_a_secret() {
    let secret = "correct-horse-battery-staple-again";
    for (format, text) in [
        (Format::Json, format!(r#"{{"client": {{"token": {{"hmac_secret_key": ["{secret}"]}}}}}}"#)),
        (
            Format::Json,
            format!(
                r#"{{"client": {{"token": {{"hmac_secret_key": "{secret}"}}}}, "http_api": {{"key": "{secret}",}}}}"#
            ),
        ),
        (Format::Yaml, format!("http_api:\n  key: \"{secret}\n")),
        (Format::Yaml, format!("http_api:\n  key: {secret}: x\n")),
        (Format::Toml, format!("[http_api]\nkey = \"{secret}\n")),
        (Format::Toml, format!("[http_api]\nkey = {secret}\n")),
    ] {
        let problems = Config::from_input(&input(format, &text)).expect_err(&text);
        assert!(!problems.to_string().contains(secret), "{problems}");
    }
    let text =
        format!(r#"{{"client": {{"token": {{"hmac_secret_key": "{secret}"}}}}, "http_api": {{"key": "{secret}"}}}}"#);
    let (config, warnings) = Config::from_input(&input(Format::Json, &text)).expect("it is good");
    assert!(!format!("{config:?}{warnings:?}").contains(secret));
}

#[test]
fn the_list_of_errors_of_a_file_is_bounded() {
    let keys: Vec<_> = (0..20_000).map(|n| format!(r#""nonsense_{n}": 1"#)).collect();
    let problems = Config::from_input(&input(Format::Json, &format!("{{{}}}", keys.join(",")))).expect_err("nonsense");
    assert_eq!(problems.errors.len(), 50);
    assert!(problems.to_string().ends_with("\nand 19950 more"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_panics(text in "\\PC{0,300}", kind in 0..3_u8) {
        let _ = Config::from_input(&input(format(kind), &text));
    }

    #[test]
    fn no_value_panics(path in proptest::sample::select(all_paths()), value in value(), variable: bool) {
        let mut input = ConfigInput::default();
        if variable {
            let name = format!("DUNLIN_{}", path.to_ascii_uppercase().replace('.', "_"));
            input.variables = vec![(name, value.to_string())];
        } else {
            let nested = path.rsplit('.').fold(value, |inner, part| serde_json::json!({ part: inner }));
            input.document = Some(Document { name: "t.json".to_owned(), format: Format::Json, text: nested.to_string() });
        }
        let _ = Config::from_input(&input);
    }
}

fn format(kind: u8) -> Format {
    match kind {
        0 => Format::Json,
        1 => Format::Yaml,
        _ => Format::Toml,
    }
}

/// Dotted paths of the JSON Schema, lists left out.
fn all_paths() -> Vec<String> {
    fn collect(schema: &serde_json::Value, prefix: &str, paths: &mut Vec<String>) {
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            collect(inner, &path, paths);
            paths.push(path);
        }
    }
    let schema = serde_json::from_str(&reference::json_schema()).expect("the schema is JSON");
    let mut paths = Vec::new();
    collect(&schema, "", &mut paths);
    assert!(!paths.is_empty());
    paths
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "\\PC{0,20}".prop_map(Into::into),
        "-?[0-9]{1,20}(ms|s|h)?".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map("(name|enabled|key|[a-z_]{0,9})", inner, 0..4)
                .prop_map(|table| serde_json::Value::Object(table.into_iter().collect())),
        ]
    })
}

pub fn input(format: Format, text: &str) -> ConfigInput {
    let document = Document { name: "test".to_owned(), format, text: text.to_owned() };
    ConfigInput { document: Some(document), ..ConfigInput::default() }
}

fn parse_cases(text: &str) -> (&str, Vec<Case<'_>>) {
    let mut chunks = text.split("\n=== ");
    let introduction = chunks.next().unwrap_or_default();
    let cases = chunks.map(|chunk| {
        let mut parts = chunk.split("\n--- ");
        let title = parts.next().unwrap_or_default().trim_end();
        let parts = parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect();
        Case { title, parts }
    });
    (introduction, cases.collect())
}

/// The case as it stands in the file, with what is really said.
fn write_case(out: &mut String, case: &Case<'_>) {
    let mut input = ConfigInput::default();
    let _ = write!(out, "\n=== {}", case.title);
    for (name, body) in case.parts.iter().filter(|(name, _)| *name != "says") {
        let _ = write!(out, "\n--- {name}\n{}", body.trim_end());
        match *name {
            "env" => {
                let pairs = body.lines().filter_map(|line| line.split_once('='));
                input.variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            }
            "--port" => {
                input.flags = vec![Flag { name: "--port", path: "http_server.port", value: body.trim().to_owned() }];
            }
            file => {
                let format = Format::of(Path::new(file)).expect(file);
                input.document = Some(Document { name: file.to_owned(), format, text: (*body).to_owned() });
            }
        }
    }
    let message = match Config::from_input(&input) {
        Ok((_, warnings)) => Problems { warnings, ..Problems::default() },
        Err(problems) => problems,
    };
    out.push_str("\n--- says");
    for error in &message.errors {
        let _ = write!(out, "\nerror: {error}");
    }
    for warning in &message.warnings {
        let _ = write!(out, "\nwarning: {warning}");
    }
    if message.errors.is_empty() && message.warnings.is_empty() {
        out.push_str("\ngood");
    }
    out.push('\n');
}

/// A backend that is to be sent such fields would silently get none.
#[test]
fn emulated_headers_are_refused_by_name() {
    let toml = crate::reference::assignment("proxies[].emulated_headers", r#"["authorization"]"#);
    let problems = Config::from_input(&input(Format::Toml, &toml)).expect_err("it is refused").to_string();
    assert!(problems.contains("emulated_headers") && problems.contains("remove the key"), "{problems}");
}
