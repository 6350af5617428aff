//! Log events about who may not connect.

use dunlin_storage::StorageError;
use tracing::{info, warn};

/// The rules in the storage are not in force yet.
pub struct AccessRulesUnread<'a> {
    /// Why it cannot be read.
    pub error: &'a StorageError,
}

impl AccessRulesUnread<'_> {
    /// Logs it.
    pub fn emit(&self) {
        warn!(error = %self.error, "blocked users and revoked tokens are not refused until the storage can be read");
    }
}

/// The rules in the storage are in force, later than at the start.
pub struct AccessRulesRead {
    /// Their number.
    pub rules: usize,
}

impl AccessRulesRead {
    /// Logs it.
    pub fn emit(&self) {
        info!(rules = self.rules, "blocked users and revoked tokens were read from the storage");
    }
}
