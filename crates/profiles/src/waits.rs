//! Where a program has waited, as Go's block profile has it: how often, and how long, by place.
//!
//! The program counts its waits itself and knows their places by name. So this profile has neither addresses nor mappings.

use std::time::Duration;

use crate::pprof;

/// The waits at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What waited, and for what: the most specific name first. It takes the place of a stack.
    pub place: Vec<String>,
    /// Number of waits.
    pub count: u64,
    /// Their time together.
    pub total: Duration,
}

/// A profile of `waits` in pprof format, not compressed, with the names and units of Go's block profile. They happened in the
/// time of `over`.
pub fn wait_profile(waits: &[Wait], over: Duration) -> Vec<u8> {
    pprof::encode_named(&NAMED_AS_IN_GO, over, waits)
}

/// What `go tool pprof` expects of a profile of this type.
const NAMED_AS_IN_GO: pprof::ValueTypes = pprof::ValueTypes {
    types: &[("contentions", "count"), ("delay", "nanoseconds")],
    default: "delay",
    period: ("contentions", "count"),
};
