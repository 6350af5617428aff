//! Any stream against a model of it that does nothing cleverly: a list of all that was ever published, and from where on it
//! is still there.

use bytes::Bytes;
use dunlin_protocol::{TagTest, Tags};
use proptest::prelude::*;

use super::*;

const CASES: u32 = 10_000;
const EPOCH: &str = "epoch";
const USERS: [&str; 3] = ["", "ann", "bob"];
const PUBLICATIONS_MAX: usize = 4;

#[derive(Clone, Debug)]
enum Act {
    /// With a tag that filters may ask for, and for those alone who are named, if anybody is.
    Publish {
        tagged: bool,
        readers: Option<u8>,
    },
    ForgetBeyond(usize),
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), prop::option::weighted(0.3, 0..3_u8)).prop_map(|(tagged, readers)| Act::Publish { tagged, readers }),
        3 => (0..6_usize).prop_map(Act::ForgetBeyond),
        1 => Just(Act::Clear),
    ]
}

/// One publication: whether it has the tag, and who may read it.
struct Published {
    tagged: bool,
    readers: Option<Vec<&'static str>>,
}

/// All that was ever published; the first has offset 1.
#[derive(Default)]
struct Model {
    all: Vec<Published>,
    /// How many are forgotten.
    forgotten: usize,
}

impl Model {
    fn top(&self) -> u64 {
        self.all.len() as u64
    }

    /// Offsets that are there and that the user may read, in order.
    fn readable(&self, user: Option<&str>) -> impl DoubleEndedIterator<Item = u64> {
        let may = move |published: &Published| match (&published.readers, user) {
            (None, _) | (_, None) => true,
            (Some(readers), Some(user)) => !user.is_empty() && readers.contains(&user),
        };
        let there = (1..).zip(&self.all).skip(self.forgotten);
        there.filter(move |(_, published)| may(published)).map(|(offset, _)| offset).collect::<Vec<u64>>().into_iter()
    }

    fn passes(&self, is_filtered: bool, offset: u64) -> bool {
        !is_filtered || self.all[offset as usize - 1].tagged
    }

    /// What a client that has come to `from` has missed; `None` if that cannot be said.
    fn missed(&self, from: u64, is_right_epoch: bool, user: &str, is_filtered: bool) -> Option<Vec<u64>> {
        let knows = is_right_epoch && from <= self.top() && from >= self.forgotten as u64;
        let missed: Vec<u64> =
            self.readable(Some(user)).filter(|offset| *offset > from && self.passes(is_filtered, *offset)).collect();
        (knows && missed.len() <= PUBLICATIONS_MAX).then_some(missed)
    }

    /// The same where only the newest counts.
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
            Act::Publish { tagged, readers } => {
                let offset = stream.next_offset();
                let tags: Tags = if *tagged { vec![("k".into(), "v".into())] } else { Tags::new() };
                let data = Payload::from_json(Bytes::from_static(b"1"));
                let publication = Publication { data, info: None, offset, tags, time_ms: 0 };
                // In ascending order: nobody, Ann, or Ann and Bob.
                let readers = readers.map(|count| USERS[1..][..usize::from(count)].to_vec());
                let of_stream = readers.as_ref().map(|readers| readers.iter().map(|user| Arc::from(*user)).collect());
                stream.append(Arc::new(publication), of_stream);
                model.all.push(Published { tagged: *tagged, readers });
            }
            Act::ForgetBeyond(size) => {
                stream.forget_beyond(*size);
                model.forgotten = model.forgotten.max(model.all.len().saturating_sub(*size));
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
    fn a_recovery_brings_all_or_says_so(
        acts in prop::collection::vec(act(), 0..14),
        from in 0..16_u64,
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
    fn history_is_the_part_that_was_asked_for(
        acts in prop::collection::vec(act(), 0..14),
        since in prop::option::of((0..16_u64, prop::sample::select(vec!["", EPOCH, "other"]))),
        limit in -1..6_i32,
        reverse: bool,
        user in prop::option::of(prop::sample::select(USERS.to_vec())),
    ) {
        let (stream, model) = played(&acts);
        let since_position = since.map(|(offset, epoch)| (offset, epoch.into()));
        let query = HistoryQuery { limit, since: since_position, reverse, ..HistoryQuery::default() };
        let outcome = stream.history(&query, user.map_or(Reader::Server, Reader::User));
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let expected = match since {
            Some((0, _)) if reverse => Err(ErrorCode::BadRequest),
            Some((_, "other")) => Err(ErrorCode::UnrecoverablePosition),
            // Nothing is right below an offset that there is not.
            Some((offset, _)) if reverse && offset > model.top() + 1 => Ok(Vec::new()),
            Some((offset, _)) if reverse => {
                Ok(model.readable(user).rev().filter(|below| *below < offset).take(most).collect())
            }
            None if reverse => Ok(model.readable(user).rev().take(most).collect()),
            _ => {
                let from = since.map_or(0, |(offset, _)| offset);
                Ok(model.readable(user).filter(|offset| *offset > from).take(most).collect())
            }
        };
        prop_assert_eq!(outcome.as_ref().map(|part| offsets(&part.publications)).map_err(|code| *code), expected);
        if let Ok(part) = outcome {
            prop_assert_eq!((part.offset, &*part.epoch), (model.top(), EPOCH));
        }
    }
}
