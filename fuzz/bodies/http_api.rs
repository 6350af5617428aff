//! The body of the fuzz target `http_api`, which a unit test runs over the committed corpus.

use dunlin_engine::{
    api::{ApiRequest, SessionFilter},
    pace::PaceChange,
};

use dunlin::http::api::{ApiCommand, CommandBatch, Method, RequestLimits, glob::Glob, legacy};

/// A request's body. The first byte chooses the method, or the one-path form.
pub fn body(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let limits = RequestLimits { broadcast_channels_max: 5, batch_commands_max: 5 };
    match Method::ALL.get(usize::from(*choice) % (Method::ALL.len() + 1)) {
        Some(Method::Batch) => {
            if let Ok(Ok(batch)) = CommandBatch::parse(body, &limits) {
                assert!(batch.commands.len() <= limits.batch_commands_max);
                batch.commands.into_iter().filter_map(|(_, command)| command.ok()).for_each(check);
            }
        }
        Some(method) => {
            if let Ok(Ok(command)) = ApiCommand::parse(*method, body, &limits) {
                check(command);
            }
        }
        None => {
            if let Ok(Ok(commands)) = legacy::parse(body, &limits) {
                assert!((1..=limits.batch_commands_max).contains(&commands.len()));
                commands.into_iter().filter_map(|legacy| legacy.command.ok()).for_each(check);
            }
        }
    }
    if let Ok(glob) = str::from_utf8(body).map_err(|_| "not text").and_then(Glob::compile) {
        assert!(glob.matcher().matches("chat:room-1").is_ok(), "a short name needs few states");
    }
}

/// What the shards believe without looking again.
fn check(command: ApiCommand) {
    match command {
        ApiCommand::Publish(command) => {
            assert!(!command.channel.is_empty());
            check_payload(&command.publication.data);
        }
        ApiCommand::Broadcast(command) => {
            assert!((1..=5).contains(&command.channels.len()));
            check_payload(&command.publication.data);
        }
        ApiCommand::Presence(command) => assert!(!command.channel.is_empty()),
        ApiCommand::PresenceStats(command) => assert!(!command.channel.is_empty()),
        ApiCommand::History(command) => assert!(!command.channel.is_empty()),
        ApiCommand::HistoryRemove(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomOpen(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomClose(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomInfo(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomSend(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomUpdate(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomLock(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomKick(command) => assert!(!command.channel.is_empty()),
        ApiCommand::RoomPaths(wanted) => {
            assert!(!wanted.channel.is_empty() && wanted.points_max > 0 && wanted.from_ms <= wanted.to_ms);
        }
        ApiCommand::Disconnect(command) => check_request(&command.0),
        ApiCommand::Unsubscribe(command) => check_request(&command.0),
        ApiCommand::Subscribe(command) => check_request(&command.0),
        ApiCommand::Refresh(command) => check_request(&command.0),
        ApiCommand::SubscriptionPace(command) => check_request(&command.0),
        ApiCommand::SessionPace(command) => check_request(&command.0),
        ApiCommand::Channels(_)
        | ApiCommand::Info(_)
        | ApiCommand::Rooms(_)
        | ApiCommand::RoomList(_)
        | ApiCommand::Sessions(_)
        | ApiCommand::Explain(_)
        | ApiCommand::Match(_)
        | ApiCommand::MatchCancel(_)
        | ApiCommand::MatchStatus(_)
        | ApiCommand::BlockUser(_)
        | ApiCommand::UnblockUser(_)
        | ApiCommand::RevokeToken(_)
        | ApiCommand::InvalidateUserTokens(_)
        | ApiCommand::Rpc(_) => {}
    }
}

fn check_request(request: &ApiRequest) {
    match request {
        ApiRequest::Disconnect { disconnect, only, .. } => {
            assert!((3_000..=4_999).contains(&disconnect.code));
            check_filter(only);
        }
        ApiRequest::Unsubscribe { only, .. } => check_filter(only),
        ApiRequest::Subscribe { only, subscription, .. } => {
            check_filter(only);
            assert!(!subscription.channel.is_empty());
            assert!(subscription.grant.expires_at_ms != Some(0));
            [&subscription.grant.info, &subscription.grant.data].into_iter().flatten().for_each(check_payload);
        }
        ApiRequest::Refresh { only, expires_at_ms, info, .. } => {
            check_filter(only);
            assert!(*expires_at_ms != Some(0));
            info.iter().for_each(check_payload);
        }
        ApiRequest::SetPace { only, change, .. } => {
            check_filter(only);
            if let PaceChange::Subscription { channel, .. } = change {
                assert!(!channel.is_empty());
            }
        }
        other => panic!("asks for what is not about sessions: {other:?}"),
    }
}

fn check_filter(only: &SessionFilter) {
    assert!([&only.client, &only.session].into_iter().flatten().all(|id| !id.is_empty()));
}

fn check_payload(payload: &dunlin_protocol::Payload) {
    if payload.is_known_json() {
        let json: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(payload.bytes());
        assert!(json.is_ok(), "what is called JSON is JSON");
    }
}
