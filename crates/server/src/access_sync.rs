//! Who may not connect: the node's rules, which its shards check ([`dunlin_engine::access_rules`]), the disk keeps, and the
//! nodes of a cluster exchange.
//!
//! A change takes effect on the shards first, then it is stored, and then the other nodes are told. Nodes also compare their
//! rules every [`EXCHANGE_INTERVAL`]: so one that did not hear of a change, or that was restarted, has it soon after. What
//! could not be stored, and what could not be read at the start, is tried again as often.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dunlin_engine::{
    access_rules::{AccessLimits, AccessRule, AccessRules, AccessSubject, AccessTerms, Applied, SubjectKind},
    api::ApiRequest,
};
use dunlin_storage::{AccessEntry, EntryBatch, Storage, StorageError};
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

use crate::{
    node::{Node, NodeCluster},
    peers::{self, AccessAnswer, AccessQuestion, json_bytes},
    telemetry::access_events::{AccessRulesRead, AccessRulesUnread},
};

/// How often the nodes of a cluster compare their rules.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(3);

/// After so many exchanges in a row that brought nothing, the time between them doubles, up to a minute. Two nodes whose limits
/// are reached have different rules for long, and would send each other all of them.
const FRUITLESS_EXCHANGES: u32 = 3;
const SKIPPED_EXCHANGES_MAX: u32 = 19;

/// Nodes do not compare rules that end within this time, because their clocks differ. Such a rule is only told.
const CLOCK_OFFSET_MS: u64 = 10_000;

/// How often rules that have ended are removed.
const EVICTION_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of rules in an answer to another node, and their bytes, if more fit into a message of NATS.
const PAGE_RULES_MAX: usize = 1_000;
const PAGE_BYTES_MAX: usize = 256 << 10;

/// Bytes of a rule in an answer beside its name, from above.
const RULE_JSON_BYTES: usize = 160;

/// Maximum number of rules that are stored at a time after the storage did not write.
const STORED_AGAIN_MAX: usize = 1_000;

/// How long a node remembers that a rule was lifted, for nodes that do not know it.
const LIFTED_MS: u64 = 24 * 60 * 60 * 1_000;

/// The rules of a node.
#[derive(Debug)]
pub struct AccessKeeper {
    rules: Mutex<AccessRules>,
    /// Rules whose newest change is not stored. There are at most as many as rules.
    unstored: Mutex<BTreeSet<AccessSubject>>,
    /// Whether the rules in the storage are known.
    has_read: AtomicBool,
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
    /// Rules that could not be stored at first.
    pub not_stored: u64,
    /// Rules that wait to be stored (gauge).
    pub unstored: u64,
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

/// What an exchange of rules has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exchanged {
    /// All nodes that have answered have the same rules.
    Same,
    /// Other nodes have other rules, none of which this one could take.
    Nothing,
    /// New rules.
    Rules,
}

/// How often a node exchanges rules.
#[derive(Debug, Default)]
struct Pace {
    /// Exchanges in a row that brought nothing.
    fruitless: u32,
    /// Exchanges to skip.
    skips: u32,
}

impl AccessKeeper {
    /// The rules that are known at the start; `None` if the storage cannot be read yet.
    pub fn new(limits: AccessLimits, known: Option<&[AccessRule]>) -> Self {
        let keeper = Self {
            rules: Mutex::new(AccessRules::new(limits)),
            unstored: Mutex::default(),
            has_read: AtomicBool::new(known.is_some()),
            counts: AccessCounters::default(),
        };
        keeper.take(known.unwrap_or_default().to_vec());
        keeper
    }

    fn rules(&self) -> MutexGuard<'_, AccessRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unstored(&self) -> MutexGuard<'_, BTreeSet<AccessSubject>> {
        self.unstored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All rules.
    pub fn all(&self) -> Arc<[AccessRule]> {
        self.rules().page(None, usize::MAX, usize::MAX).into()
    }

    /// Changes a subject: the change is newer than what this node knows of it, also than one that is made at the same time.
    /// 0 for `before_ms` lifts its rule.
    fn make(&self, subject: AccessSubject, before_ms: u64, until_ms: u64) -> (AccessRule, Applied) {
        let now_ms = unix_ms();
        let mut rules = self.rules();
        let known = rules.terms_of(&subject);
        let changed_ms = known.map_or(now_ms, |known| now_ms.max(known.changed_ms.saturating_add(1)));
        let until_ms = if before_ms == 0 { now_ms + LIFTED_MS } else { until_ms };
        let rule = AccessRule { subject, terms: AccessTerms { changed_ms, before_ms, until_ms } };
        let applied = rules.apply(rule.clone(), now_ms);
        if applied == Applied::Full {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        (rule, applied)
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

    /// The answer to another node, with rules of about this many bytes.
    pub fn answer(&self, question: &AccessQuestion, bytes_max: usize) -> AccessAnswer {
        let rules = self.rules();
        if question.digest == rules.digest_after(question.ends_after_ms) {
            return AccessAnswer::new(&[], false);
        }
        let mut page = rules.page(question.after().as_ref(), PAGE_RULES_MAX, PAGE_BYTES_MAX);
        let mut bytes = 0;
        let fits = |rule: &&AccessRule| {
            bytes += RULE_JSON_BYTES + json_bytes(&rule.subject.name);
            bytes <= bytes_max.min(PAGE_BYTES_MAX)
        };
        // Without one at least, the other node would not get past it.
        let fitting = page.iter().take_while(fits).count().max(1);
        page.truncate(fitting);
        let has_more = page.last().is_some_and(|last| !rules.page(Some(&last.subject), 1, usize::MAX).is_empty());
        AccessAnswer::new(&page, has_more)
    }

    /// Numbers for the metrics.
    pub fn counts(&self) -> AccessCounts {
        let unstored = self.unstored().len() as u64;
        let rules = self.rules();
        AccessCounts {
            unstored,
            rules: rules.len() as u64,
            bytes: rules.bytes() as u64,
            refused: self.counts.refused.load(Ordering::Relaxed),
            not_stored: self.counts.not_stored.load(Ordering::Relaxed),
        }
    }

    /// The entries of these rules, each with the newest change of its subject.
    fn entries_of(rules: &AccessRules, changes: &[AccessRule]) -> Vec<AccessEntry> {
        let newest = |rule: &AccessRule| {
            let terms = rules.terms_of(&rule.subject).unwrap_or(rule.terms);
            entry_of(&AccessRule { subject: rule.subject.clone(), terms })
        };
        changes.iter().map(newest).collect()
    }

    /// Queues the newest changes of these rules' subjects for the storage. The lock is held meanwhile, so the storage writes
    /// them in their order, whichever request is first.
    fn queue(
        &self,
        storage: &Storage,
        changes: &[AccessRule],
    ) -> Result<oneshot::Receiver<Result<(), StorageError>>, String> {
        let rules = self.rules();
        let mut batch = EntryBatch::new(true);
        for entry in Self::entries_of(&rules, changes) {
            batch.put_access(&entry);
        }
        let (written, is_written) = oneshot::channel();
        // The receiver is gone if the request has timed out.
        let done = Box::new(move |outcome| drop(written.send(outcome)));
        storage.write_entries(batch, done).map_err(|_| "the storage takes no writes".to_owned())?;
        Ok(is_written)
    }

    /// Stores rules, and waits until they are written. What is not written is stored later.
    async fn store(&self, storage: &Storage, changes: &[AccessRule]) -> Result<(), String> {
        let stored = match self.queue(storage, changes) {
            Ok(is_written) => match is_written.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(_) => Err("the storage has ended".to_owned()),
            },
            Err(why) => Err(why),
        };
        if stored.is_err() {
            self.note_unstored(changes);
        }
        stored
    }

    fn note_unstored(&self, changes: &[AccessRule]) {
        let (rules, mut unstored) = (self.rules(), self.unstored());
        unstored.extend(changes.iter().map(|rule| rule.subject.clone()));
        // While the storage does not write, rules end and others come.
        if unstored.len() > rules.len() {
            unstored.retain(|subject| rules.terms_of(subject).is_some());
        }
    }

    /// Some of the rules that are not stored, which the caller stores.
    fn take_unstored(&self) -> Vec<AccessRule> {
        let (rules, mut unstored) = (self.rules(), self.unstored());
        let subjects = std::iter::from_fn(|| unstored.pop_first()).take(STORED_AGAIN_MAX);
        subjects.filter_map(|subject| rules.terms_of(&subject).map(|terms| AccessRule { subject, terms })).collect()
    }
}

impl Pace {
    /// Whether it is time for an exchange.
    fn is_due(&mut self) -> bool {
        let is_due = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        is_due
    }

    fn note(&mut self, outcome: Exchanged) {
        self.fruitless = if outcome == Exchanged::Nothing { self.fruitless.saturating_add(1) } else { 0 };
        let doublings = self.fruitless.saturating_sub(FRUITLESS_EXCHANGES);
        let skips = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX) - 1;
        self.skips = skips.min(SKIPPED_EXCHANGES_MAX);
    }
}

/// Changes a subject on this node: puts the change in force, and stores it. 0 for `before_ms` lifts its rule. Also returns the
/// change, for other nodes.
pub async fn change(
    node: &Node,
    subject: AccessSubject,
    before_ms: u64,
    until_ms: u64,
) -> (AccessRule, Result<(), AccessFault>) {
    let (rule, applied) = node.access().make(subject, before_ms, until_ms);
    let outcome = match applied {
        Applied::New => put_in_force(node, std::slice::from_ref(&rule)).await,
        // Its time is over.
        Applied::Old => Ok(()),
        Applied::Full => Err(AccessFault::Full),
    };
    (rule, outcome)
}

/// Puts rules in force on this node, and stores them.
///
/// # Errors
/// [`AccessFault`]. The shards have what was not refused.
pub async fn apply(node: &Node, rules: Vec<AccessRule>) -> Result<(), AccessFault> {
    let (taken, is_full) = node.access().take(rules);
    put_in_force(node, &taken).await?;
    if is_full { Err(AccessFault::Full) } else { Ok(()) }
}

/// The shards get rules that this node has taken, and the storage.
async fn put_in_force(node: &Node, taken: &[AccessRule]) -> Result<(), AccessFault> {
    if taken.is_empty() {
        return Ok(());
    }
    tell_shards(node, taken).await?;
    if let Some(storage) = node.storage() {
        node.access().store(storage.storage(), taken).await.map_err(|why| {
            node.access().counts.not_stored.fetch_add(taken.len() as u64, Ordering::Relaxed);
            AccessFault::NotStored(why)
        })?;
    }
    Ok(())
}

async fn tell_shards(node: &Node, taken: &[AccessRule]) -> Result<(), AccessFault> {
    let answers = node.ask_all(ApiRequest::Access(taken.into())).await;
    if answers.iter().any(Result::is_err) { Err(AccessFault::Stopped) } else { Ok(()) }
}

/// Compares the rules with those of other nodes and with the storage from time to time, and removes those that have ended.
/// Never returns.
pub async fn keep(node: Node) {
    let mut exchanges = interval(EXCHANGE_INTERVAL);
    exchanges.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut evictions = interval(EVICTION_INTERVAL);
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            _ = exchanges.tick() => {
                agree_with_storage(&node).await;
                if let Some(cluster) = node.cluster()
                    && pace.is_due()
                {
                    pace.note(exchange(&node, cluster).await);
                }
            }
            _ = evictions.tick() => {
                node.access().rules().evict(unix_ms());
                node.ask_all(ApiRequest::Access(Arc::default())).await;
            }
        }
    }
}

/// Reads the rules that could not be read at the start, for instance because the disk was full, and stores those that could
/// not be stored.
async fn agree_with_storage(node: &Node) {
    let (keeper, Some(storage)) = (node.access(), node.storage()) else { return };
    if !keeper.has_read.load(Ordering::Relaxed) {
        let storage = Arc::clone(storage);
        // Reading may block.
        let read = tokio::task::spawn_blocking(move || stored(storage.storage())).await;
        let Ok(Ok(rules)) = read else { return };
        AccessRulesRead { rules: rules.len() }.emit();
        // Nothing has to be stored. What a limit refuses is counted.
        let (taken, _) = keeper.take(rules);
        if tell_shards(node, &taken).await.is_err() {
            return;
        }
        keeper.has_read.store(true, Ordering::Relaxed);
    }
    let unstored = keeper.take_unstored();
    if !unstored.is_empty() {
        // What fails is tried again.
        let _ = keeper.store(storage.storage(), &unstored).await;
    }
}

/// Takes the rules of other nodes that this one does not know, page by page.
async fn exchange(node: &Node, cluster: &NodeCluster) -> Exchanged {
    let ends_after_ms = unix_ms() + CLOCK_OFFSET_MS;
    let (mut after, mut outcome) = (None, Exchanged::Same);
    loop {
        let digest = node.access().rules().digest_after(ends_after_ms);
        let question = AccessQuestion::new(digest, ends_after_ms, after.as_ref());
        let Ok(found) = peers::ask_all(cluster, &question).await else { return outcome };
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
        if !rules.is_empty() {
            let (taken, _) = node.access().take(rules);
            outcome = outcome.max(if taken.is_empty() { Exchanged::Nothing } else { Exchanged::Rules });
            // What a limit refuses or the storage does not write is counted. The other nodes still have it.
            let _ = put_in_force(node, &taken).await;
        }
        if end.is_none() || end <= after {
            return outcome;
        }
        after = end;
    }
}

/// The rules in a storage at the start; `None` if it cannot be read yet.
pub fn known_at_start(storage: &Storage) -> Option<Arc<[AccessRule]>> {
    let read = stored(storage);
    if let Err(error) = &read {
        AccessRulesUnread { error }.emit();
    }
    read.ok().map(Arc::from)
}

/// The rules in a storage.
fn stored(storage: &Storage) -> Result<Vec<AccessRule>, StorageError> {
    Ok(storage.access_entries()?.iter().filter_map(rule_of).collect())
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
        let keeper = AccessKeeper::new(limits, Some(&[rule(SubjectKind::User, "a"), rule(SubjectKind::User, "b")]));
        assert_eq!((keeper.counts().rules, keeper.counts().refused, keeper.all().len()), (1, 1, 1));
        let (change, applied) = keeper.make(rule(SubjectKind::User, "a").subject, 0, u64::MAX);
        assert!(change.terms.changed_ms > 1 && change.terms.until_ms < u64::MAX, "{change:?}");
        assert!(applied == Applied::New && keeper.counts().refused == 1);
        let (_, applied) = keeper.make(rule(SubjectKind::User, "c").subject, u64::MAX, u64::MAX);
        assert!(applied == Applied::Full && keeper.counts().refused == 2);
    }

    #[test]
    fn each_change_of_a_subject_is_newer_than_the_one_before() {
        let keeper = AccessKeeper::new(AccessLimits::default(), None);
        let subject = || rule(SubjectKind::User, "u").subject;
        let changes: Vec<u64> = (0..1_000)
            .map(|number| {
                let (change, applied) = keeper.make(subject(), if number % 2 == 0 { u64::MAX } else { 0 }, u64::MAX);
                assert_eq!(applied, Applied::New, "a block and its end may come within a millisecond");
                change.terms.changed_ms
            })
            .collect();
        assert!(changes.is_sorted_by(|one, other| one < other));
        // Of another node, whose clock is ahead.
        let ahead = AccessTerms { changed_ms: u64::MAX / 2, before_ms: u64::MAX, until_ms: u64::MAX };
        keeper.take(vec![AccessRule { subject: subject(), terms: ahead }]);
        let (lifted, applied) = keeper.make(subject(), 0, u64::MAX);
        assert_eq!((lifted.terms.changed_ms, applied), (u64::MAX / 2 + 1, Applied::New));
    }

    #[test]
    fn a_write_that_was_overtaken_stores_the_newest_change() {
        let keeper = AccessKeeper::new(AccessLimits::default(), None);
        let (blocked, _) = keeper.make(rule(SubjectKind::User, "u").subject, u64::MAX, u64::MAX);
        let (lifted, _) = keeper.make(rule(SubjectKind::User, "u").subject, 0, u64::MAX);
        for change in [&blocked, &lifted] {
            let entries = AccessKeeper::entries_of(&keeper.rules(), std::slice::from_ref(change));
            assert_eq!(entries.iter().map(rule_of).collect::<Vec<_>>(), [Some(lifted.clone())]);
        }
    }

    #[test]
    fn a_page_fits_into_a_message_whatever_characters_its_names_have() {
        // Each character has six bytes in JSON.
        let names = (0..300).map(|number| format!("{number:03}{}", "\u{1}".repeat(1_000)));
        let rules: Vec<_> = names.map(|name| rule(SubjectKind::User, &name)).collect();
        let keeper = AccessKeeper::new(AccessLimits::default(), Some(&rules));
        for (bytes_max, expected_max) in [(usize::MAX, PAGE_BYTES_MAX), (60_000, 60_000), (1, 7_000)] {
            let (mut after, mut found) = (None, Vec::new());
            loop {
                let answer = keeper.answer(&AccessQuestion::new(0, 0, after.as_ref()), bytes_max);
                let bytes = serde_json::to_vec(&answer).expect("JSON").len();
                assert!(bytes <= expected_max + 100, "{bytes} for {bytes_max}");
                found.extend(answer.rules());
                after = found.last().map(|rule: &AccessRule| rule.subject.clone());
                if !answer.more {
                    break;
                }
            }
            assert_eq!(found, rules);
        }
    }

    #[test]
    fn exchanges_that_bring_nothing_become_rare() {
        let mut pace = Pace::default();
        let mut waits = |outcome| {
            pace.note(outcome);
            (0..1_000).find(|_| pace.is_due()).expect("it is due some time")
        };
        let fruitless: Vec<i32> = (0..9).map(|_| waits(Exchanged::Nothing)).collect();
        assert_eq!(fruitless, [0, 0, 0, 1, 3, 7, 15, 19, 19]);
        assert_eq!([Exchanged::Rules, Exchanged::Nothing, Exchanged::Same].map(waits), [0; 3]);
    }

    #[test]
    fn what_is_not_stored_is_taken_once_to_be_stored() {
        let keeper = AccessKeeper::new(AccessLimits::default(), None);
        let names: Vec<String> = (0..=STORED_AGAIN_MAX).map(|number| format!("{number:06}")).collect();
        let rules: Vec<_> = names.iter().map(|name| rule(SubjectKind::User, name)).collect();
        keeper.take(rules.clone());
        keeper.note_unstored(&rules[1..]);
        // It has ended.
        let ended = rule(SubjectKind::Token, "t");
        keeper.note_unstored(std::slice::from_ref(&ended));
        assert_eq!(keeper.counts().unstored, names.len() as u64, "at the limit");
        keeper.note_unstored(&rules[..1]);
        assert_eq!(keeper.counts().unstored, names.len() as u64, "one past it, so what has ended is forgotten");
        assert_eq!(keeper.take_unstored(), rules[..STORED_AGAIN_MAX]);
        assert_eq!(keeper.take_unstored(), rules[STORED_AGAIN_MAX..]);
        assert_eq!(keeper.take_unstored(), []);
    }

    #[test]
    fn nodes_with_the_same_rules_exchange_none() {
        let nodes =
            ["a", "b"].map(|name| AccessKeeper::new(AccessLimits::default(), Some(&[rule(SubjectKind::User, name)])));
        let ask = |asked: &AccessKeeper, asking: &AccessKeeper| {
            asked.answer(&AccessQuestion::new(asking.rules().digest_after(0), 0, None), usize::MAX).rules()
        };
        let found = ask(&nodes[0], &nodes[1]);
        assert_eq!(found, [rule(SubjectKind::User, "a")]);
        nodes[1].take(found);
        nodes[0].take(ask(&nodes[1], &nodes[0]));
        assert_eq!(ask(&nodes[0], &nodes[1]), []);
        assert_eq!(nodes[0].counts().rules, 2);
    }
}
