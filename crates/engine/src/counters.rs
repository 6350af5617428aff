//! What a shard counts, in plain fields that the server reads between turns.

/// Upper bounds in microseconds of the buckets of [`Histogram`]; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Observations per bucket, not cumulated; one more than there are bounds.
    pub buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Sum of all observations.
    pub sum_us: u64,
}

impl Histogram {
    /// Adds one observation.
    pub fn observe(&mut self, duration_us: u64) {
        let bucket = LATENCY_BOUNDS_US.partition_point(|&bound| bound < duration_us);
        self.buckets[bucket] += 1;
        self.sum_us += duration_us;
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counts of one namespace. Everything but the gauges only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounters {
    /// Publications accepted by the owner.
    pub publications: u64,
    /// Frames that publications, joins and leaves were encoded into.
    pub encodes: u64,
    /// Frames encoded again with the tag `skipped` for sessions that had fallen behind.
    pub encodes_skipped: u64,
    /// Publications put into sessions' lanes.
    pub deliveries: u64,
    /// Joins and leaves put into sessions' lanes.
    pub join_leave_deliveries: u64,
    /// Publications replaced in a latest lane before they were written.
    pub skipped: u64,
    /// Recoveries that succeeded.
    pub recovered: u64,
    /// Recoveries that could not be complete.
    pub unrecovered: u64,
    /// Subscriptions now (gauge).
    pub subscriptions: u64,
    /// Publication accepted → handed to the last socket of this shard.
    pub publish_to_socket: Histogram,
}

/// Counts of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By namespace: first the channels without one, then in the order of the options.
    pub namespaces: Vec<NamespaceCounters>,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Commands by kind, in the order of [`COMMAND_KINDS`].
    pub commands: [u64; COMMAND_KINDS.len()],
    /// Frames that were not of the protocol.
    pub malformed_frames: u64,
    /// WebSocket violations.
    pub violations: u64,
    /// Error replies by code − 100.
    pub error_replies: [u64; 16],
    /// Closes by the server, by code − 3000 and − 3500, otherwise in the last place: see [`Counters::count_close`].
    pub closes: [u64; CLOSE_SLOTS],
    /// Sessions closed because the bytes waiting passed the bound.
    pub slow_bytes: u64,
    /// Sessions closed because the frames waiting passed the bound.
    pub slow_frames: u64,
    /// Bytes handed to the kernel.
    pub written_bytes: u64,
    /// Messages dropped because the session or channel they were for was gone.
    pub late_messages: u64,
}

/// Names of the command kinds, as metrics write them.
pub const COMMAND_KINDS: [&str; 13] = [
    "connect",
    "subscribe",
    "unsubscribe",
    "publish",
    "presence",
    "presence_stats",
    "history",
    "ping",
    "send",
    "rpc",
    "refresh",
    "sub_refresh",
    "pong",
];

/// Places of [`Counters::closes`]: 3000–3019, 3500–3519, and one for all other codes.
pub const CLOSE_SLOTS: usize = 41;

impl Counters {
    /// All zero, with room for `namespaces` namespaces.
    pub fn new(namespaces: usize) -> Self {
        Self {
            namespaces: vec![NamespaceCounters::default(); namespaces],
            sessions_opened: 0,
            commands: [0; COMMAND_KINDS.len()],
            malformed_frames: 0,
            violations: 0,
            error_replies: [0; 16],
            closes: [0; CLOSE_SLOTS],
            slow_bytes: 0,
            slow_frames: 0,
            written_bytes: 0,
            late_messages: 0,
        }
    }

    /// Counts a close by the server with `code`.
    pub fn count_close(&mut self, code: u16) {
        let slot = match code {
            3000..=3019 => usize::from(code - 3000),
            3500..=3519 => usize::from(code - 3500) + 20,
            _ => CLOSE_SLOTS - 1,
        };
        self.closes[slot] += 1;
    }

    /// The close code of a place of [`Counters::closes`]; `None` for the last, which holds all others.
    pub const fn close_code(slot: usize) -> Option<u16> {
        match slot {
            0..20 => Some(3000 + slot as u16),
            20..40 => Some(3480 + slot as u16),
            _ => None,
        }
    }
}
