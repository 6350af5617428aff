//! Calls of games to the backend. A room thread passes them to the thread of the backends and takes their results from
//! a channel, so neither waits for the other.

use std::sync::Arc;

use dunlin_engine::{
    Wire,
    backend::{
        ProxyError, ProxyIndex, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxyResult,
        ProxySession,
    },
    room::RoomKey,
};
use dunlin_protocol::Payload;
use dunlin_queues::{CountedReceiver, CountedSender, Refused, declared::RETURNED_CALLS};
use dunlin_rooms::{CallId, GameCall};

use super::ThreadWaker;
use crate::backend::{BackendCall, ProxyClient};

/// The backend's result for a call.
pub(super) struct ReturnedCall {
    pub(super) room: RoomKey,
    pub(super) call: CallId,
    pub(super) result: ProxyResult,
}

/// The room that makes a call.
pub(super) struct CallingRoom {
    pub(super) key: RoomKey,
    pub(super) channel: Arc<str>,
    pub(super) proxy: ProxyIndex,
}

/// The link of a room thread to the backends.
pub(super) struct CallLink {
    backends: Arc<dyn ProxyClient>,
    waker: Arc<ThreadWaker>,
    returned: CountedSender<ReturnedCall>,
    returns: CountedReceiver<ReturnedCall>,
}

impl CallLink {
    pub(super) fn new(backends: Arc<dyn ProxyClient>, waker: Arc<ThreadWaker>) -> Self {
        let (returned, returns) = RETURNED_CALLS.counted_channel();
        Self { backends, waker, returned, returns }
    }

    /// Sends calls of a room. Does not block.
    pub(super) fn send(&self, room: &CallingRoom, calls: Vec<GameCall>) {
        for GameCall { id, method, data } in calls {
            let (returned, waker, key) = (self.returned.clone(), Arc::clone(&self.waker), room.key);
            let answer = Box::new(move |result| {
                return_call(&returned, ReturnedCall { room: key, call: id, result });
                waker.wake();
            });
            let channel = Arc::clone(&room.channel);
            // The fields of a session are not part of the request.
            let asker =
                ProxySession { client: Arc::clone(&channel), wire: Wire::WebSocketJson, user: None, meta: None };
            let kind = ProxyRequestKind::RoomCall { channel, method, data: Payload::from_opaque(data) };
            let request = ProxyRequest { id: ProxyRequestId(id.0.into()), proxy: room.proxy, asker, kind };
            self.backends.ask(BackendCall { request, headers: None, address: None, answer });
        }
    }

    /// The next result.
    pub(super) fn next(&mut self) -> Option<ReturnedCall> {
        self.returns.try_recv()
    }
}

/// Queues a result; if it does not fit, an error instead, because the game waits for an answer. The thread may have ended
/// with its rooms.
fn return_call(returned: &CountedSender<ReturnedCall>, call: ReturnedCall) {
    let bytes = call.result.as_ref().map_or(0, ProxyResponse::bytes);
    if let Err(Refused::Full(call)) = returned.try_send(call, bytes) {
        returned.send_admitted(ReturnedCall { result: Err(ProxyError::Busy), ..call }, 0);
    }
}
