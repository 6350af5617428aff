//! Traces and metrics that are sent to an OpenTelemetry Collector (`opentelemetry.*` and the standard variables `OTEL_*`).

use std::sync::Arc;

use dunlin_engine::Options;
use dunlin_net::ClientTls;
use dunlin_token::SecretUrl;
use hyper::header::HeaderMap;

use super::{
    problem::{Problems, SettingSource},
    proxies,
    resolve::Reader,
    settings::Settings,
    value::shortened,
};

/// The prefix of the standard variables.
pub(super) const STANDARD_PREFIX: &str = "OTEL_";

const ENABLED: &str = "opentelemetry.enabled";
const ENDPOINT: &str = "opentelemetry.endpoint";
const TRACES_ENDPOINT: &str = "opentelemetry.traces_endpoint";
const METRICS_ENDPOINT: &str = "opentelemetry.metrics_endpoint";
const RESOURCE_ATTRIBUTES: &str = "opentelemetry.resource_attributes";
const SAMPLER_ARGUMENT: &str = "opentelemetry.sampler_argument";

/// Bounds of the time between two pushes of all metrics. A shorter one would ask the shards all the time.
const METRICS_INTERVAL_MS_MIN: u64 = 1_000;
const METRICS_INTERVAL_MS_MAX: u64 = 3_600_000;

/// What is sent to a collector.
#[derive(Clone, Debug)]
pub struct OpenTelemetryOptions {
    /// Traces; `None` if they are not sent.
    pub traces: Option<TraceOptions>,
    /// Metrics; `None` if they are not sent.
    pub metrics: Option<MetricsOptions>,
    /// Timeout of a request.
    pub timeout_ms: u64,
    /// Header fields of all requests. Their values are marked as sensitive.
    pub headers: HeaderMap,
    /// TLS options that differ from the defaults.
    pub tls: Option<Arc<ClientTls>>,
    /// What describes the node: names and values, with the name of the service first.
    pub resource: Vec<(String, String)>,
}

/// Which traces are sent, and where.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The URL that takes them.
    pub endpoint: SecretUrl,
    /// Whether requests to the server API are traced.
    pub api: bool,
    /// Maximum number of spans that wait.
    pub spans_max: usize,
    /// Which traces are recorded.
    pub sampler: Sampler,
}

/// Where metrics are sent, and how often.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// The URL that takes them.
    pub endpoint: SecretUrl,
    /// Time between two requests.
    pub interval_ms: u64,
}

/// Which traces are recorded, as in OpenTelemetry's specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Whether the decision of a caller holds for its trace.
    pub follows_callers: bool,
    /// The share of the other traces, from 0 to 1. The id of the trace decides, so that all services decide alike.
    pub ratio: f64,
}

/// What is sent to a collector; `None` if nothing.
pub(super) fn options(r: &mut Reader<'_>, engine: &mut Options) -> Option<OpenTelemetryOptions> {
    let is_enabled = r.bool(ENABLED);
    engine.following.publication_interval = r.narrow("opentelemetry.publication_interval");
    let base = base(r);
    let traces_endpoint = endpoint(r, TRACES_ENDPOINT, base.as_ref(), "/v1/traces");
    let metrics_endpoint = endpoint(r, METRICS_ENDPOINT, base.as_ref(), "/v1/metrics");
    let (api, spans_max) = (r.bool("opentelemetry.api"), r.count("opentelemetry.queue_limit"));
    let sampler = sampler(r);
    let (sends_traces, sends_metrics) = (r.bool("opentelemetry.traces"), r.bool("opentelemetry.metrics"));
    let interval_ms = metrics_interval_ms(r);
    let traces =
        traces_endpoint.filter(|_| sends_traces).map(|endpoint| TraceOptions { endpoint, api, spans_max, sampler });
    let metrics = metrics_endpoint.filter(|_| sends_metrics).map(|endpoint| MetricsOptions { endpoint, interval_ms });
    let options = OpenTelemetryOptions {
        traces,
        metrics,
        timeout_ms: r.ms_above_zero("opentelemetry.timeout"),
        headers: proxies::static_headers(r, "opentelemetry.headers"),
        tls: proxies::tls(r, "opentelemetry.tls"),
        resource: resource(r),
    };
    engine.following.recoveries = is_enabled && options.traces.is_some();
    Some(options).filter(|_| is_enabled)
}

/// The URL below which the collector takes all data.
fn base(r: &mut Reader<'_>) -> Option<SecretUrl> {
    let base = proxies::endpoint(r, ENDPOINT);
    if base.as_ref().is_some_and(|base| base.reveal().contains(['?', '#'])) {
        r.error(ENDPOINT, "has a query: write the URL without it");
    }
    base
}

/// The URL that takes one kind of data: its own, or a path below that of all.
fn endpoint(r: &mut Reader<'_>, own: &str, base: Option<&SecretUrl>, path: &str) -> Option<SecretUrl> {
    let below = |base: &SecretUrl| SecretUrl::new(format!("{}{path}", base.reveal().trim_end_matches('/')));
    proxies::endpoint(r, own).or_else(|| base.map(below))
}

fn metrics_interval_ms(r: &mut Reader<'_>) -> u64 {
    const KEY: &str = "opentelemetry.metrics_interval";
    let ms = r.ms(KEY);
    if !(METRICS_INTERVAL_MS_MIN..=METRICS_INTERVAL_MS_MAX).contains(&ms) {
        r.error(KEY, "must be from 1s to 1h");
    }
    ms
}

fn sampler(r: &mut Reader<'_>) -> Sampler {
    let (name, argument) = (r.text("opentelemetry.sampler"), r.text(SAMPLER_ARGUMENT));
    let ratio = argument.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    if ratio.is_none() {
        r.error(SAMPLER_ARGUMENT, format!("is {:?}: write a share from 0 to 1, such as 0.1", shortened(&argument)));
    }
    let kind = name.strip_prefix("parentbased_");
    let ratio = match kind.unwrap_or(&name) {
        "always_on" => 1.0,
        "always_off" => 0.0,
        _ => ratio.unwrap_or(1.0),
    };
    Sampler { follows_callers: kind.is_some(), ratio }
}

fn resource(r: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut service = r.text("opentelemetry.service_name");
    // The key of its own comes first, as its variable does in the specification.
    let is_named = r.settings.is_set("opentelemetry.service_name");
    let mut others = Vec::new();
    let table = match r.json(RESOURCE_ATTRIBUTES) {
        serde_json::Value::Null => serde_json::Map::new(),
        serde_json::Value::Object(table) => table,
        _ => {
            r.error(RESOURCE_ATTRIBUTES, "must be a table of names and texts");
            serde_json::Map::new()
        }
    };
    for (name, value) in table {
        match value.as_str() {
            Some(value) if name == "service.name" && !is_named => value.clone_into(&mut service),
            Some(_) if name == "service.name" => {}
            Some(value) if !name.is_empty() => others.push((name, value.to_owned())),
            _ => r.error(RESOURCE_ATTRIBUTES, format!("{:?} must be a text", shortened(&name))),
        }
    }
    std::iter::once(("service.name".to_owned(), service)).chain(others).collect()
}

/// How the value of a standard variable becomes that of a key.
#[derive(Clone, Copy)]
enum Form {
    Same,
    Milliseconds,
    /// `name=value,name=value`, percent-encoded.
    Table,
    /// `none`, or any other exporter.
    NotNone,
}

/// The standard variables with the keys that they set.
const VARIABLES: &[(&str, &str, Form)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT, Form::Same),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", TRACES_ENDPOINT, Form::Same),
    ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", METRICS_ENDPOINT, Form::Same),
    ("OTEL_EXPORTER_OTLP_HEADERS", "opentelemetry.headers", Form::Table),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "opentelemetry.timeout", Form::Milliseconds),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "opentelemetry.tls.server_ca_pem", Form::Same),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "opentelemetry.tls.cert_pem", Form::Same),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "opentelemetry.tls.key_pem", Form::Same),
    ("OTEL_SERVICE_NAME", "opentelemetry.service_name", Form::Same),
    ("OTEL_RESOURCE_ATTRIBUTES", RESOURCE_ATTRIBUTES, Form::Table),
    ("OTEL_TRACES_EXPORTER", "opentelemetry.traces", Form::NotNone),
    ("OTEL_METRICS_EXPORTER", "opentelemetry.metrics", Form::NotNone),
    ("OTEL_TRACES_SAMPLER", "opentelemetry.sampler", Form::Same),
    ("OTEL_TRACES_SAMPLER_ARG", SAMPLER_ARGUMENT, Form::Same),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "opentelemetry.queue_limit", Form::Same),
    ("OTEL_METRIC_EXPORT_INTERVAL", "opentelemetry.metrics_interval", Form::Milliseconds),
];

/// The variables with the protocol; only one is spoken.
const PROTOCOLS: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"];

/// Applies the standard variables, which many containers have, if the table is enabled. A key that is set comes first.
pub(super) fn set_standard_variables(variables: &[(String, String)], settings: &mut Settings, problems: &mut Problems) {
    if !settings.is_on(ENABLED) {
        return;
    }
    let value_of = |wanted: &str| {
        variables.iter().find(|(name, value)| name == wanted && !value.is_empty()).map(|(_, value)| value.as_str())
    };
    for name in PROTOCOLS {
        if value_of(name).is_some_and(|protocol| protocol != "http/protobuf") {
            let text = "is not http/protobuf, which is what Dunlin speaks: use the collector's port for HTTP (4318)";
            problems.error(&SettingSource::Variable(name.to_owned()), "", text);
        }
    }
    if value_of("OTEL_SDK_DISABLED") == Some("true") {
        let source = SettingSource::Variable("OTEL_SDK_DISABLED".to_owned());
        return settings.set_text(ENABLED, "false", &source, problems);
    }
    for (name, key, form) in VARIABLES {
        let Some(value) = value_of(name).filter(|_| !settings.has_value(key)) else { continue };
        let source = SettingSource::Variable((*name).to_owned());
        let value = match form {
            Form::Same => value.to_owned(),
            Form::Milliseconds => format!("{value}ms"),
            Form::Table => as_table(value),
            Form::NotNone => (value != "none").to_string(),
        };
        settings.set_text(key, &value, &source, problems);
        if key.starts_with("opentelemetry.tls.") && !settings.has_value("opentelemetry.tls.enabled") {
            settings.set_text("opentelemetry.tls.enabled", "true", &source, problems);
        }
    }
}

/// `name=value,name=value` as a JSON table. Without an `=`, the value is empty, which the table's own check refuses.
fn as_table(list: &str) -> String {
    let pairs = list.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let entry = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name.trim()), serde_json::Value::String(decoded(value.trim())))
    };
    serde_json::Value::Object(pairs.map(entry).collect()).to_string()
}

/// A text without percent-encoding. What is no such encoding stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.split_first_chunk::<2>().filter(|_| byte == b'%');
        let encoded = digits.and_then(|(digits, after)| Some((of_hex(*digits)?, after)));
        let (byte, after) = encoded.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The byte that two hexadecimal digits stand for.
fn of_hex(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::{OpenTelemetryOptions, Sampler};
    use crate::{Config, ConfigInput, Document, Format};

    fn read(text: &str, variables: &[(&str, &str)]) -> Result<Option<OpenTelemetryOptions>, String> {
        let document = Document { name: "config.toml".to_owned(), format: Format::Toml, text: text.to_owned() };
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let input = ConfigInput { document: Some(document), variables, ..ConfigInput::default() };
        Config::from_input(&input).map(|(config, _)| config.opentelemetry).map_err(|problems| problems.to_string())
    }

    fn enabled(more: &str, variables: &[(&str, &str)]) -> Result<OpenTelemetryOptions, String> {
        read(&format!("opentelemetry = {{ enabled = true{more} }}"), variables).map(|options| options.expect("enabled"))
    }

    fn endpoints(options: &OpenTelemetryOptions) -> (Option<&str>, Option<&str>) {
        let traces = options.traces.as_ref().map(|traces| traces.endpoint.reveal());
        (traces, options.metrics.as_ref().map(|metrics| metrics.endpoint.reveal()))
    }

    #[test]
    fn two_lines_send_to_the_collector_of_this_machine() {
        assert!(read("opentelemetry.api = true", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")]).unwrap().is_none());
        let options = enabled(", api = true", &[]).expect("good");
        assert_eq!(
            endpoints(&options),
            (Some("http://localhost:4318/v1/traces"), Some("http://localhost:4318/v1/metrics"))
        );
        let traces = options.traces.expect("they are sent");
        assert!(traces.api && traces.sampler == Sampler { follows_callers: true, ratio: 1.0 });
        assert_eq!(options.resource, [("service.name".to_owned(), "dunlin".to_owned())]);
    }

    #[test]
    fn standard_variables_set_keys_that_are_not_set() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:1/own"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b, authorization=Bearer hunter2"),
            ("OTEL_SERVICE_NAME", "game"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,region=eu"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ];
        let options = enabled(", timeout = \"3s\"", &variables).expect("good");
        assert_eq!(endpoints(&options), (Some("http://collector:4318/v1/traces"), Some("http://metrics:1/own")));
        assert_eq!((options.timeout_ms, options.metrics.as_ref().unwrap().interval_ms), (3_000, 5_000));
        assert_eq!(options.traces.as_ref().unwrap().sampler, Sampler { follows_callers: false, ratio: 0.25 });
        assert_eq!(options.headers["x-tenant"].as_bytes(), b"a b");
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options.resource, [text("service.name", "game"), text("region", "eu")]);
        assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
        let none = enabled("", &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")]).expect("good");
        assert_eq!(endpoints(&none), (None, None));
        assert!(read("opentelemetry.enabled = true", &[("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
    }

    #[test]
    fn wrong_options_are_named() {
        for (more, variables, expected) in [
            (", sampler_argument = \"1.1\"", &[][..], "write a share from 0 to 1"),
            (", sampler = \"jaeger_remote\"", &[], "opentelemetry.sampler"),
            (", endpoint = \"collector:4317\"", &[], "opentelemetry.endpoint"),
            (", endpoint = \"http://collector/?a=b\"", &[], "has a query"),
            (", metrics_interval = \"999ms\"", &[], "must be from 1s to 1h"),
            (", metrics_interval = \"3601s\"", &[], "must be from 1s to 1h"),
            (", resource_attributes = { a = 1 }", &[], "\"a\" must be a text"),
            (", queue_limit = 0", &[], "opentelemetry.queue_limit"),
            ("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "OTEL_EXPORTER_OTLP_PROTOCOL"),
            ("", &[("OTEL_BSP_MAX_QUEUE_SIZE", "many")], "OTEL_BSP_MAX_QUEUE_SIZE"),
        ] {
            let text = enabled(more, variables).err().unwrap_or_default();
            assert!(text.contains(expected), "{more} {variables:?}: {text}");
        }
        for interval in ["1s", "1h"] {
            assert!(enabled(&format!(", metrics_interval = \"{interval}\""), &[]).is_ok(), "{interval}");
        }
    }
}
