//! Requests of the server API as JSON objects, and their answers.

use bytes::Bytes;
use dunlin_engine::{
    Now, Refused,
    access_rules::{AccessRule, AccessSubject, AccessTerms, SubjectKind},
    api::{ApiAnswer, ApiRequest, ApiResult, HistoryQuery, KickOrder, KickTarget, PlaceReservation, SessionFilter},
    backend::PublishHow,
    event::PeerKey,
    insight::{ChannelQueue, LaneFacts, SessionFacts, SessionPlace, SessionsQuery},
    pace::{BytePace, PaceChange, UpdatePace},
};
use dunlin_protocol::{ClientInfo, Disconnect, Payload, Publication, UnsubscribeCode};
use dunlin_rooms::{ListingChange, PlayerId, RoomOverrides};
use serde_json::{Map, Value, json};

use super::backend;

/// The channel whose owner receives the request; `None` for a request to every shard.
pub fn channel(request: &ApiRequest) -> Option<&str> {
    match request {
        ApiRequest::Publish { channel, .. }
        | ApiRequest::Presence { channel }
        | ApiRequest::PresenceStats { channel }
        | ApiRequest::History { channel, .. }
        | ApiRequest::HistoryRemove { channel }
        | ApiRequest::NewestKeys { channel }
        | ApiRequest::RoomState { channel, .. }
        | ApiRequest::OpenRoom { channel, .. }
        | ApiRequest::CloseRoom { channel }
        | ApiRequest::SendToRoom { channel, .. }
        | ApiRequest::ChangeListing { channel, .. }
        | ApiRequest::KickFromRoom { channel, .. }
        | ApiRequest::ReservePlaces { channel, .. } => Some(channel),
        ApiRequest::Channels
        | ApiRequest::Disconnect { .. }
        | ApiRequest::Subscribe { .. }
        | ApiRequest::Refresh { .. }
        | ApiRequest::Unsubscribe { .. }
        | ApiRequest::Sessions(_)
        | ApiRequest::SetPace { .. }
        | ApiRequest::Access(_)
        | ApiRequest::Survey => None,
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each method")]
pub fn request(request: &Value, now: Now) -> ApiRequest {
    let (method, fields) = request.as_object().and_then(|object| object.iter().next()).expect("one method");
    let text = |name: &str| fields[name].as_str().unwrap_or_default();
    let channel: Box<str> = text("channel").into();
    let only = SessionFilter {
        client: fields["client"].as_str().map(Box::from),
        session: fields["session"].as_str().map(Box::from),
    };
    match method.as_str() {
        "publish" => ApiRequest::Publish {
            channel,
            data: data(fields),
            how: PublishHow {
                tags: tags(fields),
                skip_history: fields["skip_history"] == true,
                idempotency_key: fields["idempotency_key"].as_str().map(Box::from),
                delta: fields["delta"] == true,
                version: fields["version"].as_u64().unwrap_or_default(),
                version_epoch: text("version_epoch").into(),
            },
        },
        "presence" => ApiRequest::Presence { channel },
        "presence_stats" => ApiRequest::PresenceStats { channel },
        "history" => {
            let since = fields.get("since").map(|since| {
                let epoch = since["epoch"].as_str().unwrap_or_default();
                (since["offset"].as_u64().unwrap_or_default(), Box::from(epoch))
            });
            let limit = fields["limit"].as_i64().unwrap_or_default() as i32;
            ApiRequest::History {
                channel,
                query: HistoryQuery { limit, since, reverse: fields["reverse"] == true, bytes_max: None },
            }
        }
        "history_remove" => ApiRequest::HistoryRemove { channel },
        "open_room" => {
            let seed = fields["seed"].as_u64();
            let (params, listing) = (text("params").into(), listing_change(fields));
            let overrides = RoomOverrides { params, seed, listing, continues: false };
            ApiRequest::OpenRoom { channel, overrides: overrides.into() }
        }
        "close_room" => ApiRequest::CloseRoom { channel },
        "change_listing" => ApiRequest::ChangeListing { channel, change: listing_change(fields).into() },
        "kick_from_room" => {
            let target = match (fields["user"].as_str(), fields["player"].as_u64()) {
                (Some(user), _) => KickTarget::User(user.into()),
                (None, Some(player)) => KickTarget::Player(PlayerId(player as u32)),
                (None, None) => KickTarget::Client(text("client").into()),
            };
            let order = KickOrder { target, reason: text("reason").into() };
            ApiRequest::KickFromRoom { channel, order: order.into() }
        }
        "send_to_room" => ApiRequest::SendToRoom { channel, data: Bytes::copy_from_slice(text("data").as_bytes()) },
        "reserve_places" => {
            let users = fields["users"].as_array().into_iter().flatten();
            let users = users.map(|user| user.as_str().unwrap_or_default().into()).collect();
            let number = fields["number"].as_u64().unwrap_or_default();
            let reservation = PlaceReservation { number, users, timeout_ms: 1_000 };
            ApiRequest::ReservePlaces { channel, reservations: [reservation].into() }
        }
        "newest_keys" => ApiRequest::NewestKeys { channel },
        "room_state" => ApiRequest::RoomState { channel, wait_ms: 1_000 },
        "channels" => ApiRequest::Channels,
        "disconnect" => {
            let code = fields["code"].as_u64().map(|code| code as u16);
            let disconnect = code.map_or(Disconnect::FORCE_NO_RECONNECT, |code| Disconnect {
                code,
                reason: text("reason").to_owned().into(),
            });
            let whitelist = fields["whitelist"].as_array().into_iter().flatten();
            let whitelist = whitelist.map(|client| client.as_str().unwrap_or_default().into()).collect();
            ApiRequest::Disconnect { user: text("user").into(), only, whitelist, disconnect }
        }
        "unsubscribe" => {
            let code = fields["code"].as_u64().map_or(UnsubscribeCode::SERVER, |code| UnsubscribeCode(code as u32));
            ApiRequest::Unsubscribe { channel, user: text("user").into(), only, code }
        }
        "subscribe" => {
            let subscription = Box::new(backend::subscription(&channel, fields, now));
            ApiRequest::Subscribe { user: text("user").into(), only, subscription }
        }
        "refresh" => ApiRequest::Refresh {
            user: text("user").into(),
            only,
            expired: fields["expired"] == true,
            expires_at_ms: backend::ttl(fields, now),
            info: backend::payload(&fields["info"]),
        },
        "subscription_pace" => {
            let pace =
                fields["updates"].as_f64().map(|rate| UpdatePace::from_updates_per_second(rate).expect("a pace"));
            ApiRequest::SetPace { user: text("user").into(), only, change: PaceChange::Subscription { channel, pace } }
        }
        "session_pace" => {
            let pace = fields["bytes"].as_f64().map(|rate| BytePace::from_bytes_per_second(rate).expect("a pace"));
            ApiRequest::SetPace { user: text("user").into(), only, change: PaceChange::Session(pace) }
        }
        "sessions" => {
            let after = fields.get("after").map(|after| SessionPlace {
                behind_since_us: after[0].as_u64().unwrap_or(u64::MAX),
                client: after[1].as_str().unwrap_or_default().into(),
            });
            let some = |name: &str| fields[name].as_str().map(Box::from);
            let query = SessionsQuery {
                client: some("client"),
                user: some("user"),
                address: fields["address"].as_str().map(|address| address.parse().expect("an address")),
                channel: some("channel"),
                after,
                sessions_max: fields["limit"].as_u64().unwrap_or(10) as usize,
            };
            ApiRequest::Sessions(query.into())
        }
        "access" => {
            let rules = fields.as_array().into_iter().flatten().map(|fields| rule(fields, now));
            ApiRequest::Access(rules.collect())
        }
        "survey" => ApiRequest::Survey,
        other => panic!("no method {other}"),
    }
}

/// A rule about a `user`, a `token`, or the `tokens_of` a user. Times are seconds from now; `before` is when the tokens were
/// issued.
fn rule(fields: &Value, now: Now) -> AccessRule {
    let kinds = [("user", SubjectKind::User), ("token", SubjectKind::Token), ("tokens_of", SubjectKind::TokensOf)];
    let found = kinds.iter().find_map(|(field, kind)| Some((*kind, fields[*field].as_str()?)));
    let (kind, name) = found.expect("a subject");
    let time = |field: &str| fields[field].as_i64().map(|after_s| now.unix_ms.saturating_add_signed(after_s * 1_000));
    let terms = AccessTerms {
        changed_ms: time("changed").unwrap_or(now.unix_ms),
        before_ms: if fields["lifted"] == true { 0 } else { time("before").unwrap_or(u64::MAX) },
        until_ms: time("until").unwrap_or(u64::MAX),
    };
    AccessRule { subject: AccessSubject { kind, name: name.into() }, terms }
}

fn data(fields: &Value) -> Payload {
    match fields["opaque"].as_str() {
        Some(opaque) => Payload::from_opaque(Bytes::copy_from_slice(opaque.as_bytes())),
        None => Payload::from_json(Bytes::from(fields["data"].to_string())),
    }
}

/// As [`answer`], with the reason of a refusal.
pub fn answer_with_reason(given: &ApiResult) -> Value {
    match given {
        Err(Refused { code, why: Some(why) }) => json!({"error": code.code(), "why": why}),
        given => answer(given),
    }
}

fn tags(fields: &Value) -> dunlin_protocol::Tags {
    let tags = fields["tags"].as_object().into_iter().flatten();
    tags.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect()
}

pub fn answer(answer: &ApiResult) -> Value {
    match answer {
        Err(refused) => json!({"error": refused.code.code()}),
        Ok(ApiAnswer::Published { offset, epoch }) => json!({"offset": offset, "epoch": epoch}),
        Ok(ApiAnswer::Presence(clients)) => {
            Value::Object(clients.iter().map(|info| (info.client.to_string(), client(info))).collect())
        }
        Ok(ApiAnswer::PresenceStats { num_clients, num_users }) => json!({"clients": num_clients, "users": num_users}),
        Ok(ApiAnswer::History { publications, epoch, offset, .. }) => {
            let publications = publications.iter().map(|publication| self::publication(publication));
            json!({"publications": publications.collect::<Vec<_>>(), "epoch": epoch, "offset": offset})
        }
        // Its name alone.
        Ok(ApiAnswer::RoomState(state)) => json!(format!("{state:?}").split(' ').next()),
        Ok(ApiAnswer::NewestKeys(keys)) => {
            let key = |key: &PeerKey| json!({"age_ms": key.age_us / 1_000, "pub": publication(&key.publication)});
            Value::Array(keys.iter().map(key).collect())
        }
        Ok(ApiAnswer::Channels(channels)) => {
            Value::Object(channels.iter().map(|(name, sessions)| (name.to_string(), json!(sessions))).collect())
        }
        Ok(ApiAnswer::Done { sessions }) => json!({"sessions": sessions}),
        Ok(ApiAnswer::NoRoom) => json!("no room"),
        Ok(ApiAnswer::MessageAnswered(Ok(data))) => json!({"data": String::from_utf8_lossy(data)}),
        Ok(ApiAnswer::NotOpened(refusal)) => json!({"not_opened": refusal.message}),
        Ok(ApiAnswer::MessageAnswered(Err(refusal))) => json!({"refused": refusal.code, "message": refusal.message}),
        Ok(ApiAnswer::Sessions(page)) => {
            json!({"sessions": page.sessions.iter().map(session).collect::<Vec<_>>(), "more": page.has_more})
        }
        Ok(ApiAnswer::Survey(survey)) => json!({
            "sessions": survey.sessions,
            "subscriptions": survey.subscriptions,
            "channels": survey.channels,
            "users": survey.users.len(),
            "queued_bytes": survey.queued_bytes,
            "queued_frames": survey.queued_frames,
            "queue_age_ms_max": survey.queue_age_ms_max,
            "behind_sessions": survey.behind_sessions,
        }),
    }
}

fn session(facts: &SessionFacts) -> Value {
    let lane = |lane: LaneFacts| json!([lane.frames, lane.bytes]);
    let channel = |queue: &ChannelQueue| {
        let ages = [queue.oldest_age_us, queue.newest_age_us].map(|us| us / 1_000);
        let name = queue.channel.as_deref().unwrap_or("-");
        json!([name, format!("{:?}", queue.lane), queue.queued.frames, queue.queued.bytes, queue.replaced, ages])
    };
    let mut fields = json!({
        "client": &*facts.info.client,
        "user": &*facts.info.user,
        "subs": facts.subscriptions,
        "reliable": lane(facts.queue.reliable),
        "latest": lane(facts.queue.latest),
        "age_ms": facts.queue.age_us / 1_000,
        "channels": facts.channels.iter().map(channel).collect::<Vec<_>>(),
    });
    let optional = [
        ("connecting", facts.is_connecting.then_some(json!(true))),
        ("cut", facts.are_channels_cut.then_some(json!(true))),
        ("unexamined", (facts.queue.unexamined_frames > 0).then(|| json!(facts.queue.unexamined_frames))),
        ("waits_for", facts.commands_wait_for.map(|waits_for| json!(waits_for.name()))),
        (
            "paced",
            (facts.paces.subscriptions > 0)
                .then(|| json!([facts.paces.subscriptions, facts.paces.updates_per_second_min])),
        ),
        ("bytes_per_second", facts.paces.bytes_per_second.map(|bytes| json!([bytes, facts.paces.is_held]))),
        ("rooms_due", (facts.queue.rooms_due > 0).then(|| json!(facts.queue.rooms_due))),
        ("pong_age_ms", facts.pings.pong_age_us.map(|us| json!(us / 1_000))),
        ("round_trip_ms", facts.pings.round_trip_us.map(|us| json!(us / 1_000))),
        ("unanswered_ms", facts.pings.unanswered_us.map(|us| json!(us / 1_000))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            fields[name] = value;
        }
    }
    fields
}

fn client(info: &ClientInfo) -> Value {
    let mut fields = Map::new();
    fields.insert("user".into(), json!(&*info.user));
    for (name, payload) in [("conn_info", &info.conn_info), ("chan_info", &info.chan_info)] {
        if let Some(payload) = payload {
            fields.insert(name.into(), json!(String::from_utf8_lossy(payload.bytes())));
        }
    }
    Value::Object(fields)
}

fn publication(publication: &Publication) -> Value {
    json!({"offset": publication.offset, "data": String::from_utf8_lossy(publication.data.bytes())})
}

fn listing_change(fields: &Value) -> ListingChange {
    ListingChange {
        players_max: fields["players_max"].as_u64().map(|max| max as u32),
        is_locked: fields["is_locked"].as_bool(),
        is_unlisted: fields["is_unlisted"].as_bool(),
        metadata: fields["metadata"].as_str().map(Into::into),
    }
}
