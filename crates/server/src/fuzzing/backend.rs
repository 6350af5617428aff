//! The body of the fuzz target `backend_answer`.

use dunlin_engine::{
    backend::{BackendAnswer, BackendRefusal},
    event::ServerSubscription,
};
use dunlin_protocol::Payload;

use crate::backend::{AskKind, Outcome, answer::read};

/// The answer of a backend to a question of every kind: either of that kind, or a refusal that a client may be told.
pub fn answer(data: &[u8]) {
    for kind in AskKind::ALL {
        let (outcome, word) = read(kind, data);
        match outcome {
            Ok(answer) => {
                assert_eq!(word, Outcome::Result);
                check(kind, answer);
            }
            Err(BackendRefusal::Error { code, .. }) => {
                assert_eq!(word, Outcome::Error);
                assert!((100..2_000).contains(&code), "an error of {code}");
            }
            // Nothing at all means that nobody is known.
            Err(BackendRefusal::Disconnect(disconnect)) => {
                assert!(word == Outcome::Disconnect || word == Outcome::Result && kind == AskKind::Connect);
                assert!((3_000..5_000).contains(&disconnect.code), "closed with {}", disconnect.code);
            }
            Err(BackendRefusal::Failed) => assert_eq!(word, Outcome::NotOurs),
            Err(BackendRefusal::Busy) => unreachable!("an answer is there"),
        }
    }
}

fn check(kind: AskKind, answer: BackendAnswer) {
    match (kind, answer) {
        (AskKind::Connect, BackendAnswer::Connect(connect)) => {
            payloads(&[&connect.info, &connect.data, &connect.meta]);
            assert!(connect.expires_at_s != Some(0));
            connect.subscriptions.iter().for_each(subscription);
            let mut channels: Vec<_> = connect.subscriptions.iter().map(|one| &one.channel).collect();
            channels.sort();
            assert!(channels.is_sorted_by(|one, next| one < next), "each channel comes once");
        }
        (AskKind::Refresh, BackendAnswer::Refresh(refresh))
        | (AskKind::SubRefresh, BackendAnswer::SubRefresh(refresh)) => {
            payloads(&[&refresh.info, &refresh.meta]);
            assert!(refresh.expires_at_s != Some(0));
        }
        (AskKind::Subscribe, BackendAnswer::Subscribe(subscribe)) => {
            payloads(&[&subscribe.info, &subscribe.data]);
            assert!(subscribe.expires_at_s != Some(0));
        }
        (AskKind::Publish, BackendAnswer::Publish(publish)) => {
            payloads(&[&publish.data]);
            assert!(publish.how.idempotency_key.is_none_or(|key| !key.is_empty()));
        }
        (AskKind::Rpc, BackendAnswer::Rpc { data }) => payloads(&[&data]),
        (kind, answer) => unreachable!("{answer:?} to a question of {kind:?}"),
    }
}

fn subscription(one: &ServerSubscription) {
    payloads(&[&one.info, &one.data]);
    assert!(one.expires_at_s != Some(0));
}

fn payloads(all: &[&Option<Payload>]) {
    for payload in all.iter().filter_map(|payload| payload.as_ref()).filter(|payload| payload.is_known_json()) {
        let json: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(payload.bytes());
        assert!(json.is_ok(), "what is called JSON is JSON");
    }
}
