//! Settings by environment variables and flags, and secrets in files.

use std::{fs, path::PathBuf};

use dunlin_config::{ApiAccess, Config, ConfigInput, Flag, Format, Problems};

use crate::messages::input;

#[test]
fn header_fields_of_backends_expand_variables_as_in_centrifugo() {
    let fields = [
        r#"{"Authorization": "Bearer ${CENTRIFUGO_VAR_TOKEN}", "x-plain": "${HOME} $1"}"#,
        r#"[{"key": "Authorization", "value": "Bearer ${CENTRIFUGO_VAR_TOKEN}"}, {"key": "x-plain", "value": "${HOME} $1"}]"#,
    ];
    for fields in fields {
        let config = with_variables(&[
            ("CENTRIFUGO_RPC_PROXY_ENDPOINT", "http://localhost:3000"),
            ("CENTRIFUGO_RPC_PROXY_HTTP_STATIC_HEADERS", fields),
            ("CENTRIFUGO_VAR_TOKEN", "secret"),
        ]);
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let headers = &config.backends[0].static_headers;
        assert_eq!(headers["authorization"], "Bearer secret");
        assert_eq!(headers["x-plain"], "${HOME} $1");
    }
    let problems = with_variables(&[
        ("CENTRIFUGO_RPC_PROXY_ENDPOINT", "http://localhost:3000"),
        ("CENTRIFUGO_RPC_PROXY_HTTP_STATIC_HEADERS", fields[0]),
    ]);
    let printed = problems.expect_err("no variable").to_string();
    assert!(printed.contains("no environment variable CENTRIFUGO_VAR_TOKEN: set it"), "{printed}");
}

#[test]
fn variables_win_over_the_file_and_flags_over_both() {
    let mut input = input(Format::Toml, "shards = 2\n[client]\nping_interval = '20s'\nchannel_limit = 5\n");
    input.variables = [
        ("DUNLIN_CLIENT_PING_INTERVAL", "30s"),
        ("DUNLIN_SHARDS", "3"),
        ("DUNLIN_CLIENT_ALLOWED_ORIGINS", "https://a.example https://b.example"),
        ("DUNLIN_CHANNEL_NAMESPACES", r#"[{"name": "my-chat", "presence": true}]"#),
        ("DUNLIN_CHANNEL_NAMESPACES_MY_CHAT_JOIN_LEAVE", "true"),
        ("DUNLIN_SERVICE_HOST", "10.0.0.1"),
        ("DUNLIN_PORT", "tcp://10.0.0.1:8000"),
        ("HOME", "/root"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    input.flags = vec![Flag { name: "--shards", path: "shards", value: "4".to_owned() }];
    let (config, _) = Config::from_input(&input).expect("it is good");
    assert_eq!(config.shards, 4);
    assert_eq!((config.engine.client.ping_interval_ms, config.engine.client.channel_limit), (30_000, 5));
    assert!(config.allowed_origins.allows(Some(b"https://b.example")));
    assert!(!config.allowed_origins.allows(Some(b"https://c.example")));
    let [chat] = config.engine.namespaces.as_slice() else { panic!("one namespace") };
    assert!(chat.presence && chat.join_leave);
}

fn with_variables(variables: &[(&str, &str)]) -> Result<Config, Problems> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::from_input(&ConfigInput { variables, ..ConfigInput::default() }).map(|(config, warnings)| {
        assert_eq!(warnings, []);
        config
    })
}

#[test]
fn variables_name_the_tables_of_lists_as_for_centrifugo() {
    for prefix in ["CENTRIFUGO", "DUNLIN"] {
        let variables = [
            ("CHANNEL_NAMESPACES", "chat my-news"),
            ("CHANNEL_NAMESPACES_CHAT_PRESENCE", "true"),
            ("CHANNEL_NAMESPACES_MY_NEWS_HISTORY_SIZE", "7"),
            ("CHANNEL_NAMESPACES_MY_NEWS_HISTORY_TTL", "1m"),
            ("RPC_NAMESPACES", "billing"),
            ("RPC_NAMESPACES_BILLING_PROXY_ENABLED", "true"),
            ("RPC_NAMESPACES_BILLING_PROXY_NAME", "bills"),
            ("PROXIES", r#"[{"name": "bills", "endpoint": "http://127.0.0.1:3000"}]"#),
            ("PROXIES_BILLS_TIMEOUT", "3s"),
            ("PROXIES_BILLS_HTTP_HEADERS", "cookie x-real-ip"),
            // Of services in Kubernetes, and for header fields.
            ("API_SERVICE_HOST", "10.0.0.1"),
            ("API_PORT", "tcp://10.0.0.1:8000"),
            ("API_PORT_8000_TCP_ADDR", "10.0.0.1"),
            ("VAR_TOKEN", "x"),
        ];
        let named: Vec<_> = variables.iter().map(|(name, value)| (format!("{prefix}_{name}"), *value)).collect();
        let named: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let config = with_variables(&named).unwrap_or_else(|problems| panic!("{problems}"));
        let [chat, news] = config.engine.namespaces.as_slice() else { panic!("two namespaces") };
        assert_eq!((chat.name.as_str(), chat.presence, chat.history_size), ("chat", true, 0));
        assert_eq!((news.name.as_str(), news.presence, news.history_size), ("my-news", false, 7));
        let [bills] = config.backends.as_slice() else { panic!("one backend") };
        assert_eq!((bills.timeout_ms, bills.http_headers.len()), (3_000, 2));
        let [(name, proxy)] = config.engine.backend.rpc_namespaces.as_slice() else { panic!("one namespace") };
        assert_eq!((&**name, proxy.is_some()), ("billing", true));
    }
}

#[test]
fn table_names_of_variables_extend_the_file_and_json_replaces_it() {
    let names = |variables: &[(&str, &str)]| {
        let mut input = input(Format::Json, r#"{"channel": {"namespaces": [{"name": "chat", "presence": true}]}}"#);
        input.variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (config, _) = Config::from_input(&input).unwrap_or_else(|problems| panic!("{problems}"));
        config.engine.namespaces.iter().map(|n| format!("{} {}", n.name, n.presence)).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["chat true"]);
    assert_eq!(names(&[("CENTRIFUGO_CHANNEL_NAMESPACES", "")]), ["chat true"]);
    assert_eq!(names(&[("CENTRIFUGO_CHANNEL_NAMESPACES", "news  chat")]), ["chat true", "news false"]);
    assert_eq!(
        names(&[("CENTRIFUGO_CHANNEL_NAMESPACES", "news"), ("DUNLIN_CHANNEL_NAMESPACES", "news games")]),
        ["chat true", "news false", "games false"]
    );
    assert_eq!(names(&[("CENTRIFUGO_CHANNEL_NAMESPACES", r#"[{"name": "news"}]"#)]), ["news false"]);
}

#[test]
fn an_empty_variable_is_not_set() {
    let mut input =
        input(Format::Json, r#"{"client": {"channel_limit": 5, "allowed_origins": ["https://a.example"]}}"#);
    let empty = |name: String| (name, String::new());
    let names = ["CLIENT_CHANNEL_LIMIT", "CLIENT_ALLOWED_ORIGINS", "HTTP_API_KEY", "HTTP_API_KEY_FILE", "NONSENSE"];
    input.variables =
        names.iter().flat_map(|name| [empty(format!("DUNLIN_{name}")), empty(format!("CENTRIFUGO_{name}"))]).collect();
    let (config, warnings) = Config::from_input(&input).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(warnings, []);
    assert_eq!(config.engine.client.channel_limit, 5);
    assert!(config.allowed_origins.allows(Some(b"https://a.example")));
}

/// A file in the temporary directory, gone when the test ends.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-config-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("a temporary file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn secrets_are_read_from_the_files_that_variables_name() {
    let key = "0123456789abcdef0123456789abcdef";
    for (ending, kept) in [("", ""), ("\n", ""), ("\r\n", ""), ("\n\n", "\n"), (" ", " ")] {
        let file = TemporaryFile::new("secret", format!("{key}{ending}"));
        let config = with_variables(&[
            ("DUNLIN_CLIENT_TOKEN_HMAC_SECRET_KEY_FILE", file.path()),
            ("DUNLIN_HTTP_API_KEY_FILE", file.path()),
            // What is on top of it counts, and the file below is not missed.
            ("CENTRIFUGO_HTTP_API_KEY", "of Centrifugo"),
        ]);
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let hmac = config.token.connection.hmac.expect("a key");
        assert_eq!(hmac.reveal(), format!("{key}{kept}").as_bytes());
        let ApiAccess::Keys(keys) = config.http_api.access else { panic!("a key") };
        assert!(keys.admit(format!("{key}{kept}").as_bytes()) && !keys.admit(b"of Centrifugo"));
    }
}

#[test]
fn a_secret_that_cannot_be_read_is_named_with_its_variable_path_and_remedy() {
    let key = "0123456789abcdef0123456789abcdef";
    let good = TemporaryFile::new("good", key);
    let empty = TemporaryFile::new("empty", "\n");
    let binary = TemporaryFile::new("binary", [0xff, 0xfe]);
    let at_limit = TemporaryFile::new("limit", "x".repeat(64 << 10));
    let large = TemporaryFile::new("large", "x".repeat((64 << 10) + 1));
    let name = "DUNLIN_HTTP_API_KEY_FILE";
    assert!(with_variables(&[(name, at_limit.path())]).is_ok());
    for (variables, expected) in [
        (
            &[(name, "/nowhere/key")][..],
            "\"/nowhere/key\" cannot be opened: No such file or directory (os error 2). Name a file",
        ),
        (&[(name, "/")], "\"/\" cannot be read: Is a directory (os error 21). Name a text file"),
        (&[(name, "/dev/zero")], "\"/dev/zero\" is larger than 65536 bytes: name a file that contains only the secret"),
        (&[(name, empty.path())], "is empty: write the secret into it"),
        (&[(name, binary.path())], "cannot be read: stream did not contain valid UTF-8. Name a text file"),
        (&[(name, large.path())], "is larger than 65536 bytes"),
        (
            &[(name, good.path()), ("DUNLIN_HTTP_API_KEY", key)],
            "is set together with DUNLIN_HTTP_API_KEY: unset one of them",
        ),
    ] {
        let problems = with_variables(variables).expect_err(expected);
        let printed = problems.to_string();
        assert!(printed.starts_with("DUNLIN_HTTP_API_KEY_FILE (http_api.key): "), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(!printed.contains(key), "{printed}");
    }
    let problems = with_variables(&[("DUNLIN_LOG_LEVEL_FILE", good.path())]).expect_err("no secret");
    assert!(problems.to_string().contains("set the variable without _FILE"), "{problems}");
}
