//! Where log lines go, and in what form.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, IsTerminal},
    path::Path,
    sync::Arc,
};

use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogLevel, LogOptions};

/// Starts logging: lines for people when they go to a terminal, otherwise a JSON object a line.
///
/// # Errors
/// The log file cannot be opened for appending. Without a file nothing can fail; a second call changes nothing.
pub fn start(options: &LogOptions) -> io::Result<()> {
    let level = level_filter(options.level);
    let (writer, human) = match &options.file {
        Some(path) => (Destination::File(Arc::new(open(path)?)), false),
        None => (Destination::StandardError, io::stderr().is_terminal()),
    };
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(move || writer.clone());
    let layer = if human {
        layer.with_filter(level).boxed()
    } else {
        layer.json().flatten_event(true).with_current_span(false).with_span_list(false).with_filter(level).boxed()
    };
    // Fails only when something already logs, as in a test that starts two nodes.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
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

/// Writes of one line are one `write`, so lines of several threads do not mix.
#[derive(Clone)]
enum Destination {
    StandardError,
    File(Arc<File>),
}

impl io::Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::StandardError => io::stderr().write(line),
            Self::File(file) => (&**file).write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Most characters of one outside text in a line.
const OUTSIDE_CHARS_MAX: usize = 200;

/// Text from outside on its way into a log line: shortened, and with every control character escaped, so that it can
/// neither begin a line of its own nor reach a terminal as a command.
pub struct Outside<'a>(pub &'a str);

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(OUTSIDE_CHARS_MAX) {
            // Besides control characters: those that end a line or turn the writing direction.
            if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') {
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
    use super::*;

    #[test]
    fn outside_text_stays_on_its_line() {
        let cases = [
            ("chat:ж", "chat:ж"),
            ("a\r\nb", "a\\u{d}\\u{a}b"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("x\u{2028}y\u{202e}z", "x\\u{2028}y\\u{202e}z"),
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
