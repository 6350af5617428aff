//! All tests of this crate's public interface, in one binary.

mod fairness;
mod parties;
mod places;
mod rig;
mod ten_thousand;
