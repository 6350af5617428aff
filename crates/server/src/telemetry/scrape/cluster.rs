//! Metrics of the cluster.

use dunlin_cluster::{core::BroadcastDrop, link::LinkName, thread::ClusterState};

use super::{Page, m};
use crate::peers::{QuestionCounts, QuestionQueue};

/// Adds the families; without a cluster they have no samples.
pub(super) fn cluster(page: &mut Page, state: Option<&ClusterState>, peers: Option<&QuestionCounts>) {
    page.family(&m::CLUSTER_READY, |samples| {
        if let Some(state) = state {
            samples.add(&[], u8::from(state.is_ready));
        }
    });
    page.family(&m::CLUSTER_STREAMS_UNUSABLE, |samples| {
        if let Some(state) = state {
            samples.add(&[], state.unusable_streams.len());
        }
    });
    page.family(&m::CLUSTER_CONNECTIONS_OPENED, |samples| {
        if let Some(state) = state {
            for (link, opened) in LinkName::ALL.into_iter().zip(state.counters.links_opened) {
                samples.add(&[link.label()], opened);
            }
        }
    });
    readings(page, state, m::CLUSTER_CHANNELS);
    readings(page, state, m::CLUSTER_BROADCASTS);
    broadcasts_dropped(page, state);
    readings(page, state, m::CLUSTER_NODES);
    questions(page, peers);
}

/// Adds the families of questions between nodes.
fn questions(page: &mut Page, peers: Option<&QuestionCounts>) {
    page.family(&m::CLUSTER_QUESTIONS_REFUSED, |samples| {
        if let Some(peers) = peers {
            for (queue, refused) in QuestionQueue::ALL.into_iter().zip(peers.questions_refused) {
                samples.add(&[queue.label()], refused);
            }
        }
    });
    page.family(&m::CLUSTER_NOT_UNDERSTOOD, |samples| {
        if let Some(peers) = peers {
            samples.add(&["question"], peers.questions_not_understood);
            samples.add(&["answer"], peers.answers_not_understood);
        }
    });
}

/// Adds the families of broadcasts that were dropped.
fn broadcasts_dropped(page: &mut Page, state: Option<&ClusterState>) {
    page.family(&m::CLUSTER_BROADCASTS_DROPPED, |samples| {
        if let Some(state) = state {
            for (why, dropped) in BroadcastDrop::ALL.into_iter().zip(state.counters.broadcasts_dropped) {
                samples.add(&[why.label()], dropped);
            }
        }
    });
}

fn readings(page: &mut Page, state: Option<&ClusterState>, readings: &'static [m::Reading<ClusterState>]) {
    for reading in readings {
        page.family(&reading.family, |samples| {
            if let Some(state) = state {
                samples.add(&[], (reading.value)(state));
            }
        });
    }
}
