//! Log lines and metrics for operators.
//!
//! A log line is an event: a struct whose `emit` determines message, level and fields ([`events`]). No other module of
//! the control thread calls `tracing`. All metrics are in one list ([`metrics::FAMILIES`], committed as
//! `schema/metrics.json`) and computed when they are requested, or when they are sent to a collector.

pub mod access_events;
pub mod api_counters;
pub mod client_summary;
pub mod cluster_events;
pub mod config_events;
pub mod console_events;
pub mod events;
mod exposition;
pub mod log;
pub mod log_tail;
mod log_writer;
pub mod metrics;
pub mod otlp_events;
pub mod process;
pub mod profile_events;
pub mod room_events;
mod scrape;
pub mod session_events;
pub mod storage_events;
mod throttle;
pub mod token_events;
pub mod webhook_events;

pub use scrape::{CONTENT_TYPE, Moment, Scrape, StorageState, count_users, page, points};
