//! Counts the cases that a run reached, so that tests can check the coverage of the seeds.

use std::collections::BTreeMap;

use dunlin_engine::counters::{CommandKind, Counters};

use super::NodeWorld;

impl NodeWorld {
    /// How often each labelled case occurred.
    pub(super) fn counted(&self) -> BTreeMap<String, u64> {
        let mut reached = BTreeMap::new();
        for thread in &self.node.threads {
            count(thread.shard.counters(), &mut |what, times| *reached.entry(what).or_insert(0) += times);
        }
        let of_clients = &self.model.reached;
        for (what, times) in of_clients.iter().chain(&self.model.rooms.lock().reached) {
            reached.insert((*what).to_owned(), *times);
        }
        reached
    }
}

fn count(counters: &Counters, add: &mut impl FnMut(String, u64)) {
    for (kind, times) in CommandKind::ALL.iter().zip(counters.commands) {
        add(format!("command {}", kind.name()), times);
    }
    for (code, times) in (100..).zip(counters.error_replies) {
        add(format!("error {code}"), times);
    }
    for (slot, times) in counters.closes.iter().enumerate() {
        let code = Counters::close_code(slot).map_or("other".to_owned(), |code| code.to_string());
        add(format!("close {code}"), *times);
    }
    add("session opened".to_owned(), counters.sessions_opened);
    add("slow by bytes".to_owned(), counters.slow_bytes);
    add("slow by frames".to_owned(), counters.slow_frames);
    add("late message".to_owned(), counters.late_messages);
    for namespace in &counters.namespaces {
        add("publication".to_owned(), namespace.publications);
        add("delivery".to_owned(), namespace.deliveries);
        add("join or leave delivered".to_owned(), namespace.join_leave_deliveries);
        add("skipped".to_owned(), namespace.skipped);
        add("encoded with skipped".to_owned(), namespace.encodes_skipped);
        add("filtered".to_owned(), namespace.filtered);
        add("delta encoded".to_owned(), namespace.patches);
        add("suppressed by key".to_owned(), namespace.suppressed[0]);
        add("suppressed by version".to_owned(), namespace.suppressed[1]);
        add("recovered".to_owned(), namespace.recovered);
        add("recovery reply shared".to_owned(), namespace.answers_shared);
        add("not recovered".to_owned(), namespace.unrecovered);
    }
}
