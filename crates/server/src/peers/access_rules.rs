//! Rules about who may not connect, which nodes tell each other.

use dunlin_engine::access_rules::{AccessRule, AccessSubject, AccessTerms, SubjectKind};
use serde::{Deserialize, Serialize};

/// See [`super::Received::Access`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessOrder {
    rules: Vec<RuleBody>,
}

/// See [`super::Received::AccessRules`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessQuestion {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<SubjectBody>,
    /// [`dunlin_engine::access_rules::AccessRules::digest_after`] of the node that asks.
    pub digest: u64,
    /// The time of the digest.
    #[serde(default)]
    pub ends_after_ms: u64,
}

/// A page of rules; empty if they have the digest of the question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessAnswer {
    /// Whether more rules follow.
    pub more: bool,
    rules: Vec<RuleBody>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindBody {
    User,
    Token,
    TokensOf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SubjectBody {
    kind: KindBody,
    name: Box<str>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RuleBody {
    before_ms: u64,
    changed_ms: u64,
    #[serde(flatten)]
    subject: SubjectBody,
    until_ms: u64,
}

impl AccessOrder {
    /// Puts rules in force.
    pub fn new(rules: &[AccessRule]) -> Self {
        Self { rules: rules.iter().map(RuleBody::of).collect() }
    }

    /// The rules.
    pub fn rules(&self) -> Vec<AccessRule> {
        self.rules.iter().map(RuleBody::rule).collect()
    }
}

impl AccessQuestion {
    /// Asks for rules after a subject.
    pub fn new(digest: u64, ends_after_ms: u64, after: Option<&AccessSubject>) -> Self {
        Self { after: after.map(SubjectBody::of), digest, ends_after_ms }
    }

    /// The subject after which the answer begins.
    pub fn after(&self) -> Option<AccessSubject> {
        self.after.as_ref().map(SubjectBody::subject)
    }
}

impl AccessAnswer {
    /// A page of rules.
    pub fn new(rules: &[AccessRule], more: bool) -> Self {
        Self { more, rules: rules.iter().map(RuleBody::of).collect() }
    }

    /// The rules.
    pub fn rules(&self) -> Vec<AccessRule> {
        self.rules.iter().map(RuleBody::rule).collect()
    }
}

impl SubjectBody {
    fn of(subject: &AccessSubject) -> Self {
        let kind = match subject.kind {
            SubjectKind::User => KindBody::User,
            SubjectKind::Token => KindBody::Token,
            SubjectKind::TokensOf => KindBody::TokensOf,
        };
        Self { kind, name: (*subject.name).into() }
    }

    fn subject(&self) -> AccessSubject {
        let kind = match self.kind {
            KindBody::User => SubjectKind::User,
            KindBody::Token => SubjectKind::Token,
            KindBody::TokensOf => SubjectKind::TokensOf,
        };
        AccessSubject { kind, name: (*self.name).into() }
    }
}

impl RuleBody {
    fn of(rule: &AccessRule) -> Self {
        let AccessTerms { changed_ms, before_ms, until_ms } = rule.terms;
        Self { before_ms, changed_ms, subject: SubjectBody::of(&rule.subject), until_ms }
    }

    fn rule(&self) -> AccessRule {
        let Self { before_ms, changed_ms, subject, until_ms } = self;
        let terms = AccessTerms { changed_ms: *changed_ms, before_ms: *before_ms, until_ms: *until_ms };
        AccessRule { subject: subject.subject(), terms }
    }
}
