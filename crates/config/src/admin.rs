//! The console (`admin.*`).

use dunlin_token::Secret;

use super::{resolve::Reader, tokens::HMAC_KEY_BYTES_MIN};

/// Options of the console.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Path of the console.
    pub handler_prefix: String,
    /// Serve it on the public port even if there is an internal port.
    pub external: bool,
    /// Who may use it.
    pub access: AdminAccess,
    /// Time after which a sign-in ends.
    pub sign_in_lifetime_ms: u64,
    /// Wrong passwords per minute and address.
    pub sign_ins_per_minute: u32,
    /// How recordings of rooms are replayed.
    pub replays: ReplayOptions,
}

/// How the console replays recordings of rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Maximum number of recordings that are open at a time; 0: none is opened.
    pub limit: usize,
    /// The same for one sign-in.
    pub sign_in_limit: usize,
    /// Maximum memory of each of them.
    pub memory_bytes_max: u64,
}

/// Who may use the console.
#[derive(Clone, Debug)]
pub enum AdminAccess {
    /// Who knows one of these passwords.
    Passwords {
        /// Of operators, who may do everything.
        operator: Option<Secret>,
        /// Of those who may only look.
        reader: Option<Secret>,
        /// Signs sessions; `None` for a random one.
        secret: Option<Secret>,
    },
    /// Everyone who can reach the port (`admin.insecure`).
    Everyone,
}

impl AdminOptions {
    /// The options after a reload of `wanted`. A console that was switched off stays as it is until a restart.
    pub(super) fn succeeded_by(&self, wanted: Option<&Self>) -> Self {
        let wanted = wanted.unwrap_or(self).clone();
        let Self { handler_prefix, external, replays, .. } = self;
        Self { handler_prefix: handler_prefix.clone(), external: *external, replays: *replays, ..wanted }
    }
}

/// The console; `None` if it is off.
pub(super) fn options(r: &mut Reader<'_>) -> Option<AdminOptions> {
    let handler_prefix = r.prefix_if("admin.enabled", true, "admin.handler_prefix");
    let (operator, reader) = (r.secret("admin.password"), r.secret("admin.read_only_password"));
    let (secret, is_insecure) = (r.secret("admin.secret"), r.bool("admin.insecure"));
    let (external, sign_in_lifetime_ms) = (r.bool("admin.external"), r.ms_above_zero("admin.sign_in_lifetime"));
    let sign_ins_per_minute = r.narrow("admin.sign_in_limit");
    let replays = ReplayOptions {
        limit: r.count("admin.replays_limit"),
        sign_in_limit: r.count("admin.sign_in_replays_limit"),
        memory_bytes_max: r.narrow("admin.replay_memory_limit"),
    };
    let handler_prefix = handler_prefix?;
    if is_insecure {
        let text = "is enabled: anyone who can reach the port can use the console. Use it only for development";
        r.warning("admin.insecure", text);
    } else if operator.is_none() && reader.is_none() {
        r.warning("admin.enabled", "lets nobody sign in: set `admin.password`");
    } else if operator.as_ref().map(Secret::reveal) == reader.as_ref().map(Secret::reveal) {
        r.error("admin.read_only_password", "is also `admin.password`: set different passwords");
    }
    // Not refused: a Centrifugo configuration has such a secret, and finding it takes the cookie of a sign-in.
    if !is_insecure && secret.as_ref().is_some_and(|secret| secret.reveal().len() < HMAC_KEY_BYTES_MIN) {
        let text = format!(
            "is shorter than {HMAC_KEY_BYTES_MIN} bytes: who has the cookie of one sign-in can try secrets and passwords without \
             asking the node. Use a key from `dunlin gen-config`"
        );
        r.warning("admin.secret", text);
    }
    let access = if is_insecure { AdminAccess::Everyone } else { AdminAccess::Passwords { operator, reader, secret } };
    Some(AdminOptions { handler_prefix, external, access, sign_in_lifetime_ms, sign_ins_per_minute, replays })
}
