//! The deterministic simulator: whole nodes of shards and clients under a seed.
