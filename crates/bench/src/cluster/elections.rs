//! Observes elections of stream leaders through the advisories of the NATS servers.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use dunlin_cluster::links::{NatsClient, open_once};
use futures_util::StreamExt;
use futures_util::stream::select_all;
use tokio::runtime::{Builder, Runtime};

use super::bare;
use super::nats::NatsProcesses;
use crate::error::Error;
use crate::proc;

const SUBJECT: &str = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>";

/// An election of a leader.
#[derive(Debug, Clone)]
pub struct Election {
    pub stream: String,
    /// Time of the monotonic clock.
    pub seen_ns: u64,
}

/// Listens to all servers on a separate thread.
pub struct ElectionWatch {
    elections: Receiver<Election>,
}

impl ElectionWatch {
    /// Connects to all servers. The thread ends with the connections, or with the first election after the drop.
    pub fn start(nats: &NatsProcesses) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| bare::no_client(&error))?;
        let mut clients = Vec::new();
        for url in (0..nats.replicas()).map(|number| nats.url(number)) {
            let options = bare::link_options(&url)?;
            clients.push(runtime.block_on(open_once(&options)).map_err(|faults| bare::no_client(&faults))?);
        }
        let (sender, elections) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || watch(&runtime, &clients, &sender, &ready));
        is_ready.recv().map_err(|_| bare::no_client(&"its subscription failed"))?;
        Ok(ElectionWatch { elections })
    }

    /// The elections since the last call.
    pub fn seen(&self) -> Vec<Election> {
        self.elections.try_iter().collect()
    }
}

fn watch(runtime: &Runtime, clients: &[NatsClient], sender: &Sender<Election>, ready: &Sender<()>) {
    runtime.block_on(async {
        let mut advisories = Vec::new();
        for client in clients {
            let Ok(subscription) = client.subscribe(SUBJECT).await else { return };
            // After the flush, this connection's server has the subscription, so later advisories are received.
            let Ok(()) = client.flush().await else { return };
            advisories.push(subscription);
        }
        let _ = ready.send(());
        let mut advisories = select_all(advisories);
        while let Some(advisory) = advisories.next().await {
            let seen_ns = proc::now_ns();
            let stream = advisory.subject.as_str().rsplit('.').next().unwrap_or_default().to_owned();
            if sender.send(Election { stream, seen_ns }).is_err() {
                return;
            }
        }
    });
}
