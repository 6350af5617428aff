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
