//! The body of the fuzz target `backend_answer`.

use dunlin::backend::{CallOutcome, ProxyKind, read_answer};
use dunlin_engine::{
    backend::{ProxyError, ProxyResponse},
    event::ServerSubscription,
};
use dunlin_protocol::Payload;

/// Parses a backend's response to a request of every kind. The result is a response of that kind or an error.
pub fn answer(data: &[u8]) {
    for kind in ProxyKind::ALL {
        let (outcome, word) = read_answer(kind, data);
        match outcome {
            Ok(answer) => {
                assert_eq!(word, CallOutcome::Result);
                check(kind, answer);
            }
            Err(ProxyError::Error { code, .. }) => {
                assert_eq!(word, CallOutcome::Error);
                assert!((100..2_000).contains(&code), "an error of {code}");
            }
            // Nothing at all means that nobody is known.
            Err(ProxyError::Disconnect(disconnect)) => {
                assert!(word == CallOutcome::Disconnect || word == CallOutcome::Result && kind == ProxyKind::Connect);
                assert!((3_000..5_000).contains(&disconnect.code), "closed with {}", disconnect.code);
            }
            Err(ProxyError::Failed) => assert_eq!(word, CallOutcome::NotOurs),
            Err(ProxyError::Busy) => unreachable!("an answer is there"),
        }
    }
}

fn check(kind: ProxyKind, answer: ProxyResponse) {
    match (kind, answer) {
        (ProxyKind::Connect, ProxyResponse::Connect(connect)) => {
            payloads(&[&connect.info, &connect.data, &connect.meta]);
            assert!(connect.expires_at_ms != Some(0));
            connect.subscriptions.iter().for_each(subscription);
            let mut channels: Vec<_> = connect.subscriptions.iter().map(|one| &one.channel).collect();
            channels.sort();
            assert!(channels.is_sorted_by(|one, next| one < next), "each channel comes once");
        }
        (ProxyKind::Refresh, ProxyResponse::Refresh(refresh))
        | (ProxyKind::SubRefresh, ProxyResponse::SubRefresh(refresh)) => {
            payloads(&[&refresh.info, &refresh.meta]);
            assert!(refresh.expires_at_ms != Some(0));
        }
        (ProxyKind::Subscribe, ProxyResponse::Subscribe(subscribe)) => {
            payloads(&[&subscribe.info, &subscribe.data]);
            assert!(subscribe.expires_at_ms != Some(0));
        }
        (ProxyKind::Publish, ProxyResponse::Publish(publish)) => {
            payloads(&[&publish.data]);
            assert!(publish.how.idempotency_key.is_none_or(|key| !key.is_empty()));
        }
        (ProxyKind::Rpc | ProxyKind::RoomCall, ProxyResponse::Rpc { data }) => payloads(&[&data]),
        (kind, answer) => unreachable!("{answer:?} to a question of {kind:?}"),
    }
}

fn subscription(one: &ServerSubscription) {
    payloads(&[&one.grant.info, &one.grant.data]);
    assert!(one.grant.expires_at_ms != Some(0));
}

fn payloads(all: &[&Option<Payload>]) {
    for payload in all.iter().filter_map(|payload| payload.as_ref()).filter(|payload| payload.is_known_json()) {
        let json: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(payload.bytes());
        assert!(json.is_ok(), "what is called JSON is JSON");
    }
}
