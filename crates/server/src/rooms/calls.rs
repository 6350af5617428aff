//! Calls of games to the backend. A room thread passes them to the thread of the backends and takes their results from
//! a channel, so neither waits for the other.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

use dunlin_engine::{
    Wire,
    backend::{ProxyIndex, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxyResult, ProxySession},
    room::RoomKey,
};
use dunlin_protocol::Payload;
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
    /// Needs no bound of its own, because proxies limit the requests in flight and rooms limit the calls per tick.
    returned: Sender<ReturnedCall>,
    returns: Receiver<ReturnedCall>,
}

impl CallLink {
    pub(super) fn new(backends: Arc<dyn ProxyClient>, waker: Arc<ThreadWaker>) -> Self {
        let (returned, returns) = channel();
        Self { backends, waker, returned, returns }
    }

    /// Sends calls of a room. Does not block.
    pub(super) fn send(&self, room: &CallingRoom, calls: Vec<GameCall>) {
        for GameCall { id, method, data } in calls {
            let (returned, waker, key) = (self.returned.clone(), Arc::clone(&self.waker), room.key);
            let answer = Box::new(move |result| {
                // The thread may have ended with its rooms.
                let _ = returned.send(ReturnedCall { room: key, call: id, result });
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
    pub(super) fn next(&self) -> Option<ReturnedCall> {
        self.returns.try_recv().ok()
    }
}
