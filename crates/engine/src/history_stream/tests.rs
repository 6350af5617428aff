//! Compares streams with a simple model: a list of all publications, and the number of forgotten ones. Offsets increase
//! and have gaps.

use dunlin_protocol::{Payload, TagTest, Tags};
use proptest::prelude::*;

use super::*;

const CASES: u32 = 10_000;
const EPOCH: &str = "epoch";
const DATA: &str =
    "what all publications have in common, and what a patch therefore need not say again, whatever else they are";
const USERS: [&str; 3] = ["", "ann", "bob"];
const PUBLICATIONS_MAX: usize = 4;
/// Maximum number of unused offsets between two publications.
const GAP_MAX: u64 = 3;
/// Above every offset that a test case uses.
const OFFSETS_MAX: u64 = 30;

#[derive(Clone, Debug)]
enum Act {
    /// Publishes, optionally with the tag that filters match, and optionally for some readers only.
    Publish {
        /// Unused offsets before it.
        gap: u64,
        tagged: bool,
        readers: Option<u8>,
    },
    ForgetBeyond(usize),
    ForgetOldest,
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let gap = prop_oneof![2 => Just(0), 1 => 1..=GAP_MAX];
    let publish = (gap, any::<bool>(), prop::option::weighted(0.3, 0..3_u8));
    prop_oneof![
        6 => publish.prop_map(|(gap, tagged, readers)| Act::Publish { gap, tagged, readers }),
        2 => (0..6_usize).prop_map(Act::ForgetBeyond),
        1 => Just(Act::ForgetOldest),
        1 => Just(Act::Clear),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(act(), 0..14)
}

/// One publication: its offset, whether it has the tag, and who may read it.
struct Published {
    offset: u64,
    tagged: bool,
    readers: Option<Vec<&'static str>>,
}

/// Every publication, including forgotten ones.
#[derive(Default)]
struct Model {
    all: Vec<Published>,
    /// The number of forgotten publications.
    forgotten: usize,
}

impl Model {
    fn top(&self) -> u64 {
        self.all.last().map_or(0, |newest| newest.offset)
    }

    /// Whether every publication after `offset` is still there.
    fn has_all_behind(&self, offset: u64) -> bool {
        self.all[..self.forgotten].iter().all(|published| published.offset <= offset)
    }

    /// Offsets of the publications that are not forgotten, in order.
    fn kept(&self) -> Vec<u64> {
        self.all[self.forgotten..].iter().map(|published| published.offset).collect()
    }

    /// Offsets of the publications that are not forgotten and that the user may read, in order.
    fn readable(&self, user: Option<&str>) -> impl DoubleEndedIterator<Item = u64> {
        let may = move |published: &Published| match (&published.readers, user) {
            (None, _) | (_, None) => true,
            (Some(readers), Some(user)) => !user.is_empty() && readers.contains(&user),
        };
        let there = self.all.iter().skip(self.forgotten);
        there
            .filter(move |published| may(published))
            .map(|published| published.offset)
            .collect::<Vec<u64>>()
            .into_iter()
    }

    fn passes(&self, is_filtered: bool, offset: u64) -> bool {
        !is_filtered || self.all.iter().any(|published| published.offset == offset && published.tagged)
    }

    /// What a client at `from` has missed; `None` if that cannot be determined.
    fn missed(&self, from: u64, is_right_epoch: bool, user: &str, is_filtered: bool) -> Option<Vec<u64>> {
        let knows = is_right_epoch && from <= self.top() && self.has_all_behind(from);
        let missed: Vec<u64> =
            self.readable(Some(user)).filter(|offset| *offset > from && self.passes(is_filtered, *offset)).collect();
        (knows && missed.len() <= PUBLICATIONS_MAX).then_some(missed)
    }

    /// What a client at `from` has missed in cache mode, where only the newest publication counts.
    fn newest(&self, from: u64, is_epoch: bool, user: &str, is_filtered: bool) -> Option<Vec<u64>> {
        let newest = self.readable(Some(user)).rfind(|offset| self.passes(is_filtered, *offset));
        let has_it = is_epoch && from > 0 && from <= self.top() && from >= newest.unwrap_or(self.top());
        if has_it { Some(Vec::new()) } else { newest.map(|newest| vec![newest]) }
    }
}

fn played(acts: &[Act]) -> (Stream, Model) {
    let (mut stream, mut model) = (Stream::new(EPOCH.into()), Model::default());
    for act in acts {
        match act {
            Act::Publish { gap, tagged, readers } => {
                let offset = stream.next_offset() + gap;
                let tags: Tags = if *tagged { vec![("k".into(), "v".into())] } else { Tags::new() };
                // Long enough for a patch to be smaller.
                let data = Payload::from_json(format!("\"{DATA}{offset}\"").into());
                let publication =
                    Publication { data, info: None, offset, tags, time_ms: 0, epoch: Box::default(), version: 0 };
                // In ascending order: no user, Ann, or Ann and Bob.
                let readers = readers.map(|count| USERS[1..][..usize::from(count)].to_vec());
                let of_stream = readers.as_ref().map(|readers| readers.iter().map(|user| Arc::from(*user)).collect());
                stream.append(Arc::new(publication), of_stream);
                model.all.push(Published { offset, tagged: *tagged, readers });
            }
            Act::ForgetBeyond(size) => {
                stream.forget_beyond(*size);
                model.forgotten = model.forgotten.max(model.all.len().saturating_sub(*size));
            }
            Act::ForgetOldest => {
                stream.forget_oldest();
                model.forgotten = model.all.len().min(model.forgotten + 1);
            }
            Act::Clear => {
                stream.clear();
                model.forgotten = model.all.len();
            }
        }
    }
    (stream, model)
}

fn offsets(publications: &[Arc<Publication>]) -> Vec<u64> {
    publications.iter().map(|publication| publication.offset).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_recovery_is_complete_or_marked_incomplete(
        acts in acts(),
        from in 0..OFFSETS_MAX,
        epoch in prop::sample::select(vec!["", EPOCH, "other"]),
        user in prop::sample::select(USERS.to_vec()),
        is_filtered: bool,
        is_cache: bool,
        reject_unrecoverable: bool,
    ) {
        let (stream, model) = played(&acts);
        let filter = TagsFilter::Tag { key: "k".into(), test: TagTest::Exists };
        let recovery_mode = if is_cache { RecoveryMode::Cache } else { RecoveryMode::Stream };
        let namespace = NamespaceOptions { recovery_mode, ..NamespaceOptions::default() };
        let client = ClientOptions { recovery_publications_max: PUBLICATIONS_MAX, ..ClientOptions::default() };
        let from = RecoverFrom { offset: from, epoch: epoch.into(), reject_unrecoverable };
        let filter = is_filtered.then_some(&filter);
        let outcome = stream.subscribe(Some(&from), Reader::User(user), filter, &namespace, &client);
        let missed = if is_cache {
            model.newest(from.offset, epoch == EPOCH, user, is_filtered)
        } else {
            model.missed(from.offset, epoch.is_empty() || epoch == EPOCH, user, is_filtered)
        };
        let Ok(subscribed) = outcome else {
            prop_assert_eq!(outcome.err(), Some(ErrorCode::UnrecoverablePosition));
            prop_assert!(missed.is_none() && reject_unrecoverable);
            return Ok(());
        };
        prop_assert!(subscribed.was_recovering && *subscribed.epoch == *EPOCH);
        prop_assert!(missed.is_some() || !reject_unrecoverable);
        prop_assert_eq!(subscribed.recovered, missed.is_some());
        let missed = missed.unwrap_or_default();
        let is_at_top = missed.is_empty();
        prop_assert_eq!(offsets(&subscribed.publications), missed.clone());
        prop_assert_eq!(subscribed.offset, if is_at_top { model.top() } else { from.offset });
        prop_assert_eq!(subscribed.has_newest, missed.last() == Some(&model.top()) && !is_at_top);
    }

    #[test]
    fn a_stream_matches_its_model(acts in acts(), first in 0..14_usize, left_out in prop::option::of(0..14_usize)) {
        let (mut stream, model) = played(&acts);
        prop_assert_eq!((stream.top(), stream.is_new()), (model.top(), model.all.is_empty()));
        for offset in 0..=model.top() {
            prop_assert_eq!(stream.floor() <= offset, model.has_all_behind(offset));
        }
        prop_assert_eq!(stream.bytes(), stream.recounted_bytes());
        let mut kept: Vec<Arc<Publication>> =
            stream.publications.iter().map(|kept| Arc::clone(&kept.publication)).collect();
        prop_assert_eq!(offsets(&kept), model.kept());
        // The stream detects a publication that is left out between the first and the last.
        kept.drain(..first.min(kept.len()));
        let place = left_out.filter(|place| *place < kept.len());
        let leaves_gap = place.is_some_and(|place| place > 0 && place + 1 < kept.len());
        if let Some(place) = place {
            kept.remove(place);
        }
        prop_assert_eq!(stream.is_whole(&kept), !leaves_gap && !kept.is_empty());
        // A patch is based on the publication directly before it in the stream, even across a gap in the offsets.
        let of_stream = model.kept();
        let follows = |pair: &[u64]| of_stream.windows(2).any(|next_to| *next_to == *pair);
        let patches = stream.patches(&kept, &mut DeltaEncoder::default());
        prop_assert_eq!(patches.len(), kept.len());
        for (pair, patch) in offsets(&kept).windows(2).zip(&patches[patches.len().min(1)..]) {
            prop_assert_eq!(patch.is_some(), follows(pair), "{:?}", pair);
        }
    }

    #[test]
    fn history_returns_the_requested_part(
        acts in acts(),
        since in prop::option::of((0..OFFSETS_MAX, prop::sample::select(vec!["", EPOCH, "other"]))),
        limit in -1..6_i32,
        reverse: bool,
        user in prop::option::of(prop::sample::select(USERS.to_vec())),
    ) {
        let (stream, model) = played(&acts);
        let since_position = since.map(|(offset, epoch)| (offset, epoch.into()));
        let query = HistoryQuery { limit, since: since_position, reverse, ..HistoryQuery::default() };
        let outcome = stream.history(&query, user.map_or(Reader::Server, Reader::User));
        let publications_max = usize::try_from(limit).unwrap_or(usize::MAX);
        let expected = match since {
            Some((0, _)) if reverse => Err(ErrorCode::BadRequest),
            Some((_, "other")) => Err(ErrorCode::UnrecoverablePosition),
            // An offset beyond the next one has no predecessor.
            Some((offset, _)) if reverse && offset > model.top() + 1 => Ok(Vec::new()),
            Some((offset, _)) if reverse => {
                Ok(model.readable(user).rev().filter(|below| *below < offset).take(publications_max).collect())
            }
            None if reverse => Ok(model.readable(user).rev().take(publications_max).collect()),
            _ => {
                let from = since.map_or(0, |(offset, _)| offset);
                Ok(model.readable(user).filter(|offset| *offset > from).take(publications_max).collect())
            }
        };
        prop_assert_eq!(outcome.as_ref().map(|part| offsets(&part.publications)).map_err(|refused| refused.code), expected);
        if let Ok(part) = outcome {
            prop_assert_eq!((part.offset, &*part.epoch), (model.top(), EPOCH));
        }
    }
}
