//! Log events of the console: who signed in, and what was changed. This is the audit, so they are logged at each level.

use std::{fmt, net::IpAddr};

use tracing::{info, warn};

use super::{events::now_s, log::Outside, throttle::Throttle};

/// The target of these events, which [`super::log`] never leaves out.
pub const AUDIT: &str = "dunlin::audit";

/// Somebody signed in or out.
pub struct ConsoleSignIn<'a> {
    /// Whether it is the beginning.
    pub begins: bool,
    /// What the sign-in may do.
    pub role: &'static str,
    /// Identifies the sign-in in other lines.
    pub sign_in: &'a dyn fmt::Display,
    /// The address of the client.
    pub address: Option<IpAddr>,
}

impl ConsoleSignIn<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let Self { begins, role, sign_in, address } = self;
        let address = address.map(tracing::field::display);
        if *begins {
            info!(target: AUDIT, role, sign_in = %sign_in, address, "console: signed in");
        } else {
            info!(target: AUDIT, role, sign_in = %sign_in, address, "console: signed out");
        }
    }
}

/// A sign-in was refused.
pub struct ConsoleSignInRefused {
    /// Whether the password was not even judged.
    pub too_many: bool,
    /// The address of the client.
    pub address: Option<IpAddr>,
}

impl ConsoleSignInRefused {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        let address = self.address.map(tracing::field::display);
        if self.too_many {
            warn!(target: AUDIT, address, suppressed, key = "admin.sign_in_limit", "console: too many wrong passwords");
        } else {
            warn!(target: AUDIT, address, suppressed, "console: wrong password");
        }
    }
}

/// Somebody changed something. Each action has its line, because this is the audit.
pub struct ConsoleAction<'a> {
    /// The method of the server API.
    pub action: &'static str,
    /// What it is about, unescaped.
    pub target: &'a str,
    /// What the sign-in may do.
    pub role: &'static str,
    /// Identifies the sign-in.
    pub sign_in: &'a dyn fmt::Display,
    /// The address of the client.
    pub address: Option<IpAddr>,
    /// `done`, or why not.
    pub outcome: &'a dyn fmt::Display,
}

impl ConsoleAction<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let Self { action, target, role, sign_in, address, outcome } = self;
        let outcome = outcome.to_string();
        info!(target: AUDIT, action, target = %Outside(target), role, sign_in = %sign_in,
            address = address.map(tracing::field::display), outcome = %Outside(&outcome), "console: action");
    }
}
