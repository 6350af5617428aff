//! What is checked for a node that is about to start.

use dunlin_config::{Config, ConfigInput, Document, Format, Loaded, Problems, Program};
use dunlin_games::Registry;

fn start(text: &str, has_storage: bool) -> Result<Loaded, Problems> {
    let document = Document { name: "config.json".to_owned(), format: Format::Json, text: text.to_owned() };
    let input = ConfigInput { document: Some(document), ..ConfigInput::default() };
    Config::load_to_start(&input, &Registry::built_in(), Program { check_site: |_| Ok(()), has_storage })
}

#[test]
fn a_binary_without_rocksdb_refuses_a_storage() {
    let stores = r#"{"storage": {"path": "/var/lib/game"}, "channel": {"namespaces": [
        {"name": "field", "history_size": 100, "history_ttl": "1m", "room": {"simulation": "tag", "survival": "checkpoint"}}
    ]}}"#;
    if let Err(problems) = start(stores, true) {
        panic!("{problems}");
    }
    let problems = start(stores, false).expect_err("no storage");
    let [problem] = problems.errors.as_slice() else { panic!("{problems:?}") };
    assert_eq!(problem.path, "storage.path");
    assert!(problem.text.starts_with("this program was built without a storage: build it with"), "{}", problem.text);

    // Without the key, the message about it comes first, so that nobody starts with rooms that do not survive.
    let path = r#""storage": {"path": "/var/lib/game"}, "#;
    let problems = start(&stores.replace(path, ""), false).expect_err("no storage");
    assert!(problems.errors.iter().all(|problem| problem.path.contains("survival")), "{problems:?}");
    assert!(start("{}", false).is_ok());
}

#[test]
fn forwards_leave_half_of_the_surveys_to_others() {
    let forwards_max = |peers: &str| {
        let text = format!(r#"{{"broker": {{"enabled": true, "type": "nats", "nats": {{"peers": {peers}}}}}}}"#);
        let loaded = start(&text, true).unwrap_or_else(|problems| panic!("{problems}"));
        loaded.config.broker.expect("it is enabled").forwards_max
    };
    assert_eq!(forwards_max("{}"), 128);
    assert_eq!(forwards_max(r#"{"surveys_limit": 255}"#), 127);
    assert_eq!(forwards_max(r#"{"surveys_limit": 255, "forwards_limit": 127}"#), 127);
    assert_eq!(forwards_max(r#"{"surveys_limit": 255, "forwards_limit": 126}"#), 126);
    assert_eq!(forwards_max(r#"{"surveys_limit": 1}"#), 1);
}
