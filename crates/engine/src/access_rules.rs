//! Who may not connect: blocked users, and revoked tokens.
//!
//! A rule is about one *subject*: a user, a token by its id, or the tokens of a user. The newest change of a subject replaces
//! the older ones, whatever order they arrive in, so nodes that exchange their rules end with the same. A rule that was
//! lifted is kept for a time as well, or an older copy on another node would bring it back.
//!
//! Each shard has a copy of the rules, which its caller passes to it. It checks them when a session connects, when a token
//! authorizes a subscription, and when a token refreshes either.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use crate::event::TokenIdentity;

/// What a rule costs beyond its subject's name, estimated from above.
const RULE_BYTES: usize = 192;

const SECOND_MS: u64 = 1_000;

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKind {
    /// A user, who may not connect.
    User,
    /// A token, by its id (`jti`).
    Token,
    /// The tokens of a user that were issued before a time.
    TokensOf,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Token, Self::TokensOf];
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessSubject {
    /// The kind of the name.
    pub kind: SubjectKind,
    /// The id of the user or of the token.
    pub name: Arc<str>,
}

/// A rule, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// What it is about.
    pub subject: AccessSubject,
    /// Whether the subject is refused.
    pub terms: AccessTerms,
}

/// What a rule says, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessTerms {
    /// Unix time of the change in milliseconds. The newest change of a subject counts.
    pub changed_ms: u64,
    /// Tokens that were issued before this Unix time in milliseconds are refused. The maximum refuses always, 0 never: the
    /// rule is lifted.
    pub before_ms: u64,
    /// Unix time in milliseconds at which the rule is forgotten; the maximum for never.
    pub until_ms: u64,
}

/// The limits on rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLimits {
    /// Maximum number of rules.
    pub rules_max: usize,
    /// Maximum bytes of rules.
    pub bytes_max: usize,
}

impl AccessLimits {
    /// None. For a copy of rules that are limited elsewhere.
    pub const NONE: Self = Self { rules_max: usize::MAX, bytes_max: usize::MAX };
}

impl Default for AccessLimits {
    fn default() -> Self {
        Self { rules_max: 100_000, bytes_max: 32 << 20 }
    }
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is in force.
    New,
    /// It has ended, or a newer one of its subject is known.
    Old,
    /// A limit is reached.
    Full,
}

/// The rules that are in force.
#[derive(Debug)]
pub struct AccessRules {
    limits: AccessLimits,
    /// By name, one table for each kind.
    rules: [BTreeMap<Arc<str>, AccessTerms>; SubjectKind::ALL.len()],
    /// The ends of rules that have one.
    ends: BTreeSet<(u64, AccessSubject)>,
    bytes: usize,
    /// The sum of the hashes of all rules: the same for the same rules on all nodes.
    digest: u64,
}

impl AccessRules {
    /// No rules.
    pub const fn new(limits: AccessLimits) -> Self {
        let rules = [const { BTreeMap::new() }; SubjectKind::ALL.len()];
        Self { limits, rules, ends: BTreeSet::new(), bytes: 0, digest: 0 }
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.iter().map(BTreeMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.iter().all(BTreeMap::is_empty)
    }

    /// Bytes of the rules, estimated from above.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A number that differs if the rules of two nodes do that end after a Unix time in milliseconds. Of two nodes, one
    /// has removed a rule that has ended a little earlier than the other, so they compare what ends later.
    pub fn digest_after(&self, ends_after_ms: u64) -> u64 {
        let earlier = self.ends.iter().take_while(|(until_ms, _)| *until_ms <= ends_after_ms);
        let hash_of = |subject: &AccessSubject| self.terms_of(subject).map_or(0, |terms| hash(subject, terms));
        earlier.fold(self.digest, |digest, (_, subject)| digest.wrapping_sub(hash_of(subject)))
    }

    /// Applies a change, after removing what has ended.
    pub fn apply(&mut self, rule: AccessRule, now_unix_ms: u64) -> Applied {
        self.evict(now_unix_ms);
        let AccessRule { subject, terms } = rule;
        if terms.until_ms <= now_unix_ms {
            return Applied::Old;
        }
        match self.terms_of(&subject) {
            // Of two changes at the same time, all nodes choose the same one.
            Some(known) if known >= terms => return Applied::Old,
            Some(known) => self.forget(&subject, known),
            None if self.is_full(&subject) => return Applied::Full,
            None => {}
        }
        self.bytes += RULE_BYTES + subject.name.len();
        self.digest = self.digest.wrapping_add(hash(&subject, terms));
        self.rules[subject.kind as usize].insert(Arc::clone(&subject.name), terms);
        if terms.until_ms < u64::MAX {
            self.ends.insert((terms.until_ms, subject));
        }
        Applied::New
    }

    /// Removes the rules that have ended.
    pub fn evict(&mut self, now_unix_ms: u64) {
        while let Some((until_ms, _)) = self.ends.first()
            && *until_ms <= now_unix_ms
            && let Some((_, subject)) = self.ends.pop_first()
        {
            if let Some(terms) = self.terms_of(&subject) {
                self.forget(&subject, terms);
            }
        }
    }

    /// Whether a user is blocked.
    pub fn is_blocked(&self, user: &str, now_unix_ms: u64) -> bool {
        self.refuses(SubjectKind::User, user, 0, now_unix_ms)
    }

    /// Whether a user's token is revoked. A token that does not say when it was issued counts as the oldest. One that names
    /// a whole second was issued at any time of it, and counts as issued at its end: a token that replaces revoked ones is
    /// valid, although it may be of the same second.
    pub fn is_revoked(&self, user: &str, token: &TokenIdentity, now_unix_ms: u64) -> bool {
        let issued_at_ms = token.issued_at_ms.map_or(0, |issued_at_ms| match issued_at_ms % SECOND_MS {
            0 => issued_at_ms.saturating_add(SECOND_MS - 1),
            _ => issued_at_ms,
        });
        self.refuses(SubjectKind::Token, &token.id, 0, now_unix_ms)
            || self.refuses(SubjectKind::TokensOf, user, issued_at_ms, now_unix_ms)
    }

    /// The terms of a subject.
    pub fn terms_of(&self, subject: &AccessSubject) -> Option<AccessTerms> {
        self.rules[subject.kind as usize].get(&subject.name).copied()
    }

    /// Rules after a subject, in the order of subjects, up to a number and about this number of bytes.
    pub fn page(&self, after: Option<&AccessSubject>, rules_max: usize, bytes_max: usize) -> Vec<AccessRule> {
        let mut bytes = 0;
        let kinds = SubjectKind::ALL.into_iter().filter(|kind| after.is_none_or(|after| *kind >= after.kind));
        let rules = kinds.flat_map(|kind| {
            let from = match after {
                Some(after) if after.kind == kind => Bound::Excluded(&*after.name),
                _ => Bound::Unbounded,
            };
            let of_kind = self.rules[kind as usize].range::<str, _>((from, Bound::Unbounded));
            of_kind.map(move |(name, terms)| AccessRule {
                subject: AccessSubject { kind, name: Arc::clone(name) },
                terms: *terms,
            })
        });
        let fits = |rule: &AccessRule| {
            bytes += RULE_BYTES + rule.subject.name.len();
            bytes <= bytes_max
        };
        rules.take(rules_max).take_while(fits).collect()
    }

    fn refuses(&self, kind: SubjectKind, name: &str, issued_at_ms: u64, now_unix_ms: u64) -> bool {
        let terms = self.rules[kind as usize].get(name);
        terms.is_some_and(|terms| issued_at_ms < terms.before_ms && now_unix_ms < terms.until_ms)
    }

    fn is_full(&self, subject: &AccessSubject) -> bool {
        let AccessLimits { rules_max, bytes_max } = self.limits;
        self.len() >= rules_max || self.bytes + RULE_BYTES + subject.name.len() > bytes_max
    }

    fn forget(&mut self, subject: &AccessSubject, terms: AccessTerms) {
        self.rules[subject.kind as usize].remove(&subject.name);
        self.ends.remove(&(terms.until_ms, subject.clone()));
        self.bytes -= RULE_BYTES + subject.name.len();
        self.digest = self.digest.wrapping_sub(hash(subject, terms));
    }
}

impl AccessRule {
    /// The user whose sessions end with this rule, if it blocks one.
    pub fn blocked_user(&self) -> Option<&str> {
        let blocks = self.subject.kind == SubjectKind::User && self.terms.before_ms > 0;
        blocks.then_some(&*self.subject.name)
    }

    /// Bytes of its name.
    pub fn text_bytes(&self) -> usize {
        self.subject.name.len()
    }
}

/// FNV-1a, which is the same on all nodes and in all versions.
fn hash(subject: &AccessSubject, terms: AccessTerms) -> u64 {
    let AccessTerms { changed_ms, before_ms, until_ms } = terms;
    let numbers = [subject.kind as u64, changed_ms, before_ms, until_ms].map(u64::to_le_bytes);
    let bytes = numbers.as_flattened().iter().chain(subject.name.as_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: SubjectKind, name: &str, [changed_ms, before_ms, until_ms]: [u64; 3]) -> AccessRule {
        let subject = AccessSubject { kind, name: name.into() };
        AccessRule { subject, terms: AccessTerms { changed_ms, before_ms, until_ms } }
    }

    fn block(user: &str, changed_ms: u64, until_ms: u64) -> AccessRule {
        rule(SubjectKind::User, user, [changed_ms, u64::MAX, until_ms])
    }

    fn token(id: &str, issued_at_ms: Option<u64>) -> TokenIdentity {
        TokenIdentity { id: id.into(), issued_at_ms }
    }

    #[test]
    fn a_block_begins_with_its_rule_and_ends_at_its_time_or_when_it_is_lifted() {
        let mut rules = AccessRules::new(AccessLimits::default());
        assert_eq!(rules.apply(block("u", 5, 100), 10), Applied::New);
        assert!(rules.is_blocked("u", 99) && !rules.is_blocked("u", 100) && !rules.is_blocked("v", 99));
        let lifted = rule(SubjectKind::User, "u", [6, 0, 1_000]);
        assert_eq!(rules.apply(lifted, 10), Applied::New);
        assert!(!rules.is_blocked("u", 11));
        assert_eq!(rules.apply(block("u", 5, u64::MAX), 12), Applied::Old, "an older copy of another node");
        assert!(!rules.is_blocked("u", 13));
        assert_eq!(rules.apply(block("w", 5, 14), 14), Applied::Old, "it has ended");
    }

    #[test]
    fn tokens_are_revoked_by_id_and_by_the_time_of_their_issue() {
        let mut rules = AccessRules::new(AccessLimits::default());
        rules.apply(rule(SubjectKind::Token, "t", [1, u64::MAX, 100]), 1);
        rules.apply(rule(SubjectKind::TokensOf, "u", [1, 50, u64::MAX]), 1);
        assert!(rules.is_revoked("x", &token("t", Some(99)), 2) && !rules.is_revoked("x", &token("t", None), 100));
        assert!(rules.is_revoked("u", &token("", Some(49)), 2) && !rules.is_revoked("u", &token("", Some(50)), 2));
        assert!(rules.is_revoked("u", &token("", None), 2), "it does not say when it was issued");
        assert!(!rules.is_revoked("x", &token("", None), 2) && !rules.is_blocked("t", 2) && !rules.is_blocked("u", 2));
    }

    #[test]
    fn a_token_of_a_whole_second_counts_as_issued_at_its_end() {
        let mut rules = AccessRules::new(AccessLimits::default());
        rules.apply(rule(SubjectKind::TokensOf, "u", [1, 5_300, u64::MAX]), 1);
        for (issued_at_ms, is_revoked) in [(5_000, false), (4_000, true), (5_299, true), (5_300, false), (4_999, true)]
        {
            assert_eq!(rules.is_revoked("u", &token("", Some(issued_at_ms)), 2), is_revoked, "{issued_at_ms}");
        }
        assert!(rules.is_revoked("u", &token("", None), 2), "it does not say when it was issued");
        rules.apply(rule(SubjectKind::TokensOf, "u", [2, 6_000, u64::MAX]), 1);
        assert!(
            rules.is_revoked("u", &token("", Some(5_000)), 2) && !rules.is_revoked("u", &token("", Some(6_000)), 2)
        );
        rules.apply(rule(SubjectKind::TokensOf, "u", [3, 500, u64::MAX]), 1);
        assert!(!rules.is_revoked("u", &token("", Some(0)), 2) && rules.is_revoked("u", &token("", None), 2));
    }

    #[test]
    fn nodes_compare_the_rules_that_end_later() {
        let mut nodes = [AccessRules::new(AccessLimits::NONE), AccessRules::new(AccessLimits::NONE)];
        for rules in &mut nodes {
            rules.apply(block("a", 1, 50), 2);
            rules.apply(block("b", 1, 51), 2);
            rules.apply(block("c", 1, u64::MAX), 2);
        }
        // The clock of this node is ahead.
        nodes[0].evict(50);
        assert_eq!(nodes[0].digest_after(50), nodes[1].digest_after(50));
        assert_ne!(nodes[0].digest_after(49), nodes[1].digest_after(49));
        nodes[1].apply(block("b", 2, 52), 2);
        assert_ne!(nodes[0].digest_after(50), nodes[1].digest_after(50));
    }

    #[test]
    fn rules_are_limited_in_number_and_bytes_and_ended_ones_make_space() {
        let mut rules = AccessRules::new(AccessLimits { rules_max: 2, bytes_max: usize::MAX });
        assert_eq!([block("a", 1, 50), block("b", 1, u64::MAX)].map(|rule| rules.apply(rule, 2)), [Applied::New; 2]);
        assert_eq!(rules.apply(block("c", 1, 50), 49), Applied::Full);
        assert_eq!(rules.apply(block("b", 2, 60), 49), Applied::New, "a known subject needs no space");
        assert_eq!(rules.apply(block("c", 1, 70), 50), Applied::New);
        assert!(!rules.is_blocked("a", 50) && rules.is_blocked("c", 50));
        let mut rules = AccessRules::new(AccessLimits { rules_max: 9, bytes_max: 2 * (RULE_BYTES + 1) });
        assert_eq!([block("a", 1, 50), block("b", 1, 50)].map(|rule| rules.apply(rule, 2)), [Applied::New; 2]);
        assert_eq!((rules.bytes(), rules.len()), (2 * (RULE_BYTES + 1), 2));
        assert_eq!(rules.apply(block("c", 1, 50), 3), Applied::Full);
        rules.evict(50);
        assert_eq!((rules.bytes(), rules.digest_after(0), rules.is_empty()), (0, 0, true));
    }

    #[test]
    fn nodes_that_exchange_rules_in_any_order_end_with_the_same() {
        let changes = [
            block("u", 5, 100),
            block("u", 5, 200),
            rule(SubjectKind::User, "u", [4, 0, 900]),
            rule(SubjectKind::TokensOf, "u", [5, 7, 100]),
            rule(SubjectKind::Token, "t", [5, u64::MAX, u64::MAX]),
        ];
        let mut nodes = [AccessRules::new(AccessLimits::NONE), AccessRules::new(AccessLimits::NONE)];
        for rule in &changes {
            nodes[0].apply(rule.clone(), 1);
        }
        assert_ne!(nodes[0].digest_after(0), nodes[1].digest_after(0));
        for rule in changes.iter().rev() {
            nodes[1].apply(rule.clone(), 1);
        }
        assert_eq!(nodes[0].digest_after(0), nodes[1].digest_after(0));
        assert_eq!(nodes[0].page(None, 9, usize::MAX), nodes[1].page(None, 9, usize::MAX));
        assert_eq!(nodes[0].len(), 3);
    }

    #[test]
    fn pages_have_every_rule_once() {
        let mut rules = AccessRules::new(AccessLimits::NONE);
        for kind in SubjectKind::ALL {
            for name in ["a", "b", "c"] {
                assert_eq!(rules.apply(rule(kind, name, [1, 1, 9]), 1), Applied::New);
            }
        }
        for (rules_max, bytes_max) in [(2, usize::MAX), (9, 2 * (RULE_BYTES + 1)), (1, usize::MAX)] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = rules.page(after.as_ref(), rules_max, bytes_max);
                assert!(page.len() <= 2);
                let Some(last) = page.last() else { break };
                after = Some(last.subject.clone());
                found.extend(page);
            }
            assert_eq!(found, rules.page(None, usize::MAX, usize::MAX));
            assert_eq!(found.len(), 9);
        }
    }
}
