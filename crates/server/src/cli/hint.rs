//! Suggestions for invalid command lines, mainly for users of Centrifugo, which has other options.

use std::{ffi::OsString, process::ExitCode};

use dunlin_config::{migrate, variable_of};

use super::output;

/// Settings for which `serve` has flags.
const FLAGS: [(&str, &str); 5] = [
    ("http_server.address", "--address"),
    ("http_server.port", "--port"),
    ("log.level", "--log-level"),
    ("shards", "--shards"),
    ("reactor", "--reactor"),
];

/// Flags of `serve` with the same name in version 5, or as a key.
const OURS: [&str; 4] = ["port", "address", "shards", "reactor"];

/// Prints the error of this command line, and hints. Help output is not an error.
pub(crate) fn print_hint(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // An error means that stderr is closed.
    let _ = error.print();
    if error.use_stderr() {
        let arguments: Vec<_> = arguments.iter().skip(1).map(|text| text.to_string_lossy().into_owned()).collect();
        for hint in hints(&arguments) {
            output::error_line(format_args!("hint: {hint}"));
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn hints(arguments: &[String]) -> Vec<String> {
    let mut hints: Vec<_> = options(arguments).map(|(key, value)| of_option(key, value)).collect();
    let plain: Vec<_> = without_options(arguments);
    match plain.first() {
        Some(first) if first.starts_with('-') => {
            hints.push(format!("the command must come first: dunlin serve {}", plain.join(" ")));
        }
        None if !arguments.is_empty() => hints.push("the command must come first: dunlin serve".to_owned()),
        _ => {}
    }
    hints
}

/// Flags such as `--client.insecure`, with their values.
fn options(arguments: &[String]) -> impl Iterator<Item = (&str, Option<&str>)> {
    // Other commands have flags with the names of keys of version 5.
    let runs_a_node = arguments.first().is_none_or(|first| first.starts_with('-') || first == "serve");
    arguments.iter().enumerate().filter_map(move |(index, argument)| {
        let flag = as_option(argument).or_else(|| as_former_option(argument).filter(|_| runs_a_node))?;
        match flag.split_once('=') {
            Some((key, value)) => Some((key, Some(value))),
            None => Some((flag, arguments.get(index + 1).map(String::as_str).filter(|next| !next.starts_with('-')))),
        }
    })
}

/// The command line without flags such as `--client.insecure`.
fn without_options(arguments: &[String]) -> Vec<&str> {
    let mut is_value = false;
    let mut plain = Vec::new();
    for argument in arguments {
        let flag = as_option(argument).or_else(|| as_former_option(argument));
        if flag.is_none() && (!is_value || argument.starts_with('-')) {
            plain.push(argument.as_str());
        }
        is_value = flag.is_some_and(|flag| !flag.contains('='));
    }
    plain
}

fn as_option(argument: &str) -> Option<&str> {
    argument.strip_prefix("--").filter(|flag| flag.split('=').next().is_some_and(|key| key.contains('.')))
}

/// Flags of version 5, such as `--health` and `--log_level=debug`. `--port` and `--address` are ours as well.
fn as_former_option(argument: &str) -> Option<&str> {
    let flag = argument.strip_prefix("--")?;
    let name = flag.split('=').next()?;
    let is_known = || {
        migrate::successor(name).is_some() || migrate::without_successor(name).is_some() || variable_of(name).is_some()
    };
    (!OURS.contains(&name) && is_known()).then_some(flag)
}

fn of_option(key: &str, value: Option<&str>) -> String {
    let (former, key) = (key, migrate::successor(key).unwrap_or(key));
    if let Some(why) = migrate::without_successor(former) {
        return format!("--{former} has no successor: {why}");
    }
    let Some(variable) = variable_of(key) else {
        return format!("{key} cannot be set by a variable or flag; see docs/configuration.md");
    };
    if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == key) {
        return format!("--{former} is called {flag} here");
    }
    // Standard error goes to logs, and the value may be a secret.
    let value = value.map_or("true", |_| "…");
    let switch = migrate::variables_of(former).and_then(|(_, switch)| switch);
    let switch = switch.map_or_else(String::new, |switch| format!(" with {switch}=true"));
    format!(
        "there is no flag for {key}: set it in the configuration file, or as {variable}={value}{switch} in the environment"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_hints(line: &str, expected: &[&str]) {
        let arguments: Vec<_> = line.split_whitespace().map(ToOwned::to_owned).collect();
        assert_eq!(hints(&arguments), expected, "{line}");
    }

    #[test]
    fn hints_name_switches_and_show_no_values() {
        for (line, expected) in [
            (
                "serve --nats_url=nats://user:password@host --redis_password hidden --http_api.key=hidden",
                &[
                    "there is no flag for broker.nats.url: set it in the configuration file, or as \
                     DUNLIN_BROKER_NATS_URL=… in the environment",
                    "there is no flag for engine.redis.password: set it in the configuration file, or as \
                     DUNLIN_ENGINE_REDIS_PASSWORD=… in the environment",
                    "there is no flag for http_api.key: set it in the configuration file, or as \
                     DUNLIN_HTTP_API_KEY=… in the environment",
                ][..],
            ),
            (
                "serve --broker nats --pid_file=/run/pid",
                &[
                    "there is no flag for broker.type: set it in the configuration file, or as \
                     DUNLIN_BROKER_TYPE=… with DUNLIN_BROKER_ENABLED=true in the environment",
                    "there is no flag for pid_file: set it in the configuration file, or as \
                     DUNLIN_PID_FILE=… in the environment",
                ],
            ),
            (
                "--grpc_api_tls_disable --sockjs -c config.json",
                &[
                    "--grpc_api_tls_disable has no successor: TLS is off where it is not enabled",
                    "--sockjs has no successor: version 6 and Dunlin have no SockJS: enable `http_stream.enabled` or \
                     `sse.enabled`, which official SDKs use where there is no WebSocket, and leave this key out",
                    "the command must come first: dunlin serve -c config.json",
                ],
            ),
            ("serve --shards=x --reactor=y", &[]),
            ("gen-token --secret x", &[]),
        ] {
            assert_hints(line, expected);
        }
    }

    #[test]
    fn command_lines_of_centrifugo_are_answered_with_ours() {
        for (line, expected) in [
            ("-c config.json", &["the command must come first: dunlin serve -c config.json"][..]),
            (
                "--client.insecure -c config.json",
                &[
                    "there is no flag for client.insecure: set it in the configuration file, or as \
                     DUNLIN_CLIENT_INSECURE=true in the environment",
                    "the command must come first: dunlin serve -c config.json",
                ],
            ),
            (
                "serve --health.enabled=false",
                &["there is no flag for health.enabled: set it in the configuration file, or as \
                   DUNLIN_HEALTH_ENABLED=… in the environment"],
            ),
            ("serve --http_server.port 9000", &["--http_server.port is called --port here"]),
            (
                "serve --client.nonsense",
                &["client.nonsense cannot be set by a variable or flag; see docs/configuration.md"],
            ),
            (
                "serve --health --log_level=debug --port 9000",
                &[
                    "there is no flag for health.enabled: set it in the configuration file, or as \
                     DUNLIN_HEALTH_ENABLED=true in the environment",
                    "--log_level is called --log-level here",
                ],
            ),
            ("--config=config.json", &["the command must come first: dunlin serve --config=config.json"]),
            (
                "--admin --config=config.json",
                &[
                    "there is no flag for admin.enabled: set it in the configuration file, or as \
                     DUNLIN_ADMIN_ENABLED=true in the environment",
                    "the command must come first: dunlin serve --config=config.json",
                ],
            ),
            ("new-game --name", &[]),
            ("serve --nonsense", &[]),
            ("", &[]),
        ] {
            assert_hints(line, expected);
        }
    }
}
