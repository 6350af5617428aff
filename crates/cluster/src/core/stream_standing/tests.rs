//! A node whose streams vanish, refuse messages, or do not answer.

use dunlin_engine::{Now, ShardIndex};

use super::*;
use crate::{
    core::{Core, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace},
    link::{LinkEvent, PublishAck, RequestNumber, StreamShape},
    names::PartitionNames,
    streams::StreamTerms,
};

const STREAM: &str = "dn_chat_0";

struct Rig {
    core: Core,
    now: Now,
    /// The effects that were not taken yet.
    effects: Vec<CoreEffect>,
}

impl Rig {
    /// A node whose stream was described with the epoch `e0`, with one followed channel.
    fn new() -> Self {
        let names = PartitionNames::new("dn", "chat", 0);
        let terms = StreamTerms {
            name: names.stream.clone(),
            source: names.stored_subjects(),
            destination: names.republished_subjects(),
            replicas: 1,
            is_in_memory: false,
            messages_per_subject_max: 11,
            age_max_ms: 60_000,
            duplicate_window_ms: 60_000,
            partitions: 1,
        };
        let namespace = StreamedNamespace {
            name: "chat".into(),
            partitions: 1,
            history_ttl_ms: 60_000,
            history_bytes_max: usize::MAX,
        };
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(namespace)],
            broadcasts: vec![None, None],
            has_leases: false,
            has_room_logs: false,
            creatable: vec![terms],
            limits: CoreLimits::default(),
        });
        let now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
        let mut rig = Self { core, now, effects: Vec::new() };
        for link in LinkName::ALL {
            rig.link(LinkEvent::Connected { link, max_payload: 1 << 20 });
        }
        // The first audit describes it again.
        rig.describe_as(Ok(Box::new(state("e0"))));
        rig.describe_as(Ok(Box::new(state("e0"))));
        rig.wait_us(DESCRIBE_PAUSE_US);
        rig.handle(CoreEvent::Follow { shard: ShardIndex(0), channel: "chat:a".into(), namespace: 1 });
        assert!(rig.core.is_ready());
        rig
    }

    fn handle(&mut self, event: CoreEvent) {
        self.core.handle(self.now, event, &mut self.effects);
    }

    fn link(&mut self, event: LinkEvent) {
        self.handle(CoreEvent::Link(event));
    }

    fn wait_us(&mut self, time_us: u64) {
        self.now.mono_us += time_us;
        self.handle(CoreEvent::Woke);
    }

    /// The number of the newest request of a kind, which must be there.
    fn request(&mut self, of: impl Fn(&LinkEffect) -> Option<RequestNumber>) -> RequestNumber {
        self.try_request(of).expect("a request")
    }

    fn try_request(&mut self, of: impl Fn(&LinkEffect) -> Option<RequestNumber>) -> Option<RequestNumber> {
        let asked = |effect: &CoreEffect| match effect {
            CoreEffect::Link(effect) => of(effect),
            _ => None,
        };
        let place = self.effects.iter().rposition(|effect| asked(effect).is_some())?;
        asked(&self.effects.remove(place))
    }

    fn describe_as(&mut self, outcome: Result<Box<StreamState>, ReadFault>) {
        let request = self.request(|effect| match effect {
            LinkEffect::Describe { request, .. } => Some(*request),
            _ => None,
        });
        self.link(LinkEvent::StreamInfo { request, outcome });
    }

    fn creation(&mut self) -> Option<(RequestNumber, Box<str>)> {
        let found = self.effects.iter().find_map(|effect| match effect {
            CoreEffect::Link(LinkEffect::Create { request, terms, epoch }) => {
                assert_eq!(&*terms.name, STREAM);
                Some((*request, epoch.clone()))
            }
            _ => None,
        });
        self.effects.retain(|effect| !matches!(effect, CoreEffect::Link(LinkEffect::Create { .. })));
        found
    }

    /// Answers this node's newest fence.
    fn answer_fence(&mut self, outcome: Result<PublishAck, PublishFault>) {
        let request = self.request(|effect| match effect {
            LinkEffect::Publish { link: LinkName::Live, request, .. } => *request,
            _ => None,
        });
        self.link(LinkEvent::Acknowledged { request, outcome });
    }

    fn changes(&mut self) -> Vec<StreamChange> {
        let is_change = |effect: &mut CoreEffect| matches!(effect, CoreEffect::StreamChanged { .. });
        let changed = self.effects.extract_if(.., is_change);
        changed
            .filter_map(|effect| match effect {
                CoreEffect::StreamChanged { stream, change } => {
                    assert_eq!(&*stream, STREAM);
                    Some(change)
                }
                _ => None,
            })
            .collect()
    }

    fn troubles(&self) -> Vec<String> {
        self.core.unusable_streams().into_iter().map(|one| one.trouble.to_string()).collect()
    }
}

fn state(epoch: &str) -> StreamState {
    let shape = StreamShape { messages_per_subject_max: Some(11), ..StreamShape::default() };
    let metadata = vec![("dunlin.epoch".into(), epoch.into())];
    StreamState { shape, metadata, ..StreamState::default() }
}

fn refused<T>(error_code: u64, description: &str) -> Result<T, ReadFault> {
    Err(ReadFault::Refused { code: 404, error_code, description: description.into() })
}

fn full() -> Result<PublishAck, PublishFault> {
    Err(PublishFault::Refused { code: 503, error_code: 10_023, description: "insufficient resources".into() })
}

fn stored() -> PublishAck {
    PublishAck { stream: STREAM.into(), sequence: 7, is_duplicate: false }
}

#[test]
fn a_stream_that_is_gone_is_created_again_with_a_new_epoch() {
    let mut rig = Rig::new();
    // The first message to it shows that nobody answers.
    rig.answer_fence(Err(PublishFault::NoResponders));
    rig.describe_as(refused(NOT_FOUND, "stream not found"));
    assert_eq!(rig.changes(), [StreamChange::Unusable(StreamTrouble::Absent { why_not_created: None })]);
    assert!(!rig.core.is_ready() && rig.creation().is_none(), "a second answer has to confirm it");
    rig.wait_us(DESCRIBE_RETRY_US);
    rig.describe_as(refused(NOT_FOUND, "stream not found"));
    let (request, epoch) = rig.creation().expect("it is created");
    assert_ne!(&*epoch, "e0");
    rig.link(LinkEvent::StreamInfo { request, outcome: Ok(Box::new(state(&epoch))) });
    assert_eq!(rig.changes(), [StreamChange::Created { epoch: epoch.clone() }, StreamChange::Usable]);
    assert!(rig.core.is_ready());
    let announced = rig.effects.iter().any(|effect| match effect {
        CoreEffect::Link(LinkEffect::Publish { subject, headers, .. }) => {
            subject.ends_with("%_e") && headers.get(crate::record::EPOCH) == Some(&*epoch)
        }
        _ => false,
    });
    assert!(announced, "other nodes learn of the epoch at once");
    let counters = rig.core.counters();
    assert_eq!((counters.streams_absent, counters.streams_created), (1, 1));
}

#[test]
fn of_several_nodes_one_creates_the_stream() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.wait_us(DESCRIBE_RETRY_US);
        let id = PartitionId { namespace: 1, part: 0 };
        rig.core.partitions[id].stream.watch.describe(&mut rig.core.context);
        rig.effects.append(&mut rig.core.context.effects);
        rig.describe_as(refused(NOT_FOUND, "stream not found"));
    }
    let (request, _) = rig.creation().expect("it is created");
    rig.link(LinkEvent::StreamInfo { request, outcome: refused(EXISTS, "stream name already in use") });
    rig.describe_as(Ok(Box::new(state("of-another-node"))));
    assert_eq!(rig.changes().last(), Some(&StreamChange::Usable));
    assert!(rig.core.is_ready());
}

#[test]
fn a_node_that_may_not_create_the_stream_says_so_and_is_not_ready() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.wait_us(DESCRIBE_RETRY_US);
        let id = PartitionId { namespace: 1, part: 0 };
        rig.core.partitions[id].stream.watch.describe(&mut rig.core.context);
        rig.effects.append(&mut rig.core.context.effects);
        rig.describe_as(refused(NOT_FOUND, "stream not found"));
    }
    let (request, _) = rig.creation().expect("it is tried");
    rig.link(LinkEvent::StreamInfo { request, outcome: Err(ReadFault::TimedOut) });
    assert!(rig.troubles()[0].contains("$JS.API.STREAM.CREATE"), "{:?}", rig.troubles());
    assert!(!rig.core.is_ready());
    rig.wait_us(CREATE_RETRY_US);
    rig.describe_as(Ok(Box::new(state("made by hand"))));
    assert!(rig.core.is_ready() && rig.troubles().is_empty());
}

#[test]
fn a_full_store_makes_the_node_not_ready_until_a_message_is_stored() {
    let mut rig = Rig::new();
    rig.answer_fence(full());
    assert_eq!(rig.troubles(), ["it stores nothing: insufficient resources (10023)"]);
    assert!(!rig.core.is_ready());
    assert_eq!(rig.changes().len(), 1);
    // The description of a full stream is as good as ever.
    rig.wait_us(2_000_000);
    rig.answer_fence(full());
    rig.link(LinkEvent::Connected { link: LinkName::Read, max_payload: 1 << 20 });
    assert!(!rig.core.is_ready());
    rig.wait_us(2_000_000);
    rig.answer_fence(Ok(stored()));
    assert_eq!(rig.changes(), [StreamChange::Usable]);
    assert!(rig.core.is_ready());
}

#[test]
fn a_stream_that_nobody_answers_for_is_silent_after_longer_than_an_election() {
    let mut rig = Rig::new();
    let timeout_us = CoreLimits::default().publish_timeout_ms * 1_000;
    rig.answer_fence(Err(PublishFault::NoResponders));
    rig.describe_as(Err(ReadFault::TimedOut));
    let begun_us = rig.now.mono_us;
    while rig.now.mono_us + DESCRIBE_RETRY_US < begun_us + timeout_us {
        rig.wait_us(DESCRIBE_RETRY_US);
        rig.describe_as(Err(ReadFault::NoResponders));
        assert!(rig.core.is_ready(), "elections take as long");
    }
    rig.wait_us(DESCRIBE_RETRY_US);
    rig.describe_as(refused(10_039, "jetstream not enabled for account"));
    assert_eq!(rig.troubles(), ["nobody answers for it: jetstream not enabled for account"]);
    rig.wait_us(DESCRIBE_RETRY_US);
    rig.describe_as(Ok(Box::new(state("e0"))));
    assert!(rig.core.is_ready());
}

#[test]
fn a_stream_of_another_program_is_foreign() {
    let mut rig = Rig::new();
    rig.answer_fence(Err(PublishFault::TimedOut));
    rig.describe_as(Ok(Box::default()));
    assert!(!rig.core.is_ready());
    assert!(rig.troubles()[0].contains("another program"), "{:?}", rig.troubles());
}
