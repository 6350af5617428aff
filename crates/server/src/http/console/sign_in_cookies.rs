//! Sign-ins of the console: a signed cookie with a role and an end.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dunlin_token::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::Sha256;

/// Maximum number of sign-outs that are remembered until they would have ended.
const SIGNED_OUT_MAX: usize = 4_096;

/// The attributes of the cookie of the console at `path`. Scripts cannot read it, and pages of other sites cannot send it.
pub(super) fn cookie_attributes(path: &str, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("; Path={path}/; HttpOnly; SameSite=Strict{secure}")
}

/// What a signed-in person may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Operator,
    /// Look.
    Reader,
}

impl Role {
    /// In the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Reader => "reader",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        [Self::Operator, Self::Reader].into_iter().find(|role| role.name() == name)
    }
}

/// One sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// What it may do.
    pub role: Role,
    /// Unix time of its end.
    pub ends_at_s: u64,
    id: u64,
}

#[cfg(test)]
impl SignIn {
    pub(super) const fn for_test(id: u64) -> Self {
        Self { role: Role::Reader, ends_at_s: 1, id }
    }
}

impl fmt::Display for SignIn {
    /// Identifies it in the log. This is not the cookie's text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.id)
    }
}

/// Signs and checks the cookies.
pub struct SignIns {
    key: Hmac<Sha256>,
    lifetime_s: u64,
    signed_out: SignedOut,
}

/// Those that were signed out: the ends that they would have had, by id. It outlives a change of the passwords.
pub type SignedOut = Arc<Mutex<BTreeMap<u64, u64>>>;

impl SignIns {
    /// Sign-ins whose cookies `secret` signs. The passwords are part of the key, so a new password ends all of them.
    pub fn new(secret: &[u8], passwords: [Option<&Secret>; 2], lifetime: Duration, signed_out: SignedOut) -> Self {
        let mut key = keyed(secret);
        for password in passwords {
            let password = password.map(Secret::reveal).unwrap_or_default();
            key.update(&(password.len() as u64).to_le_bytes());
            key.update(password);
        }
        // Cookies have whole seconds. A part of one counts as one: rounded down, a sign-in would end as it begins.
        let lifetime_s = lifetime.as_secs().saturating_add(u64::from(lifetime.subsec_nanos() > 0));
        Self { key: keyed(&key.finalize().into_bytes()), lifetime_s, signed_out }
    }

    /// The lifetime of a sign-in.
    pub const fn lifetime_s(&self) -> u64 {
        self.lifetime_s
    }

    /// A new sign-in with this random id, and its cookie's text.
    pub fn open(&self, role: Role, now_s: u64, id: u64) -> (SignIn, String) {
        let sign_in = SignIn { role, ends_at_s: now_s.saturating_add(self.lifetime_s), id };
        let text = format!("{}.{}.{sign_in}", role.name(), sign_in.ends_at_s);
        let signature = self.key.clone().chain_update(text.as_bytes()).finalize().into_bytes();
        (sign_in, format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The sign-in of a cookie, if it was signed here, has not ended, and was not signed out.
    pub fn find(&self, cookie: &str, now_s: u64) -> Option<SignIn> {
        let (text, signature) = cookie.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.key.clone().chain_update(text.as_bytes()).verify_slice(&signature).ok()?;
        let mut parts = text.split('.');
        let (role, ends_at_s, id) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let sign_in = SignIn { role: Role::by_name(role)?, ends_at_s, id: u64::from_str_radix(id, 16).ok()? };
        let is_signed_out = || self.signed_out.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&sign_in.id);
        (now_s < ends_at_s && !is_signed_out()).then_some(sign_in)
    }

    /// Ends a sign-in.
    pub fn sign_out(&self, sign_in: SignIn, now_s: u64) {
        let mut signed_out = self.signed_out.lock().unwrap_or_else(PoisonError::into_inner);
        signed_out.retain(|_, ends_at_s| now_s < *ends_at_s);
        if signed_out.len() >= SIGNED_OUT_MAX
            && let Some(first) = signed_out.iter().min_by_key(|(_, ends_at_s)| **ends_at_s).map(|(id, _)| *id)
        {
            signed_out.remove(&first);
        }
        signed_out.insert(sign_in.id, sign_in.ends_at_s);
    }
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(100);

    fn sign_ins(secret: &[u8], password: &str) -> SignIns {
        SignIns::new(secret, [Secret::new(password).as_ref(), None], LIFETIME, SignedOut::default())
    }

    #[test]
    fn a_sign_in_has_its_role_until_it_ends() {
        let sign_ins = sign_ins(b"s", "p");
        for role in [Role::Operator, Role::Reader] {
            let (sign_in, cookie) = sign_ins.open(role, 1_000, 7);
            assert_eq!(sign_ins.find(&cookie, 1_099), Some(sign_in));
            assert_eq!((sign_in.role, sign_in.ends_at_s), (role, 1_100));
            assert_eq!(sign_ins.find(&cookie, 1_100), None, "it has ended");
        }
    }

    #[test]
    fn a_lifetime_is_rounded_up_to_seconds() {
        for (lifetime_ms, expected_s) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (43_200_000, 43_200)] {
            let lifetime = Duration::from_millis(lifetime_ms);
            let sign_ins = SignIns::new(b"s", [None, None], lifetime, SignedOut::default());
            let (sign_in, cookie) = sign_ins.open(Role::Reader, 1_000, 7);
            assert_eq!((sign_ins.lifetime_s(), sign_in.ends_at_s), (expected_s, 1_000 + expected_s), "{lifetime_ms}");
            assert!(sign_ins.find(&cookie, 1_000).is_some(), "{lifetime_ms}");
        }
    }

    #[test]
    fn a_cookie_that_was_not_signed_here_is_none() {
        let here = sign_ins(b"s", "p");
        let (_, cookie) = here.open(Role::Reader, 1_000, 7);
        let stronger = cookie.replace("reader", "operator");
        let longer = cookie.replace("1100", "9100");
        let cut = cookie.get(..cookie.len() - 1).expect("ASCII");
        for forged in [&*stronger, &longer, cut, "", ".", "...", "reader.1100.7.", "operator.9999999999.0.AAAA"] {
            assert_eq!(here.find(forged, 1_000), None, "{forged}");
        }
        assert_eq!(sign_ins(b"other", "p").find(&cookie, 1_000), None, "of another secret");
        assert_eq!(sign_ins(b"s", "changed").find(&cookie, 1_000), None, "of an earlier password");
        assert!(sign_ins(b"s", "p").find(&cookie, 1_000).is_some(), "of another node with the same secret");
    }

    #[test]
    fn a_sign_out_ends_one_sign_in_and_no_other() {
        let sign_ins = sign_ins(b"s", "p");
        let (first, first_cookie) = sign_ins.open(Role::Operator, 1_000, 1);
        let (second, second_cookie) = sign_ins.open(Role::Operator, 1_000, 2);
        sign_ins.sign_out(first, 1_001);
        assert_eq!(sign_ins.find(&first_cookie, 1_002), None);
        assert_eq!(sign_ins.find(&second_cookie, 1_002), Some(second));
    }

    #[test]
    fn sign_outs_are_remembered_until_the_sign_ins_would_have_ended_and_are_bounded() {
        let sign_ins = sign_ins(b"s", "p");
        let remembered = || sign_ins.signed_out.lock().unwrap().len();
        for id in 0..=SIGNED_OUT_MAX as u64 {
            let (sign_in, _) = sign_ins.open(Role::Reader, 1_000 + id / 1_000, id);
            sign_ins.sign_out(sign_in, 1_000);
        }
        assert_eq!(remembered(), SIGNED_OUT_MAX);
        let (sign_in, _) = sign_ins.open(Role::Reader, 2_000, 1 << 40);
        sign_ins.sign_out(sign_in, 2_000);
        assert_eq!(remembered(), 1);
    }
}
