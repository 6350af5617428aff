//! No secret is printed: canaries in every secret and every URL of the JSON Schema occur in no message and no debug
//! output, however the configuration is wrong. `crates/server/tests/cli/canaries.rs` runs the binary with them.

use dunlin_config::{Config, ConfigInput, Document, Format, Loaded, reference, variable_of};
use dunlin_games::Registry;
use serde_json::{Value, json};

/// Looks like no word of a message, and like no other secret.
const CANARY: &str = "Q7canaryZ4kq8vXw2";

/// A key whose value must not be printed.
struct SecretKey {
    /// `[]` follows the name of a list.
    path: String,
    is_url: bool,
}

/// All of them in the schema.
fn secret_keys() -> Vec<SecretKey> {
    fn collect(schema: &Value, path: &str, keys: &mut Vec<SecretKey>) {
        if schema["writeOnly"] == true {
            keys.push(SecretKey { path: path.to_owned(), is_url: schema["format"] == "uri" });
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let inside = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect(inner, &inside, keys);
        }
        if schema["items"].is_object() {
            collect(&schema["items"], &format!("{path}[]"), keys);
        }
    }
    let schema = serde_json::from_str(&reference::json_schema()).expect("the schema is JSON");
    let mut keys = Vec::new();
    collect(&schema, "", &mut keys);
    for (path, is_url) in
        [("http_api.key", false), ("client.token.jwks_public_endpoint", true), ("proxies[].endpoint", true)]
    {
        assert!(keys.iter().any(|key| key.path == path && key.is_url == is_url), "{path}");
    }
    keys
}

impl SecretKey {
    /// A configuration that sets this key alone.
    fn document(&self, value: Value) -> Value {
        self.path.rsplit('.').fold(value, |inner, part| match part.strip_suffix("[]") {
            Some(list) => {
                let mut table = inner;
                table["name"] = json!("main");
                json!({ list: [table] })
            }
            None => json!({ part: inner }),
        })
    }

    /// Values with a canary: valid ones, and others that a message complains about.
    fn values(&self) -> Vec<Value> {
        let mut texts = vec![
            CANARY.to_owned(),
            CANARY.repeat(3),
            format!(" {CANARY}\n"),
            format!("${{{CANARY}}}"),
            format!("$({CANARY}) {CANARY}"),
            format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"),
            format!("/run/{CANARY}é"),
        ];
        if self.is_url {
            for scheme in ["https://", "http://", "nats://", "grpc://", "ftp://", "ws://", ""] {
                for url in [
                    "ann:CANARY@127.0.0.1:1/hook",
                    "CANARY@127.0.0.1:1",
                    "127.0.0.1:1/hook?key=CANARY&CANARY",
                    "id.example/{{realm}}?a={{CANARY}}#CANARY",
                    "ann:CANARY/CANARY@id.example/",
                    "ann:CANARY?CANARY@id.example/",
                    "ann:CANARY,CANARY@a:1,ann:CANARY@b:1",
                    "ann:CANARY@",
                    "ann:CANARY@id.example:CANARY/",
                    "ann:CANARY %@id.example/",
                ] {
                    texts.push(format!("{scheme}{}", url.replace("CANARY", CANARY)));
                }
            }
        }
        let mut values: Vec<Value> = texts.into_iter().map(Value::from).collect();
        values.extend([json!([CANARY]), json!({ "a": CANARY }), json!([{ "a": [CANARY] }])]);
        values
    }
}

fn load(input: &ConfigInput) -> Result<Loaded, dunlin_config::Problems> {
    Config::load(input, &Registry::built_in())
}

/// Everything that could be printed about a configuration, also in a panic.
fn printed(input: &ConfigInput) -> String {
    match load(input) {
        Ok(loaded) => {
            let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
            format!("{loaded:?} {warnings:?}")
        }
        Err(problems) => format!("{problems} {problems:?}"),
    }
}

fn of_file(format: Format, text: String) -> ConfigInput {
    ConfigInput { document: Some(Document { name: "config".to_owned(), format, text }), ..ConfigInput::default() }
}

fn assert_silent(input: &ConfigInput, what: &str) {
    let printed = printed(input);
    let at = printed.find(CANARY);
    let around = at.map(|at| printed.get(at.saturating_sub(300)..at + CANARY.len()).unwrap_or(&printed));
    assert!(around.is_none(), "{what}: …{}", around.unwrap_or_default());
}

#[test]
fn no_secret_of_a_file_is_printed_whatever_is_wrong_with_it() {
    for key in secret_keys() {
        for value in key.values() {
            let document = key.document(value);
            assert_silent(&of_file(Format::Json, document.to_string()), &document.to_string());
        }
    }
}

#[test]
fn no_secret_of_a_file_that_cannot_be_parsed_is_printed() {
    for key in secret_keys().iter().map(|key| key.path.rsplit('.').next().unwrap_or_default()) {
        let texts = [
            (Format::Json, "{\"KEY\": CANARY}"),
            (Format::Json, "{\"KEY\": \"CANARY}"),
            (Format::Json, "{\"KEY\": \"\\CANARY\"}"),
            (Format::Json, "{\"KEY\": \"a\" \"CANARY\"}"),
            (Format::Json, "[\"CANARY\"]"),
            (Format::Json, "\"CANARY\""),
            (Format::Yaml, "KEY: !CANARY"),
            (Format::Yaml, "KEY: !!CANARY a"),
            (Format::Yaml, "KEY: !<CANARY> a"),
            (Format::Yaml, "KEY: &CANARY a"),
            (Format::Yaml, "KEY: *CANARY"),
            (Format::Yaml, "KEY: @CANARY"),
            (Format::Yaml, "KEY: `CANARY"),
            (Format::Yaml, "KEY: %CANARY"),
            (Format::Yaml, "KEY: \"CANARY"),
            (Format::Yaml, "KEY: 'CANARY' CANARY"),
            (Format::Yaml, "KEY: \"\\CANARY\""),
            (Format::Yaml, "KEY: {CANARY"),
            (Format::Yaml, "KEY: [CANARY"),
            (Format::Yaml, "KEY: a: CANARY"),
            (Format::Yaml, "KEY:\n\tCANARY"),
            (Format::Yaml, "KEY: a\n CANARY: b\nCANARY"),
            (Format::Yaml, "CANARY"),
            (Format::Yaml, "- CANARY"),
            (Format::Yaml, "KEY: a\n---\nKEY: CANARY"),
            (Format::Toml, "KEY = CANARY"),
            (Format::Toml, "KEY = \"CANARY"),
            (Format::Toml, "KEY = \"\\CANARY\""),
            (Format::Toml, "KEY = 'a' CANARY"),
            (Format::Toml, "KEY = 1CANARY"),
            (Format::Toml, "KEY = [\"CANARY\""),
            (Format::Toml, "KEY = {a = \"CANARY\""),
        ];
        for (format, text) in texts {
            let text = text.replace("KEY", key).replace("CANARY", CANARY);
            assert_silent(&of_file(format, text.clone()), &text);
        }
    }
}

#[test]
fn no_secret_of_a_variable_is_printed() {
    for key in secret_keys() {
        let path = key.path.replace("[]", "");
        let name = variable_of(&path).unwrap_or_else(|| "DUNLIN_PROXIES_MAIN_ENDPOINT".to_owned());
        for value in key.values() {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            for (name, list) in [(name.clone(), "main"), (format!("{name}_FILE"), "main"), (format!("{name}S"), "main")]
            {
                let variables = vec![(name.clone(), value.clone()), ("DUNLIN_PROXIES".to_owned(), list.to_owned())];
                // The path of a file is no secret.
                if !name.ends_with("_FILE") {
                    assert_silent(&ConfigInput { variables, ..ConfigInput::default() }, &format!("{name}={value}"));
                }
            }
        }
    }
    for value in [format!("[{{\"name\": \"main\", \"endpoint\": {CANARY}"), format!("[{{\"endpoint\": \"{CANARY}\"}}]")]
    {
        let variables = vec![("DUNLIN_PROXIES".to_owned(), value.clone())];
        assert_silent(&ConfigInput { variables, ..ConfigInput::default() }, &value);
    }
}

#[test]
fn header_fields_of_backends_are_not_printed() {
    for fields in [
        json!({ "authorization": CANARY }),
        json!({ "authorization": [CANARY] }),
        json!({ "a b": CANARY }),
        json!({ "authorization": format!("{CANARY}\n") }),
        json!({ "authorization": format!("${{CENTRIFUGO_VAR_X}} {CANARY}") }),
        json!([{ "key": "authorization", "value": CANARY }, { "value": CANARY }]),
        json!(CANARY),
    ] {
        let document = json!({ "proxies": [{ "name": "main", "endpoint": "http://127.0.0.1:1", "http": { "static_headers": fields } }] });
        assert_silent(&of_file(Format::Json, document.to_string()), &document.to_string());
    }
}
