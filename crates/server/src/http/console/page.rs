//! The files of the console's page. `web/bundled` writes them from `web/console`.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

/// What the page may do: run its own script, use its own styles, and ask its own node. Its script cannot turn text into
/// markup: the browser refuses that (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A file.
pub struct PageFile {
    /// Its name below the console's path; empty for the page itself.
    pub name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

/// All files.
pub const FILES: [PageFile; 3] = [
    PageFile { name: "", content_type: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    PageFile {
        name: "console.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("page/console.js"),
    },
    PageFile { name: "console.css", content_type: "text/css; charset=utf-8", text: include_str!("page/console.css") },
];

impl PageFile {
    /// The response to a request with these header fields.
    pub fn answer(&self, headers: &HeaderMap) -> Response {
        let digest = Sha256::digest(self.text);
        let tag = digest.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let etag = format!("\"{tag:016x}\"");
        let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
        let mut response = if is_known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let content_type = [(header::CONTENT_TYPE, self.content_type)];
            (content_type, Bytes::from_static(self.text.as_bytes())).into_response()
        };
        let fields = response.headers_mut();
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Ok(etag) = HeaderValue::try_from(etag) {
            fields.insert(header::ETAG, etag);
        }
        guarded(response)
    }
}

/// Adds the header fields that all responses of the console have.
pub fn guarded(mut response: Response) -> Response {
    let fields = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        fields.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if !fields.contains_key(header::CACHE_CONTROL) {
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
