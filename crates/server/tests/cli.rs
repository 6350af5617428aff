//! The program as its users run it: what it prints, and what it ends with.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin::{
    config::{Config, Input},
    token::Verifier,
};

/// A directory of its own for each test, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
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

fn dunlin(folder: &Folder, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin")).args(args).env_clear().current_dir(&folder.0).output().expect("it runs")
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("text")
}

fn stderr(output: &Output) -> &str {
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

        let input = Input::read(Some(&path), Vec::new()).expect(name);
        let (config, _) = Config::from_input(&input).expect(name);
        secrets.push(config.token.connection.hmac.expect("a key").reveal().to_vec());

        let before = fs::read(&path).expect(name);
        let again = dunlin(&folder, args);
        assert_eq!(again.status.code(), Some(1));
        assert!(stderr(&again).contains("exists"), "{}", stderr(&again));
        assert_eq!(fs::read(&path).expect(name), before);
    }
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 4, "every file has its own key");
    assert!(secrets.iter().all(|secret| secret.len() == 64));
    assert_eq!(dunlin(&folder, &["gen-config", "-c", "dunlin.ini"]).status.code(), Some(2));
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
        Config::from_input(&Input::read(Some(Path::new(&file)), Vec::new()).expect("it is there")).expect("good");
    let verifier = Verifier::new(&config.token).expect("an HMAC key needs no thread");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let token = |args: &[&str]| {
        let output = dunlin(&folder, &[&["gen-token", "-c", &file, "--user", "42"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    };
    let claims = verifier.judge_connection(&token(&["--ttl", "60"]), now_s).expect("valid");
    assert_eq!(claims.user, "42");
    assert!((now_s + 60..now_s + 600).contains(&claims.expires_at_s.expect("it expires")));
    let claims = verifier.judge_connection(&token(&["--ttl", "-1"]), now_s).expect("valid");
    assert_eq!(claims.expires_at_s, None);
    let claims = verifier.judge_subscription(&token(&["--channel", "$chat"]), now_s).expect("valid");
    assert_eq!((claims.user.as_str(), claims.channel.as_str()), ("42", "$chat"));
    assert!(claims.expires_at_s.is_some());

    let token = token(&["--ttl", "-1"]);
    let output = dunlin(&folder, &["gen-sub-token", "-c", &file, "--user", "42", "--channel", "news"]);
    let sub_token = stdout(&output).trim_end().to_owned();
    let check = |command: &str, token: &str| {
        let output = dunlin(&folder, &[command, "-c", &file, token]);
        (output.status.code(), stdout(&output).to_owned() + stderr(&output))
    };
    let good = "valid connection token\nuser: \"42\"\nconnection expires: never\n".to_owned();
    assert_eq!(check("check-token", &token), (Some(0), good));
    let (code, said) = check("check-sub-token", &sub_token);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("valid subscription token\nuser: \"42\"\nchannel: \"news\"\n"), "{said}");
    for (command, token, reason) in [
        ("check-token", sub_token.as_str(), "its signature is not made with a key that is set"),
        ("check-sub-token", token.as_str(), "its signature is not made with a key that is set"),
        ("check-token", "x", "it is not a signed JSON Web Token"),
        ("check-token", &token.replacen('e', "f", 1), "it is not a signed JSON Web Token"),
    ] {
        let expected = format!("dunlin: the token does not count: {reason}\n");
        assert_eq!(check(command, token), (Some(1), expected), "{command}");
    }

    let keyless = folder.file("keyless.json", "{}");
    let output = dunlin(&folder, &["gen-token", "-c", &keyless, "--user", "42"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "dunlin: client.token.hmac_secret_key is not set, so there is no key to sign with\n");
}

#[test]
fn a_bad_configuration_ends_check_and_serve_with_all_reasons() {
    let folder = Folder::new("bad");
    let file = folder.file(
        "dunlin.json",
        r#"{"client": {"pingInterval": "1s", "pong_timeout": "1h"}, "webtransport": {"enabled": true}}"#,
    );
    let output = dunlin(&folder, &["check-config", "-c", &file]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "");
    let said = stderr(&output).to_owned();
    assert_eq!(said.lines().count(), 4, "{said}");
    for words in ["did you mean client.ping_interval?", "webtransport: is not supported yet", "client.pong_timeout: 1h"]
    {
        assert!(said.contains(words), "{said}");
    }
    let output = dunlin(&folder, &["serve", "-c", &file]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output), said);
}

#[test]
fn warnings_are_told_and_count_only_when_strict() {
    let folder = Folder::new("warn");
    let file = folder.file("dunlin.toml", "[websocket]\nwrite_timeout = \"2s\"\n");
    let output = dunlin(&folder, &["check-config", "-c", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).ends_with("dunlin.toml: good, with 0 namespaces and 1 warnings\n"));
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
    fs::write(folder.0.join("large.json"), " ".repeat(4 << 20)).expect("written");
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
