//! The `OpenAPI` description of the server API, `schema/openapi.json`, and a page that renders it without external
//! resources.

use std::fmt::Write as _;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::Value;

/// The `OpenAPI` document.
pub const DOCUMENT: &str = include_str!("../../../../schema/openapi.json");

/// The page's one style; nothing else may be loaded or run.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET {prefix}/openapi.json`
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// `GET {prefix}`
pub async fn page() -> Response {
    let fields = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (fields, html()).into_response()
}

fn html() -> String {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap_or_default();
    let mut page = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>Dunlin's server API</title><style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}\
         code{background:#8881;padding:0 .2em}td{vertical-align:top;padding:.1rem 1rem .1rem 0}</style>",
    );
    let _ =
        write!(page, "<h1>{}</h1><p>{}</p>", text(&document["info"]["title"]), text(&document["info"]["description"]));
    page.push_str("<p>For programs: <code>openapi.json</code> (OpenAPI 3.1) below this page's path.</p>");
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let _ = write!(
            page,
            "<h2><code>POST {}</code></h2><p>{}</p><table>",
            escaped(path),
            text(&item["post"]["summary"])
        );
        let schema = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        for (name, field) in resolved(&document, schema)["properties"].as_object().into_iter().flatten() {
            let field_type = match &field["type"] {
                Value::String(name) => name.clone(),
                _ => String::new(),
            };
            let (name, description) = (escaped(name), text(&field["description"]));
            let _ = write!(page, "<tr><td><code>{name}</code><td>{field_type}<td>{description}");
        }
        page.push_str("</table>");
    }
    page
}

/// A schema; if it is a reference, the schema to which it refers.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
        Some(path) => document.pointer(path).unwrap_or(&Value::Null),
        None => schema,
    }
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}
