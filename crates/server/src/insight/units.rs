//! Numbers with units, for sentences.

use std::fmt;

/// A number of bytes: 512 bytes, 12.5 kB, 3.0 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A time in milliseconds: 12 ms, 3.4 s, 12 min.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bytes", self.0),
            1_000..100_000 => write!(f, "{:.1} kB", bytes / 1e3),
            100_000..1_000_000 => write!(f, "{:.0} kB", bytes / 1e3),
            1_000_000..100_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.0} MB", bytes / 1e6),
        }
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ms", self.0),
            1_000..100_000 => write!(f, "{:.1} s", self.0 as f64 / 1e3),
            100_000..6_000_000 => write!(f, "{} min", self.0 / 60_000),
            _ => write!(f, "{} h", self.0 / 3_600_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_a_reader_expects() {
        let bytes = [0, 999, 1_000, 12_345, 99_999, 100_000, 999_999, 1_000_000, 12_000_000, 100_000_000];
        let written = bytes.map(|bytes| Bytes(bytes).to_string());
        let expected = [
            "0 bytes",
            "999 bytes",
            "1.0 kB",
            "12.3 kB",
            "100.0 kB",
            "100 kB",
            "1000 kB",
            "1.0 MB",
            "12.0 MB",
            "100 MB",
        ];
        assert_eq!(written, expected);
        let times = [0, 999, 1_000, 99_999, 100_000, 5_999_999, 6_000_000].map(|ms| Millis(ms).to_string());
        assert_eq!(times, ["0 ms", "999 ms", "1.0 s", "100.0 s", "1 min", "99 min", "1 h"]);
    }
}
