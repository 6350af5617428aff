//! Each verdict at its bound and one step before it.

use dunlin_engine::{
    SessionKey, Wire,
    insight::{ChannelQueue, LaneFacts, PaceFacts, PingFacts, QueueFacts},
    options::Lane,
};
use dunlin_protocol::ClientInfo;

use super::*;

/// A session, its socket and its shard, all of which keep up.
struct Case {
    facts: SessionFacts,
    socket: SessionSocket,
    turns: TurnShares,
}

impl Case {
    fn new() -> Self {
        let info = ClientInfo { user: "u".into(), client: "c".into(), conn_info: None, chan_info: None };
        let facts = SessionFacts {
            session: SessionKey { index: 0, generation: 1 },
            info: info.into(),
            wire: Wire::WebSocketJson,
            address: None,
            subscriptions: 1,
            is_connecting: false,
            commands_wait_for: None,
            queue: QueueFacts::default(),
            behind_since_us: u64::MAX,
            channels: Vec::new(),
            are_channels_cut: false,
            pings: PingFacts::default(),
            paces: PaceFacts::default(),
        };
        let kernel = SocketFacts {
            rtt_us: 1_000,
            segments: SegmentCounts { sent: 100_000, retransmitted: 9_000 },
            receive_window_bytes: Some(65_536),
            segment_bytes_max: 1_448,
            ..SocketFacts::default()
        };
        let recent = RecentSegments { over_s: Some(14), segments: SegmentCounts { sent: 1_000, retransmitted: 0 } };
        let socket = SessionSocket { is_full: false, tls_bytes: 0, kernel: Some(kernel), recent };
        Self { facts, socket, turns: TurnShares { busy_ppm: 10_000, longest_us: 500 } }
    }

    /// With this much queued on the reliable lane, of which `of_channel` bytes came from one channel within `span_us`.
    fn queued(mut self, bytes: usize, age_us: u64, (of_channel, span_us): (usize, u64)) -> Self {
        self.facts.queue.reliable = LaneFacts { frames: 10, bytes };
        self.facts.queue.age_us = age_us;
        self.facts.channels = vec![ChannelQueue {
            channel: Some("prices".into()),
            lane: Lane::Reliable,
            queued: LaneFacts { frames: 9, bytes: of_channel },
            replaced: 0,
            oldest_age_us: age_us,
            newest_age_us: age_us - span_us,
        }];
        self
    }

    /// As [`Case::queued`], behind for three seconds with a full socket, whose kernel holds bytes that are in flight.
    fn blocked(self) -> Self {
        self.queued(1_000_000, 3_000_000, (1_000_000, 3_000_000)).full().kernel(|kernel| {
            (kernel.kernel_bytes, kernel.not_sent_bytes, kernel.unacked_segments) = (50_000, 16_384, 20);
        })
    }

    fn full(mut self) -> Self {
        self.socket.is_full = true;
        self
    }

    fn kernel(mut self, change: impl FnOnce(&mut SocketFacts)) -> Self {
        change(self.socket.kernel.as_mut().expect("it has one"));
        self
    }

    fn turns(mut self, busy_ppm: u32, longest_us: u64) -> Self {
        self.turns = TurnShares { busy_ppm, longest_us };
        self
    }

    fn verdict(&self) -> Verdict {
        Verdict::of(Judged { facts: &self.facts, socket: &self.socket, turns: self.turns })
    }
}

#[track_caller]
fn check(case: &Case, code: &str, text: &str) {
    let verdict = case.verdict();
    assert_eq!((verdict.code(), verdict.to_string().as_str()), (code, text));
}

const UP_TO_DATE: (&str, &str) = ("up_to_date", "it is up to date");

#[test]
fn a_session_is_up_to_date_until_a_frame_waits_for_longer_than_a_turn() {
    check(&Case::new(), UP_TO_DATE.0, UP_TO_DATE.1);
    let waiting = |age_us| Case::new().queued(100, age_us, (100, 0)).full();
    check(&waiting(BEHIND_US - 1), UP_TO_DATE.0, UP_TO_DATE.1);
    assert_ne!(waiting(BEHIND_US).verdict(), Verdict::UpToDate);
    let mut connecting = waiting(BEHIND_US);
    connecting.facts.is_connecting = true;
    check(&connecting, "connecting", "its connect is not answered yet");
}

#[test]
fn a_client_does_not_read_when_nothing_is_in_flight_and_bytes_wait() {
    let stalled = |last_send_ms, unacked_segments, window| {
        Case::new().kernel(|kernel| {
            (kernel.kernel_bytes, kernel.not_sent_bytes) = (16_384, 16_384);
            (kernel.last_send_ms, kernel.unacked_segments) = (last_send_ms, unacked_segments);
            kernel.receive_window_bytes = window;
        })
    };
    let text = "the client does not read: 16.4 kB wait, and its receive window is closed since 500 ms";
    check(&stalled(CLOSED_WINDOW_MS, 0, Some(0)), "client_does_not_read", text);
    check(&stalled(CLOSED_WINDOW_MS - 1, 0, Some(0)), UP_TO_DATE.0, UP_TO_DATE.1);
    check(&stalled(CLOSED_WINDOW_MS, 0, None), "client_does_not_read", text);
    check(&stalled(CLOSED_WINDOW_MS, 1, Some(1_447)), "client_does_not_read", text);
    check(&stalled(CLOSED_WINDOW_MS, 1, Some(1_448)), UP_TO_DATE.0, UP_TO_DATE.1);
    check(&stalled(CLOSED_WINDOW_MS, 1, None), UP_TO_DATE.0, UP_TO_DATE.1);
    // What waits in the node counts as well.
    let mut behind = stalled(12_000, 0, Some(0)).queued(900_000, 11_000_000, (900_000, 0)).full();
    behind.socket.tls_bytes = 83_616;
    let text = "the client does not read: 1.0 MB wait, and its receive window is closed since 12.0 s";
    check(&behind, "client_does_not_read", text);
}

#[test]
fn a_network_is_slow_by_its_round_trip_or_by_what_it_loses() {
    let network = |rtt_us, retransmitted, sent| {
        let mut case = Case::blocked(Case::new()).kernel(|kernel| {
            (kernel.rtt_us, kernel.delivery_bytes_per_second) = (rtt_us, 180_000);
        });
        case.socket.recent.segments = SegmentCounts { sent, retransmitted };
        case
    };
    let text = "its network is slow (rtt 480 ms, 3.0 % retransmitted in the last 14 s)";
    check(&network(480_000, 30, 1_000), "slow_network", text);
    let text = "its network is slow (rtt 200 ms, 0.0 % retransmitted in the last 14 s)";
    check(&network(SLOW_RTT_US, 0, 1_000), "slow_network", text);
    let mut whole = network(20_000, 20, 1_000);
    whole.socket.recent.over_s = None;
    check(&whole, "slow_network", "its network is slow (rtt 20 ms, 2.0 % retransmitted)");
    let too_much = "more is sent to it than its connection takes (180 kB/s)";
    check(&network(SLOW_RTT_US - 1, 19, 1_000), "too_much", too_much);
    check(
        &network(20_000, RETRANSMITTED_SEGMENTS_MIN, 10),
        "slow_network",
        "its network is slow (rtt 20 ms, 50.0 % retransmitted in the last 14 s)",
    );
    check(&network(20_000, RETRANSMITTED_SEGMENTS_MIN - 1, 10), "too_much", too_much);
    // What the connection lost long ago does not count: `Case::new` has lost 9 %.
    check(&network(20_000, 0, 0), "too_much", too_much);
    let mut unknown = network(20_000, 0, 0);
    unknown.socket.kernel = None;
    check(&unknown, "too_much", "more is sent to it than its connection takes");
}

#[test]
fn a_network_does_not_answer_after_retransmissions_in_a_row() {
    let lost = |retransmissions_in_row| {
        Case::new().kernel(|kernel| {
            (kernel.retransmissions_in_row, kernel.unacked_segments) = (retransmissions_in_row, 2);
            (kernel.last_send_ms, kernel.last_ack_ms) = (700, 4_200);
        })
    };
    let text = "its network does not answer: 3 retransmissions in a row, no answer for 4.2 s";
    check(&lost(UNANSWERED_ATTEMPTS), "network_does_not_answer", text);
    check(&lost(UNANSWERED_ATTEMPTS - 1), UP_TO_DATE.0, UP_TO_DATE.1);
}

#[test]
fn a_network_does_not_answer_when_nobody_answers_the_probes_of_a_closed_window() {
    let probed = |window_probes| {
        Case::new().kernel(|kernel| {
            (kernel.kernel_bytes, kernel.not_sent_bytes, kernel.receive_window_bytes) = (16_384, 16_384, Some(0));
            (kernel.last_send_ms, kernel.last_ack_ms) = (9_000, 4_200);
            kernel.window_probes = window_probes;
        })
    };
    let text = "its network does not answer: 3 probes of its receive window in a row, no answer for 4.2 s";
    check(&probed(UNANSWERED_ATTEMPTS), "network_does_not_answer", text);
    assert_eq!(probed(UNANSWERED_ATTEMPTS - 1).verdict().code(), "client_does_not_read");
}

#[test]
fn a_shard_is_behind_when_it_is_busy_or_a_socket_waits_for_it() {
    let text = "its shard is behind (97 % busy, turns of up to 210 ms)";
    check(&Case::new().turns(970_000, 210_000), "shard_behind", text);
    check(&Case::new().turns(BUSY_PPM - 1, 210_000), UP_TO_DATE.0, UP_TO_DATE.1);
    check(&Case::new().turns(970_000, LONG_TURN_US - 1), UP_TO_DATE.0, UP_TO_DATE.1);
    let waiting = Case::new().queued(100, BEHIND_US, (100, 0));
    let text = "its shard is behind (1 % busy, turns of up to 0 ms)";
    check(&waiting, "shard_behind", text);
    check(&Case::new().queued(100, BEHIND_US, (100, 0)).full(), "shard_behind", text);
    // Encrypted bytes wait for the socket, so the shard has done its part.
    let mut encrypted = Case::new().queued(100, 3_000_000, (100, 3_000_000)).kernel(|kernel| kernel.kernel_bytes = 1);
    encrypted.socket.tls_bytes = 1;
    assert_eq!(encrypted.verdict().code(), "too_much");
    let mut limited = Case::new();
    (limited.facts.queue.rooms_due, limited.facts.queue.age_us) = (1, BEHIND_US);
    let text = "its snapshots wait for room.player_bandwidth_limit, or for the state of the room";
    check(&limited, "room_limited", text);
    // A limited seat is not due.
    let mut limited = Case::new();
    limited.facts.queue.limited_us = BEHIND_US;
    check(&limited, "room_limited", text);
    limited.facts.queue.limited_us = BEHIND_US - 1;
    check(&limited, UP_TO_DATE.0, UP_TO_DATE.1);
}

#[test]
fn a_session_waits_for_its_own_pace() {
    let mut held = Case::new().queued(100, BEHIND_US, (100, 0));
    held.facts.queue.latest = std::mem::take(&mut held.facts.queue.reliable);
    held.facts.paces = PaceFacts { bytes_per_second: Some(1_000), is_held: true, ..PaceFacts::default() };
    check(&held, "session_paced", "its session pace allows no more bytes for now");
    held.facts.queue.age_us = BEHIND_US - 1;
    check(&held, UP_TO_DATE.0, UP_TO_DATE.1);
    // The reliable lane does not wait for a pace.
    held.facts.queue.age_us = BEHIND_US;
    held.facts.queue.reliable.frames = 1;
    assert_eq!(held.verdict().code(), "shard_behind");
}

#[test]
fn a_burst_came_from_one_channel_within_a_short_time() {
    let burst = |of_channel, span_us| Case::blocked(Case::new()).queued(12_000_000, 5_000_000, (of_channel, span_us));
    check(&burst(12_000_000, 400_000), "burst", "a burst of 12.0 MB in 400 ms on channel prices");
    check(&burst(6_000_000, BURST_US), "burst", "a burst of 6.0 MB in 2.0 s on channel prices");
    assert_eq!(burst(5_999_999, 400_000).verdict().code(), "too_much");
    assert_eq!(burst(12_000_000, BURST_US + 1_000).verdict().code(), "too_much");
    let mut replies = burst(12_000_000, 400_000);
    replies.facts.channels[0].channel = None;
    check(&replies, "burst", "a burst of 12.0 MB in 400 ms of replies and other messages to this client");
    let mut unknown = burst(12_000_000, 400_000);
    unknown.facts.channels.clear();
    assert_eq!(unknown.verdict().code(), "too_much");
    // Others of the same request had so many frames that nobody has looked at those of this session.
    unknown.facts.queue.unexamined_frames = 10;
    let text = "more is sent to it than its connection takes, or a burst came: 10 frames were not looked at";
    check(&unknown, "too_much", text);
    // The network explains why a burst takes long.
    let slow = burst(12_000_000, 400_000).kernel(|kernel| kernel.rtt_us = 480_000);
    assert_eq!(slow.verdict().code(), "slow_network");
}
