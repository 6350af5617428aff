//! Converts the settings of backends to options, and checks them.

use std::{fs::File, io::Read as _, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_engine::{
    backend::ProxyIndex,
    options::{BackendOptions, Options},
};
use dunlin_net::ClientTls;
use dunlin_protocol::Disconnect;
use dunlin_token::SecretUrl;
use hyper::{
    Uri,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;

use super::{
    ProxyOptions, StatusTransform, Transformed, problem::SettingSource, relations::is_namespace_name, resolve::Reader,
    value::shortened, variables::PLACEHOLDERS,
};

/// The engine identifies proxies by 16-bit numbers.
const PROXIES_MAX: usize = 1_000;

/// The name of the proxy outside of the list.
const DEFAULT: &str = "default";

/// Header fields that are specific to one connection or message.
const OF_ONE_MESSAGE: [&str; 11] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// All usable proxies.
#[derive(Debug, Default)]
pub(super) struct ProxyTable {
    pub(super) proxies: Vec<ProxyOptions>,
    /// The table of each proxy, and its name if it has one.
    places: Vec<(String, Option<String>)>,
    /// Tables and names of proxies with an invalid endpoint, which was reported.
    refused: Vec<(String, Option<String>)>,
}

impl ProxyTable {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let mut proxy_table = Self::default();
        for table in ["client.proxy.connect", "client.proxy.refresh"] {
            let is_enabled = r.bool(&format!("{table}.enabled"));
            let proxy = proxy(r, table, table.to_owned());
            if is_enabled && proxy.is_none() && r.text(&format!("{table}.endpoint")).is_empty() {
                r.error(&format!("{table}.endpoint"), "is empty: set the URL of your backend");
            }
            // An explicit `false` is meant.
            if proxy.is_some() && r.settings.source(&format!("{table}.enabled")) == SettingSource::Default {
                let text = format!("has no effect, and the backend is not called: set `{table}.enabled` to true");
                r.warning(&format!("{table}.endpoint"), text);
            }
            proxy_table.add(r, table, None, proxy.filter(|_| is_enabled));
        }
        for table in ["channel.proxy.subscribe", "channel.proxy.publish", "channel.proxy.sub_refresh", "rpc.proxy"] {
            let proxy = proxy(r, table, table.to_owned());
            proxy_table.add(r, table, None, proxy);
        }
        let count = r.settings.len("proxies");
        if count > PROXIES_MAX {
            r.error("proxies", format!("contains more than {PROXIES_MAX} proxies: remove some"));
        }
        for index in 0..count {
            let table = format!("proxies[{index}]");
            let name = r.text(&format!("{table}.name"));
            let name_path = format!("{table}.name");
            let is_taken = name == DEFAULT || proxy_table.places.iter().any(|(_, known)| known.as_ref() == Some(&name));
            if !is_namespace_name(&name) {
                r.error(
                    &name_path,
                    format!(
                        "{:?} is not a valid name: use at least two of the characters a-z A-Z 0-9 - _ .",
                        shortened(&name)
                    ),
                );
            } else if is_taken {
                r.error(
                    &name_path,
                    format!("{:?} is already the name of a proxy: choose a different name", shortened(&name)),
                );
            }
            let proxy = proxy(r, &table, format!("proxies.{name}"));
            if proxy.is_none() && r.text(&format!("{table}.endpoint")).is_empty() {
                r.error(&format!("{table}.endpoint"), "is empty: set the URL of your backend");
            }
            proxy_table.add(r, &table, Some(name), proxy);
        }
        proxy_table
    }

    fn add(&mut self, r: &mut Reader<'_>, table: &str, name: Option<String>, proxy: Option<ProxyOptions>) {
        if let Some(proxy) = proxy {
            self.proxies.push(proxy);
            self.places.push((table.to_owned(), name));
        } else if !r.text(&format!("{table}.endpoint")).is_empty() {
            self.refused.push((table.to_owned(), name));
        }
    }

    /// Whether a namespace refers to a proxy whose endpoint was reported as invalid.
    fn is_refused(&self, name: &str, default: &str) -> bool {
        self.refused.iter().any(|(table, known)| match known {
            Some(known) => known == name,
            None => name == DEFAULT && table == default,
        })
    }

    fn at(&self, table: &str) -> Option<ProxyIndex> {
        let place = self.places.iter().position(|(known, _)| known == table)?;
        u16::try_from(place).ok().map(ProxyIndex)
    }

    /// The proxy that a namespace uses, if any.
    pub(super) fn find(&self, r: &mut Reader<'_>, table: &str, kind: &str, default: &str) -> Option<ProxyIndex> {
        let prefix = if kind.is_empty() { String::new() } else { format!("{kind}_") };
        let name_path = format!("{table}.{prefix}proxy_name");
        let (is_enabled, name) = (r.bool(&format!("{table}.{prefix}proxy_enabled")), r.text(&name_path));
        if !is_enabled {
            return None;
        }
        let found = if name == DEFAULT {
            self.at(default)
        } else {
            let place = self.places.iter().position(|(_, known)| known.as_ref() == Some(&name));
            place.and_then(|place| u16::try_from(place).ok()).map(ProxyIndex)
        };
        if found.is_none() && !self.is_refused(&name, default) {
            let text = if name == DEFAULT {
                format!("uses `{default}`, which has no endpoint: set `{default}.endpoint`")
            } else {
                format!(
                    "{:?} is not the name of an entry in `proxies`: add an entry, or correct the name",
                    shortened(&name)
                )
            };
            r.error(&name_path, text);
        }
        found
    }
}

/// Stores the proxies of each namespace in the engine's options.
pub(super) fn assign(r: &mut Reader<'_>, proxy_table: &ProxyTable, engine: &mut Options) {
    let mut of_namespaces = Vec::new();
    for index in 0..engine.namespaces.len() {
        of_namespaces.push(format!("channel.namespaces[{index}]"));
    }
    let tables = std::iter::once("channel.without_namespace".to_owned()).chain(of_namespaces);
    let namespaces = std::iter::once(&mut engine.without_namespace).chain(&mut engine.namespaces);
    for (table, namespace) in tables.zip(namespaces) {
        namespace.subscribe_proxy = proxy_table.find(r, &table, "subscribe", "channel.proxy.subscribe");
        namespace.publish_proxy = proxy_table.find(r, &table, "publish", "channel.proxy.publish");
        namespace.sub_refresh_proxy = proxy_table.find(r, &table, "sub_refresh", "channel.proxy.sub_refresh");
    }
    engine.backend = BackendOptions {
        connect: proxy_table.at("client.proxy.connect"),
        refresh: proxy_table.at("client.proxy.refresh"),
        rpc_without_namespace: proxy_table.find(r, "rpc.without_namespace", "", "rpc.proxy"),
        rpc_namespaces: rpc_namespaces(r, proxy_table),
        rpc_namespace_boundary: super::resolve::one_character(r, "rpc.namespace_boundary", ':'),
        rpc_ping_method: rpc_ping(r),
        has_node_methods: false,
    };
}

fn rpc_namespaces(r: &mut Reader<'_>, proxy_table: &ProxyTable) -> Vec<(Box<str>, Option<ProxyIndex>)> {
    let mut namespaces: Vec<(Box<str>, Option<ProxyIndex>)> = Vec::new();
    for index in 0..r.settings.len("rpc.namespaces") {
        let table = format!("rpc.namespaces[{index}]");
        let name_path = format!("{table}.name");
        let name = r.text(&name_path);
        if !is_namespace_name(&name) {
            r.error(
                &name_path,
                format!(
                    "{:?} is not a valid name: use at least two of the characters a-z A-Z 0-9 - _ .",
                    shortened(&name)
                ),
            );
        } else if namespaces.iter().any(|(known, _)| **known == *name) {
            r.error(
                &name_path,
                format!("{:?} is already the name of a namespace: choose a different name", shortened(&name)),
            );
        }
        let proxy = proxy_table.find(r, &table, "", "rpc.proxy");
        namespaces.push((name.into(), proxy));
    }
    namespaces
}

fn rpc_ping(r: &mut Reader<'_>) -> Option<Box<str>> {
    let (is_enabled, method) = (r.bool("rpc.ping.enabled"), r.text("rpc.ping.method"));
    if is_enabled && method.is_empty() {
        r.error("rpc.ping.method", "is empty: set a method name");
    }
    is_enabled.then(|| method.into())
}

/// The proxy of a table; `None` if it has no valid endpoint.
fn proxy(r: &mut Reader<'_>, table: &str, label: String) -> Option<ProxyOptions> {
    let at = |key: &str| format!("{table}.{key}");
    let http_headers = http_headers(r, &at("http_headers"));
    let static_headers = static_headers(r, &at("http.static_headers"));
    let transforms = transforms(r, &at("http.status_to_code_transforms"));
    let tls = tls(r, &at("http.tls"));
    let (timeout_ms, breaker_pause_ms) = (r.ms_above_zero(&at("timeout")), r.ms_above_zero(&at("failures_pause")));
    let (binary_encoding, include_meta) = (r.bool(&at("binary_encoding")), r.bool(&at("include_connection_meta")));
    let (requests_max, response_bytes_max) = (r.count(&at("requests_limit")), r.count(&at("response_size_limit")));
    let breaker_failures_max = r.narrow(&at("failures_limit"));
    let endpoint = endpoint(r, &at("endpoint"))?;
    Some(ProxyOptions {
        label,
        endpoint,
        timeout_ms,
        http_headers,
        // Set later from the list of trusted proxies, which is not an option of a backend.
        trusts_proxies: false,
        static_headers,
        transforms,
        binary_encoding,
        include_meta,
        tls,
        requests_max,
        response_bytes_max,
        breaker_failures_max,
        breaker_pause_ms,
    })
}

pub(super) fn endpoint(r: &mut Reader<'_>, path: &str) -> Option<SecretUrl> {
    let text = r.text(path);
    if text.is_empty() {
        return None;
    }
    let url = SecretUrl::new(text);
    let uri = url.reveal().parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    match uri.as_ref().and_then(Uri::scheme_str) {
        Some("http" | "https") => Some(url),
        Some("grpc" | "grpcs") => {
            let text = "is a gRPC URL, but Dunlin calls backends only over HTTP: write one that begins with http:// \
                or \
                        https://";
            r.error(path, text);
            None
        }
        _ => {
            r.error(path, format!("{url:?} is not a URL: write one that begins with http:// or https://"));
            None
        }
    }
}

fn http_headers(r: &mut Reader<'_>, path: &str) -> Vec<Box<str>> {
    let mut names = Vec::new();
    for text in r.texts(path) {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) if OF_ONE_MESSAGE.contains(&name.as_str()) => {
                r.warning(
                    path,
                    format!(
                        "{:?} is specific to the client's own request and is not forwarded: remove it",
                        name.as_str()
                    ),
                );
            }
            Ok(name) => names.push(name.as_str().into()),
            Err(_) => r.error(path, format!("{:?} is not a valid name of a header field", shortened(&text))),
        }
    }
    names
}

/// Maximum length of a PEM file.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Parses a table of names and strings, or a list of tables with `key` and `value`.
pub(super) fn static_headers(r: &mut Reader<'_>, path: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    let fields: Vec<(String, serde_json::Value)> = match r.json(path) {
        serde_json::Value::Null => return map,
        serde_json::Value::Object(fields) => fields.into_iter().collect(),
        list @ serde_json::Value::Array(_) => {
            let Ok(fields) = serde_json::from_value::<Vec<KeyValue>>(list) else {
                r.error(path, "must be a list of tables with `key` and `value`");
                return map;
            };
            fields.into_iter().map(|field| (field.key, field.value)).collect()
        }
        _ => {
            r.error(path, "must be a table of names and strings");
            return map;
        }
    };
    for (name, value) in fields {
        let Some(value) = value.as_str().map(|value| expanded(r, path, value)) else {
            r.error(path, format!("{:?} is not a valid header field with a string value", shortened(&name)));
            continue;
        };
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
            (Ok(name), _) if name == CONTENT_TYPE => {
                r.warning(path, "\"content-type\" has no effect: requests to backends are always JSON. Remove it");
            }
            (Ok(name), _) if OF_ONE_MESSAGE.contains(&name.as_str()) => {
                let text = format!(
                    "{:?} is specific to one connection or message and set by Dunlin. Remove it",
                    name.as_str()
                );
                r.error(path, text);
            }
            (Ok(name), Ok(mut value)) => {
                // Most are keys.
                value.set_sensitive(true);
                map.insert(name, value);
            }
            _ => r.error(path, format!("{:?} is not a valid header field with a string value", shortened(&name))),
        }
    }
    map
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyValue {
    key: String,
    value: serde_json::Value,
}

/// Replaces `${CENTRIFUGO_VAR_NAME}` by the value of the environment variable.
fn expanded(r: &mut Reader<'_>, path: &str, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        out.push_str(before);
        let named =
            behind.split_once('}').filter(|(name, _)| PLACEHOLDERS.iter().any(|prefix| name.starts_with(prefix)));
        let Some((name, after)) = named else {
            out.push_str("${");
            rest = behind;
            continue;
        };
        if let Some(value) = r.settings.placeholder(name) {
            out.push_str(value);
        } else {
            let name = shortened(name);
            r.error(path, format!("contains ${{{name}}}, but there is no environment variable {name}: set it"));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransformTable {
    status_code: u16,
    #[serde(default)]
    to_error: Option<ToError>,
    #[serde(default)]
    to_disconnect: Option<ToDisconnect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToError {
    code: u16,
    #[serde(default)]
    message: Box<str>,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToDisconnect {
    code: u16,
    #[serde(default)]
    reason: String,
}

fn transforms(r: &mut Reader<'_>, path: &str) -> Vec<StatusTransform> {
    let json = r.json(path);
    if json.is_null() {
        return Vec::new();
    }
    let tables: Vec<TransformTable> = match serde_json::from_value(json) {
        Ok(tables) => tables,
        Err(error) => {
            r.error(path, format!("is not a list of transforms: {error}"));
            return Vec::new();
        }
    };
    let mut transforms = Vec::new();
    for TransformTable { status_code: status, to_error, to_disconnect } in tables {
        let to = match (to_error, to_disconnect) {
            (Some(ToError { code: code @ 100..=1_999, message, temporary }), None) => {
                Transformed::Error { code, message, temporary }
            }
            (None, Some(ToDisconnect { code, reason })) if Disconnect::code_for_applications(code.into()).is_some() => {
                Transformed::Disconnect(Disconnect { code, reason: reason.into() })
            }
            _ => {
                let text = format!(
                    "has no meaning for {status}: write either `to_error` with a code from 100 to 1999, or `to_disconnect` \
                     with one from 3000 to 4999"
                );
                r.error(path, text);
                continue;
            }
        };
        transforms.push(StatusTransform { status, to });
    }
    transforms
}

pub(super) fn tls(r: &mut Reader<'_>, table: &str) -> Option<Arc<ClientTls>> {
    let server_name = r.text(&format!("{table}.server_name"));
    client_tls(r, table, server_name)
}

/// The TLS options in `table`, if TLS is enabled there.
pub(super) fn client_tls(r: &mut Reader<'_>, table: &str, server_name: String) -> Option<Arc<ClientTls>> {
    let at = |key: &str| format!("{table}.{key}");
    let is_enabled = r.bool(&at("enabled"));
    let insecure_skip_verify = r.bool(&at("insecure_skip_verify"));
    let mut pems = ["server_ca_pem", "cert_pem", "key_pem"].map(|key| (r.text(&at(key)), at(key)));
    if !is_enabled {
        return None;
    }
    if insecure_skip_verify {
        r.warning(&at("insecure_skip_verify"), "is enabled: any certificate is accepted. Use it only for development");
    }
    for (text, path) in &mut pems {
        *text = pem(r, path, std::mem::take(text));
    }
    let [(server_ca_pem, _), (cert_pem, _), (key_pem, key_path)] = pems;
    if cert_pem.is_empty() != key_pem.is_empty() {
        r.error(&key_path, "needs `cert_pem`: set both, or neither");
        return None;
    }
    let tls = ClientTls { server_ca_pem, cert_pem, key_pem, server_name, insecure_skip_verify };
    if let Err(why) = tls.check() {
        r.error(table, format!("cannot be used: {why}"));
    }
    Some(Arc::new(tls))
}

/// Converts PEM text, the path of a PEM file, or base64 of PEM text to PEM text.
fn pem(r: &mut Reader<'_>, path: &str, text: String) -> String {
    if text.is_empty() || text.contains("-----BEGIN") {
        return text;
    }
    let of_file = File::open(&text).and_then(|file| {
        let mut pem = String::new();
        file.take(PEM_BYTES_MAX + 1).read_to_string(&mut pem).map(|_| pem)
    });
    let of_file = of_file.ok().filter(|pem| pem.len() as u64 <= PEM_BYTES_MAX);
    let of_base64 = || STANDARD.decode(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let found = of_file.or_else(of_base64).filter(|pem| pem.contains("-----BEGIN"));
    found.unwrap_or_else(|| {
        // The message omits the value, which may be a private key in another format.
        r.error(path, "is neither PEM text, nor the path of a readable file with PEM text, nor base64 of PEM text");
        String::new()
    })
}
