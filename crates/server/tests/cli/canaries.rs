//! The binary prints no secret: it runs with a canary in every secret and every URL of the JSON Schema, at the level
//! `trace`, while its backends, its key sets and its NATS servers fail in turn. `crates/config/tests/canaries.rs` checks
//! the messages about wrong configurations.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStderr, Command, Stdio},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use dunlin_proof::nats::NatsServers;
use serde_json::{Value, json};

use super::{Folder, dunlin, stderr, stdout};
use crate::http::server::{Client, handshake};

/// Is in every canary.
const MARK: &str = "Q7canaryZ4kq8vXw2";

/// The paths of all secrets and URLs in the schema.
fn secret_paths() -> Vec<String> {
    fn collect(schema: &Value, path: &str, paths: &mut Vec<String>) {
        if schema["writeOnly"] == true {
            paths.push(path.to_owned());
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            collect(inner, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, paths);
        }
        if schema["items"].is_object() {
            collect(&schema["items"], &format!("{path}[]"), paths);
        }
    }
    let schema = serde_json::from_str(&dunlin_config::reference::json_schema()).expect("the schema is JSON");
    let mut paths = Vec::new();
    collect(&schema, "", &mut paths);
    assert!(!paths.is_empty());
    paths
}

/// A value with a canary that suits the key.
fn valued(path: &str) -> String {
    if path.starts_with("webhooks.") && path.ends_with("secret") {
        // Base64 of 27 bytes.
        return format!("whsec_{}AA", MARK.repeat(2));
    }
    match path.rsplit('.').next().unwrap_or_default() {
        "url" => format!("nats://ann:{MARK}@127.0.0.1:1"),
        "jwks_public_endpoint" => format!("http://ann:{MARK}@127.0.0.1:1/certs?key={MARK}"),
        "endpoint" if path.starts_with("opentelemetry.") => format!("http://ann:{MARK}@127.0.0.1:1/"),
        "endpoint" | "traces_endpoint" | "metrics_endpoint" => format!("http://ann:{MARK}@127.0.0.1:1/hook?key={MARK}"),
        "address" => format!("http://ann:{MARK}@127.0.0.1:1/"),
        _ => MARK.repeat(2),
    }
}

/// Sets a key in a configuration. The lists in its path get a table named `main`.
fn set(config: &mut Value, path: &str, value: Value) {
    let mut at = config;
    for part in path.split('.') {
        at = match part.strip_suffix("[]") {
            None => &mut at[part],
            Some(list) => {
                if at[list].is_null() {
                    at[list] = json!([{ "name": "main" }]);
                }
                &mut at[list][0]
            }
        };
    }
    *at = value;
}

fn assert_silent(text: &str, what: &str) {
    let encoded = STANDARD.encode(format!("ann:{MARK}"));
    for secret in [MARK, encoded.trim_end_matches('='), "canaryZ4kq8"] {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{what}: {}", line.unwrap_or_default());
    }
}

/// A running node with everything that it has written.
struct Node {
    child: Child,
    log: BufReader<ChildStderr>,
    written: String,
    address: SocketAddr,
}

impl Node {
    fn start(folder: &Folder, config: &Value) -> Self {
        folder.file("config.json", &config.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let command = command.args(["serve", "-c", "config.json"]).env_clear().current_dir(&folder.0);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut node = Self { child, log, written: String::new(), address: ([127, 0, 0, 1], 0).into() };
        let listening = node.logged("dunlin is listening");
        node.address = listening["address"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        node
    }

    /// Reads until a line with this message.
    fn logged(&mut self, message: &str) -> Value {
        loop {
            let mut line = String::new();
            let length = self.log.read_line(&mut line).expect("a log");
            assert!(length > 0, "the log ended without {message:?}:\n{}", self.written);
            self.written.push_str(&line);
            match serde_json::from_str::<Value>(&line) {
                Ok(event) if event["message"] == message => return event,
                _ => {}
            }
        }
    }

    /// Whether a line with this message was read already.
    fn has_logged(&self, message: &str) -> bool {
        let events = self.written.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.into_iter().any(|event| event["message"] == message)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill(1)").success());
    }

    /// Opens a session, and sends these commands. Returns the last reply.
    fn session(&self, commands: &[Value]) -> Value {
        let mut client = Client::new(TcpStream::connect(self.address).expect("it listens"));
        client.send(handshake(""));
        assert_eq!(client.answer().status, 101);
        let mut reply = Value::Null;
        for command in commands {
            client.send_text(&command.to_string());
            while reply["id"] != command["id"] {
                let (first, payload) = client.frame();
                if first == 0x88 {
                    return reply;
                }
                reply = serde_json::from_slice(&payload).expect("JSON");
            }
        }
        reply
    }

    /// Ends the node. Returns all that it has written.
    fn end(mut self) -> String {
        self.signal("TERM");
        self.log.read_to_string(&mut self.written).expect("a log");
        self.child.wait().expect("a child");
        std::mem::take(&mut self.written)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration with all secrets and URLs, whose files and servers do not exist, at the level `trace`.
fn with_canaries(internal: u16) -> Value {
    let mut config = json!({
        "http_server": { "address": "127.0.0.1", "port": 0, "internal_address": "127.0.0.1", "internal_port": internal },
        "shards": 1,
        "log": { "level": "trace", "library_level": "trace" },
        "health": { "enabled": true },
        "prometheus": { "enabled": true },
        "debug": { "enabled": true },
        "swagger": { "enabled": true },
        "opentelemetry": { "enabled": true, "api": true, "metrics_interval": "1s", "headers": { "x-key": MARK } },
        "profiling": { "pyroscope": { "enabled": true, "basic_auth_user": "ann", "interval": "1s" } },
        "client": {
            "allow_anonymous_connect_without_token": true,
            "token": { "insecure_skip_jwks_endpoint_safety_check": true },
            "subscription_token": { "enabled": true, "insecure_skip_jwks_endpoint_safety_check": true },
            "proxy": { "refresh": { "enabled": true } },
        },
        "rpc": { "without_namespace": { "proxy_enabled": true },
            "namespaces": [{ "name": "app", "proxy_enabled": true, "proxy_name": "main" }] },
        "channel": { "namespaces": [{
            "name": "chat", "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
            "subscribe_proxy_enabled": true, "publish_proxy_enabled": true,
        }] },
    });
    // Private keys need certificates.
    for path in secret_paths().iter().filter(|path| !path.ends_with("key_pem")) {
        set(&mut config, path, valued(path).into());
    }
    config["proxies"][0]["http"]["static_headers"] = json!({ "x-key": MARK });
    config
}

/// A backend whose answers are not what nodes expect. Returns its port.
fn start_nonsense() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            let mut bytes = [0; 4_096];
            let _ = stream.read(&mut bytes);
            let _ = match number % 4 {
                0 => write!(stream, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
                1 => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nnot JSO"),
                2 => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\nbroken off"),
                _ => write!(stream, "nonsense\r\n\r\n"),
            };
        }
    });
    port
}

#[test]
fn each_secret_alone_is_checked_without_being_printed() {
    let folder = Folder::new("canary-each");
    for path in secret_paths() {
        let mut config = json!({});
        set(&mut config, &path, valued(&path).into());
        // So that a key without its certificate is read.
        for (table, certificate) in [
            (".http.tls", "cert_pem"),
            ("http_server.tls", "cert_pem"),
            ("broker.nats.tls", "cert_pem"),
            (".pyroscope.tls", "cert_pem"),
            ("opentelemetry.tls", "cert_pem"),
        ] {
            if let Some((before, _)) = path.split_once(table) {
                set(&mut config, &format!("{before}{table}.enabled"), true.into());
                set(&mut config, &format!("{before}{table}.{certificate}"), "no certificate".into());
                if table == ".http.tls" {
                    set(&mut config, &format!("{before}.endpoint"), "https://127.0.0.1:1/".into());
                }
            }
        }
        let file = folder.file("config.json", &config.to_string());
        for command in [&["check-config", "-c", &file][..], &["reload", "-c", &file], &["health", "-c", &file]] {
            let output = dunlin(&folder, command);
            assert_silent(&(stdout(&output).to_owned() + stderr(&output)), &format!("{path}: {command:?}"));
        }
    }
    for url in [
        format!("http://ann:{MARK}@127.0.0.1:1/?key={MARK}"),
        format!("ann:{MARK}@127.0.0.1"),
        format!("ftp://{MARK}@a"),
    ] {
        let output = dunlin(&folder, &["health", "--url", &url]);
        assert_silent(&(stdout(&output).to_owned() + stderr(&output)), &url);
    }
}

#[test]
fn a_node_whose_backends_and_key_sets_fail_prints_no_secret() {
    let folder = Folder::new("canary-serve");
    let internal = dunlin_processes::free_address().expect("a free port");
    let mut config = with_canaries(internal.port());
    let nonsense = start_nonsense();
    for path in ["proxies[].endpoint", "client.token.jwks_public_endpoint"] {
        set(&mut config, path, format!("http://ann:{MARK}@127.0.0.1:{nonsense}/hook?key={MARK}").into());
    }
    let mut node = Node::start(&folder, &config);
    let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
    let token = format!("{}.{}.AAAA", part(r#"{"alg":"RS256","kid":"a"}"#), part(r#"{"sub":"ann"}"#));
    // The next fetch is a second later, so there is one.
    let reply = node.session(&[json!({ "id": 1, "connect": { "token": token } })]);
    assert!(reply["error"]["code"].is_u64() || reply.is_null(), "{reply}");
    let line = node.logged("failed to fetch token keys");
    assert!(line["url"].as_str().is_some_and(|url| url.contains("127.0.0.1")), "it says where: {line}");
    let connect = json!({ "id": 1, "connect": {} });
    for method in ["app:a", "app:b", "app:c", "app:d", "other"] {
        let rpc = json!({ "id": 2, "rpc": { "method": method, "data": { "a": MARK } } });
        assert_eq!(node.session(&[connect.clone(), rpc])["error"]["code"], 100);
    }
    let token = format!("{}.{}.AAAA", part(r#"{"alg":"HS256"}"#), part(r#"{"sub":"","channel":"$chat:a"}"#));
    for subscribe in [json!({ "channel": "chat:a" }), json!({ "channel": "$chat:a", "token": token })] {
        let reply = node.session(&[connect.clone(), json!({ "id": 2, "subscribe": subscribe })]);
        assert!(reply["error"]["code"].is_u64(), "{reply}");
    }
    let mut pages = String::new();
    for path in ["/debug", "/metrics", "/health", "/swagger", "/api/info", "/api/channels", "/api/info?api_key=KEY"] {
        let method = if path.starts_with("/api") { "POST" } else { "GET" };
        for key in [MARK.repeat(2), "wrong".to_owned()] {
            let mut client = Client::new(TcpStream::connect(internal).expect("it listens"));
            let path = path.replace("KEY", &key);
            client
                .send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Length: 0\r\n\r\n"));
            pages += &client.answer().text();
        }
    }
    assert_silent(&pages, "the pages");
    // A reload with other secrets, and one that is refused.
    for change in [r#""sessions_per_second": 7"#, r#""sessions_per_second": -7"#] {
        let text = config.to_string().replacen('{', &format!("{{\"shutdown\": {{{change}}},"), 1);
        fs::write(folder.0.join("config.json"), text).expect("it is written");
        let output = dunlin(&folder, &["reload", "-c", "config.json"]);
        assert_silent(&(stdout(&output).to_owned() + stderr(&output)), "reload");
        node.signal("HUP");
        let is_refused = change.contains('-');
        node.logged(if is_refused {
            "configuration reload refused; nothing has changed"
        } else {
            "configuration reloaded"
        });
    }
    let written = node.end();
    assert!(written.contains("\"level\":\"TRACE\"") && written.contains("failed to fetch token keys"), "{written}");
    assert_silent(&written, "the log");
}

#[test]
fn a_node_of_a_cluster_prints_no_secret() {
    let folder = Folder::new("canary-cluster");
    let servers = NatsServers::start(1, &format!("authorization {{ user: ann, password: {MARK} }}"));
    let given = |user_info: &str| {
        let url = servers.url(0).replace("nats://", &format!("nats://{user_info}@"));
        json!({
            "http_server": { "address": "127.0.0.1", "port": 0 },
            "shards": 1,
            "log": { "level": "trace", "library_level": "trace" },
            "broker": { "enabled": true, "type": "nats", "nats": {
                "url": url, "jetstream": { "replicas": 1, "start_timeout": "1s" },
            } },
            "channel": { "namespaces": [{ "name": "chat", "history_size": 10, "history_ttl": "1h" }] },
        })
    };
    let mut node = Node::start(&folder, &given(&format!("ann:{MARK}")));
    // It may have been ready before it listened.
    if !node.has_logged("the cluster is ready") {
        node.logged("the cluster is ready");
    }
    let output = dunlin(&folder, &["cluster", "check", "-c", "config.json"]);
    assert_silent(&(stdout(&output).to_owned() + stderr(&output)), "cluster check");
    assert_silent(&node.end(), "a node that is connected");
    for user_info in [format!("bob:{MARK}"), MARK.to_owned(), format!("ann:{MARK}%zz")] {
        folder.file("config.json", &given(&user_info).to_string());
        for command in [&["serve", "-c", "config.json"][..], &["cluster", "check", "-c", "config.json"]] {
            let output = dunlin(&folder, command);
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            assert_silent(&(stdout(&output).to_owned() + stderr(&output)), &user_info);
        }
    }
    for url in [format!("http://{MARK}@a"), format!("nats://ann:{MARK}@"), format!("{MARK} {MARK}")] {
        let output = dunlin(&folder, &["cluster", "check", "-c", "config.json", "--system-url", &url]);
        assert_silent(&(stdout(&output).to_owned() + stderr(&output)), &url);
    }
}
