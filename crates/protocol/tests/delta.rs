//! The vectors of `schema/vectors/delta`: the encoder's patches. `DUNLIN_BLESS=1` rewrites them.

use std::fs;

use dunlin_protocol::DeltaEncoder;
use serde_json::Value;

#[test]
fn patches() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/vectors/delta/patches.json");
    let text = fs::read_to_string(vectors).expect("the vectors");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let mut encoder = DeltaEncoder::default();
    let mut made = Vec::new();
    for vector in file["vectors"].as_array().expect("a list") {
        let (old, new) = (vector["old"].as_str().expect("a text"), vector["new"].as_str().expect("a text"));
        let patch = encoder.patch(old.as_bytes(), new.as_bytes()).map(|patch| String::from_utf8(patch).expect("UTF-8"));
        made.push(serde_json::json!({"name": vector["name"], "old": old, "new": new, "patch": patch}));
    }
    if std::env::var_os("DUNLIN_BLESS").is_some() {
        let lines: Vec<String> = made.iter().map(|vector| format!("    {vector}")).collect();
        let about = &file["about"];
        let text = format!("{{\n  \"about\": {about},\n  \"vectors\": [\n{}\n  ]\n}}\n", lines.join(",\n"));
        fs::write(vectors, text).expect("a writable file");
    } else {
        assert_eq!(file["vectors"].as_array(), Some(&made));
    }
    assert!(made.iter().filter(|vector| vector["patch"].is_string()).count() >= 9, "most of them are patches");
}
