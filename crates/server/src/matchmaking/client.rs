//! The RPC methods of clients: `dunlin.match`, `dunlin.match_confirm`, `dunlin.match_cancel`, `dunlin.match_status`.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_config::MatchSettings;
use dunlin_engine::backend::{ProxyError, ProxyIndex, ProxyRequestKind, ProxyResponse, ProxyResult};
use dunlin_matchmaking::{Initiator, MatchRefusal};
use dunlin_net::HeaderPicker;
use dunlin_protocol::{ErrorCode, Payload};
use serde::Deserialize;

use super::{MatchHandle, TicketAnswer, TicketCommand, TicketFault, TicketParams, TicketRequester, TicketTarget};
use crate::{
    backend::{BackendCall, ProxyClient},
    json_members::OnlyObject,
    node::SourceNetwork,
};

/// Called once with the reply to the client.
type RpcReply = Box<dyn FnOnce(ProxyResult) + Send>;

/// Answers the node's own methods, and passes all other requests to the backends.
pub struct NodeMethods {
    matchmaking: MatchHandle,
    backends: Arc<dyn ProxyClient>,
}

/// Parameters that select a ticket.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TargetParams {
    ticket: Option<String>,
    namespace: Option<String>,
}

/// A backend's decision about a request, beside its [`TicketParams`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct DecisionParams {
    channel: Option<String>,
}

impl NodeMethods {
    /// Answers the methods of `matchmaking`, and passes all other requests to `backends`.
    pub fn new(matchmaking: MatchHandle, backends: Arc<dyn ProxyClient>) -> Self {
        Self { matchmaking, backends }
    }

    fn call(&self, call: BackendCall) {
        let BackendCall { request, headers, address, answer } = call;
        let ProxyRequestKind::Rpc { method, data } = &request.kind else {
            return answer(Err(ProxyError::Failed));
        };
        let user = request.asker.user.clone().filter(|user| !user.is_empty());
        let Some(user) = user else {
            return answer(Err(error(ErrorCode::PermissionDenied, "matchmaking needs a user id")));
        };
        let data = data.as_ref().map_or(&b"{}"[..], |data| data.bytes());
        let command = match &**method {
            "dunlin.match" => {
                let requester = TicketRequester { user, source: address.map(SourceNetwork::of) };
                match self.ticket(data, &requester) {
                    Ok((settings, params)) => match settings.proxy {
                        Some(proxy) => {
                            let mut request = request;
                            request.proxy = proxy;
                            let call = BackendCall { request, headers, address, answer };
                            return self.ask_backend(call, params, requester);
                        }
                        None => submit(params, requester, None),
                    },
                    Err(fault) => Err(fault),
                }
            }
            "dunlin.match_confirm" => target(data, &user).and_then(|target| match target {
                TicketTarget::OfMember(ticket, user) => Ok(TicketCommand::Confirm { ticket, user }),
                _ => Err(TicketFault::BadRequest("ticket is missing")),
            }),
            "dunlin.match_cancel" => target(data, &user).map(TicketCommand::Cancel),
            "dunlin.match_status" => target(data, &user).map(TicketCommand::Status),
            _ => return answer(Err(error(ErrorCode::MethodNotFound, "the node has no such method"))),
        };
        match command {
            Ok(command) => {
                let source = address.map(SourceNetwork::of);
                self.matchmaking.send(source, command, Box::new(|outcome| answer(reply(outcome))));
            }
            Err(fault) => answer(reply(Err(fault))),
        }
    }

    /// The namespace's settings and the parsed parameters of the client. Counts the request for the user.
    fn ticket(&self, data: &[u8], requester: &TicketRequester) -> Result<(&MatchSettings, TicketParams), TicketFault> {
        let mut params: TicketParams = parse(data)?;
        let index = self.matchmaking.index_of(params.namespace.as_deref().unwrap_or_default());
        let index = index.ok_or(TicketFault::NotEnabled)?;
        let settings = self.matchmaking.settings.get(index).filter(|settings| settings.allow_for_client);
        let settings = settings.ok_or(TicketFault::NotEnabled)?;
        if params.skill.is_some() && !settings.trust_client_skill {
            return Err(TicketFault::BadRequest(
                "skill is not accepted from clients; see room.match.trust_client_skill",
            ));
        }
        let users = params.users.get_or_insert_default();
        if !users.iter().any(|known| **known == *requester.user) {
            users.insert(0, requester.user.to_string());
        }
        self.matchmaking.try_take(index, requester)?;
        Ok((settings, params))
    }

    /// Sends the request to the backend, and submits the ticket according to its decision.
    fn ask_backend(&self, call: BackendCall, params: TicketParams, requester: TicketRequester) {
        let BackendCall { request, headers, address, answer } = call;
        let (matchmaking, source) = (self.matchmaking.clone(), requester.source);
        let decided: RpcReply = Box::new(move |outcome| match decision(outcome, params, requester) {
            Ok(Decision::Placed(channel)) => answer(reply(Ok(TicketAnswer::of_backend(channel)))),
            Ok(Decision::Submit(command)) => {
                matchmaking.send(source, command, Box::new(|outcome| answer(reply(outcome))));
            }
            Err(error) => answer(Err(error)),
        });
        self.backends.ask(BackendCall { request, headers, address, answer: decided });
    }
}

impl ProxyClient for NodeMethods {
    fn ask(&self, call: BackendCall) {
        if call.request.proxy == ProxyIndex::NODE { self.call(call) } else { self.backends.ask(call) }
    }

    fn wanted_headers(&self) -> &HeaderPicker {
        self.backends.wanted_headers()
    }
}

enum Decision {
    Placed(Box<str>),
    Submit(TicketCommand),
}

fn decision(outcome: ProxyResult, params: TicketParams, requester: TicketRequester) -> Result<Decision, ProxyError> {
    let ProxyResponse::Rpc { data } = outcome? else { return Err(ProxyError::Failed) };
    let json = data.as_ref().map_or(&b"{}"[..], |data| data.bytes());
    let decided: DecisionParams = parse(json).map_err(|_| ProxyError::Failed)?;
    let ticket: TicketParams = parse(json).map_err(|_| ProxyError::Failed)?;
    if let Some(channel) = decided.channel {
        return Ok(Decision::Placed(channel.into()));
    }
    let command = submit(params, requester, Some(ticket));
    // An invalid ticket is an error of the backend or of the client. The client gets the reason.
    command.map(Decision::Submit).map_err(|fault| proxy_error(&fault))
}

/// The command of a client, with the backend's changes. If the backend names the users, no user has to confirm.
fn submit(
    wished: TicketParams,
    requester: TicketRequester,
    decided: Option<TicketParams>,
) -> Result<TicketCommand, TicketFault> {
    let decided = decided.unwrap_or_default();
    let initiator = match decided.users {
        Some(_) => Initiator::Backend,
        None => Initiator::User(Arc::clone(&requester.user)),
    };
    let namespace = wished.namespace.unwrap_or_default();
    let params = TicketParams {
        namespace: None,
        users: decided.users.or(wished.users),
        criteria: decided.criteria.or(wished.criteria),
        region: decided.region.or(wished.region),
        skill: decided.skill.or(wished.skill),
    };
    let request = params.into_request(initiator)?;
    Ok(TicketCommand::Submit { namespace: namespace.into(), request, requester: Some(requester) })
}

fn target(data: &[u8], user: &Arc<str>) -> Result<TicketTarget, TicketFault> {
    let params: TargetParams = parse(data)?;
    if let Some(ticket) = params.ticket {
        return Ok(TicketTarget::OfMember(ticket.parse()?, Arc::clone(user)));
    }
    Ok(TicketTarget::OfUser { namespace: params.namespace.unwrap_or_default().into(), user: Arc::clone(user) })
}

fn parse<'d, T: Deserialize<'d> + Default>(data: &'d [u8]) -> Result<T, TicketFault> {
    const INVALID: TicketFault = TicketFault::BadRequest("data is not an object with the documented fields");
    if data.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice::<OnlyObject<T>>(data).map(|object| object.0).map_err(|_| INVALID)
}

fn reply(outcome: Result<TicketAnswer, TicketFault>) -> ProxyResult {
    let answer = outcome.map_err(|fault| proxy_error(&fault))?;
    let json = serde_json::to_vec(&answer).map_err(|_| ProxyError::Failed)?;
    Ok(ProxyResponse::Rpc { data: Some(Payload::from_json(Bytes::from(json))) })
}

fn proxy_error(fault: &TicketFault) -> ProxyError {
    let code = match fault {
        TicketFault::Refused(MatchRefusal::QueueFull)
        | TicketFault::RateLimited
        | TicketFault::AddressLimited
        | TicketFault::Busy => ErrorCode::TooManyRequests,
        TicketFault::Refused(MatchRefusal::Users | MatchRefusal::Criteria) | TicketFault::BadRequest(_) => {
            ErrorCode::BadRequest
        }
        TicketFault::NotEnabled => ErrorCode::NotAvailable,
        TicketFault::Unreachable | TicketFault::Stopped => ErrorCode::Internal,
        // HTTP status codes, because the client protocol has no codes for these errors.
        TicketFault::Refused(MatchRefusal::UnknownTicket) => return numbered(404, fault),
        TicketFault::Refused(MatchRefusal::UserHasTicket | MatchRefusal::TicketOver) => return numbered(409, fault),
    };
    error(code, fault.why())
}

fn numbered(code: u16, fault: &TicketFault) -> ProxyError {
    ProxyError::Error { code, message: fault.why().into(), temporary: false }
}

fn error(code: ErrorCode, why: &str) -> ProxyError {
    let message = format!("{}: {why}", code.message());
    ProxyError::Error { code: code.code() as u16, message: message.into(), temporary: code.temporary() }
}

#[cfg(test)]
mod tests {
    use dunlin_proof::members::{members, sample};
    use serde_json::Value;

    use super::*;

    #[test]
    fn null_is_absent_in_every_member() {
        fn check<T: Default + for<'d> Deserialize<'d>>(show: fn(&T) -> String) {
            let read = |document: &Value| show(&parse(document.to_string().as_bytes()).expect("it is read"));
            for member in members(&sample::<T>()) {
                let (null, absent) = (read(&member.null), read(&member.absent));
                assert!(member.is_of_map || null == absent, "{}: {null} {absent}", member.path);
            }
        }
        check::<TargetParams>(|params| format!("{:?} {:?}", params.ticket, params.namespace));
        check::<DecisionParams>(|params| format!("{:?}", params.channel));
        check::<TicketParams>(|params| format!("{params:?}"));
    }
}
