//! Sessions on all nodes of a cluster. When a node ends, its sessions reconnect to another node and recover.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::failover::target;
use crate::control::{ClientsRole, Returned, Role, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::proc::Cores;
use crate::spawn::ServerProcess;
use crate::tally::Tally;
use crate::worker_process::{Worker, source_address};

const SESSIONS_PER_WORKER: usize = 4_000;
const HANDSHAKES_MAX: usize = 256;
/// Publications that are missing after this time without any arrival count as lost.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);

/// Subscribers of one channel.
pub struct NodeSessions {
    workers: Vec<Worker>,
    tally: Tally,
    sessions: usize,
}

impl NodeSessions {
    /// Connects sessions to all nodes in turn.
    pub fn start(sessions: usize, nodes: &[ServerProcess], channel: &str, cores: &Cores) -> Result<Self, Error> {
        let tally = Tally::create()?;
        let count = sessions.div_ceil(SESSIONS_PER_WORKER);
        let start = |worker| {
            Worker::start(&Role::ReconnectingSubscribers(ClientsRole {
                target: target(&nodes[0], channel),
                worker,
                source: source_address(worker),
                handshakes_max: HANDSHAKES_MAX.div_ceil(count),
                slow_receive_bytes: 0,
                tally: tally.path(),
                cores: cores.clients.clone(),
                others: nodes[1..].iter().map(|node| node.address).collect(),
            }))
        };
        let mut workers = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
        for (number, worker) in workers.iter_mut().enumerate() {
            let sessions = sessions / count + usize::from(number < sessions % count);
            worker.send_command(&WorkerCommand::Connect { sessions, slow: 0 })?;
        }
        for worker in &workers {
            match worker.answer()? {
                WorkerReply::Connected(connected) if connected.failed.is_empty() => {}
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(NodeSessions { workers, tally, sessions })
    }

    /// The shared counters of deliveries.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Announces that the node at this address is about to end.
    pub fn expect_loss(&mut self, address: SocketAddr) -> Result<(), Error> {
        self.workers.iter_mut().try_for_each(|worker| worker.send_command(&WorkerCommand::Lose { address }))
    }

    /// Waits until the sessions of the node have recovered on other nodes.
    pub fn wait_until_back(&self) -> Result<Returned, Error> {
        let mut returned = Returned::default();
        for worker in &self.workers {
            match worker.answer()? {
                WorkerReply::Returned(one) => returned.add(&one),
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(returned)
    }

    /// Waits until all publications have arrived or are lost. Returns the number of lost or duplicated deliveries.
    pub fn missed(&mut self, publications: u64) -> Result<u64, Error> {
        let (mut deliveries, mut changed) = (self.tally.deliveries(), Instant::now());
        while deliveries < publications * self.sessions as u64 && changed.elapsed() < ARRIVAL_PATIENCE {
            thread::sleep(Duration::from_millis(5));
            let now = self.tally.deliveries();
            if now != deliveries {
                (deliveries, changed) = (now, Instant::now());
            }
        }
        let mut missed = 0;
        for worker in &mut self.workers {
            worker.send_command(&WorkerCommand::End { end_sequence: publications })?;
            match worker.answer()? {
                WorkerReply::Received(received) => missed += received.lost + received.duplicated,
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(missed)
    }
}
