//! Backends: from settings to what they mean, and what has to be right about them.

use std::{fs, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_engine::{
    backend::ProxyIndex,
    options::{BackendOptions, Options},
};
use dunlin_protocol::Disconnect;
use hyper::{
    Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;

use super::{Secret, relations::is_namespace_name, resolve::Reader, value::shortened};
use crate::backend::{ClientTls, ProxyOptions, StatusTransform, Transformed};

/// The engine numbers proxies with 16 bits.
const PROXIES_MAX: usize = 1_000;

/// The name of the proxy that is no part of the list.
const DEFAULT: &str = "default";

/// Header fields that are of one connection or of one message, and mean nothing on another.
const OF_ONE_MESSAGE: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// All proxies that can be asked.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) proxies: Vec<ProxyOptions>,
    /// Where each stands, and its name if it has one.
    places: Vec<(String, Option<String>)>,
}

impl Book {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let mut book = Self::default();
        for table in ["client.proxy.connect", "client.proxy.refresh"] {
            let is_enabled = r.bool(&format!("{table}.enabled"));
            let proxy = proxy(r, table, table.to_owned());
            if is_enabled && proxy.is_none() && r.text(&format!("{table}.endpoint")).is_empty() {
                r.error(&format!("{table}.endpoint"), "is not set, so there is nobody to ask");
            }
            book.add(table, None, proxy.filter(|_| is_enabled));
        }
        for table in ["channel.proxy.subscribe", "channel.proxy.publish", "channel.proxy.sub_refresh", "rpc.proxy"] {
            let proxy = proxy(r, table, table.to_owned());
            book.add(table, None, proxy);
        }
        let count = r.settings.len("proxies");
        if count > PROXIES_MAX {
            r.error("proxies", format!("holds more than {PROXIES_MAX} proxies"));
        }
        for index in 0..count {
            let table = format!("proxies[{index}]");
            let name = r.text(&format!("{table}.name"));
            let name_path = format!("{table}.name");
            let is_taken = name == DEFAULT || book.places.iter().any(|(_, known)| known.as_ref() == Some(&name));
            if !is_namespace_name(&name) {
                r.error(
                    &name_path,
                    format!("{:?} is not a name of at least two of a-z A-Z 0-9 - _ .", shortened(&name)),
                );
            } else if is_taken {
                r.error(&name_path, format!("{:?} is a proxy's name already", shortened(&name)));
            }
            let proxy = proxy(r, &table, format!("proxies.{name}"));
            if proxy.is_none() && r.text(&format!("{table}.endpoint")).is_empty() {
                r.error(&format!("{table}.endpoint"), "is not set, so there is nobody to ask");
            }
            book.add(&table, Some(name), proxy);
        }
        book
    }

    fn add(&mut self, table: &str, name: Option<String>, proxy: Option<ProxyOptions>) {
        if let Some(proxy) = proxy {
            self.proxies.push(proxy);
            self.places.push((table.to_owned(), name));
        }
    }

    fn at(&self, table: &str) -> Option<ProxyIndex> {
        let place = self.places.iter().position(|(known, _)| known == table)?;
        u16::try_from(place).ok().map(ProxyIndex)
    }

    /// Whom a namespace means by a name, if it asks anybody.
    fn find(&self, r: &mut Reader<'_>, table: &str, kind: &str, default: &str) -> Option<ProxyIndex> {
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
        if found.is_none() {
            let text = if name == DEFAULT {
                format!("asks `{default}`, which has no endpoint: set `{default}.endpoint`")
            } else {
                format!("{:?} is the name of none of `proxies`", shortened(&name))
            };
            r.error(&name_path, text);
        }
        found
    }
}

/// Tells the engine whom to ask about what.
pub(super) fn assign(r: &mut Reader<'_>, book: &Book, engine: &mut Options) {
    let mut of_namespaces = Vec::new();
    for index in 0..engine.namespaces.len() {
        of_namespaces.push(format!("channel.namespaces[{index}]"));
    }
    let tables = std::iter::once("channel.without_namespace".to_owned()).chain(of_namespaces);
    let namespaces = std::iter::once(&mut engine.without_namespace).chain(&mut engine.namespaces);
    for (table, namespace) in tables.zip(namespaces) {
        namespace.subscribe_proxy = book.find(r, &table, "subscribe", "channel.proxy.subscribe");
        namespace.publish_proxy = book.find(r, &table, "publish", "channel.proxy.publish");
        namespace.sub_refresh_proxy = book.find(r, &table, "sub_refresh", "channel.proxy.sub_refresh");
    }
    engine.backend = BackendOptions {
        connect: book.at("client.proxy.connect"),
        refresh: book.at("client.proxy.refresh"),
        rpc_without_namespace: book.find(r, "rpc.without_namespace", "", "rpc.proxy"),
        rpc_namespaces: rpc_namespaces(r, book),
        rpc_namespace_boundary: super::resolve::one_character(r, "rpc.namespace_boundary", ':'),
        rpc_ping_method: rpc_ping(r),
    };
}

fn rpc_namespaces(r: &mut Reader<'_>, book: &Book) -> Vec<(Box<str>, Option<ProxyIndex>)> {
    let mut namespaces: Vec<(Box<str>, Option<ProxyIndex>)> = Vec::new();
    for index in 0..r.settings.len("rpc.namespaces") {
        let table = format!("rpc.namespaces[{index}]");
        let name_path = format!("{table}.name");
        let name = r.text(&name_path);
        if !is_namespace_name(&name) {
            r.error(&name_path, format!("{:?} is not a name of at least two of a-z A-Z 0-9 - _ .", shortened(&name)));
        } else if namespaces.iter().any(|(known, _)| **known == *name) {
            r.error(&name_path, format!("{:?} is a namespace's name already", shortened(&name)));
        }
        let proxy = book.find(r, &table, "", "rpc.proxy");
        namespaces.push((name.into(), proxy));
    }
    namespaces
}

fn rpc_ping(r: &mut Reader<'_>) -> Option<Box<str>> {
    let (is_enabled, method) = (r.bool("rpc.ping.enabled"), r.text("rpc.ping.method"));
    if is_enabled && method.is_empty() {
        r.error("rpc.ping.method", "is empty, and no method has such a name");
    }
    is_enabled.then(|| method.into())
}

/// The proxy of a table; `None` where it has no endpoint, or one that is of no use.
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

fn endpoint(r: &mut Reader<'_>, path: &str) -> Option<Uri> {
    let text = r.text(path);
    if text.is_empty() {
        return None;
    }
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    match uri.as_ref().and_then(Uri::scheme_str) {
        Some("http" | "https") => uri,
        Some("grpc" | "grpcs") => {
            let text = "is an address for gRPC, and Dunlin asks backends over HTTP: write one that begins with http:// or \
                        https://";
            r.error(path, text);
            None
        }
        _ => {
            r.error(path, format!("{:?} is not an address that begins with http:// or https://", shortened(&text)));
            None
        }
    }
}

fn http_headers(r: &mut Reader<'_>, path: &str) -> Vec<Box<str>> {
    let mut names = Vec::new();
    for text in r.texts(path) {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) if OF_ONE_MESSAGE.contains(&name.as_str()) => {
                r.warning(path, format!("{:?} means nothing on another request, and is not passed on", name.as_str()));
            }
            Ok(name) => names.push(name.as_str().into()),
            Err(_) => r.error(path, format!("{:?} is not the name of a header field", shortened(&text))),
        }
    }
    names
}

fn static_headers(r: &mut Reader<'_>, path: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    let fields = match r.json(path) {
        serde_json::Value::Null => return map,
        serde_json::Value::Object(fields) => fields,
        _ => {
            r.error(path, "is not a table of names and texts");
            return map;
        }
    };
    for (name, value) in fields {
        let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
        match (HeaderName::from_bytes(name.as_bytes()), value) {
            (Ok(name), Some(value)) => drop(map.insert(name, value)),
            _ => r.error(path, format!("{:?} is not a header field with a text", shortened(&name))),
        }
    }
    map
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
            (None, Some(ToDisconnect { code: code @ 3_000..=4_999, reason })) => {
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

fn tls(r: &mut Reader<'_>, table: &str) -> Option<Arc<ClientTls>> {
    let at = |key: &str| format!("{table}.{key}");
    let is_enabled = r.bool(&at("enabled"));
    let (server_name, insecure_skip_verify) = (r.text(&at("server_name")), r.bool(&at("insecure_skip_verify")));
    let mut pems = ["server_ca_pem", "cert_pem", "key_pem"].map(|key| (r.text(&at(key)), at(key)));
    if !is_enabled {
        return None;
    }
    if insecure_skip_verify {
        r.warning(&at("insecure_skip_verify"), "is on: any certificate is believed. For development alone");
    }
    for (text, path) in &mut pems {
        *text = pem(r, path, std::mem::take(text));
    }
    let [(server_ca_pem, _), (cert_pem, _), (key_pem, key_path)] = pems;
    if cert_pem.is_empty() != key_pem.is_empty() {
        r.error(&key_path, "goes with `cert_pem`: set both, or neither");
        return None;
    }
    let key_pem = Secret::new(key_pem);
    let tls = ClientTls { server_ca_pem, cert_pem, key_pem, server_name, insecure_skip_verify };
    if let Err(why) = tls.check() {
        r.error(table, format!("is of no use: {why}"));
    }
    Some(Arc::new(tls))
}

/// PEM text, the path of a file with it, or base64 of it.
fn pem(r: &mut Reader<'_>, path: &str, text: String) -> String {
    if text.is_empty() || text.contains("-----BEGIN") {
        return text;
    }
    let of_file = fs::read_to_string(&text);
    let of_base64 = || STANDARD.decode(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let found = of_file.ok().or_else(of_base64).filter(|pem| pem.contains("-----BEGIN"));
    found.unwrap_or_else(|| {
        // It may be a key that was written in another form: it is not shown.
        r.error(path, "is neither PEM text, nor a file with it, nor base64 of it");
        String::new()
    })
}
