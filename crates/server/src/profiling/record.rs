//! Records profiles, one after the other.

use std::{
    io::{self, Write as _},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dunlin_profiles::{CpuError, HeapError, HeapMark, Names, cpu_profile, heap_profile_since};
use flate2::{Compression, write::GzEncoder};

use super::{IS_MAKING_HEAP, IS_RECORDING, ProfileKind, PushOutcome, Recorded, Shared, operator_waits};
use crate::telemetry::profile_events::ProfileLost;

/// Maximum bytes of a compressed profile. The server's own limit is 4 MiB, before compression, by default.
const PROFILE_BYTES_MAX: usize = 4 << 20;

/// Time between two looks whether something has changed.
const POLL: Duration = Duration::from_millis(50);

/// The work of the recording thread.
pub(super) struct Recorder {
    interval: Duration,
    shared: Arc<Shared>,
    names: Names,
    mark: HeapMark,
}

impl Recorder {
    pub(super) fn new(interval: Duration, shared: Arc<Shared>) -> Self {
        Self { interval, shared, names: Names::default(), mark: HeapMark::default() }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_stopped() {
            let (from_unix_s, began) = (unix_s(), Instant::now());
            let cpu = self.cpu();
            self.wait_until(began + self.interval);
            if self.shared.is_stopped() {
                return;
            }
            self.finish(ProfileKind::Cpu, from_unix_s, cpu);
            IS_MAKING_HEAP.store(true, Ordering::Relaxed);
            let heap = heap_profile_since(&mut self.mark, &mut self.names).map_err(no_heap);
            IS_MAKING_HEAP.store(false, Ordering::Relaxed);
            self.finish(ProfileKind::Heap, from_unix_s, heap);
        }
    }

    /// Records the processor time of an interval, unless an operator records.
    fn cpu(&mut self) -> Result<Vec<u8>, (PushOutcome, String)> {
        let yielded = || (PushOutcome::Yielded, "an operator records a CPU profile".to_owned());
        if operator_waits() {
            return Err(yielded());
        }
        IS_RECORDING.store(true, Ordering::Relaxed);
        let shared = &self.shared;
        let recorded = cpu_profile(self.interval, &mut self.names, || operator_waits() || shared.is_stopped());
        IS_RECORDING.store(false, Ordering::Relaxed);
        recorded.map_err(|error| match error {
            CpuError::Busy | CpuError::Cancelled => yielded(),
            CpuError::LockedUnwinder { .. } | CpuError::System(_) => (PushOutcome::NotRecorded, error.to_string()),
        })
    }

    fn wait_until(&self, deadline: Instant) {
        while !self.shared.is_stopped() {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return;
            };
            thread::sleep(left.min(POLL));
        }
    }

    /// Has a profile sent, or counts why there is none.
    fn finish(&self, kind: ProfileKind, from_unix_s: u64, recorded: Result<Vec<u8>, (PushOutcome, String)>) {
        let compressed = recorded.and_then(|pprof| {
            let pprof = compressed(&pprof).map_err(|error| (PushOutcome::NotRecorded, error.to_string()))?;
            fitting(pprof)
        });
        match compressed {
            Ok(pprof) => self.shared.put(Recorded { kind, pprof, from_unix_s, until_unix_s: unix_s() }),
            Err((outcome, why)) => self.lose(kind, outcome, &why),
        }
    }

    fn lose(&self, kind: ProfileKind, outcome: PushOutcome, why: &str) {
        self.shared.counters.count(kind, outcome);
        if outcome != PushOutcome::Yielded {
            ProfileLost { kind: kind.name(), outcome: outcome.name(), why }.emit();
        }
    }
}

fn no_heap(error: HeapError) -> (PushOutcome, String) {
    let outcome = match error {
        HeapError::Busy => PushOutcome::Yielded,
        HeapError::OtherAllocator | HeapError::Off => PushOutcome::NotRecorded,
    };
    (outcome, error.to_string())
}

/// A compressed profile that may be sent.
fn fitting(pprof: Vec<u8>) -> Result<Vec<u8>, (PushOutcome, String)> {
    if pprof.len() > PROFILE_BYTES_MAX {
        return Err((PushOutcome::TooLarge, format!("it has {} bytes, compressed", pprof.len())));
    }
    Ok(pprof)
}

/// As the format has it for files and servers.
fn compressed(pprof: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(pprof)?;
    encoder.finish()
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_profile_of_an_operator_is_no_fault_of_the_recording() {
        for (error, expected) in [
            (HeapError::Busy, PushOutcome::Yielded),
            (HeapError::OtherAllocator, PushOutcome::NotRecorded),
            (HeapError::Off, PushOutcome::NotRecorded),
        ] {
            assert_eq!(no_heap(error).0, expected, "{error}");
        }
    }

    #[test]
    fn a_profile_is_sent_at_its_limit_and_dropped_past_it() {
        for (bytes, expected) in [(PROFILE_BYTES_MAX, None), (PROFILE_BYTES_MAX + 1, Some(PushOutcome::TooLarge))] {
            assert_eq!(fitting(vec![0; bytes]).err().map(|(outcome, _)| outcome), expected, "{bytes}");
        }
        let pprof = compressed(b"profile").expect("it fits into memory");
        assert!(pprof.starts_with(&[0x1f, 0x8b]), "the server knows gzip by its first bytes");
    }
}
