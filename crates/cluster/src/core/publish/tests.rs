use dunlin_engine::log::LogRecord;
use dunlin_protocol::{Payload, Publication};

use super::*;
use crate::{
    core::{
        CoreEvent, CoreLimits,
        rig::{FENCE, Rig, SHARD},
    },
    link::LinkEvent,
};

const LEADER_SUBJECT: &str = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.dn_chat_0";

impl Rig {
    fn propose(&mut self, proposals: u64) {
        let channel: Arc<str> = "chat:1".into();
        self.handle(CoreEvent::Follow { shard: SHARD, channel: Arc::clone(&channel), namespace: 1 });
        for proposal in 0..proposals {
            let publication = Arc::new(Publication {
                data: Payload::from_opaque(Bytes::from_static(b"data")),
                info: None,
                offset: 0,
                tags: Vec::new(),
                time_ms: 0,
                epoch: Box::default(),
                version: 0,
            });
            let record = LogRecord { publication, version_epoch: "".into(), idempotency_key: None };
            self.handle(CoreEvent::Propose {
                shard: SHARD,
                channel: Arc::clone(&channel),
                namespace: 1,
                proposal: ProposalNumber(proposal),
                record: Box::new(record),
            });
        }
    }

    fn acknowledge(&mut self, request: RequestNumber, outcome: Result<PublishAck, PublishFault>) {
        self.handle(CoreEvent::Link(LinkEvent::Acknowledged { request, outcome }));
    }

    fn elect_leader(&mut self) {
        let (headers, payload) = (MessageHeaders::new(), Bytes::new());
        let subject = LEADER_SUBJECT.into();
        let event = LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: false };
        self.handle(CoreEvent::Link(event));
    }

    fn take_sent(&mut self) -> (Vec<RequestNumber>, Vec<Box<str>>) {
        std::mem::take(&mut self.sent).into_iter().unzip()
    }
}

fn ack(sequence: u64) -> PublishAck {
    PublishAck { stream: "dn_chat_0".into(), sequence, is_duplicate: false }
}

#[test]
fn unacknowledged_messages_are_resent_to_a_new_leader_in_order() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.propose(5);
    let (requests, ids) = rig.take_sent();
    assert_eq!(ids.len(), 5);
    rig.acknowledge(requests[0], Ok(ack(FENCE + 10)));
    rig.acknowledge(requests[2], Err(PublishFault::NoResponders));
    assert!(rig.sent.is_empty(), "the third message waits for its pause");
    rig.elect_leader();
    let (copies, ids_again) = rig.take_sent();
    assert_eq!(ids_again, ids[1..2], "the first message probes, with the same id");
    // Late answers to the first copies.
    rig.acknowledge(requests[1], Err(PublishFault::TimedOut));
    rig.acknowledge(requests[3], Ok(ack(FENCE + 20)));
    rig.acknowledge(requests[4], Err(PublishFault::TimedOut));
    assert!(rig.sent.is_empty(), "the second message's other copy is in flight");
    rig.elect_leader();
    let (other_copies, ids_again) = rig.take_sent();
    assert_eq!(ids_again, ids[1..2], "the same probe after another election");
    rig.acknowledge(copies[0], Err(PublishFault::NoResponders));
    rig.acknowledge(other_copies[0], Ok(ack(FENCE + 30)));
    let (_, ids_again) = rig.take_sent();
    assert_eq!(ids_again, [ids[2].clone(), ids[4].clone()], "all messages that are not known to be stored");
}

#[test]
fn messages_behind_a_refused_one_wait() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.propose(2);
    let (requests, ids) = rig.take_sent();
    rig.acknowledge(requests[0], Err(PublishFault::NoResponders));
    rig.acknowledge(requests[1], Err(PublishFault::NoResponders));
    for pause in 1..=3_u64 {
        rig.wait(pause * RETRY_MAX_US);
        let (copies, ids_again) = rig.take_sent();
        assert_eq!(ids_again, ids[..1], "pause {pause}");
        rig.acknowledge(copies[0], Err(PublishFault::NoResponders));
    }
    rig.wait(4 * RETRY_MAX_US);
    let (copies, _) = rig.take_sent();
    rig.acknowledge(copies[0], Ok(ack(FENCE + 10)));
    assert_eq!(rig.take_sent().1, ids[1..]);
}

#[test]
fn a_removal_is_answered_when_the_stream_has_stored_it() {
    let mut rig = Rig::new(CoreLimits::default());
    let remove = |rig: &mut Rig, channel: &str, namespace, ticket| {
        rig.effects.clear();
        let ticket = Some(Ticket(ticket));
        rig.handle(CoreEvent::Trim { shard: SHARD, channel: channel.into(), namespace, ticket });
    };
    let answer = |rig: &Rig| {
        rig.effects.iter().find_map(|effect| match effect {
            CoreEffect::ToShard { event: Event::TrimCommitted { ticket, outcome, .. }, .. } => {
                Some((ticket.0, *outcome))
            }
            _ => None,
        })
    };
    remove(&mut rig, "chat:1", 1, 1);
    let (requests, _) = rig.take_sent();
    assert_eq!((requests.len(), answer(&rig)), (1, None), "nothing is stored");
    rig.acknowledge(requests[0], Err(PublishFault::NoResponders));
    assert_eq!(answer(&rig), None, "it is sent again");
    rig.wait(CoreLimits::default().publish_timeout_ms * 1_000 + 1);
    assert_eq!(answer(&rig), Some((1, Err(LogError::Unavailable))));

    remove(&mut rig, "chat:1", 1, 2);
    let (requests, ids) = rig.take_sent();
    rig.acknowledge(requests[0], Ok(ack(FENCE + 10)));
    assert_eq!(answer(&rig), None, "other nodes may have stored messages before it");
    let token = crate::names::encode_token("chat:1");
    let headers = MessageHeaders::new()
        .with(OPERATION, PURGE)
        .with(MESSAGE_ID, ids[0].clone())
        .with("Nats-Subject", format!("dn.p.chat.0.{token}"))
        .with("Nats-Sequence", (FENCE + 10).to_string())
        .with("Nats-Last-Sequence", (FENCE / 10).to_string());
    let (subject, payload) = (format!("dn.r.chat.0.{token}").into(), Bytes::new());
    rig.handle(CoreEvent::Link(LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: false }));
    assert_eq!(answer(&rig), Some((2, Ok(()))));

    remove(&mut rig, "gone:1", 0, 3);
    assert_eq!(answer(&rig), Some((3, Err(LogError::Unavailable))), "the namespace has no stream");
}
