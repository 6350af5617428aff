//! All tests of the program, in one binary.

mod fanout;
mod faulty_target;
mod room;
mod scenario;
mod smoke;
