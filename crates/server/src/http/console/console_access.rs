//! Who may use the console. A reload replaces the passwords.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use dunlin_config::{AdminAccess, AdminOptions, ApiKeys};

use super::{
    sign_in_attempts::Attempts,
    sign_in_cookies::{Role, SignIns, SignedOut},
};

/// Who may use the console now.
pub struct ConsoleAccess {
    /// Signs cookies if no secret is configured.
    random: [u8; 32],
    attempts: Attempts,
    signed_out: SignedOut,
    current: RwLock<Arc<Access>>,
}

/// Who may use the console.
pub(super) enum Access {
    /// Everyone, as an operator.
    Everyone,
    /// Who has signed in.
    SignedIn(Box<SignInRules>),
}

/// How to sign in.
pub(super) struct SignInRules {
    passwords: [(Role, Option<ApiKeys>); 2],
    pub(super) sign_ins: SignIns,
}

impl ConsoleAccess {
    /// With these options. Cookies are signed with `random` if no secret is configured.
    pub fn new(options: &AdminOptions, random: [u8; 32]) -> Self {
        let signed_out = SignedOut::default();
        Self {
            random,
            attempts: Attempts::new(options.sign_ins_per_minute),
            current: RwLock::new(Arc::new(Access::of(options, &random, &signed_out))),
            signed_out,
        }
    }

    /// Applies the options of a reload. A new password or secret ends all sign-ins. Wrong passwords and sign-outs of before
    /// count.
    pub fn apply(&self, options: &AdminOptions) {
        self.attempts.set_limit(options.sign_ins_per_minute);
        let access = Access::of(options, &self.random, &self.signed_out);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    pub(super) fn now(&self) -> Arc<Access> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) const fn attempts(&self) -> &Attempts {
        &self.attempts
    }
}

impl Access {
    fn of(options: &AdminOptions, random: &[u8; 32], signed_out: &SignedOut) -> Self {
        match &options.access {
            AdminAccess::Everyone => Self::Everyone,
            AdminAccess::Passwords { operator, reader, secret } => {
                let lifetime = Duration::from_millis(options.sign_in_lifetime_ms);
                let signer = secret.as_ref().map_or(&random[..], |secret| secret.reveal());
                let key = |password: &Option<_>| password.as_ref().map(|password| ApiKeys::new([password]));
                let passwords = [operator.as_ref(), reader.as_ref()];
                Self::SignedIn(Box::new(SignInRules {
                    passwords: [(Role::Operator, key(operator)), (Role::Reader, key(reader))],
                    sign_ins: SignIns::new(signer, passwords, lifetime, Arc::clone(signed_out)),
                }))
            }
        }
    }
}

impl SignInRules {
    /// What a password allows. Both are compared, so that the duration does not say whether there is a second one.
    pub(super) fn role_of(&self, password: &[u8]) -> Option<Role> {
        let judged = self
            .passwords
            .each_ref()
            .map(|(role, key)| key.as_ref().is_some_and(|key| key.admit(password)).then_some(*role));
        judged.into_iter().flatten().next()
    }
}

#[cfg(test)]
mod tests {
    use dunlin_config::ReplayOptions;
    use dunlin_token::Secret;

    use super::*;

    fn options(operator: &str, secret: Option<&str>) -> AdminOptions {
        let access = AdminAccess::Passwords {
            operator: Secret::new(operator),
            reader: None,
            secret: secret.and_then(Secret::new),
        };
        AdminOptions {
            handler_prefix: "/admin".to_owned(),
            external: false,
            access,
            sign_in_lifetime_ms: 1_000_000,
            sign_ins_per_minute: 1,
            replays: ReplayOptions { limit: 1, sign_in_limit: 1, memory_bytes_max: 1 << 26 },
        }
    }

    fn rules(access: &Access) -> &SignInRules {
        let Access::SignedIn(rules) = access else { panic!("everyone may use it") };
        rules
    }

    #[test]
    fn a_reload_changes_passwords_and_ends_sign_ins_of_before() {
        let access = ConsoleAccess::new(&options("first", None), [7; 32]);
        let before = access.now();
        let (sign_in, cookie) = rules(&before).sign_ins.open(Role::Operator, 1_000, 1);
        let (_, other_cookie) = rules(&before).sign_ins.open(Role::Operator, 1_000, 2);
        rules(&before).sign_ins.sign_out(sign_in, 1_000);
        access.apply(&options("first", None));
        let same = access.now();
        assert!(rules(&same).sign_ins.find(&other_cookie, 1_001).is_some(), "nothing has changed");
        assert!(rules(&same).sign_ins.find(&cookie, 1_001).is_none(), "it was signed out");
        access.apply(&options("second", None));
        let after = access.now();
        assert!(rules(&after).sign_ins.find(&other_cookie, 1_001).is_none(), "the password is another one");
        assert_eq!(
            [&b"first"[..], b"second"].map(|password| rules(&after).role_of(password)),
            [None, Some(Role::Operator)]
        );
        access.apply(&AdminOptions { access: AdminAccess::Everyone, ..options("second", None) });
        assert!(matches!(*access.now(), Access::Everyone));
    }
}
