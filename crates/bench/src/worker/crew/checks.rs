//! Checks what the clients of a process receive.

use std::collections::HashMap;

use super::bot::Bot;
use super::intervals::Intervals;
use super::publishing::Awaited;
use super::tracks::{Arrival, Gaps, Tracks};
use crate::scenario::crew_commands::{CrewReport, CrewRole, PlayPlan, Received};
use crate::scenario::stamp::{StreamStamp, StreamStampFinder};
use crate::scenario::streams::Streams;
use crate::worker::dialogue::Observer;

/// A client with fewer deliveries in a phase may be slow by chance.
const DELIVERIES_OF_SLOW_CLIENT: u32 = 10;

/// What the checks of all clients have in common.
pub struct Checks {
    finder: StreamStampFinder,
    pub streams: Streams,
    pub gaps: Gaps,
    pub intervals: Intervals,
}

impl Checks {
    pub fn new(role: &CrewRole, streams: Streams) -> Self {
        Checks {
            finder: StreamStampFinder::new(),
            streams,
            gaps: Gaps::default(),
            intervals: Intervals::new(role.run_start_ns, role.interval_ns),
        }
    }
}

/// What one client received, and what it must receive.
#[derive(Default)]
pub struct Inbox {
    pub tracks: Tracks,
    shortest_ns: u64,
    /// Deliveries of this phase.
    deliveries: u32,
}

impl Inbox {
    pub fn new(tracks: Tracks) -> Self {
        Inbox { tracks, ..Inbox::default() }
    }

    fn note(&mut self, latency_ns: u64) {
        self.shortest_ns = if self.deliveries == 0 { latency_ns } else { self.shortest_ns.min(latency_ns) };
        self.deliveries = self.deliveries.saturating_add(1);
    }

    /// Ends a phase.
    pub fn settle(&mut self, client: u64, checks: &mut Checks, received: &mut Received) {
        received.lost += self.tracks.settle(client, &checks.streams, &mut checks.gaps);
        if std::mem::take(&mut self.deliveries) >= DELIVERIES_OF_SLOW_CLIENT {
            received.slowest_client_ns = received.slowest_client_ns.max(Some(self.shortest_ns));
        }
    }
}

/// One read of one client.
pub struct Arrivals {
    pub at_ns: u64,
    /// Whether something came for which the phase waits.
    pub has_progress: bool,
}

/// The client that reads.
pub struct OfMember<'a> {
    pub client: u64,
    pub is_ready: bool,
    pub inbox: &'a mut Inbox,
}

/// Processes the publications and answers of one read of one client.
pub struct Sink<'a> {
    pub checks: &'a mut Checks,
    pub report: &'a mut CrewReport,
    pub of: OfMember<'a>,
    pub bot: Option<(&'a mut Bot, &'a PlayPlan)>,
    /// Publications without an answer; none for a client that sends no commands.
    pub awaited: Option<&'a mut HashMap<u32, Awaited>>,
    pub arrivals: &'a mut Arrivals,
}

impl Observer for Sink<'_> {
    fn message(&mut self, message: &[u8]) -> bool {
        if let Some((bot, plan)) = &mut self.bot {
            let (is_of_room, is_progress) = bot.message(message, plan, self.arrivals.at_ns, &mut self.report.played);
            self.arrivals.has_progress |= is_progress;
            return is_of_room;
        }
        let stamp = self.checks.finder.find(message);
        // What comes before the last subscription is confirmed does not have to come.
        if let Some(stamp) = stamp.filter(|_| self.of.is_ready) {
            self.publication(stamp);
        }
        stamp.is_some()
    }

    fn reply(&mut self, id: u32, error: u32) {
        let Some(publication) = self.awaited.as_mut().and_then(|awaited| awaited.remove(&id)) else { return };
        publication.answered(error, self.arrivals.at_ns, &mut self.report.sent, &self.checks.streams);
        self.arrivals.has_progress = true;
    }
}

impl Sink<'_> {
    fn publication(&mut self, stamp: StreamStamp) {
        let received = &mut self.report.received;
        match self.of.inbox.tracks.take(self.of.client, stamp.stream, stamp.sequence, &mut self.checks.gaps) {
            Arrival::New => {}
            Arrival::Late => received.reordered += 1,
            Arrival::Repeated => {
                received.duplicated += 1;
                return;
            }
            // It is among the lost ones, of which it may be one.
            Arrival::Unclear => {
                received.unchecked += 1;
                return;
            }
            Arrival::Stray => {
                received.stray += 1;
                return;
            }
        }
        self.arrivals.has_progress = true;
        received.delivered += 1;
        let latency_ns = self.arrivals.at_ns.saturating_sub(stamp.intended_ns);
        received.latency.record_ns(latency_ns);
        received.service.record_ns(self.arrivals.at_ns.saturating_sub(stamp.sent_ns));
        self.of.inbox.note(latency_ns);
        self.checks.intervals.record(self.arrivals.at_ns, latency_ns);
    }
}
