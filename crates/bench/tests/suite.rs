//! All tests of the program, in one binary.

mod fanout;
mod room;
mod smoke;
