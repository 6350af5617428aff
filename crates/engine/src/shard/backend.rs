//! Asking the application's backends, and what they answer.
//!
//! A session waits for the answers to its own commands; about what expires the server asks without holding anything up.
//! What is not waited for any more, because the session or the subscription has gone, is counted and dropped.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, RpcRequest, RpcResult};

use crate::{
    Effect, Effects, Now, SessionKey,
    backend::{
        Ask, BackendAnswer, BackendAsker, BackendOutcome, BackendQuestion, BackendRefusal, ProxyIndex, QuestionId,
    },
    event::SubscriptionClaims,
    message::Request,
    session::{Asked, AskedFor, Held, SubscribeWish, Waiting},
};

use super::Shard;

impl Shard {
    /// Asks about a command, which waits until there is an answer.
    pub(super) fn ask_backend(
        &mut self,
        key: SessionKey,
        command_id: u32,
        proxy: ProxyIndex,
        ask: Ask,
        about: AskedFor,
        effects: &mut Effects,
    ) {
        let client = match &about {
            AskedFor::Connect(wish) => wish.client.clone(),
            AskedFor::Subscribe(_) | AskedFor::Publish { .. } | AskedFor::Rpc => None,
        };
        let question = QuestionId(self.questions_asked);
        self.hold(key, Waiting::Backend(Box::new(Asked { question, command_id, about })), effects);
        self.ask(key, client, proxy, ask, effects);
    }

    /// Asks. `client` is the session's id to be, if it has none yet.
    pub(super) fn ask(
        &mut self,
        key: SessionKey,
        client: Option<Arc<str>>,
        proxy: ProxyIndex,
        ask: Ask,
        effects: &mut Effects,
    ) -> QuestionId {
        let id = QuestionId(self.questions_asked);
        self.questions_asked += 1;
        let session = self.sessions.at(key.index);
        let info = session.info.as_ref();
        let asker = BackendAsker {
            client: client.or_else(|| info.map(|info| Arc::clone(&info.client))).unwrap_or_default(),
            wire: session.wire,
            user: info.map(|info| Arc::clone(&info.user)),
            meta: session.extra.as_ref().and_then(|extra| extra.meta.clone()),
        };
        effects
            .list
            .push(Effect::AskBackend { session: key, question: Box::new(BackendQuestion { id, proxy, asker, ask }) });
        id
    }

    /// Bytes that the session sent, as what they are in its encoding; `None` for none.
    pub(super) fn payload(&self, key: SessionKey, data: &[u8]) -> Option<Payload> {
        let bytes = || bytes::Bytes::copy_from_slice(data);
        match self.sessions.get(key)?.encoding() {
            _ if data.is_empty() => None,
            dunlin_protocol::Encoding::Json => Some(Payload::from_json(bytes())),
            dunlin_protocol::Encoding::Protobuf => Some(Payload::from_opaque(bytes())),
        }
    }

    /// A backend was asked and has answered, or has not.
    pub(super) fn backend_answered(
        &mut self,
        now: Now,
        key: SessionKey,
        question: QuestionId,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            self.counters.late_messages += 1;
            return;
        };
        let is_it = |held: &Held| matches!(&held.waiting, Waiting::Backend(asked) if asked.question == question);
        if let Some(held) = session.held.take_if(|held| is_it(held)) {
            let Held { waiting, rest } = *held;
            let Waiting::Backend(asked) = waiting else { unreachable!("looked at above") };
            self.command_answered(now, key, *asked, outcome, effects);
            return self.resume(now, key, rest, effects);
        }
        let refresh = session.extra.as_mut().and_then(|extra| extra.refresh.take_if(|asked| *asked == question));
        if refresh.is_some() {
            if session.is_authenticated() {
                self.session_refreshed(now, key, outcome, effects);
            } else {
                self.counters.late_messages += 1;
            }
            return;
        }
        let of_subscription = session.subscriptions.iter_mut().find_map(|subscription| {
            let asked = &mut subscription.extra.as_mut()?.refresh;
            asked.take_if(|asked| *asked == question).map(|_| subscription.channel)
        });
        match of_subscription {
            Some(channel) => self.subscription_refreshed(now, key, channel, outcome, effects),
            None => self.counters.late_messages += 1,
        }
    }

    fn command_answered(
        &mut self,
        now: Now,
        key: SessionKey,
        asked: Asked,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) {
        let Asked { question: _, command_id, about } = asked;
        let answer = match about {
            AskedFor::Connect(wish) => {
                return self.connect_by_backend(now, key, command_id, &wish, outcome, effects);
            }
            AskedFor::Subscribe(wish) => self.subscribe_by_backend(now, key, command_id, &wish, outcome, effects),
            AskedFor::Publish { channel, data } => {
                self.publish_by_backend(key, command_id, channel, data, outcome, effects)
            }
            AskedFor::Rpc => called(outcome).map(Some),
        };
        match answer {
            Ok(Some(reply)) => self.reply(now, key, command_id, &reply, effects),
            Ok(None) => {}
            Err(disconnect) => self.close(now, key, &disconnect, effects),
        }
    }

    fn subscribe_by_backend(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &SubscribeWish,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let answer = match outcome {
            Ok(BackendAnswer::Subscribe(answer)) => *answer,
            Ok(_) => return Ok(Some(Reply::Error(ErrorCode::Internal))),
            Err(refusal) => return refused(refusal).map(Some),
        };
        let claims = SubscriptionClaims {
            info: answer.info,
            data: answer.data,
            expires_at_s: answer.expires_at_s,
            overrides: answer.overrides,
            ..SubscriptionClaims::default()
        };
        Ok(self.order_subscription(now, key, command_id, wish, claims, effects).err().map(Reply::Error))
    }

    fn publish_by_backend(
        &mut self,
        key: SessionKey,
        command_id: u32,
        channel: Arc<str>,
        data: Payload,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let answer = match outcome {
            Ok(BackendAnswer::Publish(answer)) => *answer,
            Ok(_) => return Ok(Some(Reply::Error(ErrorCode::Internal))),
            Err(refusal) => return refused(refusal).map(Some),
        };
        let Some(info) = self.info_in_channel(key, &channel) else { return Err(Disconnect::BAD_REQUEST) };
        let owner = self.owner(&channel);
        let request = Request::Publish {
            channel,
            data: answer.data.unwrap_or(data),
            info,
            how: Box::new(answer.how),
            asker: self.asker(key, command_id),
        };
        self.send(owner, crate::message::ShardMessage::Request(request), effects);
        Ok(None)
    }

    /// Passes a call on to the backend that its method belongs to.
    pub(super) fn call(
        &mut self,
        key: SessionKey,
        command_id: u32,
        request: &RpcRequest<'_>,
        effects: &mut Effects,
    ) -> Option<Reply> {
        let method = &*request.method;
        let backend = &self.options.backend;
        if backend.rpc_ping_method.as_deref() == Some(method) {
            return Some(Reply::Rpc(RpcResult { data: None }));
        }
        let has_proxies =
            backend.rpc_without_namespace.is_some() || backend.rpc_namespaces.iter().any(|(_, proxy)| proxy.is_some());
        let proxy = match method.split_once(backend.rpc_namespace_boundary) {
            _ if !has_proxies && backend.rpc_ping_method.is_none() => {
                return Some(Reply::Error(ErrorCode::NotAvailable));
            }
            _ if !has_proxies => return Some(Reply::Error(ErrorCode::MethodNotFound)),
            None => backend.rpc_without_namespace,
            Some((namespace, _)) => {
                let known = backend.rpc_namespaces.iter().find(|(name, _)| **name == *namespace);
                let Some((_, proxy)) = known else { return Some(Reply::Error(ErrorCode::MethodNotFound)) };
                *proxy
            }
        };
        let Some(proxy) = proxy else { return Some(Reply::Error(ErrorCode::NotAvailable)) };
        let ask = Ask::Rpc { method: method.into(), data: request.data.and_then(|data| self.payload(key, data)) };
        self.ask_backend(key, command_id, proxy, ask, AskedFor::Rpc, effects);
        None
    }
}

fn called(outcome: BackendOutcome) -> Result<Reply, Disconnect> {
    match outcome {
        Ok(BackendAnswer::Rpc { data }) => Ok(Reply::Rpc(RpcResult { data })),
        Ok(_) => Ok(Reply::Error(ErrorCode::Internal)),
        Err(refusal) => refused(refusal),
    }
}

/// What a command is answered with that a backend does not want.
fn refused(refusal: BackendRefusal) -> Result<Reply, Disconnect> {
    match refusal {
        BackendRefusal::Error { code, message, temporary } => Ok(Reply::Refused { code, message, temporary }),
        BackendRefusal::Disconnect(disconnect) => Err(disconnect),
        BackendRefusal::Failed | BackendRefusal::Busy => Ok(Reply::Error(refusal.error_code())),
    }
}
