//! Profiles that are pushed to a Pyroscope server (`profiling.pyroscope.*`).

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_net::ClientTls;
use dunlin_token::SecretUrl;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::{proxies, resolve::Reader, value::shortened};

const ENABLED: &str = "profiling.pyroscope.enabled";
const ADDRESS: &str = "profiling.pyroscope.address";
const APPLICATION_NAME: &str = "profiling.pyroscope.application_name";
const TAGS: &str = "profiling.pyroscope.tags";
const INTERVAL: &str = "profiling.pyroscope.interval";
const BASIC_AUTH_USER: &str = "profiling.pyroscope.basic_auth_user";
const BASIC_AUTH_PASSWORD: &str = "profiling.pyroscope.basic_auth_password";
const TENANT_ID: &str = "profiling.pyroscope.tenant_id";

/// Bounds of the interval. A shorter one would have few samples, a longer one much to lose.
const INTERVAL_MS_MIN: u64 = 1_000;
const INTERVAL_MS_MAX: u64 = 300_000;

/// What the server takes below its address.
const INGEST: &str = "/ingest";

/// The tenant of a server with several.
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Where profiles are pushed.
#[derive(Clone, Debug)]
pub struct PyroscopeOptions {
    /// The URL that takes profiles.
    pub endpoint: SecretUrl,
    /// The application, with a name that the server accepts.
    pub application_name: String,
    /// Its tags: names and values that the server accepts.
    pub tags: Vec<(String, String)>,
    /// Duration of a profile.
    pub interval_ms: u64,
    /// Timeout of a request.
    pub timeout_ms: u64,
    /// The header fields with the password and the tenant. Their values are marked as sensitive.
    pub headers: HeaderMap,
    /// TLS options that differ from the defaults.
    pub tls: Option<Arc<ClientTls>>,
}

/// Where profiles are pushed; `None` if nowhere.
pub(super) fn options(r: &mut Reader<'_>) -> Option<PyroscopeOptions> {
    let is_enabled = r.bool(ENABLED);
    let has_address = !r.text(ADDRESS).is_empty();
    if is_enabled && !has_address {
        r.error(ADDRESS, "is empty: set the URL of the Pyroscope server, such as \"http://localhost:4040\"");
    }
    let address = proxies::endpoint(r, ADDRESS);
    let options = PyroscopeOptions {
        endpoint: address.as_ref().map(|address| below(r, address)).unwrap_or_default(),
        application_name: application_name(r),
        tags: tags(r),
        interval_ms: interval_ms(r),
        timeout_ms: r.ms_above_zero("profiling.pyroscope.timeout"),
        headers: headers(r),
        tls: proxies::tls(r, "profiling.pyroscope.tls"),
    };
    if has_address && !is_enabled {
        r.warning(ADDRESS, "has no effect: set `profiling.pyroscope.enabled` to true, or remove it");
    }
    address.filter(|_| is_enabled).map(|_| options)
}

/// The URL that takes profiles.
fn below(r: &mut Reader<'_>, address: &SecretUrl) -> SecretUrl {
    if address.reveal().contains(['?', '#']) {
        r.error(ADDRESS, "has a query: write the URL without it");
    }
    SecretUrl::new(format!("{}{INGEST}", address.reveal().trim_end_matches('/')))
}

fn application_name(r: &mut Reader<'_>) -> String {
    let name = r.text(APPLICATION_NAME);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if name.is_empty() || !name.chars().all(is_allowed) {
        let text = format!("is {:?}: a name has letters, digits and `_`, `.`, `-`, `/`", shortened(&name));
        r.error(APPLICATION_NAME, text);
    }
    name
}

fn tags(r: &mut Reader<'_>) -> Vec<(String, String)> {
    let table = match r.json(TAGS) {
        serde_json::Value::Null => return Vec::new(),
        serde_json::Value::Object(table) => table,
        _ => {
            r.error(TAGS, "must be a table of names and texts");
            return Vec::new();
        }
    };
    let mut tags = Vec::new();
    for (name, value) in table {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || name.starts_with("__") || !name.chars().all(is_name) {
            let text = format!("has {:?}: a tag has letters, digits, `_` and `.`", shortened(&name));
            r.error(TAGS, text);
            continue;
        }
        // The server's own format has no way to write these.
        match value.as_str().filter(|value| !value.is_empty() && !value.contains([',', '{', '}'])) {
            Some(value) => tags.push((name, value.to_owned())),
            None => r.error(TAGS, format!("{name:?} must be a text without commas and braces")),
        }
    }
    tags
}

fn interval_ms(r: &mut Reader<'_>) -> u64 {
    let ms = r.ms(INTERVAL);
    if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&ms) {
        r.error(INTERVAL, "must be from 1s to 5m");
    }
    ms
}

fn headers(r: &mut Reader<'_>) -> HeaderMap {
    let (user, password, tenant) = (r.text(BASIC_AUTH_USER), r.text(BASIC_AUTH_PASSWORD), r.text(TENANT_ID));
    if user.is_empty() != password.is_empty() {
        r.error(BASIC_AUTH_PASSWORD, "needs `profiling.pyroscope.basic_auth_user`: set both, or neither");
    }
    if user.contains(':') {
        r.error(BASIC_AUTH_USER, "has a colon, which would end the name: remove it");
    }
    let mut headers = HeaderMap::new();
    let basic = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    for (name, value, is_set) in
        [(AUTHORIZATION, basic, !user.is_empty()), (TENANT, tenant.clone(), !tenant.is_empty())]
    {
        match HeaderValue::from_str(&value) {
            Ok(mut value) if is_set => {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            Err(_) if is_set => r.error(TENANT_ID, "is no value of a header field: remove control characters"),
            _ => {}
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigInput, Document, Format, PyroscopeOptions};

    fn read(text: &str) -> Result<(Option<PyroscopeOptions>, String), String> {
        let document = Document { name: "config.toml".to_owned(), format: Format::Toml, text: text.to_owned() };
        let input = ConfigInput { document: Some(document), ..ConfigInput::default() };
        let (config, warnings) = Config::from_input(&input).map_err(|problems| problems.to_string())?;
        Ok((config.pyroscope, warnings.iter().map(ToString::to_string).collect()))
    }

    fn with(more: &str) -> Result<(Option<PyroscopeOptions>, String), String> {
        let enabled = r#"enabled = true, address = "http://localhost:4040""#;
        read(&format!("profiling.pyroscope = {{ {enabled}{more} }}"))
    }

    #[test]
    fn profiles_are_pushed_where_they_are_wanted() {
        assert!(read("shards = 1").expect("good").0.is_none());
        let options = with("").expect("good").0.expect("it is enabled");
        assert_eq!(options.endpoint.reveal(), "http://localhost:4040/ingest");
        assert_eq!((options.application_name.as_str(), options.interval_ms), ("dunlin", 15_000));
        assert!(options.tags.is_empty() && options.headers.is_empty());
        let (off, warning) = read(r#"profiling.pyroscope.address = "http://localhost:4040/""#).expect("good");
        assert!(off.is_none() && warning.contains("set `profiling.pyroscope.enabled` to true"), "{warning}");
    }

    #[test]
    fn secrets_are_in_header_fields_and_nowhere_else() {
        let more = r#", basic_auth_user = "u", basic_auth_password = "hunter2", tenant_id = "tenant-7""#;
        let options = with(more).expect("good").0.expect("it is enabled");
        assert_eq!(options.headers["authorization"].as_bytes(), b"Basic dTpodW50ZXIy");
        assert_eq!(options.headers["x-scope-orgid"].as_bytes(), b"tenant-7");
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("tenant-7") && !shown.contains("dTpodW50ZXIy"),
            "{shown}"
        );
    }

    #[test]
    fn wrong_options_are_named() {
        for (more, expected) in [
            (r#", application_name = """#, "profiling.pyroscope.application_name"),
            (r#", application_name = "a b""#, "a name has letters"),
            (r#", tags = "a""#, "must be a table of names and texts"),
            (r#", tags = { "a-b" = "c" }"#, "has \"a-b\": a tag has letters"),
            (r#", tags = { __name__ = "c" }"#, "has \"__name__\""),
            (r#", tags = { a = "b,c=d" }"#, "\"a\" must be a text without commas"),
            (", tags = { a = 1 }", "\"a\" must be a text"),
            (r#", interval = "999ms""#, "must be from 1s to 5m"),
            (r#", interval = "301s""#, "must be from 1s to 5m"),
            (r#", timeout = "0s""#, "profiling.pyroscope.timeout"),
            (r#", basic_auth_password = "hunter2""#, "set both, or neither"),
            (r#", basic_auth_user = "u:v", basic_auth_password = "hunter2""#, "has a colon"),
            (", tenant_id = \"a\\nb\"", "is no value of a header field"),
        ] {
            let text = with(more).expect_err(more);
            assert!(text.contains(expected) && !text.contains("hunter2"), "{more}: {text}");
        }
        for (interval, ms) in [("1s", 1_000), ("5m", 300_000)] {
            let options = with(&format!(", interval = \"{interval}\"")).expect("good").0.expect("it is enabled");
            assert_eq!(options.interval_ms, ms);
        }
        let text = read("profiling.pyroscope.enabled = true").expect_err("no address");
        assert!(text.contains("profiling.pyroscope.address: is empty"), "{text}");
        let text = read(r#"profiling.pyroscope = { enabled = true, address = "localhost:4040" }"#).expect_err("no URL");
        assert!(text.contains("http://"), "{text}");
    }
}
