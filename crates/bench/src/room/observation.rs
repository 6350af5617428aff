//! The state that players saw, in a form that can be compared with the world: for each room, tick and view, the hash of
//! the near objects.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The state of a room that was seen from a view after a tick. Players that saw the same state share one observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Observation {
    /// The room's number in the run.
    pub room: u32,
    pub tick: u32,
    /// The cell of the viewpoint.
    pub view: u32,
    /// Exclusive-or of the hashes of all objects in near cells.
    pub hash: u64,
}

/// Maximum number of observations in memory; more are written to the file.
const OBSERVATIONS_MAX: usize = 1 << 20;
const RECORD_BYTES: usize = 24;

/// Collects observations, and writes them to a file.
pub struct Observations {
    path: PathBuf,
    seen: HashMap<Observation, u32>,
}

impl Observations {
    /// Creates a new file.
    pub fn create(path: &Path) -> Result<Self, Error> {
        File::create(path).map_err(|source| failed("make", path, source))?;
        Ok(Observations { path: path.to_owned(), seen: HashMap::new() })
    }

    pub fn add(&mut self, observation: Observation) -> Result<(), Error> {
        *self.seen.entry(observation).or_default() += 1;
        if self.seen.len() < OBSERVATIONS_MAX { Ok(()) } else { self.flush() }
    }

    /// Writes the remaining observations.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.append().map_err(|source| failed("write", &self.path, source))
    }

    fn append(&mut self) -> io::Result<()> {
        let mut out = BufWriter::new(OpenOptions::new().append(true).open(&self.path)?);
        for (observation, times) in self.seen.drain() {
            out.write_all(&encode(observation, times))?;
        }
        out.flush()
    }
}

/// Reads a file of observations, each with the number of its snapshots.
pub fn read(path: &Path) -> Result<Vec<(Observation, u32)>, Error> {
    let file = File::open(path).map_err(|source| failed("open", path, source))?;
    let mut reader = BufReader::new(file);
    let mut all = Vec::new();
    let mut record = [0; RECORD_BYTES];
    loop {
        match reader.read_exact(&mut record) {
            Ok(()) => all.push(decode(&record)),
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(all),
            Err(source) => return Err(failed("read", path, source)),
        }
    }
}

fn failed(verb: &str, path: &Path, source: io::Error) -> Error {
    Error::os(format!("{verb} {}", path.display()), source, "set TMPDIR to a folder with space")
}

fn encode(observation: Observation, times: u32) -> [u8; RECORD_BYTES] {
    let Observation { room, tick, view, hash } = observation;
    let mut record = [0; RECORD_BYTES];
    for (place, number) in record.chunks_exact_mut(4).zip([room, tick, view, hash as u32, (hash >> 32) as u32, times]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    record
}

fn decode(record: &[u8; RECORD_BYTES]) -> (Observation, u32) {
    let mut numbers = [0_u32; RECORD_BYTES / 4];
    for (number, bytes) in numbers.iter_mut().zip(record.chunks_exact(4)) {
        *number = u32::from_le_bytes(bytes.try_into().expect("chunks of four"));
    }
    let [room, tick, view, low, high, times] = numbers;
    (Observation { room, tick, view, hash: u64::from(low) | u64::from(high) << 32 }, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_round_trip_without_duplicates() {
        let path = std::env::temp_dir().join(format!("dunlin-observations-{}", std::process::id()));
        let one = Observation { room: 3, tick: 70_000, view: 9, hash: 0x0123_4567_89ab_cdef };
        let other = Observation { hash: 1, ..one };
        let mut observations = Observations::create(&path).unwrap();
        for observation in [one, other, one] {
            observations.add(observation).unwrap();
        }
        observations.flush().unwrap();
        observations.add(one).unwrap();
        observations.flush().unwrap();
        let mut seen = read(&path).unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [(other, 1), (one, 1), (one, 2)]);
        std::fs::remove_file(&path).unwrap();
    }
}
