//! The Dunlin server: threads, sockets, configuration, HTTP, metrics and the command line.
//!
//! A library so that tests and fuzz targets reach its parts; the binary is a few lines around it. Nothing here decides
//! anything: sessions and channels live in `dunlin-engine`, and this crate performs what the engine asks for.

pub mod cli;
pub mod config;
pub mod demo;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod net;
pub mod node;
pub mod ring;
pub mod rooms;
pub mod serve;
pub mod telemetry;
pub mod token;
