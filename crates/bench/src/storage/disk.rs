//! The disk itself: the duration of a sync, and statistics of compactions.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::latency::Latency;

/// Bytes written before each sync, about the size of a group commit of a few publications.
const SYNC_BYTES: usize = 512;

/// Repeatedly appends to a file and syncs it for `duration`.
pub fn syncs(file: &Path, duration: Duration) -> Result<Latency, Error> {
    let failed = |source| Error::os(format!("sync {}", file.display()), source, "give another --directory");
    let mut writer = OpenOptions::new().create(true).append(true).open(file).map_err(failed)?;
    let (mut latency, began) = (Latency::default(), Instant::now());
    while began.elapsed() < duration {
        writer.write_all(&[7; SYNC_BYTES]).map_err(failed)?;
        let before = Instant::now();
        writer.sync_data().map_err(failed)?;
        latency.record_ns(before.elapsed().as_nanos() as u64);
    }
    Ok(latency)
}

/// Compactions in an interval, from the log of `RocksDB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Compactions {
    pub started: u64,
    pub finished: u64,
    pub output_bytes: u64,
    /// Compactions that had begun but not ended when the log was read.
    #[serde(skip)]
    pub running: usize,
}

impl Compactions {
    /// Reads the log files of a storage. They are rotated, so the time must not be long ago.
    pub fn since(storage: &Path, from_unix_us: u64) -> Self {
        let is_log = |name: &str| name.starts_with("LOG");
        let entries = fs::read_dir(storage).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| is_log(&entry.file_name().to_string_lossy()));
        let text: String = logs
            .map(|entry| String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned())
            .collect();
        Self::of_log(&text, from_unix_us)
    }

    fn of_log(log: &str, from_unix_us: u64) -> Self {
        let (mut found, mut begun, mut ended) = (Self::default(), BTreeSet::new(), BTreeSet::new());
        for line in log.lines() {
            let number = |name: &str| -> Option<u64> {
                let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
                rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            let Some(job) = number("job") else { continue };
            let is_since = number("time_micros").is_some_and(|unix_us| unix_us >= from_unix_us);
            if line.contains("\"compaction_started\"") {
                begun.insert(job);
                found.started += u64::from(is_since);
            } else if line.contains("\"compaction_finished\"") {
                ended.insert(job);
                if is_since {
                    found.finished += 1;
                    found.output_bytes += number("total_output_size").unwrap_or(0);
                }
            }
        }
        found.running = begun.difference(&ended).count();
        found
    }

    pub const fn is_idle(&self) -> bool {
        self.running == 0
    }

    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.finished += other.finished;
        self.output_bytes += other.output_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compactions_are_counted_in_the_log() {
        let log = "2026/11/23 EVENT_LOG_v1 {\"time_micros\": 50, \"job\": 3, \"event\": \"compaction_finished\"}\n\
             2026/11/23 EVENT_LOG_v1 {\"time_micros\": 90, \"job\": 4, \"event\": \"compaction_started\"}\n\
             2026/11/23 [/db_impl] compacted to: ...\n\
             2026/11/23 EVENT_LOG_v1 {\"time_micros\": 120, \"job\": 4, \"event\": \"compaction_finished\", \
             \"total_output_size\": 1234, \"x\": 5}\n\
             2026/11/23 EVENT_LOG_v1 {\"time_micros\": 130, \"job\": 5, \"event\": \"compaction_started\"}\n";
        let found = Compactions::of_log(log, 100);
        assert_eq!(found, Compactions { started: 1, finished: 1, output_bytes: 1_234, running: 1 });
        assert!(!found.is_idle());
        assert_eq!(Compactions::of_log(log, 0).finished, 2);
    }
}
