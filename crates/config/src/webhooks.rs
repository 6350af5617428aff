//! Events for the application's backend (`webhooks.*`).

use dunlin_engine::{
    lifecycle::{LifecycleKind, LifecycleKinds},
    options::Options,
};

use super::{WebhookKey, WebhookOptions, broker, proxies, resolve::Reader, value::shortened};

const ENDPOINT: &str = "webhooks.endpoint";
const SECRET: &str = "webhooks.secret";
const PREVIOUS_SECRET: &str = "webhooks.previous_secret";

/// Where events are sent. Stores their kinds in the engine's options.
pub(super) fn options(r: &mut Reader<'_>, engine: &mut Options) -> Option<WebhookOptions> {
    let kinds = kinds(r);
    let (key, previous_key) = (key(r, SECRET), key(r, PREVIOUS_SECRET));
    let has_url = !r.text(ENDPOINT).is_empty();
    if has_url && r.text(SECRET).is_empty() {
        r.error(SECRET, "is empty: set the key with which your backend checks signatures");
    }
    if key.is_none() && previous_key.is_some() {
        r.error(PREVIOUS_SECRET, "needs `webhooks.secret`: set both, or neither");
    }
    let endpoint = proxies::endpoint(r, ENDPOINT);
    let options = WebhookOptions {
        endpoint: endpoint.clone().unwrap_or_default(),
        kinds,
        keys: key.into_iter().chain(previous_key).collect(),
        timeout_ms: r.ms_above_zero("webhooks.timeout"),
        batch_events_max: r.count("webhooks.batch_size"),
        batch_wait_ms: r.ms("webhooks.batch_wait"),
        queue_events_max: r.count("webhooks.queue_limit"),
        queue_bytes_max: r.count("webhooks.queue_size_limit"),
        retry_timeout_ms: r.ms("webhooks.retry_timeout"),
        retry_delay_ms_max: r.ms_above_zero("webhooks.retry_max_delay"),
        static_headers: proxies::static_headers(r, "webhooks.http.static_headers"),
        tls: proxies::tls(r, "webhooks.http.tls"),
    };
    if has_url {
        let of_channels = [LifecycleKind::Occupied, LifecycleKind::Vacated];
        let is_counted = broker::is_on(r) && of_channels.iter().any(|kind| kinds.contains(*kind));
        // The nodes of a cluster add up both to know either.
        let also = of_channels.into_iter().filter(|_| is_counted);
        engine.lifecycle = LifecycleKind::ALL.into_iter().filter(|kind| kinds.contains(*kind)).chain(also).collect();
    } else {
        check_unused(r, engine);
    }
    endpoint.map(|_| options)
}

fn key(r: &mut Reader<'_>, path: &str) -> Option<WebhookKey> {
    let text = r.text(path);
    let key = WebhookKey::parse(&text);
    if key.is_none() && !text.is_empty() {
        r.error(path, "is not a key: write `whsec_`, followed by 24 to 64 random bytes in base64");
    }
    key
}

fn kinds(r: &mut Reader<'_>) -> LifecycleKinds {
    const PATH: &str = "webhooks.events";
    let names = r.texts(PATH);
    let mut kinds = Vec::new();
    for name in &names {
        if let Some(kind) = LifecycleKind::ALL.into_iter().find(|kind| kind.name() == name) {
            kinds.push(kind);
        } else {
            let known = LifecycleKind::ALL.map(LifecycleKind::name).join(", ");
            r.error(PATH, format!("{:?} is not a kind of event: write one of {known}", shortened(name)));
        }
    }
    if names.is_empty() { LifecycleKind::ALL.into_iter().collect() } else { kinds.into_iter().collect() }
}

/// Reports namespaces that want events although they are sent nowhere.
fn check_unused(r: &mut Reader<'_>, engine: &Options) {
    let text = "has no receiver: set `webhooks.endpoint` and `webhooks.secret`, or remove this key";
    if engine.without_namespace.channel_events {
        r.error("channel.without_namespace.channel_events", text);
    }
    for (index, namespace) in engine.namespaces.iter().enumerate() {
        if namespace.channel_events {
            r.error(&format!("channel.namespaces[{index}].channel_events"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigInput, Document, Format};

    fn kinds_told(broker: &str, events: &str) -> Vec<&'static str> {
        let text = format!(
            r#"webhooks = {{ endpoint = "http://localhost/", secret = "whsec_bm8gc2VjcmV0IGlzIGluIHRoZSBkb2N1bWVudHM=", events = {events} }}
{broker}"#
        );
        let document = Document { name: "config.toml".to_owned(), format: Format::Toml, text };
        let input = ConfigInput { document: Some(document), ..ConfigInput::default() };
        let (config, _) = Config::from_input(&input).expect("it is right");
        let told = LifecycleKind::ALL.into_iter().filter(|kind| config.engine.lifecycle.contains(*kind));
        told.map(LifecycleKind::name).collect()
    }

    #[test]
    fn nodes_of_a_cluster_have_to_know_both_ends_of_an_occupied_channel() {
        let cluster = r#"broker = { enabled = true, type = "nats" }"#;
        assert_eq!(kinds_told("", "[]").len(), LifecycleKind::ALL.len());
        assert_eq!(kinds_told("", r#"["vacated"]"#), ["vacated"]);
        assert_eq!(kinds_told(cluster, r#"["connected", "vacated"]"#), ["connected", "occupied", "vacated"]);
        assert_eq!(kinds_told(cluster, r#"["connected"]"#), ["connected"]);
        assert!(Config::default().engine.lifecycle.is_empty() && Config::default().webhooks.is_none());
    }
}
