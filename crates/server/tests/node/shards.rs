//! Publications reach all shards in order, with rings of any size.

use dunlin::node::NodeNetOptions;

use crate::node::{
    client::Client,
    rig::{Rig, engine_options, net_options, wait_until},
};

/// Each client subscribes to all channels and publishes `rounds` times, over `shard_count` shards with rings for
/// `ring_messages` messages.
fn every_subscriber_receives_everything(shard_count: u16, ring_messages: usize, rounds: usize) -> Rig {
    const CLIENTS: usize = 12;
    const CHANNELS: usize = 8;
    let rig = Rig::start(NodeNetOptions { shard_count, ring_messages, ..net_options() }, engine_options());
    let channels: Vec<String> = (0..CHANNELS).map(|index| format!("channel{index}")).collect();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::subscribed(rig.address(), &channels)).collect();
    // Each client sends its commands in one burst, so that the rings fill up.
    for (publisher, client) in clients.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        for round in 0..rounds {
            for (index, channel) in channels.iter().enumerate() {
                let id = 1_000 + round * CHANNELS + index;
                let command =
                    format!(r#"{{"id":{id},"publish":{{"channel":"{channel}","data":"p{publisher} r{round}"}}}}"#);
                bytes.extend(crate::node::client::frame(crate::node::client::TEXT, command.as_bytes()));
            }
        }
        client.write(&bytes);
    }
    let expected = CLIENTS * CHANNELS * rounds;
    for client in &mut clients {
        let mut replies = 0;
        let mut next_round = [[0; CHANNELS]; CLIENTS];
        for line in client.read_lines(expected + CHANNELS * rounds) {
            let Some(rest) = line.strip_prefix(r#"{"push":{"channel":"channel"#) else {
                assert!(line.contains(r#","publish":{}"#), "{line}");
                replies += 1;
                continue;
            };
            let number = |text: &str, from: &str| -> usize {
                let digits = text.split_once(from).expect("it is there").1;
                let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
                digits[..end].parse().expect("a number")
            };
            let channel = number(&format!("#{rest}"), "#");
            let (publisher, round) = (number(rest, r#""data":"p"#), number(rest, " r"));
            assert_eq!(round, next_round[publisher][channel], "in order: {line}");
            next_round[publisher][channel] += 1;
        }
        assert_eq!(replies, CHANNELS * rounds);
        assert!(next_round.iter().flatten().all(|received| *received == rounds));
    }
    rig
}

#[test]
fn one_shard_needs_no_ring() {
    let rig = every_subscriber_receives_everything(1, 1, 40);
    assert_eq!(rig.count(|net| net.ring_messages), 0);
}

#[test]
fn two_shards_deliver_all_publications_in_order() {
    let rig = every_subscriber_receives_everything(2, 1_024, 40);
    assert!(rig.count(|net| net.ring_messages) > 0);
}

#[test]
fn three_shards_with_rings_of_one_message_lose_nothing() {
    let rig = every_subscriber_receives_everything(3, 1, 40);
    let counters = rig.counters();
    assert!(counters.iter().any(|net| net.ring_overflowed > 0), "{counters:?}");
    assert!(counters.iter().any(|net| net.held_turns > 0), "{counters:?}");
    // The clients are gone. The resulting messages between their shards must be delivered, too.
    wait_until("everything to be quiet", || rig.count(|net| net.sessions + net.ring_overflow + net.ring_depth) == 0);
    let reports = rig.runtime.block_on(rig.node.report());
    assert!(reports.iter().all(|report| report.survey.channels == 0), "{reports:?}");
}

#[test]
fn the_connections_are_spread_over_the_shards() {
    let rig = Rig::start(NodeNetOptions { shard_count: 2, ..net_options() }, engine_options());
    // Each connection goes to either shard with equal probability, so all of them go to the same shard with probability
    // 2^-63.
    let clients: Vec<Client> = (0..64).map(|_| Client::open(rig.address())).collect();
    let counters = rig.counters();
    assert_eq!(counters.iter().map(|net| net.sessions).sum::<u64>(), clients.len() as u64);
    assert!(counters.iter().all(|net| net.sessions > 0), "{counters:?}");
}

on_io_uring![
    one_shard_needs_no_ring,
    two_shards_deliver_all_publications_in_order,
    three_shards_with_rings_of_one_message_lose_nothing,
    the_connections_are_spread_over_the_shards,
];
