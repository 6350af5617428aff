//! `dunlin health`: health checks for containers and service managers.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use dunlin_config::Config;
use dunlin_games::Registry;
use dunlin_net::ClientTls;
use dunlin_queues::answer_channel;
use dunlin_token::SecretUrl;
use hyper::Uri;
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use super::{ConfigFile, Failure, output};

/// Maximum number of bytes of a response that are read. Only its first line is used.
const ANSWER_BYTES_MAX: usize = 4_096;

/// The path to request if the configuration does not set one.
const DEFAULT_PATH: &str = "/health";

/// Check the health of a running node: exit code 0 if it is healthy, 1 otherwise.
#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Host and port of the node, such as 127.0.0.1:8000. Default: those of the configuration
    #[arg(short, long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// URL of the health check, such as <http://127.0.0.1:8000/health>; the configuration is not read
    #[arg(long, value_name = "URL", conflicts_with = "address")]
    url: Option<String>,
    /// Timeout in seconds
    #[arg(short, long, value_name =
            "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// The target of the request.
struct Target {
    url: Uri,
    /// TLS options for `https`.
    tls: ClientTls,
}

pub(super) fn run(args: &HealthArgs, registry: &Registry) -> Result<(), Failure> {
    let target = target(args, registry).map_err(Failure::Unhealthy)?;
    let url = SecretUrl::new(target.url.to_string());
    let (sender, receiver) = answer_channel();
    // A separate thread, because name resolution or the peer may block. The process ends without waiting for the
    // thread.
    let asking = thread::Builder::new().spawn(move || drop(sender.send(target.ask())));
    let answer = match asking {
        Ok(_) => receiver.recv_timeout(Duration::from_secs(args.timeout)),
        Err(error) => Ok(Err(error.to_string())),
    };
    match answer {
        Ok(Ok(status)) if status.starts_with("200") => output::line(format_args!("{url}: {status}")),
        Ok(Ok(status)) if status.starts_with("404") => {
            Err(Failure::Unhealthy(format!("{url}: {status}. Set `health.enabled`, or name another path with --url")))
        }
        Ok(Ok(status)) => Err(Failure::Unhealthy(format!("{url}: {status}"))),
        Ok(Err(why)) => Err(Failure::Unhealthy(format!("{url}: {why}"))),
        Err(_) => Err(Failure::Unhealthy(format!("{url}: no response within {} s", args.timeout))),
    }
}

fn target(args: &HealthArgs, registry: &Registry) -> Result<Target, String> {
    if let Some(url) = &args.url {
        let parsed = url.parse::<Uri>().ok();
        let is_http = |url: &Uri| url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https"));
        let url = parsed
            .filter(is_http)
            .ok_or_else(|| format!("{:?} is not a URL with http:// or https://", SecretUrl::new(url.as_str())))?;
        return Ok(Target { url, tls: ClientTls::default() });
    }
    let config = match args.config.load(Vec::new(), registry) {
        Ok((config, _)) => config,
        Err(Failure::Config(problems)) => {
            let first = problems.errors.first().map(ToString::to_string).unwrap_or_default();
            return Err(format!("the configuration cannot be used: {first}. `dunlin check-config` shows all problems"));
        }
        Err(other) => return Err(other.to_string()),
    };
    let path = match (&config.health_prefix, &args.address) {
        (Some(path), _) => path.as_str(),
        (None, Some(_)) => DEFAULT_PATH,
        (None, None) => return Err("the node serves no health check: set `health.enabled` to true".to_owned()),
    };
    let place = match &args.address {
        Some(address) => address.clone(),
        None => configured_place(&config)?.to_string(),
    };
    // The internal port does not use TLS. On loopback, the name in the node's certificate does not match.
    let has_tls = config.http_server.tls.is_some() && config.http_server.internal.is_none();
    let scheme = if has_tls { "https" } else { "http" };
    let url = format!("{scheme}://{place}{path}");
    let url = url.parse::<Uri>().map_err(|_| format!("{place:?} is not a host and a port such as 127.0.0.1:8000"))?;
    Ok(Target { url, tls: ClientTls { insecure_skip_verify: true, ..ClientTls::default() } })
}

/// The address of the health check for this configuration.
fn configured_place(config: &Config) -> Result<SocketAddr, String> {
    let server = &config.http_server;
    let (address, port) = match server.internal {
        Some(listener) => (listener.address, listener.port),
        None => (server.address, server.port),
    };
    if port == 0 {
        return Err("`http_server.port` is 0, so the node takes any free port: name it with --address".to_owned());
    }
    let address = address.filter(|address| !address.is_unspecified());
    Ok(SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port))
}

impl Target {
    /// Returns the status of the response, as number and text.
    fn ask(&self) -> Result<String, String> {
        let host = self.url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_tls = self.url.scheme_str() == Some("https");
        let port = self.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let socket = connect(&host, port).map_err(|error| format!("cannot connect: {error}"))?;
        if !is_tls {
            return self.exchange(socket).map_err(|error| error.to_string());
        }
        let config = Arc::new(self.tls.client_config()?);
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        self.exchange(StreamOwned::new(connection, socket)).map_err(|error| error.to_string())
    }

    fn exchange(&self, mut stream: impl Read + Write) -> io::Result<String> {
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
        stream.flush()?;
        let mut answer = Vec::new();
        let mut part = [0; 512];
        while !answer.contains(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
            match stream.read(&mut part)? {
                0 => break,
                read => answer.extend_from_slice(part.get(..read).unwrap_or_default()),
            }
        }
        let line = answer.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        match line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 ")) {
            Some(status) => Ok(status.chars().filter(|c| !c.is_control()).collect()),
            None => Err(io::Error::other("the response is not HTTP")),
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name cannot be resolved");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
