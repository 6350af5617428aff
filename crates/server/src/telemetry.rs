//! What the node tells its operator: log lines and metrics.
//!
//! Log lines are events, structs whose `emit` holds wording, level and fields ([`events`]); no other module of the control
//! thread calls `tracing`. Metrics are listed once ([`metrics::FAMILIES`], committed as `schema/metrics.json`) and
//! computed when they are asked for: nothing is pushed into a registry while the node works.

pub mod api_counters;
pub mod events;
mod exposition;
pub mod log;
pub mod lookout;
pub mod metrics;
pub mod process;
mod scrape;
mod throttle;
pub mod watermark;

pub use scrape::{CONTENT_TYPE, Moment, Scrape, count_users, page};
