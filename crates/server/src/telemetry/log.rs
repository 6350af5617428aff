//! The destination and the format of the log.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, IsTerminal},
    sync::{Arc, OnceLock},
    time::Duration,
};

use dunlin_config::{LogLevel, LogOptions};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

use super::{
    console_events::AUDIT,
    log_tail::LogTail,
    log_writer::{self, LineSender},
};

/// The queue of the process's log.
static LINES: OnceLock<LineSender> = OnceLock::new();

/// The levels of the process's log.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts the log: plain text on a terminal, otherwise one JSON object per line.
///
/// # Errors
/// The log file cannot be opened, or the thread cannot be started. A second call has no effect.
pub fn start(options: &LogOptions) -> io::Result<()> {
    let human = options.file.is_none() && io::stderr().is_terminal();
    let sender = match &options.file {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            log_writer::start(file, options.lines_max)?
        }
        None => log_writer::start(io::stderr(), options.lines_max)?,
    };
    let destination = Destination(sender.clone());
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(move || destination.clone());
    let (filter, levels) = reload::Layer::new(filter(options));
    let layer = if human {
        layer.with_filter(filter).boxed()
    } else {
        layer.json().flatten_event(true).with_current_span(false).with_span_list(false).with_filter(filter).boxed()
    };
    // Fails only if a logger is already installed, as in a test that starts two nodes.
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        let _ = LINES.set(sender);
        let _ = LEVELS.set(levels);
    }
    Ok(())
}

/// Applies the levels of these options.
pub fn set_levels(options: &LogOptions) {
    if let Some(levels) = LEVELS.get() {
        // Fails only after a panic of a thread that was applying others.
        let _ = levels.reload(filter(options));
    }
}

/// Waits until all lines are written, at most for `timeout`. For the end of the process.
pub fn flush(timeout: Duration) {
    if let Some(lines) = LINES.get() {
        lines.state().flush(timeout);
    }
}

/// The newest lines of the process's log, which are kept from now on; `None` without a log.
pub fn kept_tail() -> Option<Arc<LogTail>> {
    let tail = LINES.get().map(|lines| Arc::clone(lines.tail()))?;
    tail.keep();
    Some(tail)
}

/// Number of lines that were dropped because the queue was full.
pub fn lines_dropped() -> u64 {
    LINES.get().map_or(0, |lines| lines.state().dropped())
}

/// Libraries have a separate level, because at `trace` one of them logs several lines per socket event.
fn filter(options: &LogOptions) -> Targets {
    let own = level_filter(options.level);
    let libraries = level_filter(options.library_level).min(own);
    // The NATS library logs an error when a client is dropped with its connection. The cluster logs its connections
    // itself. At `trace`, the library logs the password that it sends to the server, and messages.
    let nats = match options.library_level {
        LogLevel::Debug | LogLevel::Trace => libraries.min(LevelFilter::DEBUG),
        _ => LevelFilter::OFF,
    };
    // What operators do is logged at each level.
    let audit = own.max(LevelFilter::INFO);
    let own = Targets::new().with_default(libraries).with_target("async_nats", nats).with_target("dunlin", own);
    own.with_target(AUDIT, audit)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::None => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Each line is written with one `write`, so lines of several threads do not mix.
#[derive(Clone)]
struct Destination(LineSender);

impl io::Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.send(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maximum number of characters of an outside text in a line.
const OUTSIDE_CHARS_MAX: usize = 200;

/// Whether a character of a stranger's text is escaped: control characters, line separators, and characters that are not seen
/// or change the writing direction.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Text from outside for a log line: shortened, and with control characters escaped, so that it cannot begin a new line
/// or send escape sequences to a terminal.
pub struct Outside<'a>(pub &'a str);

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(OUTSIDE_CHARS_MAX) {
            if is_unsafe(c) {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                f.write_char(c)?;
            }
        }
        if chars.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn log_lines_of_libraries_are_off_by_default() {
        let options = |level, library_level| LogOptions { level, library_level, file: None, lines_max: 1 };
        let quiet = filter(&options(LogLevel::Trace, LogLevel::Warn));
        assert!(quiet.would_enable("dunlin::node", &Level::TRACE) && quiet.would_enable("mio::poll", &Level::WARN));
        assert!(!quiet.would_enable("mio::poll", &Level::INFO));
        let all = filter(&options(LogLevel::Trace, LogLevel::Trace));
        assert!(all.would_enable("async_nats", &Level::DEBUG) && !all.would_enable("async_nats", &Level::TRACE));
        assert!(!all.would_enable("async_nats::connection", &Level::TRACE));
        let asked = filter(&options(LogLevel::Debug, LogLevel::Trace));
        assert!(asked.would_enable("mio::poll", &Level::DEBUG) && !asked.would_enable("mio::poll", &Level::TRACE));
    }

    #[test]
    fn what_operators_do_is_logged_at_each_level() {
        for level in [LogLevel::None, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace]
        {
            let filter = filter(&LogOptions { level, library_level: LogLevel::None, file: None, lines_max: 1 });
            assert!(filter.would_enable(AUDIT, &Level::INFO) && filter.would_enable(AUDIT, &Level::WARN), "{level:?}");
            let others = matches!(level, LogLevel::Info | LogLevel::Debug | LogLevel::Trace);
            assert_eq!(filter.would_enable("dunlin::telemetry::console_events", &Level::INFO), others, "{level:?}");
        }
    }

    #[test]
    fn outside_text_stays_on_its_line() {
        let cases = [
            ("chat:ж", "chat:ж"),
            ("a\r\nb", "a\\u{d}\\u{a}b"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("x\u{2028}y\u{202e}z", "x\\u{2028}y\\u{202e}z"),
            ("a\u{200b}b\u{200f}c", "a\\u{200b}b\\u{200f}c"),
        ];
        for (outside, logged) in cases {
            assert_eq!(Outside(outside).to_string(), logged);
        }
    }

    #[test]
    fn outside_text_is_shortened() {
        assert_eq!(Outside(&"a".repeat(OUTSIDE_CHARS_MAX)).to_string().chars().count(), OUTSIDE_CHARS_MAX);
        let shortened = Outside(&"a".repeat(OUTSIDE_CHARS_MAX + 1)).to_string();
        assert_eq!(shortened.chars().count(), OUTSIDE_CHARS_MAX + 1);
        assert!(shortened.ends_with('…'));
    }
}
