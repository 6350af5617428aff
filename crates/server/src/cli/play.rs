//! `dunlin play`: a page to try a server with, and a server for it.
//!
//! The page is plain JavaScript that browsers run as it is, so that the server compiles without npm. `web/test` checks its
//! types and runs its tests.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{Router, http::Uri, routing::get};
use clap::Args;
use dunlin_config::{Config, ConfigInput, Document, Flag, Format};
use dunlin_games::Registry;
use dunlin_token::Verifier;
use serde::Serialize;

use super::{Failure, gen_config::random_key, page, program};
use crate::{
    demo::site::{self, Site},
    serve::Purpose,
    telemetry::token_events::log_token_event,
};

/// The files of this page alone. `/settings.json` is made at the start.
const PAGE: [(&str, &str); 10] = [
    ("/index.html", include_str!("play/page/index.html")),
    ("/play.css", include_str!("play/page/play.css")),
    ("/play.js", include_str!("play/page/play.js")),
    ("/channels.js", include_str!("play/page/channels.js")),
    ("/client.js", include_str!("play/page/client.js")),
    ("/code.js", include_str!("play/page/code.js")),
    ("/codec.js", include_str!("play/page/codec.js")),
    ("/frames.js", include_str!("play/page/frames.js")),
    ("/messages.js", include_str!("play/page/messages.js")),
    ("/protobuf.js", include_str!("play/page/protobuf.js")),
];

/// The configuration of the page's own server. Variables and files of the user have no effect on it.
const CONFIG: &str = include_str!("play/config.json");

/// Channels that the page suggests, one for each namespace of [`CONFIG`].
const CHANNELS: [Suggestion; 5] = [
    Suggestion { channel: "news", about: "presence, a history of 100, recovery of all that was missed" },
    Suggestion { channel: "joins:lobby", about: "the same, and tells who joins and leaves" },
    Suggestion { channel: "latest:prices", about: "the newest publication of each key; slow clients skip the rest" },
    Suggestion { channel: "cache:score", about: "recovery brings the newest publication alone" },
    Suggestion { channel: "plain:chat", about: "no history: what is missed is lost" },
];

const EXAMPLE: &str = "such as ws://localhost:8000/connection/websocket";

#[derive(Clone, Copy, Debug, Serialize)]
struct Suggestion {
    channel: &'static str,
    about: &'static str,
}

/// What the page is told. It has no `Debug`, because of its token and its key.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Settings<'a> {
    /// The server; `None` for the one that serves the page.
    url: Option<&'a str>,
    token: &'a str,
    /// The key of the page's own server, for commands to copy and for publications while the connection is cut.
    api_key: Option<&'a str>,
    channels: &'a [Suggestion],
}

/// Open a page to try a server with: connections, subscriptions, publications, frames, code for six languages.
#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// TCP port of the page; 0: any free port
    #[arg(short, long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// IP address of the page: `127.0.0.1` or `::1`
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: IpAddr,
    /// Have the page connect to this server, such as `ws://localhost:8000/connection/websocket`. Without it, it connects to
    /// a server of its own, which keeps everything in memory
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Connection token for the server of --url. Programs of this machine can read it here; the page has a field for it as
    /// well
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,
}

pub(super) fn run(args: &PlayArgs, registry: &Registry) -> Result<(), Failure> {
    if ![IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()].contains(&args.address) {
        let text = format!(
            "the page is for this machine alone: everybody who reaches it may publish, and read what it is given. Name \
             `127.0.0.1` or `::1` instead of {}; from another machine, forward the port: ssh -L",
            args.address
        );
        return Err(Failure::Usage(text));
    }
    match &args.url {
        None => serve_own(args, registry),
        Some(url) => serve_page(args, url),
    }
}

/// Serves the page with a server of its own.
fn serve_own(args: &PlayArgs, registry: &Registry) -> Result<(), Failure> {
    let key = random_key()?;
    let settings = Settings { url: None, token: "", api_key: Some(&key), channels: &CHANNELS };
    let site = site_with(&settings, None)?;
    let input = own_input(args, &key);
    let loaded = Config::load_to_start(&input, registry, program()).map_err(Failure::Config)?;
    let verifier = Verifier::new(&loaded.config.token, log_token_event).map_err(Failure::TokenThread)?;
    let registry = registry.clone();
    let reread = Arc::new(move || Config::load(&input, &registry));
    let announce = |address| {
        // The server goes on without standard output.
        let _ = page::print_address("play", address);
    };
    let purpose = Purpose::Playground { site, announce };
    crate::serve::run(loaded, Arc::new(verifier), reread, purpose).map_err(Failure::Serve)
}

fn own_input(args: &PlayArgs, key: &str) -> ConfigInput {
    let flags = [
        ("--port", "http_server.port", args.port.to_string()),
        ("--address", "http_server.address", args.address.to_string()),
        ("its key", "http_api.key", key.to_owned()),
    ];
    let document = Document { name: "dunlin play".to_owned(), format: Format::Json, text: CONFIG.to_owned() };
    ConfigInput {
        document: Some(document),
        variables: Vec::new(),
        flags: flags.into_iter().map(|(name, path, value)| Flag { name, path, value }).collect(),
    }
}

/// Serves the page alone.
fn serve_page(args: &PlayArgs, url: &str) -> Result<(), Failure> {
    let source = source_of(url).map_err(|why| Failure::Usage(format!("--url: {why}, {EXAMPLE}")))?;
    let token = args.token.as_deref().unwrap_or_default();
    let site = site_with(&Settings { url: Some(url), token, api_key: None, channels: &[] }, Some(&source))?;
    let router = Router::new().fallback_service(get(site::answer).with_state(Arc::new(site)));
    page::serve("play", SocketAddr::from((args.address, args.port)), router)
}

/// The page with what it is told. It may connect to `server`, a source of a Content-Security-Policy.
fn site_with(settings: &Settings<'_>, server: Option<&str>) -> Result<Site, Failure> {
    let failed = |error| Failure::File("settings.json".into(), error);
    let told = serde_json::to_vec(settings).map_err(|error| failed(error.into()))?;
    let files = PAGE.iter().chain(&page::SHARED).map(|(path, text)| (*path, text.as_bytes()));
    Site::private(files.chain([("/settings.json", told.as_slice())]), server).map_err(failed)
}

/// What a Content-Security-Policy has to name so that a page may connect to this server. The reasons do not repeat the
/// address: it may contain a secret.
fn source_of(url: &str) -> Result<String, &'static str> {
    let uri: Uri = url.parse().map_err(|_| "that is no address")?;
    let scheme = uri.scheme_str().filter(|scheme| ["ws", "wss"].contains(scheme));
    let scheme = scheme.ok_or("the address has to begin with ws:// or wss://")?;
    let authority = uri.authority().ok_or("the address has no host")?.as_str();
    // Another character would end the policy, and browsers refuse user names.
    if !authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte)) {
        return Err("the host may only have letters, digits, dots and hyphens");
    }
    // A policy cannot name the address of a host of IPv6.
    Ok(if authority.starts_with('[') { format!("{scheme}:") } else { format!("{scheme}://{authority}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_config::ApiAccess;

    use super::*;

    fn args() -> PlayArgs {
        PlayArgs { port: 0, address: Ipv4Addr::LOCALHOST.into(), url: None, token: None }
    }

    #[test]
    fn each_namespace_has_a_channel_that_the_page_suggests() {
        let input = own_input(&args(), "a-key-of-the-tests-with-32-bytes!");
        let (config, warnings) = Config::from_input(&input).expect("good");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(matches!(config.http_api.access, ApiAccess::Keys(_)));
        let names: BTreeSet<_> = config.engine.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
        let suggested: BTreeSet<_> = CHANNELS
            .iter()
            .filter_map(|Suggestion { channel, .. }| channel.split_once(':'))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, suggested);
        assert!(CHANNELS.iter().any(|Suggestion { channel, .. }| !channel.contains(':')), "one without a namespace");
    }

    #[test]
    fn each_file_of_the_page_is_in_the_program() {
        page::tests::assert_has_files_of("src/cli/play/page", &PAGE);
    }

    #[test]
    fn other_addresses_are_refused_with_a_remedy() {
        for address in ["0.0.0.0", "::", "192.0.2.1", "127.0.0.2"] {
            let args = PlayArgs { address: address.parse().expect("an address"), ..args() };
            match run(&args, &Registry::built_in()) {
                Err(Failure::Usage(text)) => assert!(text.contains("`127.0.0.1` or `::1`"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_policy_names_the_server() {
        for (url, expected) in [
            ("ws://localhost:8000/connection/websocket", Ok("ws://localhost:8000")),
            ("wss://example.com/connection/websocket?a=b", Ok("wss://example.com")),
            ("ws://[::1]:8000/", Ok("ws:")),
            ("http://localhost:8000/", Err("the address has to begin with ws:// or wss://")),
            ("localhost:8000", Err("the address has to begin with ws:// or wss://")),
            ("/connection/websocket", Err("the address has to begin with ws:// or wss://")),
            ("wss://user:secret@example.com/", Err("the host may only have letters, digits, dots and hyphens")),
            ("wss://example.com;x/", Err("the host may only have letters, digits, dots and hyphens")),
            ("wss://example.com/;script-src *", Err("that is no address")),
            ("", Err("that is no address")),
        ] {
            assert_eq!(source_of(url).as_deref().map_err(|why| *why), expected, "{url}");
        }
    }
}
