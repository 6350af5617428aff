//! Metrics of matchmaking and lobbies.

use dunlin_matchmaking::{EndReason, MatchRefusal};

use super::{Page, m, place};
use crate::matchmaking::{MatchReport, MatchmakingReport, QueuePeerCounts};

pub(super) fn matchmaking(page: &mut Page, report: &MatchmakingReport) {
    type Pick = fn(&MatchReport) -> f64;
    let plain = |page: &mut Page, families: &[(&'static m::Family, Pick)]| {
        for (family, pick) in families {
            page.family(family, |samples| {
                report.queues.iter().for_each(|queue| samples.add(&[label(queue)], pick(queue)));
            });
        }
    };
    plain(
        page,
        &[
            (&m::MATCH_PENDING, |queue| queue.gauges.pending as f64),
            (&m::MATCH_RESERVED, |queue| queue.gauges.reserved_places as f64),
            (&m::MATCH_TICKETS, |queue| queue.counters.submitted as f64),
            (&m::MATCH_PLACED, |queue| queue.counters.placed as f64),
            (&m::MATCH_WITHDRAWN, |queue| queue.counters.withdrawn as f64),
            (&m::MATCH_COMPARED, |queue| queue.counters.compared as f64),
        ],
    );
    page.family(&m::MATCH_ENDED, |samples| {
        for queue in &report.queues {
            samples.add(&[label(queue), "joined"], queue.counters.joined);
            for (index, reason) in EndReason::ALL.into_iter().enumerate() {
                samples.add(&[label(queue), reason.name()], place(&queue.counters.ended, index));
            }
        }
    });
    page.family(&m::MATCH_REFUSED, |samples| {
        for queue in &report.queues {
            for (index, refusal) in MatchRefusal::ALL.into_iter().enumerate() {
                samples.add(&[label(queue), refusal.name()], place(&queue.counters.refused, index));
            }
            samples.add(&[label(queue), "rate_limited"], queue.rate_limited);
            samples.add(&[label(queue), "address_limited"], queue.address_limited);
        }
    });
    page.family(&m::MATCH_ROOMS, |samples| {
        for queue in &report.queues {
            samples.add(&[label(queue), "opened"], queue.counters.rooms_opened);
            samples.add(&[label(queue), "failed"], queue.counters.rooms_failed);
        }
    });
    page.family(&m::MATCH_RESERVATIONS_LOST, |samples| {
        if !report.queues.is_empty() {
            samples.add(&["full"], report.lost_reservations.full);
            samples.add(&["failed"], report.lost_reservations.failed);
        }
    });
    exchange(page, (!report.queues.is_empty()).then_some(&report.peers));
    plain(
        page,
        &[
            (&m::MATCH_BUSY, |queue| queue.busy_ns as f64 / 1e9),
            (&m::MATCH_LONGEST, |queue| queue.longest_ns as f64 / 1e9),
        ],
    );
    page.family(&m::LOBBY_ROOMS, |samples| {
        report.lobbies.iter().for_each(|lobby| samples.add(&[&lobby.channel], lobby.rooms as u64));
    });
    page.family(&m::LOBBY_LISTINGS, |samples| {
        for lobby in &report.lobbies {
            samples.add(&[&lobby.channel, "published"], lobby.published);
            samples.add(&[&lobby.channel, "refused"], lobby.refused);
        }
    });
}

/// What nodes have asked each other about tickets.
fn exchange(page: &mut Page, peers: Option<&QueuePeerCounts>) {
    page.family(&m::MATCH_HERE, |samples| {
        if let Some(peers) = peers {
            samples.add(&[], u64::from(peers.is_here));
        }
    });
    page.family(&m::MATCH_FORWARDED, |samples| {
        if let Some(peers) = peers {
            samples.add(&[], peers.forwarded);
        }
    });
    page.family(&m::MATCH_FORWARDS_REFUSED, |samples| {
        if let Some(peers) = peers {
            samples.add(&[], peers.forwards_refused);
        }
    });
    page.family(&m::MATCH_REMEMBERED, |samples| {
        if let Some(peers) = peers {
            samples.add(&[], peers.remembered as u64);
        }
    });
    page.family(&m::MATCH_NOT_REMEMBERED, |samples| {
        if let Some(peers) = peers {
            samples.add(&[], peers.not_remembered);
        }
    });
    page.family(&m::MATCH_HANDED, |samples| {
        if let Some(peers) = peers {
            samples.add(&["out"], peers.handed_over);
            samples.add(&["in"], peers.taken_over);
            samples.add(&["refused"], peers.not_taken_over);
            samples.add(&["again"], peers.entered_again);
        }
    });
}

fn label(queue: &MatchReport) -> &str {
    if queue.namespace.is_empty() { m::NO_NAMESPACE } else { &queue.namespace }
}
