use std::sync::Arc;

use dunlin_engine::log::{LoadNumber, LoadQuery};

use super::*;
use crate::{
    core::{
        CoreEvent, CoreLimits,
        rig::{FENCE, Rig, SHARD, stored},
    },
    link::LinkEvent,
};

const SHARED_READS_MIN: usize = 3;

impl Rig {
    /// Makes clients recover missed publications, one channel each. Their reads wait.
    fn recover(&mut self, channels: usize) {
        for number in 0..channels {
            let channel: Arc<str> = format!("chat:{number}").into();
            self.handle(CoreEvent::Follow { shard: SHARD, channel: Arc::clone(&channel), namespace: 1 });
            let query = LoadQuery::after(2, 100);
            self.handle(CoreEvent::Load { shard: SHARD, channel, load: LoadNumber(number as u64), query });
        }
    }
}

/// How many reads are shared after the first one has been answered, and whether the next one has no subject.
fn shared_behind_the_first(waiting: usize) -> (u64, bool) {
    let mut rig = Rig::new(CoreLimits { shared_reads_min: SHARED_READS_MIN, ..CoreLimits::default() });
    rig.recover(1 + waiting);
    let (request, subject) = rig.ranges.pop().expect("the first read is sent at once");
    assert!(rig.ranges.is_empty(), "one read of a partition is in flight at a time");
    let messages = vec![stored(&subject.expect("by itself"), FENCE / 10)];
    let outcome = Ok(ReadAnswer { messages, ..ReadAnswer::default() });
    rig.handle(CoreEvent::Link(LinkEvent::Answered { request, outcome }));
    let (_, subject) = rig.ranges.pop().expect("the next read is sent");
    (rig.core.counters().shared_reads, subject.is_none())
}

#[test]
fn recoveries_share_a_read_from_the_configured_number_on() {
    assert_eq!(shared_behind_the_first(SHARED_READS_MIN - 1), (0, false));
    assert_eq!(shared_behind_the_first(SHARED_READS_MIN), (1, true));
}
