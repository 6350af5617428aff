//! The end of a shard's turn: writes to all dirty sessions, in batches like those of the server.

use dunlin_engine::{Event, SessionKey};

use super::{NodeWorld, connections::Service};

/// Maximum number of sends in a batch. The reactors of the server use 16 and 1,024.
const BATCH_MAX: usize = 16;

/// One send of a batch.
struct Send {
    connection: usize,
    session: SessionKey,
    offered_bytes: usize,
    /// The bytes that the kernel took.
    taken: Vec<u8>,
}

impl NodeWorld {
    /// Lists a session for writing again if its full socket has room.
    pub(super) fn find_writable(&mut self, number: usize, service: Service) {
        let connection = &self.connections[number];
        if !connection.is_full || connection.room() == 0 || !connection.has_socket() {
            return;
        }
        if service == Service::Full || self.harness.chance.percent(60) {
            let connection = &mut self.connections[number];
            connection.is_full = false;
            self.sockets[connection.shard].dirty.push(connection.session);
        }
    }

    /// Writes to each dirty session. All sends of a batch are offered to the sockets before the shard gets the results.
    pub(super) fn end_turn(&mut self, shard: usize, service: Service) -> Result<(), String> {
        if service == Service::Some && self.harness.chance.percent(30) {
            // The turn continues.
            return Ok(());
        }
        for session in std::mem::take(&mut self.node.threads[shard].recalled) {
            if self.find(shard, session).is_some() {
                self.handle(shard, Event::Recalled { session })?;
            }
        }
        while !self.sockets[shard].dirty.is_empty() {
            let dirty = std::mem::take(&mut self.sockets[shard].dirty);
            for batch in dirty.chunks(BATCH_MAX) {
                let sends = self.offer(shard, batch, service)?;
                for send in sends {
                    self.sent(shard, send)?;
                }
            }
            if service == Service::Some {
                break;
            }
        }
        Ok(())
    }

    fn offer(&mut self, shard: usize, batch: &[SessionKey], service: Service) -> Result<Vec<Send>, String> {
        let mut sends: Vec<Send> = Vec::new();
        for &session in batch {
            let Some(connection) = self.find(shard, session) else { continue };
            if !self.connections[connection].has_socket() || self.connections[connection].is_full {
                continue;
            }
            if sends.iter().any(|send| send.session == session) {
                return Err(format!("{session:?} is offered twice in a batch"));
            }
            let most = match self.harness.chance.below(10) {
                _ if service == Service::Full => usize::MAX,
                0 => 1,
                1..4 => self.harness.chance.below(300),
                _ => usize::MAX,
            };
            let mut left = self.connections[connection].room().min(most);
            let (mut taken, mut offered_bytes) = (Vec::new(), 0);
            for slice in self.node.threads[shard].shard.outgoing(session) {
                if slice.is_empty() {
                    return Err(format!("{session:?} is offered an empty slice"));
                }
                offered_bytes += slice.len();
                let part = &slice[..slice.len().min(left)];
                taken.extend_from_slice(part);
                left -= part.len();
            }
            if offered_bytes > 0 {
                sends.push(Send { connection, session, offered_bytes, taken });
            }
        }
        Ok(sends)
    }

    fn sent(&mut self, shard: usize, send: Send) -> Result<(), String> {
        let Send { connection, session, offered_bytes, taken } = send;
        let bytes = taken.len();
        self.harness.trace.bytes(&taken);
        self.written_bytes += bytes as u64;
        if self.connections[connection].client_is_there {
            self.connections[connection].kernel.extend(&taken);
        }
        if bytes > 0 {
            self.handle(shard, Event::Wrote { session, bytes })?;
        }
        if self.node.threads[shard].shard.counters().writes_beyond_offer > 0 {
            return Err(format!("{session:?} wrote more than it was offered"));
        }
        if bytes < offered_bytes {
            self.connections[connection].is_full = true;
        } else if self.node.threads[shard].shard.has_outgoing(session) {
            self.sockets[shard].dirty.push(session);
        }
        Ok(())
    }
}
