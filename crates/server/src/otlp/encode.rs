//! OTLP in Protobuf: `ExportTraceServiceRequest` and `ExportMetricsServiceRequest` of opentelemetry-proto 1.x.

use std::time::{Duration, SystemTime};

use dunlin_protocol::protobuf::wire::{
    ProtobufMessage, ProtobufSink, Reader, write_bytes, write_entry_bytes, write_flag, write_message, write_number,
};

use super::{
    points::{Exponential, FamilyPoints, Number, Point, PointValue},
    span::{Attribute, Span},
};
use crate::telemetry::metrics::MetricKind;

/// The name of the scope: what has made spans and metrics.
const SCOPE: &str = "dunlin";

/// `STATUS_CODE_ERROR`
const STATUS_ERROR: u64 = 2;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u64 = 2;

/// What spans and metrics describe: this node.
#[derive(Clone, Debug)]
pub struct Resource(Vec<(String, String)>);

impl Resource {
    /// The node with this id and this name, and with the configured attributes, which come first.
    pub fn new(configured: &[(String, String)], node: &str, name: &str) -> Self {
        let mut attributes = configured.to_vec();
        let own =
            [("service.version", env!("CARGO_PKG_VERSION")), ("service.instance.id", node), ("dunlin.node.name", name)];
        for (key, value) in own {
            if !value.is_empty() && !attributes.iter().any(|(known, _)| known == key) {
                attributes.push((key.to_owned(), value.to_owned()));
            }
        }
        Self(attributes)
    }
}

/// A request with these spans.
pub(super) fn traces(resource: &Resource, spans: &[Box<Span>]) -> Vec<u8> {
    let mut request = Vec::new();
    write_message(&mut request, 1, &OfResource { resource, scope: OfScope { items: spans } });
    request
}

/// A request with the values of all metrics, which count from the start of the process.
pub(super) fn metrics(resource: &Resource, families: &[FamilyPoints], started_unix: Duration) -> Vec<u8> {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let times = Times { from_ns: ns(started_unix), at_ns: ns(now) };
    // A metric without series has nothing to say.
    let metrics = families.iter().filter(|family| !family.points.is_empty());
    let metrics: Vec<_> = metrics.map(|of| Metric { of, times }).collect();
    let mut request = Vec::new();
    write_message(&mut request, 1, &OfResource { resource, scope: OfScope { items: &metrics } });
    request
}

/// How many spans or values the collector says that it did not take, in a response with status 200.
pub(super) fn rejected(response: &[u8]) -> u64 {
    let field = |bytes, wanted| {
        let mut reader = Reader::new(bytes);
        while let Ok(Some((number, value))) = reader.field() {
            if number == wanted {
                return Some(value);
            }
        }
        None
    };
    let partial_success = field(response, 1).and_then(|value| value.bytes().ok());
    partial_success.and_then(|bytes| field(bytes, 1)).and_then(|value| value.varint().ok()).unwrap_or(0)
}

struct OfResource<'a, T> {
    resource: &'a Resource,
    scope: OfScope<'a, T>,
}

struct OfScope<'a, T> {
    items: &'a [T],
}

struct KeyValue<'a> {
    key: &'a str,
    value: Value<'a>,
}

enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

struct Scope;

struct Status<'a>(&'a str);

#[derive(Clone, Copy)]
struct Times {
    from_ns: u64,
    at_ns: u64,
}

struct Metric<'a> {
    of: &'a FamilyPoints,
    times: Times,
}

/// The data of a metric: its points, and what they mean.
struct Data<'a> {
    metric: &'a Metric<'a>,
    is_counter: bool,
    is_histogram: bool,
}

struct DataPoint<'a> {
    metric: &'a Metric<'a>,
    point: &'a Point,
}

struct Buckets<'a> {
    offset: i32,
    counts: &'a [u64],
}

impl<T: ProtobufMessage> ProtobufMessage for OfResource<'_, T> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_message(sink, 1, self.resource);
        write_message(sink, 2, &self.scope);
    }
}

impl<T: ProtobufMessage> ProtobufMessage for OfScope<'_, T> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_message(sink, 1, &Scope);
        for item in self.items {
            write_message(sink, 2, item);
        }
    }
}

impl ProtobufMessage for Scope {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 1, SCOPE.as_bytes());
    }
}

impl ProtobufMessage for Resource {
    fn write(&self, sink: &mut impl ProtobufSink) {
        for (key, value) in &self.0 {
            write_message(sink, 1, &KeyValue { key, value: Value::Text(value) });
        }
    }
}

impl ProtobufMessage for KeyValue<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 1, self.key.as_bytes());
        write_message(sink, 2, &self.value);
    }
}

impl ProtobufMessage for Value<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        match self {
            // Written even if it is empty or 0: otherwise there would be no value.
            Self::Text(text) => write_entry_bytes(sink, 1, text.as_bytes()),
            Self::Number(number) => {
                write_tag(sink, 3, VARINT);
                sink.varint(number.cast_unsigned());
            }
        }
    }
}

impl ProtobufMessage for Box<Span> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        let Span { context, parent_id, name, kind, began_unix_ns, ended_unix_ns, attributes, error } = &**self;
        write_bytes(sink, 1, &context.trace_id);
        write_bytes(sink, 2, &context.span_id);
        write_bytes(sink, 3, context.state.as_deref().unwrap_or_default().as_bytes());
        write_bytes(sink, 4, parent_id.as_ref().map_or(&[], |id| &id[..]));
        write_bytes(sink, 5, name.as_bytes());
        write_number(sink, 6, *kind as u64);
        write_fixed64(sink, 7, *began_unix_ns);
        write_fixed64(sink, 8, *ended_unix_ns);
        for (key, value) in attributes {
            let value = match value {
                Attribute::Text(text) => Value::Text(text),
                Attribute::Number(number) => Value::Number(*number),
            };
            write_message(sink, 9, &KeyValue { key, value });
        }
        if let Some(error) = error {
            write_message(sink, 15, &Status(error));
        }
    }
}

impl ProtobufMessage for Status<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 2, self.0.as_bytes());
        write_number(sink, 3, STATUS_ERROR);
    }
}

impl ProtobufMessage for Metric<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        let family = self.of.family;
        write_bytes(sink, 1, family.name.as_bytes());
        write_bytes(sink, 2, family.help.as_bytes());
        write_bytes(sink, 3, unit(family.name).as_bytes());
        let is_exponential = |point: &Point| matches!(point.value, PointValue::Exponential(_));
        let (field, is_histogram) = match family.kind {
            MetricKind::Gauge => (5, false),
            MetricKind::Counter => (7, false),
            MetricKind::Histogram if self.of.points.iter().all(is_exponential) => (10, true),
            MetricKind::Histogram => (9, true),
        };
        write_message(
            sink,
            field,
            &Data { metric: self, is_counter: family.kind == MetricKind::Counter, is_histogram },
        );
    }
}

impl ProtobufMessage for Data<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        for point in &self.metric.of.points {
            write_message(sink, 1, &DataPoint { metric: self.metric, point });
        }
        if self.is_counter || self.is_histogram {
            write_number(sink, 2, CUMULATIVE);
        }
        write_flag(sink, 3, self.is_counter);
    }
}

impl ProtobufMessage for DataPoint<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        let Times { from_ns, at_ns } = self.metric.times;
        write_fixed64(sink, 2, from_ns);
        write_fixed64(sink, 3, at_ns);
        let attributes_field = match &self.point.value {
            PointValue::Number(Number::Fraction(number)) => {
                write_double(sink, 4, *number);
                7
            }
            PointValue::Number(Number::Whole(number)) => {
                write_fixed64(sink, 6, *number);
                7
            }
            PointValue::Histogram { bounds, counts, sum } => {
                write_fixed64(sink, 4, counts.iter().sum());
                write_double(sink, 5, *sum);
                write_packed_fixed64(sink, 6, counts.iter().copied());
                write_packed_fixed64(sink, 7, bounds.iter().map(|bound| bound.to_bits()));
                9
            }
            PointValue::Exponential(Exponential { scale, offset, counts, zero_count, sum }) => {
                write_fixed64(sink, 4, counts.iter().sum::<u64>() + zero_count);
                write_double(sink, 5, *sum);
                write_number(sink, 6, zigzag(*scale));
                write_fixed64(sink, 7, *zero_count);
                write_message(sink, 8, &Buckets { offset: *offset, counts });
                1
            }
        };
        for (key, value) in self.metric.of.family.labels.iter().zip(&self.point.label_values) {
            write_message(sink, attributes_field, &KeyValue { key, value: Value::Text(value) });
        }
    }
}

impl ProtobufMessage for Buckets<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, zigzag(self.offset));
        for count in self.counts {
            // Not packed, which readers of packed fields take as well.
            write_tag(sink, 2, VARINT);
            sink.varint(*count);
        }
    }
}

/// The unit of a metric, in UCUM, which stands at the end of its name.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_PREFIXED: u32 = 2;

fn write_tag(sink: &mut impl ProtobufSink, field: u32, wire_type: u32) {
    sink.varint(u64::from(field << 3 | wire_type));
}

/// Also if it is 0: a number that is missing is no number.
fn write_fixed64(sink: &mut impl ProtobufSink, field: u32, number: u64) {
    write_tag(sink, field, FIXED64);
    sink.raw(&number.to_le_bytes());
}

fn write_double(sink: &mut impl ProtobufSink, field: u32, number: f64) {
    write_fixed64(sink, field, number.to_bits());
}

fn write_packed_fixed64(sink: &mut impl ProtobufSink, field: u32, numbers: impl ExactSizeIterator<Item = u64>) {
    write_tag(sink, field, LENGTH_PREFIXED);
    sink.varint(numbers.len() as u64 * 8);
    for number in numbers {
        sink.raw(&number.to_le_bytes());
    }
}

fn zigzag(number: i32) -> u64 {
    u64::from((number << 1 ^ number >> 31).cast_unsigned())
}
