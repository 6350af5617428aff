//! When a phase is settled: all connections are open and everything has arrived, or nothing happens any more.

/// Connections of which none becomes ready for this time have failed.
const CONNECT_PATIENCE_NS: u64 = 30_000_000_000;
/// Publications that are missing after this time without any arrival are lost.
const ARRIVAL_PATIENCE_NS: u64 = 3_000_000_000;
/// How often a worker checks whether everything has arrived.
const CHECK_EVERY_NS: u64 = 20_000_000;

/// The wait for the end of a phase. It ends also if the target goes on to send something else, such as pings.
#[derive(Debug)]
pub struct Settling {
    /// When the wait ends in any case; none before it begins.
    deadline_ns: Option<u64>,
    check_ns: u64,
    /// When a connection has become ready last.
    connected_ns: u64,
    /// When something that was missing has arrived last.
    arrived_ns: u64,
}

impl Settling {
    pub fn new(now_ns: u64) -> Self {
        Settling { deadline_ns: None, check_ns: 0, connected_ns: now_ns, arrived_ns: now_ns }
    }

    /// The phase is over.
    pub fn begin(&mut self, now_ns: u64, patience_ns: u64) {
        *self = Settling { deadline_ns: Some(now_ns + patience_ns), ..Settling::new(now_ns) };
    }

    pub fn end(&mut self) {
        self.deadline_ns = None;
    }

    pub fn connected(&mut self, now_ns: u64) {
        self.connected_ns = now_ns;
    }

    pub fn arrived(&mut self, now_ns: u64) {
        self.arrived_ns = now_ns;
    }

    /// Whether it is time for a check.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.deadline_ns.is_some() && now_ns >= self.check_ns;
        if is_due {
            self.check_ns = now_ns + CHECK_EVERY_NS;
        }
        is_due
    }

    /// The time of the next check, if the phase is over.
    pub fn next_ns(&self, now_ns: u64) -> Option<u64> {
        self.deadline_ns.map(|_| now_ns + CHECK_EVERY_NS)
    }

    pub fn waits_for_connections(&self, now_ns: u64) -> bool {
        self.waits(self.connected_ns, CONNECT_PATIENCE_NS, now_ns)
    }

    pub fn waits_for_arrivals(&self, now_ns: u64) -> bool {
        self.waits(self.arrived_ns, ARRIVAL_PATIENCE_NS, now_ns)
    }

    fn waits(&self, since_ns: u64, patience_ns: u64, now_ns: u64) -> bool {
        let is_patient = now_ns.saturating_sub(since_ns) < patience_ns;
        is_patient && self.deadline_ns.is_none_or(|deadline_ns| now_ns < deadline_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_waits_while_something_arrives_until_the_deadline() {
        let mut settling = Settling::new(0);
        assert!(!settling.is_due(S), "the phase is not over");
        settling.begin(S, 10 * S);
        assert!(settling.is_due(S) && !settling.is_due(S + 1));
        for second in 1..11 {
            settling.arrived(second * S);
            assert!(settling.waits_for_arrivals(second * S));
            assert!(settling.waits_for_connections(second * S));
        }
        assert!(!settling.waits_for_arrivals(11 * S) && !settling.waits_for_connections(11 * S));
    }

    #[test]
    fn it_ends_early_if_nothing_arrives() {
        let mut settling = Settling::new(0);
        settling.begin(S, 100 * S);
        assert!(settling.waits_for_arrivals(4 * S - 1) && !settling.waits_for_arrivals(4 * S));
        assert!(settling.waits_for_connections(31 * S - 1) && !settling.waits_for_connections(31 * S));
    }
}
