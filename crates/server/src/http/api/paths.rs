//! The method `room_paths`: where the players of a room went.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dunlin_rooms::paths::{BlockHeader, PATH_BLOCK_BYTES_MAX, PathPoint, decode_block};
use dunlin_storage::{PathOwner, PathPage, PathPlace, PathQuery};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    result,
};
use crate::{json_members::empty_if_null, node::Node};

/// Default number of points in one response.
const POINTS_DEFAULT: u32 = 10_000;

/// Maximum number of points in a response. The last block of a response is not truncated.
const POINTS_MAX: u32 = 100_000;

/// Maximum number of blocks that one request reads.
const BLOCKS_MAX: usize = 4_096;

/// Maximum length of a cursor, which contains a user's name and two numbers.
const CURSOR_CHARS_MAX: usize = 90_000;

/// The paths that a request selects, and the points of these paths.
#[derive(Clone, Debug)]
pub struct PathsWanted {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// The owner of the paths; `None` for all players.
    pub owner: Option<PathOwner>,
    /// Selects only the player with this avatar.
    pub avatar: Option<u32>,
    /// Unix time of the first point.
    pub from_ms: u64,
    /// Unix time of the last point.
    pub to_ms: u64,
    /// The response ends with the block in which it reaches this number of points.
    pub points_max: u32,
    /// Minimum time between two points of a player. Points in between are omitted.
    pub interval_ms: u64,
    /// The end of the last response.
    pub cursor: Option<PathPlace>,
}

/// Blocks in a response. The length precedes each block: 4 bytes, big-endian.
#[derive(Debug)]
pub struct BinaryPaths {
    /// The blocks, as rooms encode them.
    pub body: Vec<u8>,
    /// Where the next request continues.
    pub more: Option<String>,
}

#[derive(Serialize)]
struct PathsJson {
    paths: Vec<PathJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<String>,
}

#[derive(Serialize)]
struct PathJson {
    player: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    avatar: Option<u32>,
    /// Unix time, x and y.
    points: Vec<(u64, u32, u32)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomPathsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    pub player: Option<u32>,
    pub avatar: Option<u32>,
    #[serde(deserialize_with = "empty_if_null")]
    pub from_ms: u64,
    pub to_ms: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub limit: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub interval_ms: u64,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

impl Command for PathsWanted {
    type Params = RoomPathsParams;

    fn check(params: RoomPathsParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let RoomPathsParams { channel, user, player, avatar, from_ms, to_ms, limit, interval_ms, cursor } = params;
        let fields = PathFields { user, player, avatar, from_ms, to_ms, limit, interval_ms, cursor };
        Self::new(named(channel)?, fields)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        read_json(executor.own().node(), self).await
    }
}

impl PathsWanted {
    /// Checks the fields of a request.
    ///
    /// # Errors
    /// 107
    fn new(channel: Box<str>, fields: PathFields) -> Result<Self, ApiError> {
        let owner = match (fields.user, fields.player) {
            (user, Some(player)) if user.is_empty() => Some(PathOwner::Player(player)),
            (_, Some(_)) => return Err(ApiError::bad_request("name a user or a player, not both")),
            (user, None) => (!user.is_empty()).then(|| PathOwner::User(user.into())),
        };
        let to_ms = fields.to_ms.unwrap_or(u64::MAX);
        if fields.from_ms > to_ms {
            return Err(ApiError::bad_request("from_ms is after to_ms"));
        }
        let cursor = if fields.cursor.is_empty() {
            None
        } else {
            Some(read_cursor(&fields.cursor).ok_or_else(|| ApiError::bad_request("cursor is not from an answer"))?)
        };
        if cursor.as_ref().is_some_and(|place| owner.as_ref().is_some_and(|owner| *owner != place.owner)) {
            return Err(ApiError::bad_request("cursor is of another user or player"));
        }
        let points_max = if fields.limit == 0 { POINTS_DEFAULT } else { fields.limit.min(POINTS_MAX) };
        let PathFields { avatar, from_ms, interval_ms, .. } = fields;
        Ok(Self { channel, owner, avatar, from_ms, to_ms, points_max, interval_ms, cursor })
    }

    /// Selects all points since a time, of the player with this avatar or of all players.
    ///
    /// # Errors
    /// 107
    pub fn of_avatar(channel: Box<str>, avatar: Option<u32>, from_ms: u64, cursor: &str) -> Result<Self, ApiError> {
        Self::new(channel, PathFields { avatar, from_ms, cursor: cursor.to_owned(), ..PathFields::default() })
    }
}

/// The fields of a request besides the channel.
#[derive(Default)]
struct PathFields {
    user: String,
    player: Option<u32>,
    avatar: Option<u32>,
    from_ms: u64,
    to_ms: Option<u64>,
    limit: u32,
    interval_ms: u64,
    cursor: String,
}

/// Reads paths as JSON.
///
/// # Errors
/// 102, 107, 108 if the namespace stores no paths, 100 if the storage fails.
pub async fn read_json(node: &Node, wanted: PathsWanted) -> JsonResult {
    let page = read(node, &wanted).await?;
    let mut answer = PathsJson { paths: Vec::new(), more: page.next.as_ref().map(write_cursor) };
    let mut points = 0;
    for block in page.blocks {
        if points >= wanted.points_max as usize {
            answer.more = Some(write_cursor(&block.place));
            break;
        }
        let decoded = decode_block(&block.bytes).map_err(|_| ApiError::INTERNAL)?;
        points += append(&mut answer.paths, &decoded.header, &decoded.points, &wanted);
    }
    result::to_outcome(&answer)
}

/// Reads the blocks that overlap the time range, without decoding them.
///
/// # Errors
/// As [`read_json`].
pub async fn read_binary(node: &Node, wanted: PathsWanted) -> Result<BinaryPaths, ApiError> {
    let page = read(node, &wanted).await?;
    let mut answer = BinaryPaths { body: Vec::new(), more: page.next.as_ref().map(write_cursor) };
    let mut points = 0;
    for block in page.blocks {
        if points >= wanted.points_max as usize {
            answer.more = Some(write_cursor(&block.place));
            break;
        }
        let decoded = decode_block(&block.bytes).map_err(|_| ApiError::INTERNAL)?;
        let is_wanted = |point: &PathPoint| {
            (wanted.from_ms..=wanted.to_ms).contains(&decoded.header.time_ms(point.tick))
                && is_of(&decoded.header, &wanted)
        };
        if decoded.points.iter().any(is_wanted) {
            points += decoded.points.len();
            answer.body.extend_from_slice(&(block.bytes.len() as u32).to_be_bytes());
            answer.body.extend_from_slice(&block.bytes);
        }
    }
    Ok(answer)
}

async fn read(node: &Node, wanted: &PathsWanted) -> Result<PathPage, ApiError> {
    let Some(reach_ms) = node.path_block_ms(&wanted.channel)? else {
        return Err(ApiError::unsupported("the namespace stores no paths; set room.paths.enabled"));
    };
    let storage = node.storage().ok_or(ApiError::INTERNAL)?;
    let query = PathQuery {
        room: Arc::from(&*wanted.channel),
        owner: wanted.owner.clone(),
        times_ms: wanted.from_ms..=wanted.to_ms,
        reach_ms,
        from: wanted.cursor.clone(),
        blocks_max: BLOCKS_MAX,
    };
    let (sender, page) = oneshot::channel();
    // The receiver is gone after the request's timeout.
    let done = Box::new(move |outcome| drop(sender.send(outcome)));
    storage.storage().read_paths(query, done).map_err(|_| ApiError::INTERNAL)?;
    page.await.map_err(|_| ApiError::INTERNAL)?.map_err(|_| ApiError::INTERNAL)
}

/// Appends the selected points of a block. Blocks of one player become one path. Returns the number of appended points.
fn append(paths: &mut Vec<PathJson>, header: &BlockHeader<'_>, points: &[PathPoint], wanted: &PathsWanted) -> usize {
    if !is_of(header, wanted) {
        return 0;
    }
    let avatar = header.avatar.map(|avatar| avatar.0);
    let continues =
        |path: &PathJson| path.player == header.player.0 && path.user == header.user && path.avatar == avatar;
    if !paths.last().is_some_and(continues) {
        paths.push(PathJson { player: header.player.0, user: header.user.to_owned(), avatar, points: Vec::new() });
    }
    let Some(path) = paths.last_mut() else { return 0 };
    let before = path.points.len();
    for PathPoint { tick, position } in points {
        let time_ms = header.time_ms(*tick);
        let is_near =
            path.points.last().is_some_and(|(last_ms, ..)| time_ms < last_ms.saturating_add(wanted.interval_ms));
        if (wanted.from_ms..=wanted.to_ms).contains(&time_ms) && !is_near {
            path.points.push((time_ms, position.x, position.y));
        }
    }
    let appended = path.points.len() - before;
    if path.points.is_empty() {
        paths.pop();
    }
    appended
}

fn is_of(header: &BlockHeader<'_>, wanted: &PathsWanted) -> bool {
    wanted.avatar.is_none_or(|avatar| header.avatar.is_some_and(|own| own.0 == avatar))
}

fn write_cursor(place: &PathPlace) -> String {
    let PathPlace { owner, first_ms, player } = place;
    URL_SAFE_NO_PAD.encode(match owner {
        PathOwner::User(user) => format!("{first_ms} {player} u{user}"),
        PathOwner::Player(number) => format!("{first_ms} {player} p{number}"),
    })
}

fn read_cursor(cursor: &str) -> Option<PathPlace> {
    if cursor.len() > CURSOR_CHARS_MAX {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(3, ' ');
    let (first_ms, player, owner) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let owner = match owner.split_at_checked(1)? {
        ("u", user) => PathOwner::User(user.into()),
        ("p", number) => PathOwner::Player(number.parse().ok()?),
        _ => return None,
    };
    Some(PathPlace { owner, first_ms, player })
}

/// Maximum size of a binary response.
const _: () = assert!(BLOCKS_MAX * (PATH_BLOCK_BYTES_MAX + 4) <= 17 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_other_texts_are_refused() {
        for owner in [PathOwner::User("a b".into()), PathOwner::User("ü".into()), PathOwner::Player(7)] {
            let place = PathPlace { owner, first_ms: u64::MAX, player: 3 };
            assert_eq!(read_cursor(&write_cursor(&place)), Some(place));
        }
        for text in ["", "1", "1 2", "1 2 ", "1 2 x", "1 2 p-1", "a 2 ux", "-1 2 ux"] {
            assert_eq!(read_cursor(&URL_SAFE_NO_PAD.encode(text)), None, "{text}");
        }
        assert_eq!(read_cursor("!"), None);
        assert_eq!(read_cursor(&"A".repeat(CURSOR_CHARS_MAX + 1)), None);
    }

    #[test]
    fn path_requests_are_validated() {
        let new = |fields| PathsWanted::new("arena:1".into(), fields);
        assert_eq!(new(PathFields::default()).expect("valid").points_max, POINTS_DEFAULT);
        let limit = |limit| new(PathFields { limit, ..PathFields::default() }).expect("valid").points_max;
        assert_eq!((limit(POINTS_MAX), limit(POINTS_MAX + 1), limit(1)), (POINTS_MAX, POINTS_MAX, 1));
        let cursor = write_cursor(&PathPlace { owner: PathOwner::Player(1), first_ms: 2, player: 1 });
        assert!(new(PathFields { cursor: cursor.clone(), player: Some(1), ..PathFields::default() }).is_ok());
        for wrong in [
            PathFields { user: "ada".into(), player: Some(1), ..PathFields::default() },
            PathFields { from_ms: 2, to_ms: Some(1), ..PathFields::default() },
            PathFields { cursor: "x".into(), ..PathFields::default() },
            PathFields { cursor, player: Some(2), ..PathFields::default() },
        ] {
            assert_eq!(new(wrong).expect_err("invalid").code(), 107);
        }
    }
}
