//! `room`: what rooms cost, how late they are, and whether every player sees what is there.

pub mod goal;
pub mod metrics;
pub mod observation;
pub mod orders;
pub mod verify;
