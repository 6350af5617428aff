//! The values of metrics, as they are collected for a collector.

use std::fmt;

use crate::telemetry::metrics::Family;

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// Seconds, or a share.
    Fraction(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Fraction(number) => number.fmt(f),
        }
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Fraction(number)
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u8> for Number {
    fn from(number: u8) -> Self {
        Self::Whole(number.into())
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

/// A metric with the values of all its series.
#[derive(Clone, Debug)]
pub struct FamilyPoints {
    /// The metric.
    pub family: &'static Family,
    /// Its series.
    pub points: Vec<Point>,
}

/// The value of one series.
#[derive(Clone, Debug)]
pub struct Point {
    /// In the order of the family's labels.
    pub label_values: Vec<Box<str>>,
    /// The value.
    pub value: PointValue,
}

/// The value of a series.
#[derive(Clone, Debug)]
pub enum PointValue {
    /// Of a counter or a gauge.
    Number(Number),
    /// Of a histogram.
    Histogram {
        /// Upper bounds of the buckets; the last bucket has none.
        bounds: Vec<f64>,
        /// Observations of each bucket, not cumulative; one more than there are bounds.
        counts: Vec<u64>,
        /// The sum of all observations.
        sum: f64,
    },
    /// Of a histogram whose bounds grow by a factor.
    Exponential(Exponential),
}

/// Buckets whose bounds grow by the factor `2^(2^-scale)`. Bucket `i` has the values above `factor^(offset + i)`, and at most
/// the next power.
#[derive(Clone, Debug, PartialEq)]
pub struct Exponential {
    /// See above.
    pub scale: i32,
    /// The index of the first bucket.
    pub offset: i32,
    /// Observations of each bucket.
    pub counts: Vec<u64>,
    /// Observations of 0.
    pub zero_count: u64,
    /// The sum of all observations.
    pub sum: f64,
}
