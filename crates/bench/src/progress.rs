//! Progress on stderr. Nothing is printed if stderr is not a terminal.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar whose meaning depends on the phase.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a progress bar, which shows nothing if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Shows an activity without a known number of steps.
    pub fn doing(&self, what: String) {
        self.0.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a constant template"));
        self.0.set_message(what);
    }

    /// Shows an activity with this number of steps.
    pub fn counting(&self, what: String, steps: u64) {
        let template = "{spinner} {msg} [{wide_bar}] {human_pos}/{human_len} {eta}";
        self.0.set_style(ProgressStyle::with_template(template).expect("a constant template"));
        self.0.set_message(what);
        self.0.set_length(steps);
        self.0.reset();
    }

    /// Sets the number of completed steps.
    pub fn at(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Prints a line above the bar, also if stderr is not a terminal.
    pub fn line(&self, line: &str) {
        // Standard error may be closed.
        self.0.suspend(|| drop(writeln!(std::io::stderr(), "{line}")));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
