//! The settings that a room is opened with: its channel, the parameters of its game, its seed, and its listing.

use serde_json::{Map, Value, value::RawValue};

use crate::{ListingChange, Refusal};

/// What is constant about a room.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{RoomInfo, World};
///
/// /// The name of the room without its namespace: `7` of `duels:7`.
/// fn name_of(info: &RoomInfo) -> &str {
///     info.channel.split_once(':').map_or(&*info.channel, |(_, name)| name)
/// }
///
/// /// A game calls it with `world.info()`.
/// fn title(world: &World) -> String {
///     format!("Duel {}", name_of(world.info()))
/// }
/// assert_eq!(name_of(&RoomInfo { channel: "duels:7".into(), ..RoomInfo::default() }), "7");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomInfo {
    /// The channel of the room; empty in a test without one.
    pub channel: Box<str>,
    /// The parameters of the simulation, a JSON document; empty in a test without one.
    pub params: Box<str>,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// Settings of a room that replace those of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomOverrides {
    /// A JSON object whose members replace those of the configured parameters. Empty for none.
    pub params: Box<str>,
    /// The seed; `None` for that of the namespace.
    pub seed: Option<u64>,
    /// How the room is listed, and who may join it, before its first tick. Only the backend sets it.
    pub listing: ListingChange,
    /// Whether the room is opened only if it has state: its players were in it before.
    pub continues: bool,
}

/// Why parameters are not accepted, as a sentence for the opener of the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableParams(pub String);

/// The refusal code of a join with invalid parameters.
const BAD_PARAMS_CODE: u16 = 400;
/// The member of a join's data with parameters for the room that it opens.
const ROOM_PARAMS: &str = "room_params";
/// Maximum number of characters of a parameter's name in a refusal.
const NAME_CHARS_MAX: usize = 60;

impl RoomOverrides {
    /// Whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The overrides that a client requests in the data of its join. Only parameters with `allowed` names are accepted.
    ///
    /// # Errors
    /// The [`Refusal`] of the join.
    pub fn of_join_data(data: &[u8], allowed: &[Box<str>], params_bytes_max: usize) -> Result<Self, Refusal> {
        let refuse = |message: String| Err(Refusal { code: BAD_PARAMS_CODE, message: message.into() });
        let Some(params) = member(data, ROOM_PARAMS) else { return Ok(Self::default()) };
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(params) else {
            return refuse(format!("{ROOM_PARAMS} must be a JSON object"));
        };
        if let Some(name) = fields.keys().find(|name| !allowed.iter().any(|allowed| **allowed == ***name)) {
            let name: String = name.chars().take(NAME_CHARS_MAX).collect();
            return refuse(format!("{ROOM_PARAMS}: a client may not set {name:?}: see room.join_params"));
        }
        if params.len() > params_bytes_max {
            return refuse(format!("{ROOM_PARAMS} is longer than room.params_size_limit"));
        }
        Ok(Self { params: if fields.is_empty() { Box::default() } else { params.into() }, ..Self::default() })
    }

    /// The parameters of the room: the configured ones, with the members of [`RoomOverrides::params`] replacing those
    /// of the same name.
    ///
    /// # Errors
    /// [`UnusableParams`]
    pub fn params_over(&self, configured: &Value) -> Result<Value, UnusableParams> {
        if self.params.is_empty() {
            return Ok(configured.clone());
        }
        let unusable = |text: &str| Err(UnusableParams(text.to_owned()));
        let Ok(own) = serde_json::from_str::<Map<String, Value>>(&self.params) else {
            return unusable("params must be a JSON object");
        };
        let mut merged = match configured {
            Value::Object(fields) => fields.clone(),
            Value::Null => Map::new(),
            _ => return unusable("the configured params are no object, so that none can be replaced"),
        };
        merged.extend(own);
        Ok(Value::Object(merged))
    }
}

/// A member of a JSON object.
fn member<'a>(json: &'a [u8], name: &str) -> Option<&'a str> {
    // Nearly all data lacks the member, and is not parsed.
    json.windows(name.len()).find(|window| *window == name.as_bytes())?;
    let fields: std::collections::BTreeMap<String, &RawValue> = serde_json::from_slice(json).ok()?;
    fields.get(name).map(|value| value.get())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_join(data: &str, params_bytes_max: usize) -> Result<Box<str>, String> {
        let allowed = [Box::from("map"), Box::from("mode")];
        match RoomOverrides::of_join_data(data.as_bytes(), &allowed, params_bytes_max) {
            Ok(overrides) => Ok(overrides.params),
            Err(refusal) => {
                assert_eq!(refusal.code, 400);
                Err(refusal.message.into())
            }
        }
    }

    #[test]
    fn a_client_sets_only_the_listed_params() {
        for (data, params) in [
            ("", ""),
            ("null", ""),
            ("room_params", ""),
            (r#"{"name":"Ada"}"#, ""),
            (r#"{"room_params":{}}"#, ""),
            (r#"{"seat_token":"ab","room_params":{"map":"ice"}}"#, r#"{"map":"ice"}"#),
            (r#"{"room_params":{"mode":[1],"map":2}}"#, r#"{"mode":[1],"map":2}"#),
            (r#"{"other":{"room_params":{"x":1}}}"#, ""),
        ] {
            assert_eq!(of_join(data, 100).as_deref(), Ok(params), "{data}");
        }
        for data in [r#"{"room_params":null}"#, r#"{"room_params":"map"}"#, r#"{"room_params":["map"]}"#] {
            assert_eq!(of_join(data, 100), Err("room_params must be a JSON object".to_owned()), "{data}");
        }
        let refused = of_join(r#"{"room_params":{"map":1,"gold":9}}"#, 100);
        assert_eq!(refused, Err("room_params: a client may not set \"gold\": see room.join_params".to_owned()));
        let data = r#"{"room_params":{"map":1}}"#;
        assert_eq!(of_join(data, 9).as_deref(), Ok(r#"{"map":1}"#));
        assert_eq!(of_join(data, 8), Err("room_params is longer than room.params_size_limit".to_owned()));
    }

    #[test]
    fn own_params_replace_configured_ones_by_name() {
        let over = |params: &str, configured: &Value| {
            let overrides = RoomOverrides { params: params.into(), ..RoomOverrides::default() };
            overrides.params_over(configured).map_err(|error| error.0)
        };
        let configured = json!({"map": {"size": 1, "kind": "ice"}, "mode": "solo"});
        assert_eq!(over("", &configured), Ok(configured.clone()));
        let merged = json!({"map": {"size": 2}, "mode": "solo", "more": null});
        assert_eq!(over(r#"{"map":{"size":2},"more":null}"#, &configured), Ok(merged));
        assert_eq!(over(r#"{"map":1}"#, &Value::Null), Ok(json!({"map": 1})));
        assert!(over("[1]", &configured).is_err() && over(r#"{"map":1}"#, &json!(7)).is_err());
        assert_eq!(over("", &json!(7)), Ok(json!(7)));
    }
}
