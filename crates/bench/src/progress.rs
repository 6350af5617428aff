//! Progress on stderr. Nothing is printed if stderr is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar whose meaning changes with the phase.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows nothing where `quiet`.
    pub fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Something whose end is not countable.
    pub fn doing(&self, what: String) {
        self.0.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a constant template"));
        self.0.set_message(what);
    }

    /// Something of that many steps.
    pub fn counting(&self, what: String, steps: u64) {
        let template = "{spinner} {msg} [{wide_bar}] {human_pos}/{human_len} {eta}";
        self.0.set_style(ProgressStyle::with_template(template).expect("a constant template"));
        self.0.set_message(what);
        self.0.set_length(steps);
        self.0.reset();
    }

    /// So many of the steps are done.
    pub fn at(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
