//! Requests to the application's backends, and their responses.
//!
//! A session is paused until its own command is answered. A request about an expiry pauses nothing. A response for a
//! session or subscription that has ended is counted and dropped.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, RpcRequest, RpcResult};

use crate::{
    Effect, Effects, SessionKey,
    backend::{ProxyIndex, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxyResult, ProxySession},
    message::ShardRequest,
    refused::{Refused, RefusedCommand},
    session::{Paused, PausedOn, ProxiedCommand, ProxyCall, SubscriptionParams},
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, CommandRef},
};

impl Sessions {
    /// Sends a request about a command, which waits for the response.
    pub(super) fn send_proxy_request(
        &mut self,
        key: SessionKey,
        command_id: u32,
        proxy: ProxyIndex,
        kind: ProxyRequestKind,
        about: ProxiedCommand,
        effects: &mut Effects,
    ) {
        let client = match &about {
            ProxiedCommand::Connect(params) => params.client.clone(),
            ProxiedCommand::Subscribe(_) | ProxiedCommand::Publish { .. } | ProxiedCommand::Rpc => None,
        };
        let request_id = ProxyRequestId(self.proxy_requests_sent);
        self.pause(key, PausedOn::Backend(Box::new(ProxyCall { request_id, command_id, about })), effects);
        self.push_proxy_request(key, client, proxy, kind, effects);
    }

    /// Sends a request. `client` is the session's future id, if it has none yet.
    pub(super) fn push_proxy_request(
        &mut self,
        key: SessionKey,
        client: Option<Arc<str>>,
        proxy: ProxyIndex,
        kind: ProxyRequestKind,
        effects: &mut Effects,
    ) -> ProxyRequestId {
        let id = ProxyRequestId(self.proxy_requests_sent);
        self.proxy_requests_sent += 1;
        let session = self.table.at(key.index);
        let info = session.info.as_ref();
        let asker = ProxySession {
            client: client.or_else(|| info.map(|info| Arc::clone(&info.client))).unwrap_or_default(),
            wire: session.wire,
            user: info.map(|info| Arc::clone(&info.user)),
            meta: session.extra.as_ref().and_then(|extra| extra.meta.clone()),
        };
        effects.list.push(Effect::SendProxyRequest {
            session: key,
            request: Box::new(ProxyRequest { id, proxy, asker, kind }),
        });
        id
    }

    /// The session's bytes as a payload of its encoding; `None` if empty.
    pub(super) fn payload(&self, key: SessionKey, data: &[u8]) -> Option<Payload> {
        let bytes = || bytes::Bytes::copy_from_slice(data);
        match self.table.get(key)?.encoding() {
            _ if data.is_empty() => None,
            dunlin_protocol::Encoding::Json => Some(Payload::from_json(bytes())),
            dunlin_protocol::Encoding::Protobuf => Some(Payload::from_opaque(bytes())),
        }
    }

    /// A backend has responded, or failed.
    pub(in crate::shard) fn backend_answered(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        request_id: ProxyRequestId,
        outcome: ProxyResult,
    ) {
        let Some(session) = context.counters.found_or_late(self.table.get_mut(key)) else { return };
        let is_it =
            |paused: &Paused| matches!(&paused.paused_on, PausedOn::Backend(asked) if asked.request_id == request_id);
        if let Some(paused) = session.paused.take_if(|paused| is_it(paused)) {
            let Paused { paused_on, unparsed } = *paused;
            let PausedOn::Backend(asked) = paused_on else { unreachable!("looked at above") };
            self.command_answered(context, key, *asked, outcome);
            return self.resume(key, unparsed);
        }
        let refresh = session.extra.as_mut().and_then(|extra| extra.refresh.take_if(|asked| *asked == request_id));
        if refresh.is_some() {
            if session.is_authenticated() {
                self.session_refreshed(context, key, outcome);
            } else {
                context.counters.late_messages += 1;
            }
            return;
        }
        let of_subscription = session.subscriptions.iter_mut().find_map(|subscription| {
            let asked = &mut subscription.extra.as_mut()?.refresh;
            asked.take_if(|asked| *asked == request_id).map(|_| subscription.channel)
        });
        match of_subscription {
            Some(channel) => self.subscription_refreshed(context, key, channel, outcome),
            None => context.counters.late_messages += 1,
        }
    }

    fn command_answered(&mut self, context: &mut Context, key: SessionKey, asked: ProxyCall, outcome: ProxyResult) {
        let ProxyCall { request_id: _, command_id, about } = asked;
        let mut command = CommandRef { id: command_id, command: "rpc", channel: None };
        let outcome = match &about {
            ProxiedCommand::Connect(params) => {
                return self.connect_by_backend(context, key, command_id, params, outcome);
            }
            ProxiedCommand::Subscribe(params) => {
                (command.command, command.channel) = ("subscribe", Some(&*params.channel));
                self.subscribe_by_backend(context, key, command_id, params, outcome)
            }
            ProxiedCommand::Publish { channel, data } => {
                (command.command, command.channel) = ("publish", Some(&**channel));
                self.publish_by_backend(context, key, command_id, (channel, data), outcome)
            }
            ProxiedCommand::Rpc => called(outcome).map(Some),
        };
        self.answer(context, key, command, outcome);
    }

    fn subscribe_by_backend(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &SubscriptionParams,
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let grant = match outcome {
            Ok(ProxyResponse::Subscribe(grant)) => *grant,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        self.request_subscription(context, key, command_id, params, grant)?;
        Ok(None)
    }

    fn publish_by_backend(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        (channel, data): (&Arc<str>, &Payload),
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let answer = match outcome {
            Ok(ProxyResponse::Publish(answer)) => *answer,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let owner = context.owner(channel);
        let request = ShardRequest::Publish {
            channel: Arc::clone(channel),
            data: answer.data.unwrap_or_else(|| data.clone()),
            info,
            how: Box::new(answer.how),
            creator: self.creator(context, key),
            asker: self.register_request(context, key, command_id, false),
        };
        context.request(owner, request);
        Ok(None)
    }

    /// Sends a call to the backend of its method.
    pub(super) fn call(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &RpcRequest<'_>,
    ) -> CommandOutcome {
        let method = &*request.method;
        let backend = &context.options.backend;
        if backend.rpc_ping_method.as_deref() == Some(method) {
            return Ok(Some(Reply::Rpc(RpcResult { data: None })));
        }
        let has_proxies =
            backend.rpc_without_namespace.is_some() || backend.rpc_namespaces.iter().any(|(_, proxy)| proxy.is_some());
        let proxy = match method.split_once(backend.rpc_namespace_boundary) {
            _ if backend.has_node_methods && method.starts_with(crate::backend::NODE_METHODS) => Some(ProxyIndex::NODE),
            _ if !has_proxies && backend.rpc_ping_method.is_none() => {
                return Err(Refused::new(ErrorCode::NotAvailable, "no RPC proxy is enabled").into());
            }
            _ if !has_proxies => return Err(ErrorCode::MethodNotFound.into()),
            None => backend.rpc_without_namespace,
            Some((namespace, _)) => {
                let known = backend.rpc_namespaces.iter().find(|(name, _)| **name == *namespace);
                let Some((_, proxy)) = known else { return Err(ErrorCode::MethodNotFound.into()) };
                *proxy
            }
        };
        let Some(proxy) = proxy else {
            let why = "the RPC namespace of the method has no proxy";
            return Err(Refused::new(ErrorCode::NotAvailable, why).into());
        };
        let kind = ProxyRequestKind::Rpc {
            method: method.into(),
            data: request.data.and_then(|data| self.payload(key, data)),
        };
        self.send_proxy_request(key, command_id, proxy, kind, ProxiedCommand::Rpc, &mut context.effects);
        Ok(None)
    }
}

fn called(outcome: ProxyResult) -> Result<Reply, RefusedCommand> {
    match outcome {
        Ok(ProxyResponse::Rpc { data }) => Ok(Reply::Rpc(RpcResult { data })),
        Ok(_) => Err(ErrorCode::Internal.into()),
        Err(error) => Err(error.into()),
    }
}
