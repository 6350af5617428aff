//! Refuses new sessions while the process uses more memory than its limit, so that existing sessions stay connected.

use std::{sync::Arc, time::Duration};

use crate::{
    node::Node,
    telemetry::{api_counters::ControlCounters, process},
};

/// Interval between two checks. A storm of handshakes needs longer to use the memory that operators should reserve.
const INTERVAL: Duration = Duration::from_secs(1);

/// Checks the process's resident memory. A limit of 0 disables the check.
pub async fn watch(node: Node, counters: Arc<ControlCounters>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_over = false;
    loop {
        ticks.tick().await;
        is_over = match counters.memory_bytes_max() {
            0 => false,
            bytes_max => judge(is_over, process::resident_bytes(), bytes_max),
        };
        node.set_over_memory(is_over);
    }
}

/// Whether memory is short: from the limit on, until the use is a sixteenth below it. The hysteresis avoids that new
/// sessions are admitted in small groups while memory stays near the limit.
fn judge(was_over: bool, resident_bytes: u64, bytes_max: u64) -> bool {
    let bound = if was_over { bytes_max - bytes_max / 16 } else { bytes_max };
    resident_bytes >= bound
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn the_limit_has_a_hysteresis_of_a_sixteenth() {
        assert!(!judge(false, 1_599, 1_600) && judge(false, 1_600, 1_600));
        assert!(judge(true, 1_500, 1_600) && !judge(true, 1_499, 1_600));
    }
}
