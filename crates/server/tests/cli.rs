//! Tests of the command line: output and exit codes of the binary.

mod bench;
mod canaries;
mod cluster;
mod completion;
mod dev;
mod health;
mod new_game;
mod play;
mod replay;

use std::{
    fs,
    fs::OpenOptions,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin_config::{Config, ConfigInput};
use dunlin_token::Verifier;

/// A private key that matches no certificate of these tests, escaped for JSON.
const OTHER_KEY: &str = "-----BEGIN PRIVATE KEY-----\\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNWrmQh4G7MLlAOFf\\nBgX8AqVj+yraqzS62lX3IODebimhRANCAAQHvEqbbKfMEorOZj2yf8jFBVwOMRmV\\nof6y1ciMNsnU5fRpoSFqXxqFnamukfQirKag6Xt+SNKw4WBwVgW7zjzE\\n-----END PRIVATE KEY-----";

/// A separate directory for each test, removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a temporary file");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn dunlin(folder: &Folder, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin")).args(args).env_clear().current_dir(&folder.0).output().expect("it runs")
}

pub fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("text")
}

pub fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).expect("text")
}

#[test]
fn a_generated_configuration_is_good_private_fresh_and_never_overwritten() {
    let folder = Folder::new("gen");
    let mut secrets = Vec::new();
    for name in ["dunlin.yaml", "a.yml", "b.toml", "c.json"] {
        let args: &[&str] = if name == "dunlin.yaml" { &["gen-config"] } else { &["gen-config", "-c", name] };
        assert!(dunlin(&folder, args).status.success(), "{name}");
        let path = folder.0.join(name);
        assert_eq!(fs::metadata(&path).expect(name).permissions().mode() & 0o777, 0o600, "{name}");
        let checked = dunlin(&folder, &["check-config", "--strict", "-c", name]);
        assert!(checked.status.success(), "{name}: {}", stderr(&checked));
        assert!(stdout(&checked).ends_with("2 namespaces, 0 warnings\n"), "{}", stdout(&checked));
        assert!(stderr(&checked).starts_with("note: client.allowed_origins is empty"), "{}", stderr(&checked));

        let input = ConfigInput::read(Some(&path), Vec::new()).expect(name);
        let (config, _) = Config::from_input(&input).expect(name);
        secrets.push(config.token.connection.hmac.expect("a key").reveal().to_vec());
        assert!(config.http_server.internal.is_some(), "{name} has an internal port");
        let keys: Vec<_> = config.engine.namespaces.iter().map(|each| each.conflation_key.as_deref()).collect();
        assert_eq!(keys, [None, Some("symbol")], "{name}");

        let before = fs::read(&path).expect(name);
        assert_comments_are_sentences(str::from_utf8(&before).expect(name), name);
        let again = dunlin(&folder, args);
        assert_eq!(again.status.code(), Some(1));
        assert!(stderr(&again).contains("exists and is not overwritten: name another file"), "{}", stderr(&again));
        assert_eq!(fs::read(&path).expect(name), before);
    }
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 4, "every file has its own key");
    assert!(secrets.iter().all(|secret| secret.len() == 64));
    assert_eq!(dunlin(&folder, &["gen-config", "-c", "dunlin.ini"]).status.code(), Some(2));
}

/// Each block of comments begins with a capital and ends with a period.
fn assert_comments_are_sentences(text: &str, name: &str) {
    let lines: Vec<_> = text.lines().map(|line| line.trim_start().strip_prefix("# ")).collect();
    for block in lines.split(Option::is_none).filter(|block| !block.is_empty()) {
        let block = block.iter().flatten().copied().collect::<Vec<_>>().join(" ");
        assert!(block.starts_with(char::is_uppercase) && block.ends_with('.'), "{name}: {block}");
    }
}

#[test]
fn a_token_is_signed_with_the_key_of_the_file() {
    let folder = Folder::new("token");
    let connection = "0123456789abcdef0123456789abcdef";
    let subscription = "fedcba9876543210fedcba9876543210";
    let file = folder.file(
        "dunlin.json",
        &format!(
            r#"{{"client": {{"token": {{"hmac_secret_key": "{connection}"}},
                "subscription_token": {{"enabled": true, "hmac_secret_key": "{subscription}"}}}}}}"#
        ),
    );
    let (config, _) =
        Config::from_input(&ConfigInput::read(Some(Path::new(&file)), Vec::new()).expect("it is there")).expect("good");
    let verifier = Verifier::new(&config.token, |_| ()).expect("an HMAC key needs no thread");
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() * 1_000;
    let token = |args: &[&str]| {
        let output = dunlin(&folder, &[&["gen-token", "-c", &file, "--user", "42"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    };
    let claims = verifier.judge_connection(&token(&["--ttl", "60"]), now_ms).expect("valid");
    assert_eq!(claims.user, "42");
    assert!((now_ms + 60_000..now_ms + 600_000).contains(&claims.expires_at_ms.expect("it expires")));
    let claims = verifier.judge_connection(&token(&["--ttl", "-1"]), now_ms).expect("valid");
    assert_eq!(claims.expires_at_ms, None);
    let claims = verifier.judge_subscription(&token(&["--channel", "$chat"]), now_ms).expect("valid");
    assert_eq!((claims.user.as_str(), claims.channel.as_str()), ("42", "$chat"));
    assert!(claims.grant.expires_at_ms.is_some());

    let token = token(&["--ttl", "-1"]);
    let output = dunlin(&folder, &["gen-sub-token", "-c", &file, "--user", "42", "--channel", "news"]);
    let sub_token = stdout(&output).trim_end().to_owned();
    let check = |command: &str, token: &str| {
        let output = dunlin(&folder, &[command, "-c", &file, token]);
        (output.status.code(), stdout(&output).to_owned() + stderr(&output))
    };
    let good = "valid connection token\nuser: \"42\"\nconnection expires: never\n".to_owned();
    assert_eq!(check("check-token", &token), (Some(0), good));
    let (code, printed) = check("check-sub-token", &sub_token);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("valid subscription token\nuser: \"42\"\nchannel: \"news\"\n"), "{printed}");
    for (command, token, reason) in [
        ("check-token", sub_token.as_str(), "its signature does not match a configured key"),
        ("check-sub-token", token.as_str(), "its signature does not match a configured key"),
        ("check-token", "x", "it is not a signed JSON Web Token"),
        ("check-token", &token.replacen('e', "f", 1), "it is not a signed JSON Web Token"),
    ] {
        let expected = format!("dunlin: invalid token: {reason}\n");
        assert_eq!(check(command, token), (Some(1), expected), "{command}");
    }

    let keyless = folder.file("keyless.json", "{}");
    let output = dunlin(&folder, &["gen-token", "-c", &keyless, "--user", "42"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "dunlin: client.token.hmac_secret_key is not set, so there is no key to sign with\n");
}

#[test]
fn serve_names_the_process_that_has_the_port() {
    let folder = Folder::new("taken");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("bound").port().to_string();
    let output = dunlin(&folder, &["serve", "--address", "127.0.0.1", "--port", &port]);
    assert_eq!(output.status.code(), Some(1));
    let holder = format!("(process {}) has the port: stop it, or choose another port with ", std::process::id());
    assert!(stderr(&output).contains(&format!("{holder}--port")), "{}", stderr(&output));
    let internal = format!(r#"{{"http_server": {{"internal_address": "127.0.0.1", "internal_port": {port}}}}}"#);
    let config = folder.file("internal.json", &internal);
    let output = dunlin(&folder, &["serve", "-c", &config, "--address", "127.0.0.1", "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("{holder}http_server.internal_port")), "{}", stderr(&output));
}

#[test]
fn commands_of_centrifugo_work() {
    let folder = Folder::new("former");
    let generated = folder.file("x", "").replace("/x", "/new.json");
    for args in [
        &["centrifugo", "genconfig", "-c", &generated][..],
        &["checkconfig", "-c", &generated],
        &["gentoken", "-c", &generated, "-u", "42"],
        &["centrifugo", "gentoken", "-c", &generated, "-u", "42", "-q"],
        &["gensubtoken", "-c", &generated, "-u", "42", "-s", "news"],
        &["gensubtoken", "-c", &generated, "-u", "42", "-s", "news", "--quiet"],
        &["centrifugo", "--version"],
    ] {
        let output = dunlin(&folder, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }
    let old = folder.file("old.json", r#"{"health": true}"#);
    let output = dunlin(&folder, &["centrifugo", &format!("--config={old}")]);
    assert_eq!(output.status.code(), Some(3), "it is serve: {}", stderr(&output));
    let help = dunlin(&folder, &["--help"]);
    assert!(!stdout(&help).contains("genconfig"), "{}", stdout(&help));
}

#[test]
fn a_configuration_of_centrifugo_5_is_named_and_converted() {
    let folder = Folder::new("migrate");
    let key = "bbe7d157-a253-4094-9759-06a8236543f9";
    let text = format!(r#"{{"token_hmac_secret_key": "{key}", "health": true, "namespaces": [{{"name": "chat"}}]}}"#);
    let old = folder.file("old.json", &text);
    for command in ["check-config", "serve"] {
        let output = dunlin(&folder, &[command, "-c", &old]);
        assert_eq!(output.status.code(), Some(3), "{command}");
        let expected = format!(
            "dunlin: invalid configuration\n{old}: has keys of Centrifugo 5 (`token_hmac_secret_key`, `health`, `namespaces`), \
             and Dunlin reads those of Centrifugo 6: convert it with `dunlin migrate-config FILE --output NEW_FILE`\n"
        );
        assert_eq!(stderr(&output), expected, "{command}");
    }

    let output = dunlin(&folder, &["migrate-config", &old]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("token_hmac_secret_key: renamed to client.token.hmac_secret_key\n"));
    let new = folder.file("new.json", stdout(&output));
    let output = dunlin(&folder, &["check-config", "-c", &new]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), format!("{new}: valid, 1 namespaces, 0 warnings\n"));

    let redis = folder.file("redis.yaml", "engine: redis # two nodes\nsockjs: true\n");
    let toml = folder.file("vars", "CENTRIFUGO_API_KEY='0123456789012345678901234567890123456789'\n");
    let written = new.replace("new.json", "new.toml");
    let output = dunlin(&folder, &["migrate-config", &redis, "--env-file", &toml, "--output", &written]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let printed = stderr(&output);
    for words in ["sockjs: needs a decision: ", "comments that begin with #", "engine.type: ", "needs 2 decisions"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let expected = "[engine]\ntype = \"redis\"\n\n[http_api]\nkey = \"0123456789012345678901234567890123456789\"\n";
    assert_eq!(std::fs::read_to_string(&written).expect("it was written"), expected);
    let output = dunlin(&folder, &["migrate-config", &old, "--output", &written]);
    assert_eq!(output.status.code(), Some(1), "a file is not overwritten");
}

#[test]
fn header_fields_of_a_converted_configuration_may_contain_variables() {
    let folder = Folder::new("placeholder");
    let old = r##"{"proxy_connect_endpoint": "http://127.0.0.1:3000/connect", "channel_user_boundary": "#",
        "proxy_static_http_headers": {"X-Key": "${CENTRIFUGO_VAR_KEY}"}}"##;
    // YAML is JSON and more; the `#` begins no comment.
    let old = folder.file("old.yaml", old);
    let output = dunlin(&folder, &["migrate-config", &old]);
    assert_eq!(output.status.code(), Some(3), "there is no such variable: {}", stderr(&output));
    assert!(stdout(&output).contains("${CENTRIFUGO_VAR_KEY}"), "{}", stdout(&output));
    let variables = folder.file("vars", "CENTRIFUGO_VAR_KEY=secret\n");
    let output = dunlin(&folder, &["migrate-config", &old, "--env-file", &variables]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stdout(&output).contains("secret") && !stderr(&output).contains("comments"), "{}", stderr(&output));
}

#[test]
fn a_bad_configuration_ends_check_and_serve_with_all_reasons() {
    let folder = Folder::new("bad");
    let file = folder.file(
        "dunlin.json",
        r#"{"client": {"pingInterval": "1s", "pong_timeout": "1h"}, "webtransport": {"enabled": true},
            "websocket": {"write_timeout": "2s"}}"#,
    );
    let output = dunlin(&folder, &["check-config", "-c", &file]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "");
    let printed = stderr(&output).to_owned();
    assert_eq!(printed.lines().count(), 5, "{printed}");
    // Warnings are also printed.
    assert!(printed.starts_with("warning: ") && printed.contains("websocket.write_timeout: is ignored"), "{printed}");
    for words in ["did you mean client.ping_interval?", "webtransport: is not supported yet", "client.pong_timeout: 1h"]
    {
        assert!(printed.contains(words), "{printed}");
    }
    let output = dunlin(&folder, &["serve", "-c", &file]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output), printed);
}

#[test]
fn warnings_are_printed_and_count_only_when_strict() {
    let folder = Folder::new("warn");
    let file = folder.file("dunlin.toml", "[websocket]\nwrite_timeout = \"2s\"\n");
    let output = dunlin(&folder, &["check-config", "-c", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).ends_with("dunlin.toml: valid, 0 namespaces, 1 warnings\n"));
    assert!(stderr(&output).starts_with("warning: ") && stderr(&output).contains("websocket.write_timeout"));
    assert_eq!(dunlin(&folder, &["check-config", "--strict", "-c", &file]).status.code(), Some(3));
}

#[test]
fn flags_of_serve_are_settings() {
    let folder = Folder::new("flags");
    let output = dunlin(&folder, &["serve", "--address", "nowhere", "--shards", "999", "--log-level", "loud"]);
    assert_eq!(output.status.code(), Some(3));
    for words in
        ["--address (http_server.address): \"nowhere\"", "--shards (shards): \"999\"", "--log-level (log.level)"]
    {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::new("missing");
    let output = dunlin(&folder, &["check-config", "-c", "nope.yaml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("nope.yaml: can't be opened: No such file"), "{}", stderr(&output));
    fs::write(folder.0.join("binary.json"), [0xff, 0xfe, 0x00]).expect("written");
    let output = dunlin(&folder, &["check-config", "-c", "binary.json"]);
    assert!(stderr(&output).contains("binary.json: can't be read"), "{}", stderr(&output));
    fs::write(folder.0.join("large.json"), " ".repeat((4 << 20) + 1)).expect("written");
    let output = dunlin(&folder, &["check-config", "-c", "large.json"]);
    assert!(stderr(&output).contains("large.json: is larger than 4194304 bytes"), "{}", stderr(&output));
    fs::write(folder.0.join("large.json"), " ".repeat((4 << 20) - 2) + "{}").expect("written");
    assert!(dunlin(&folder, &["check-config", "-c", "large.json"]).status.success());
}

#[test]
fn the_version_and_the_usage() {
    let folder = Folder::new("usage");
    let output = dunlin(&folder, &["version"]);
    assert_eq!(stdout(&output), format!("dunlin {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(dunlin(&folder, &["frobnicate"]).status.code(), Some(2));
    assert_eq!(dunlin(&folder, &[]).status.code(), Some(2));
}

#[test]
fn a_full_disk_and_a_closed_pipe_are_no_panic() {
    let folder = Folder::new("full");
    let file = folder.file(
        "dunlin.json",
        r#"{"client": {"allowed_origins": ["https://example.com"], "token": {"hmac_secret_key": "0123456789abcdef0123456789abcdef"}}}"#,
    );
    let token = dunlin(&folder, &["gen-token", "-c", &file, "--user", "42"]);
    let token = stdout(&token).trim_end();
    for args in [
        &["version"][..],
        &["--help"],
        &["check-config", "-c", &file],
        &["gen-token", "-c", &file, "--user", "42"],
        &["gen-config"],
        &["check-token", "-c", &file, token],
        &["config-reference", "markdown"],
        &["config-reference", "json-schema"],
        &["config-reference", "compatibility"],
    ] {
        let full = || OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(args).env_clear().current_dir(&folder.0).stdout(full());
        let output = command.output().expect("it runs");
        let code = i32::from(args != ["--help"]);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        let message = if code == 0 {
            ""
        } else {
            "dunlin: cannot write to standard output: No space left on device (os error 28)\n"
        };
        assert_eq!(stderr(&output), message, "{args:?}");
        let _ = fs::remove_file(folder.0.join("dunlin.yaml"));
        // Standard error is full, too.
        assert_eq!(command.stderr(full()).status().expect("it runs").code(), Some(code), "{args:?}");

        // `gen-config` has written the file; only its message could not be printed.
        let _ = fs::remove_file(folder.0.join("dunlin.yaml"));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), ""), "{args:?}");
    }
}

#[test]
fn the_configuration_in_the_working_directory_is_found() {
    let folder = Folder::new("default");
    let checked = |message: &str| {
        let output = dunlin(&folder, &["check-config"]);
        assert_eq!(stdout(&output), format!("{message}: valid, 0 namespaces, 0 warnings\n"), "{}", stderr(&output));
    };
    checked("the environment");
    for name in ["config.toml", "config.yml", "config.yaml", "config.json"] {
        folder.file(name, if name == "config.toml" { "[client]" } else { "{}" });
        checked(name);
    }
    folder.file("config.json", r#"{"http_server": {"port": 99999}}"#);
    let output = dunlin(&folder, &["serve"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("config.json: http_server.port: 99999 is too large"), "{}", stderr(&output));
    folder.file("other.yaml", "{}");
    assert!(dunlin(&folder, &["check-config", "-c", "other.yaml"]).status.success());
}

/// A running node, killed on drop.
struct RunningNode(Child);

impl RunningNode {
    fn start(folder: &Folder, args: &[&str], stderr: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.arg("serve").args(args).env_clear().current_dir(&folder.0).stderr(stderr);
        Self(command.spawn().expect("it runs"))
    }

    /// The log up to the line that contains `words`. The rest is discarded.
    fn log_until(&mut self, words: &str) -> String {
        let mut log = String::new();
        for line in BufReader::new(self.0.stderr.take().expect("its log")).lines() {
            log.push_str(&line.expect("text"));
            log.push('\n');
            if log.contains(words) {
                break;
            }
        }
        log
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_log_names_the_configuration_file_at_start() {
    let folder = Folder::new("start");
    let log_of_start = || {
        let args = ["--address", "127.0.0.1", "--port", "0"];
        RunningNode::start(&folder, &args, Stdio::piped()).log_until("configuration file ")
    };
    let log = log_of_start();
    assert!(log.contains("no configuration file found; using the environment, flags and defaults"), "{log}");
    folder.file("config.yaml", "shards: 1\n");
    let log = log_of_start();
    assert!(log.contains(r#""file":"config.yaml""#), "{log}");
}

#[test]
fn replay_refuses_special_and_oversized_files() {
    let folder = Folder::new("replay");
    let long = folder.file("long.dunlin-room", "");
    fs::File::options().write(true).open(&long).expect("it is there").set_len((1 << 30) + 1).expect("a sparse file");
    for (file, message) in [
        ("/dev/zero", "/dev/zero: is not a regular file"),
        (".", ".: is not a regular file"),
        (&long, "is larger than 1073741824 bytes"),
        ("/nowhere", "/nowhere: No such file"),
    ] {
        let output = dunlin(&folder, &["replay", file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn check_config_and_serve_read_the_referenced_files() {
    let folder = Folder::new("files");
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/tests/tls");
    let other_key = folder
        .file("other.pem", "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgOTHERKEY");
    let empty = folder.0.join("empty");
    fs::create_dir_all(&empty).expect("a directory");
    let empty = empty.display().to_string();
    let a_file = folder.file("a-file", "");
    let tls = |certificate: &str, key: &str| {
        format!(r#"{{"http_server": {{"tls": {{"enabled": true, "cert_pem": "{certificate}", "key_pem": "{key}"}}}}}}"#)
    };
    let rooms = |directory: &str| {
        format!(
            r#"{{"channel": {{"namespaces": [{{"name": "game", "history_size": 1, "history_ttl": "1m",
                "room": {{"simulation": "treasure_hunt", "record_directory": "{directory}"}}}}]}}}}"#
        )
    };
    let (certificate, key) = (format!("{authority}/certificate.pem"), format!("{authority}/key.pem"));
    for (text, message) in [
        (tls(&certificate, &key), ""),
        (tls("/nowhere.pem", &key), "http_server.tls.cert_pem: cannot read the file /nowhere.pem: No such file"),
        (tls(&certificate, "/nowhere.pem"), "http_server.tls.key_pem: cannot read the file /nowhere.pem: No such file"),
        (
            tls("/dev/zero", &key),
            "http_server.tls.cert_pem: cannot read the file /dev/zero: it is larger than 1048576 bytes",
        ),
        (tls(&key, &key), "http_server.tls.cert_pem: the certificate is not in PEM format"),
        (tls(&certificate, &other_key), "http_server.tls.key_pem: the key is not in PEM format"),
        (tls(&certificate, OTHER_KEY), "http_server.tls.key_pem: does not match the certificate in `cert_pem`"),
        (r#"{"demo": {"dir": "/nowhere"}}"#.to_owned(), "demo.dir: cannot serve the pages in /nowhere: No such file"),
        (format!(r#"{{"demo": {{"dir": "{empty}"}}}}"#), "contains no index.html"),
        (rooms(&empty), ""),
        (rooms(&format!("{empty}/to/be/made")), ""),
        (rooms("to/be/made"), ""),
        (
            rooms(&format!("{a_file}/rooms")),
            "channel.namespaces[\"game\"].room.record_directory: recordings cannot be written, because",
        ),
        (rooms("/proc/1"), "Dunlin's user cannot write to /proc/1"),
    ] {
        let file = folder.file("dunlin.json", &text);
        let output = dunlin(&folder, &["check-config", "-c", &file]);
        let printed = stderr(&output);
        assert!(printed.contains(message), "{text}\n{printed}");
        assert_eq!(output.status.code(), Some(if message.is_empty() { 0 } else { 3 }), "{text}\n{printed}");
        if !message.is_empty() {
            assert_eq!(stderr(&dunlin(&folder, &["serve", "-c", &file])), printed);
        }
    }
}

#[test]
fn a_command_line_of_centrifugo_gets_a_hint() {
    let folder = Folder::new("hint");
    for (args, hint) in [
        (&["-c", "config.json"][..], "\nhint: the command must come first: dunlin serve -c config.json\n"),
        (&["centrifugo", "--health"], "or as DUNLIN_HEALTH_ENABLED=true in the environment\n"),
        (&["centrifugo", "--nats_url=nats://u:hidden@h"], "or as DUNLIN_BROKER_NATS_URL=… in the environment\n"),
        (&["centrifugo", "--redis_password", "hidden"], "or as DUNLIN_ENGINE_REDIS_PASSWORD=… in the environment\n"),
        (&["serve", "--client.insecure"], "or as DUNLIN_CLIENT_INSECURE=true in the environment\n"),
        (&["serve", "--http_server.port=9000"], "\nhint: --http_server.port is called --port here\n"),
    ] {
        let output = dunlin(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).ends_with(hint), "{}", stderr(&output));
        assert!(!stderr(&output).contains("hidden"), "{}", stderr(&output));
    }
    let help = dunlin(&folder, &["serve", "--help"]);
    assert!(help.status.success() && !stdout(&help).contains("hint:") && stderr(&help).is_empty());
}
