//! The settings of a node as people may see them: without secrets.

use dunlin_token::SecretUrl;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    duration::format_ms,
    keys::{self, ValueKind},
    reload::without_names,
    value::Value,
};

/// A setting that is not at its default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownSetting {
    /// The key. Tables in lists are identified by their names.
    pub key: String,
    /// The value, or what of it may be shown.
    pub value: Json,
    /// Whether the value, or a part of it, is hidden.
    pub hidden: bool,
}

impl ShownSetting {
    pub(super) fn new(path: &str, value: &Value) -> Self {
        let kind = keys::at(&without_names(path)).map(|key| key.kind);
        let (value, hidden) = match (kind, value) {
            // The kind of a value without a key is unknown. A list of tables is one text.
            (None | Some(ValueKind::Secret | ValueKind::Table(_) | ValueKind::Tables(_)), _) => (Json::Null, true),
            (Some(ValueKind::Url), Value::Text(text)) => {
                let shown: Vec<_> = text.split(',').map(shown_url).collect();
                let shown = shown.join(",");
                (json!(shown), shown != *text)
            }
            // Its members may be header fields of requests to a backend.
            (Some(ValueKind::Any), Value::Any { json: Json::Object(members), .. }) => {
                (json!(members.keys().collect::<Vec<_>>()), true)
            }
            (_, Value::Millis(ms)) => (u64::try_from(*ms).map_or(json!("-1"), |ms| json!(format_ms(ms))), false),
            (_, value) => (value.to_json(), false),
        };
        Self { key: path.to_owned(), value, hidden }
    }
}

/// A URL without user information and query.
fn shown_url(url: &str) -> String {
    let shown = SecretUrl::new(url.trim()).without_user_info();
    shown.split(['?', '#']).next().unwrap_or_default().to_owned()
}
