//! Shards, sessions, channels, lanes, history, recovery and presence: no clock, no I/O.
