//! Recording a room, and replaying it.
//!
//! A recording is the room's seed and options, and then, tick by tick, the joins, leaves and inputs in the order in which
//! they were applied, with the state hash after the tick. Replaying them gives the same hashes; where it does not, the
//! first tick that differs is named.
