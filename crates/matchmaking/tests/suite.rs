//! All tests of this crate's public interface, in one binary.

mod fairness;
mod hand_over;
mod parties;
mod places;
mod rig;
mod ten_thousand;
