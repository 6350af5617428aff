//! What the connections of a process publish, and what the target answers.

use crate::scenario::crew_commands::{CrewRole, Sent};
use crate::scenario::stamp::{StreamStamp, write_stamped};
use crate::scenario::streams::Streams;

/// A publication whose answer is pending.
#[derive(Debug, Clone, Copy)]
pub struct Awaited {
    pub stream: u32,
    pub sequence: u64,
    pub intended_ns: u64,
}

impl Awaited {
    /// Counts the answer: an error code, 0 for success.
    pub fn answered(self, error: u32, now_ns: u64, sent: &mut Sent, streams: &Streams) {
        if error == 0 {
            sent.accepted += 1;
            sent.acknowledged.record_ns(now_ns.saturating_sub(self.intended_ns));
        } else {
            sent.unchecked += u64::from(!streams.refuse(self.stream, self.sequence));
            *sent.refused.entry(error.to_string()).or_default() += 1;
        }
    }
}

/// A stream, its channel and the place of its connection among the members.
#[derive(Debug, Clone, Copy)]
pub struct OwnStream {
    pub stream: u32,
    pub channel: u32,
    pub member: usize,
}

/// The streams that connections of this process publish, in turn.
pub struct Publishing {
    streams: Vec<OwnStream>,
    payload_bytes: usize,
    /// The last payload.
    payload: Vec<u8>,
}

impl Publishing {
    pub fn new(role: &CrewRole) -> Self {
        let payload_bytes = role.load.payload_bytes;
        Publishing { streams: own_streams(role), payload_bytes, payload: Vec::new() }
    }

    /// The stream of a publication with this number in its phase; none if this process has no publishers.
    pub fn stream(&self, number: usize) -> Option<OwnStream> {
        self.streams.get(number.checked_rem(self.streams.len())?).copied()
    }

    /// Counts a publication, and makes its payload.
    pub fn write(&mut self, stream: u32, intended_ns: u64, sent_ns: u64, streams: &Streams) -> (Awaited, &[u8]) {
        let sequence = streams.count_sent(stream);
        self.payload.clear();
        write_stamped(&mut self.payload, StreamStamp { intended_ns, sent_ns, stream, sequence }, self.payload_bytes);
        (Awaited { stream, sequence, intended_ns }, &self.payload)
    }
}

fn own_streams(role: &CrewRole) -> Vec<OwnStream> {
    let (parts, part) = (role.place.parts, role.place.part);
    let Some(span) = role.load.publishers.iter().find(|span| span.of == role.plan.name) else { return Vec::new() };
    (0..span.count)
        .map(|number| (number, u64::from(number) % span.connections))
        .filter(|(_, connection)| connection % parts == part)
        .map(|(number, connection)| OwnStream {
            stream: span.first + number,
            channel: number % role.load.channels,
            member: usize::try_from(connection / parts).unwrap_or(usize::MAX),
        })
        .collect()
}
