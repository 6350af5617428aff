//! How the host of a room handles the results of a game's calls.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    backend::{ProxyError, ProxyResponse, ProxyResult},
    host::{HostOptions, RoomHost, Step},
    room::RoomKey,
};
use dunlin_protocol::{Disconnect, Payload};
use dunlin_rooms::{CallError, CallId, Grid, GridShape, Refusal};

use crate::hall::TERMS;

const BYTES_MAX: usize = 4;

/// The outcome that the game receives for a result.
fn outcome_of(result: ProxyResult) -> Result<Bytes, CallError> {
    let shape = GridShape { columns: 1, rows: 1, cell_units: 64, near_cells: 0, far_cells: 0, far_interval_ticks: 1 };
    let options = HostOptions { empty_ticks_max: 1, call_bytes_max: BYTES_MAX, ..TERMS };
    let key = RoomKey { owner: ShardIndex(0), number: 1 };
    let mut host = RoomHost::new(key, Arc::from("a"), Grid::new(shape).expect("a map"), options);
    host.take_answer(CallId(7), result);
    let mut steps = host.begin().steps;
    let (Some(Step::Answer { call: CallId(7), outcome }), true) = (steps.pop(), steps.is_empty()) else {
        panic!("an answer")
    };
    outcome
}

fn answer(text: &'static str) -> ProxyResponse {
    ProxyResponse::Rpc { data: Some(Payload::from_opaque(Bytes::from_static(text.as_bytes()))) }
}

fn error(message: &str) -> ProxyResult {
    Err(ProxyError::Error { code: 1_000, message: message.into(), temporary: false })
}

#[test]
fn a_result_is_bounded_and_becomes_an_outcome_of_the_game() {
    assert_eq!(outcome_of(Ok(answer("1234"))), Ok(Bytes::from_static(b"1234")));
    assert_eq!(outcome_of(Ok(answer("12345"))), Err(CallError::TooLong));
    assert_eq!(outcome_of(Ok(ProxyResponse::Rpc { data: None })), Ok(Bytes::new()));
    assert_eq!(outcome_of(error("none")), Err(CallError::Refused(Refusal { code: 1_000, message: "none".into() })));
    assert_eq!(outcome_of(error("never")), Err(CallError::TooLong));
    assert_eq!(outcome_of(Err(ProxyError::Busy)), Err(CallError::Busy));
    assert_eq!(outcome_of(Err(ProxyError::Failed)), Err(CallError::Failed));
    assert_eq!(outcome_of(Err(ProxyError::Disconnect(Disconnect::BAD_REQUEST))), Err(CallError::Failed));
}
