//! Options of the log (`log.*`).

use dunlin_engine::record::{RecordLevel, RecordOptions};

use super::{LogLevel, LogOptions, resolve::Reader};

/// The destination and the levels of the log.
pub(super) fn options(r: &mut Reader<'_>) -> LogOptions {
    LogOptions {
        level: log_level(r, "log.level"),
        library_level: log_level(r, "log.library_level"),
        file: r.path("log.file"),
        lines_max: r.count("log.queue_limit"),
    }
}

/// The engine's records for the log.
pub(super) fn records(r: &mut Reader<'_>) -> RecordOptions {
    RecordOptions {
        level: match log_level(r, "log.level") {
            LogLevel::None | LogLevel::Error | LogLevel::Warn => RecordLevel::Nothing,
            LogLevel::Info => RecordLevel::Refusals,
            LogLevel::Debug => RecordLevel::Sessions,
            LogLevel::Trace => RecordLevel::Commands,
        },
        node_per_second: r.narrow("log.client_rate_limit"),
        session_per_second: r.narrow("log.session_rate_limit"),
    }
}

fn log_level(r: &mut Reader<'_>, path: &str) -> LogLevel {
    match r.text(path).as_str() {
        "none" => LogLevel::None,
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        _ => LogLevel::Info,
    }
}
