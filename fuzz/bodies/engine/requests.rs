//! Requests of the server API.

use bytes::Bytes;
use dunlin_engine::{
    api::{ApiRequest, HistoryQuery, SessionFilter},
    insight::SessionsQuery,
};
use dunlin_protocol::{Disconnect, Payload, UnsubscribeCode};

use super::{Script, USERS, answers, options::CHANNELS};

/// For whom a request is.
pub(super) enum To {
    /// The owner of this channel.
    Owner(&'static str),
    /// Every shard.
    All,
}

pub(super) fn request(script: &mut Script<'_>, now_ms: u64) -> (To, ApiRequest) {
    let name = script.pick(&CHANNELS);
    let user = Box::from(script.pick(&USERS));
    let how = script.next();
    let (channel, only) = (Box::from(name), SessionFilter::default());
    let request = match how % 16 {
        0..=3 => {
            let length = usize::from(script.next());
            let data = match how {
                0..128 => Payload::from_opaque(Bytes::copy_from_slice(script.take(length))),
                _ => Payload::from_json(Bytes::from(format!("[{length},\"{}\"]", "more".repeat(length / 8)))),
            };
            ApiRequest::Publish { channel, data, how: answers::publish(script) }
        }
        4 => {
            let since = (how >= 128).then(|| (u64::from(how % 64), Box::default()));
            let (limit, reverse) = (i32::from(how) - 128, how >= 64);
            let query = HistoryQuery { limit, since, reverse, ..HistoryQuery::default() };
            ApiRequest::History { channel, query }
        }
        5 => ApiRequest::HistoryRemove { channel },
        6 => ApiRequest::Presence { channel },
        7 => ApiRequest::PresenceStats { channel },
        8 => ApiRequest::OpenRoom { channel, overrides: std::sync::Arc::default() },
        9 => ApiRequest::CloseRoom { channel },
        10 => {
            let subscription = Box::new(answers::server_subscription(script, now_ms));
            return (To::All, ApiRequest::Subscribe { user, only, subscription });
        }
        11 => {
            let (expires_at_ms, info) = (answers::expiry(script, now_ms), answers::info(script));
            return (To::All, ApiRequest::Refresh { user, only, expired: how >= 192, expires_at_ms, info });
        }
        12 => {
            let channel = if how >= 128 { Box::default() } else { channel };
            return (To::All, ApiRequest::Unsubscribe { channel, user, only, code: UnsubscribeCode::SERVER });
        }
        13 => {
            let (whitelist, disconnect) = (Vec::new(), Disconnect::FORCE_NO_RECONNECT);
            return (To::All, ApiRequest::Disconnect { user, only, whitelist, disconnect });
        }
        14 if how >= 128 => {
            let (user, channel) = ((how >= 192).then_some(user), (how % 32 >= 16).then_some(channel));
            let sessions_max = usize::from(script.next() % 4);
            let query = SessionsQuery { user, channel, sessions_max, ..SessionsQuery::default() };
            return (To::All, ApiRequest::Sessions(query.into()));
        }
        14 => return (To::All, ApiRequest::Channels),
        _ => return (To::All, ApiRequest::Survey),
    };
    (To::Owner(name), request)
}
