//! Who may not connect: the node's rules, which its shards check ([`dunlin_engine::access`]), the disk keeps, and the nodes
//! of a cluster exchange.
//!
//! A change takes effect on the shards first, then it is stored, and then the other nodes are told. Nodes also compare their
//! rules every [`EXCHANGE_INTERVAL`]: so one that did not hear of a change, or that was restarted, has it soon after.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dunlin_engine::{
    access::{AccessLimits, AccessRule, AccessRules, AccessSubject, AccessTerms, Applied, SubjectKind},
    api::ApiRequest,
};
use dunlin_storage::{AccessEntry, EntryBatch, Storage, StorageError};
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

use crate::{
    node::{Node, NodeCluster},
    peers::{self, AccessAnswer, AccessQuestion},
};

/// How often the nodes of a cluster compare their rules.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(3);

/// How often rules that have ended are removed.
const EVICTION_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of rules in an answer to another node, and their approximate bytes, which fit in a message of NATS.
const PAGE_RULES_MAX: usize = 1_000;
const PAGE_BYTES_MAX: usize = 256 << 10;

/// How long a node remembers that a rule was lifted, for nodes that do not know it.
const LIFTED_MS: u64 = 24 * 60 * 60 * 1_000;

/// The rules of a node.
#[derive(Debug)]
pub struct AccessKeeper {
    rules: Mutex<AccessRules>,
    counts: AccessCounters,
}

#[derive(Debug, Default)]
struct AccessCounters {
    refused: AtomicU64,
    not_stored: AtomicU64,
}

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Rules (gauge).
    pub rules: u64,
    /// Their bytes (gauge).
    pub bytes: u64,
    /// Rules that were refused because of a limit.
    pub refused: u64,
    /// Rules that could not be stored.
    pub not_stored: u64,
}

/// Why a rule is not in force everywhere on this node, or would not outlive a restart.
#[derive(Debug)]
pub enum AccessFault {
    /// A limit is reached.
    Full,
    /// A shard has ended.
    Stopped,
    /// The storage does not write.
    NotStored(String),
}

impl AccessKeeper {
    /// The rules that are known at the start.
    pub fn new(limits: AccessLimits, known: &[AccessRule]) -> Self {
        let keeper = Self { rules: Mutex::new(AccessRules::new(limits)), counts: AccessCounters::default() };
        keeper.take(known.to_vec());
        keeper
    }

    fn rules(&self) -> MutexGuard<'_, AccessRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of a subject that is newer than what is known about it. 0 for `before_ms` lifts its rule.
    pub fn change(&self, subject: AccessSubject, before_ms: u64, until_ms: u64) -> AccessRule {
        let now_ms = unix_ms();
        let known = self.rules().terms_of(&subject);
        let changed_ms = known.map_or(now_ms, |known| now_ms.max(known.changed_ms.saturating_add(1)));
        let until_ms = if before_ms == 0 { now_ms + LIFTED_MS } else { until_ms };
        AccessRule { subject, terms: AccessTerms { changed_ms, before_ms, until_ms } }
    }

    /// Takes rules. Returns those that change something, and whether a limit has refused others.
    fn take(&self, rules: Vec<AccessRule>) -> (Vec<AccessRule>, bool) {
        let now_ms = unix_ms();
        let (mut known, mut taken, mut refused) = (self.rules(), Vec::new(), 0);
        for rule in rules {
            match known.apply(rule.clone(), now_ms) {
                Applied::New => taken.push(rule),
                Applied::Old => {}
                Applied::Full => refused += 1,
            }
        }
        self.counts.refused.fetch_add(refused, Ordering::Relaxed);
        (taken, refused > 0)
    }

    /// The answer to another node.
    pub fn answer(&self, question: &AccessQuestion) -> AccessAnswer {
        let rules = self.rules();
        if question.digest == rules.digest() {
            return AccessAnswer::new(&[], false);
        }
        let page = rules.page(question.after().as_ref(), PAGE_RULES_MAX, PAGE_BYTES_MAX);
        let has_more = page.last().is_some_and(|last| !rules.page(Some(&last.subject), 1, usize::MAX).is_empty());
        AccessAnswer::new(&page, has_more)
    }

    /// Numbers for the metrics.
    pub fn counts(&self) -> AccessCounts {
        let rules = self.rules();
        AccessCounts {
            rules: rules.len() as u64,
            bytes: rules.bytes() as u64,
            refused: self.counts.refused.load(Ordering::Relaxed),
            not_stored: self.counts.not_stored.load(Ordering::Relaxed),
        }
    }
}

/// Puts rules in force on this node, and stores them.
///
/// # Errors
/// [`AccessFault`]. The shards have what was not refused.
pub async fn apply(node: &Node, rules: Vec<AccessRule>) -> Result<(), AccessFault> {
    let (taken, is_full) = node.access().take(rules);
    if !taken.is_empty() {
        let to_shards: Arc<[AccessRule]> = taken.as_slice().into();
        let answers = node.ask_all(ApiRequest::Access(to_shards)).await;
        if answers.iter().any(Result::is_err) {
            return Err(AccessFault::Stopped);
        }
        if let Some(storage) = node.storage() {
            store(storage.storage(), &taken).await.map_err(|why| {
                node.access().counts.not_stored.fetch_add(taken.len() as u64, Ordering::Relaxed);
                AccessFault::NotStored(why)
            })?;
        }
    }
    if is_full { Err(AccessFault::Full) } else { Ok(()) }
}

/// Compares the rules with those of other nodes from time to time, and removes those that have ended. Never returns.
pub async fn keep(node: Node) {
    let mut exchanges = interval(EXCHANGE_INTERVAL);
    exchanges.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut evictions = interval(EVICTION_INTERVAL);
    loop {
        tokio::select! {
            _ = exchanges.tick() => if let Some(cluster) = node.cluster() {
                exchange(&node, cluster).await;
            },
            _ = evictions.tick() => {
                node.access().rules().evict(unix_ms());
                node.ask_all(ApiRequest::Access(Arc::default())).await;
            }
        }
    }
}

/// Takes the rules of other nodes that this one does not know, page by page.
async fn exchange(node: &Node, cluster: &NodeCluster) {
    let mut after = None;
    loop {
        let question = AccessQuestion::new(node.access().rules().digest(), after.as_ref());
        let Ok(found) = peers::ask_all(cluster, &question).await else { return };
        let (mut rules, mut end) = (Vec::new(), None::<AccessSubject>);
        for answer in found.results {
            let page = answer.rules();
            // The rules behind the end of a node's page are asked for with the next question.
            if answer.more
                && let Some(last) = page.last().map(|rule| rule.subject.clone())
            {
                end = Some(end.map_or(last.clone(), |end| end.min(last)));
            }
            rules.extend(page);
        }
        // What a limit refuses or the storage does not write is counted. The other nodes still have it.
        let _ = apply(node, rules).await;
        if end.is_none() || end <= after {
            return;
        }
        after = end;
    }
}

/// The rules in a storage.
///
/// # Errors
/// The storage cannot be read.
pub fn stored(storage: &Storage) -> Result<Vec<AccessRule>, StorageError> {
    Ok(storage.access_entries()?.iter().filter_map(rule_of).collect())
}

/// Stores rules, and waits until they are written.
async fn store(storage: &Storage, rules: &[AccessRule]) -> Result<(), String> {
    let mut batch = EntryBatch::new(true);
    for rule in rules {
        batch.put_access(&entry_of(rule));
    }
    let (written, is_written) = oneshot::channel();
    // The receiver is gone if the request has timed out.
    let done = Box::new(move |outcome| drop(written.send(outcome)));
    storage.write_entries(batch, done).map_err(|_| "the storage takes no writes".to_owned())?;
    match is_written.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the storage has ended".to_owned()),
    }
}

fn entry_of(rule: &AccessRule) -> AccessEntry {
    let AccessRule { subject: AccessSubject { kind, name }, terms } = rule;
    let AccessTerms { changed_ms, before_ms, until_ms } = *terms;
    let bytes: Vec<u8> = [changed_ms, before_ms].into_iter().flat_map(u64::to_be_bytes).collect();
    AccessEntry { kind: *kind as u8, name: (**name).into(), expires_ms: until_ms, bytes: bytes.into() }
}

fn rule_of(entry: &AccessEntry) -> Option<AccessRule> {
    let kind = SubjectKind::ALL.into_iter().find(|kind| *kind as u8 == entry.kind)?;
    let (changed_ms, rest) = entry.bytes.split_first_chunk()?;
    let before_ms = rest.first_chunk()?;
    let [changed_ms, before_ms] = [changed_ms, before_ms].map(|bytes| u64::from_be_bytes(*bytes));
    let subject = AccessSubject { kind, name: (*entry.name).into() };
    Some(AccessRule { subject, terms: AccessTerms { changed_ms, before_ms, until_ms: entry.expires_ms } })
}

/// The time.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: SubjectKind, name: &str) -> AccessRule {
        let subject = AccessSubject { kind, name: name.into() };
        AccessRule { subject, terms: AccessTerms { changed_ms: 1, before_ms: u64::MAX, until_ms: u64::MAX } }
    }

    #[test]
    fn rules_are_stored_and_read() {
        for kind in SubjectKind::ALL {
            let rule = rule(kind, "ü\0");
            assert_eq!(rule_of(&entry_of(&rule)), Some(rule));
        }
        let entry = entry_of(&rule(SubjectKind::User, "u"));
        assert_eq!(rule_of(&AccessEntry { kind: 3, ..entry.clone() }), None);
        assert_eq!(rule_of(&AccessEntry { bytes: entry.bytes[1..].into(), ..entry }), None);
    }

    #[test]
    fn a_keeper_counts_what_its_limits_refuse() {
        let limits = AccessLimits { rules_max: 1, ..AccessLimits::default() };
        let keeper = AccessKeeper::new(limits, &[rule(SubjectKind::User, "a"), rule(SubjectKind::User, "b")]);
        assert_eq!((keeper.counts().rules, keeper.counts().refused), (1, 1));
        let change = keeper.change(rule(SubjectKind::User, "a").subject, 0, u64::MAX);
        assert!(change.terms.changed_ms > 1 && change.terms.until_ms < u64::MAX, "{change:?}");
        assert!(keeper.take(vec![change]).0.len() == 1 && keeper.counts().refused == 1);
    }

    #[test]
    fn nodes_with_the_same_rules_exchange_none() {
        let nodes = ["a", "b"].map(|name| AccessKeeper::new(AccessLimits::default(), &[rule(SubjectKind::User, name)]));
        let ask = |asked: &AccessKeeper, asking: &AccessKeeper| {
            asked.answer(&AccessQuestion::new(asking.rules().digest(), None)).rules()
        };
        let found = ask(&nodes[0], &nodes[1]);
        assert_eq!(found, [rule(SubjectKind::User, "a")]);
        nodes[1].take(found);
        nodes[0].take(ask(&nodes[1], &nodes[0]));
        assert_eq!(ask(&nodes[0], &nodes[1]), []);
        assert_eq!(nodes[0].counts().rules, 2);
    }
}
