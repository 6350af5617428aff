//! The target of a scenario: a fresh server that is started for it, or a running one.

use std::net::{SocketAddr, ToSocketAddrs};

use super::args::TargetArgs;
use super::profile::Profile;
use super::secrets::shown_url;
use crate::api;
use crate::args::ServerArgs;
use crate::error::Error;
use crate::metrics::MetricsSample;
use crate::proc::{self, Cores};
use crate::spawn::ServerProcess;

/// The server under test.
pub struct ScenarioTarget {
    /// What was started for the run; it ends when this is dropped.
    started: Option<ServerProcess>,
    /// Its process, if it is known.
    pub pid: Option<u32>,
    pub address: SocketAddr,
    /// The address of its HTTP API and its metrics.
    pub operators: SocketAddr,
    pub path: String,
    /// A description for the result.
    pub name: String,
}

impl ScenarioTarget {
    /// Starts or finds the target.
    pub fn start(args: &TargetArgs, profile: &Profile, cores: &Cores) -> Result<Self, Error> {
        match &args.target {
            Some(url) => ScenarioTarget::running(url, args, profile, cores),
            None => ScenarioTarget::fresh(args, profile, cores),
        }
    }

    fn fresh(args: &TargetArgs, profile: &Profile, cores: &Cores) -> Result<Self, Error> {
        // Each scrape counts up to its own time.
        let mut set = vec!["prometheus.enabled=true".to_owned(), "prometheus.survey_max_age=0s".to_owned()];
        set.extend(profile.server.iter().cloned());
        let server = ServerProcess::start(
            &ServerArgs {
                url: None,
                server_pid: None,
                start: args.start.clone(),
                set,
                tls: profile.message.tls,
                internal_port: None,
                speaks: profile.message.speaks,
            },
            cores,
        )?;
        Ok(ScenarioTarget {
            pid: Some(server.pid),
            address: server.address,
            operators: server.operators,
            path: server.path.clone(),
            name: server.name.clone(),
            started: Some(server),
        })
    }

    fn running(url: &str, args: &TargetArgs, profile: &Profile, cores: &Cores) -> Result<Self, Error> {
        let (address, path) = resolve(url)?;
        if !address.ip().is_loopback() && !args.i_own_this_target {
            let remedy = "this address is not on this machine; give --i-own-this-target as well if it is yours to load";
            return Err(wrong(url, remedy.to_owned()));
        }
        if profile.message.tls {
            let remedy = "TLS is possible only with a fresh server: remove message.tls from the profile";
            return Err(wrong(url, remedy.to_owned()));
        }
        if let Some(pid) = args.server_pid {
            proc::pin_process(pid, &cores.server)?;
        }
        Ok(ScenarioTarget {
            started: None,
            pid: args.server_pid,
            address,
            operators: address,
            path,
            name: shown_url(url),
        })
    }

    /// The error for a target that is gone.
    pub fn ended(&self) -> Error {
        let output = self.started.as_ref().map(ServerProcess::last_output);
        let remedy = output.map_or("read its log".to_owned(), |output| format!("its output was:\n{output}"));
        let end = self.started.as_ref().and_then(ServerProcess::end).map_or(String::new(), |end| format!(" ({end})"));
        Error::Server { did: format!("ended during the run{end}"), remedy }
    }

    /// Its metrics, if it shows any.
    pub fn metrics(&self) -> Option<MetricsSample> {
        api::get(self.operators, "/metrics").ok().map(|page| MetricsSample::parse(&page))
    }
}

/// Takes `ws://HOST:PORT/PATH` apart, and resolves the host.
fn resolve(url: &str) -> Result<(SocketAddr, String), Error> {
    let example = "give an address with its port, such as ws://127.0.0.1:8000/connection/websocket";
    let rest = url.strip_prefix("ws://").ok_or_else(|| wrong(url, example.to_owned()))?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/connection/websocket" } else { path };
    let mut addresses = host.to_socket_addrs().map_err(|err| wrong(url, format!("{example} ({err})")))?;
    let address = addresses.next().ok_or_else(|| wrong(url, example.to_owned()))?;
    Ok((address, path.to_owned()))
}

/// Also the reason of a partial result, which is published.
fn wrong(url: &str, remedy: String) -> Error {
    Error::Setting { name: "target", value: shown_url(url), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_an_address_and_a_path() {
        let (address, path) = resolve("ws://127.0.0.1:8000").unwrap();
        assert_eq!((address.to_string().as_str(), path.as_str()), ("127.0.0.1:8000", "/connection/websocket"));
        assert_eq!(resolve("ws://127.0.0.2:9/x?y").unwrap().1, "/x?y");
        for url in ["http://127.0.0.1:8000", "wss://127.0.0.1:8000", "ws://127.0.0.1/"] {
            assert!(resolve(url).unwrap_err().to_string().contains(url));
        }
        assert!(!resolve("wss://127.0.0.1:9/x?token=s3cret").unwrap_err().to_string().contains("s3cret"));
    }
}
