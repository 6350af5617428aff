//! Spans: what was done in a trace, and when.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use dunlin_config::{Sampler, TraceOptions};
use dunlin_engine::RefillRate;
use dunlin_queues::{CountedSender, Refused};

use super::{ExportOutcome, Shared, TraceContext};

/// Maximum length of a text of a span; longer ones are cut.
const TEXT_BYTES_MAX: usize = 1_024;

/// Bytes of a span without its texts, roughly.
const SPAN_BYTES: usize = 256;

/// Maximum number of rooms that requests are opening, of which the tracer knows. Others begin a trace of their own.
const ROOM_OPENERS_MAX: usize = 256;

/// Maximum number of recoveries of a node that are recorded in a second. All clients recover at once after a restart, when
/// shards have no time for spans, and other spans need the queue.
pub(super) const RECOVERIES_PER_SECOND: u32 = 100;

/// Maximum number of commands of a request that have a span. A batch may have many more, which would fill the queue.
pub(super) const CHILDREN_MAX: u32 = 64;

/// The role of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Something inside of the node.
    Internal = 1,
    /// A request that the node has received.
    Server = 2,
    /// A request of the node.
    Client = 3,
}

/// What a span belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'c> {
    /// Nothing: it begins a trace.
    None,
    /// A span of a caller of the server API. If the options say so, its decision whether to record the trace holds.
    Caller(&'c TraceContext),
    /// A span of a client. Its decision does not hold, because anybody could have everything recorded.
    Client(&'c TraceContext),
    /// A span of this node.
    Own(&'c TraceContext),
}

/// A span that has ended, or that will.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) context: TraceContext,
    pub(super) parent_id: Option<[u8; 8]>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) began_unix_ns: u64,
    pub(super) ended_unix_ns: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    /// Why it failed, if it did.
    pub(super) error: Option<Box<str>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(Box<str>),
    /// A number.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(shortened(text).into())
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// Opens spans.
pub struct Tracer {
    queue: CountedSender<Box<Span>>,
    sampler: Sampler,
    traces_api: bool,
    shared: Arc<Shared>,
    room_openers: RoomOpeners,
    draws: Draws,
    /// `None` for no limit.
    recovery_rate: Option<RefillRate>,
    /// When the bucket of recoveries is full.
    recoveries_full_at_ns: AtomicU64,
}

/// A span that has not ended. It ends when it is dropped, so a request that is given up is recorded as well.
pub struct OpenSpan {
    tracer: Arc<Tracer>,
    context: TraceContext,
    /// `None` if the trace is not recorded.
    span: Option<Box<Span>>,
    began: Instant,
}

impl Tracer {
    pub(super) fn new(queue: CountedSender<Box<Span>>, options: &TraceOptions, shared: Arc<Shared>) -> Self {
        let TraceOptions { sampler, api, .. } = *options;
        Self {
            queue,
            sampler,
            traces_api: api,
            shared,
            room_openers: RoomOpeners::default(),
            draws: Draws::new(),
            recovery_rate: RefillRate::new(RECOVERIES_PER_SECOND),
            recoveries_full_at_ns: AtomicU64::new(0),
        }
    }

    /// Whether requests to the server API are traced.
    pub(super) fn traces_api(&self) -> bool {
        self.traces_api
    }

    /// Opens a span.
    pub fn open(self: &Arc<Self>, name: impl Into<Cow<'static, str>>, kind: SpanKind, parent: Parent<'_>) -> OpenSpan {
        self.open_if(None, name, kind, parent)
    }

    /// Opens the span of a recovery at a time of the shards' clock; `None` if it is not recorded. Shards call this, so a
    /// recovery that is not recorded costs two atomic numbers at most, and `client` is not called.
    pub fn open_recovery(
        self: &Arc<Self>,
        now_us: u64,
        client: impl FnOnce() -> Option<TraceContext>,
    ) -> Option<OpenSpan> {
        if !self.is_drawn() {
            return None;
        }
        if !self.takes_recovery(now_us) {
            self.shared.counters.count_spans(ExportOutcome::Dropped, 1);
            return None;
        }
        let client = client();
        let parent = client.as_ref().map_or(Parent::None, Parent::Client);
        Some(self.open_if(Some(true), "recover", SpanKind::Internal, parent))
    }

    /// Whether this second has a place for one more recovery.
    fn takes_recovery(&self, now_us: u64) -> bool {
        let Some(rate) = self.recovery_rate else { return true };
        let take = |full_at_ns| rate.take(full_at_ns, now_us);
        self.recoveries_full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Whether a random number has the next trace recorded.
    fn is_drawn(&self) -> bool {
        is_below_ratio(self.draws.next(), self.sampler.ratio)
    }

    /// Opens a span, which is recorded if that has been decided so, or else if the options say so.
    fn open_if(
        self: &Arc<Self>,
        decided: Option<bool>,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        parent: Parent<'_>,
    ) -> OpenSpan {
        let mut span_id = [0; 8];
        let mut trace_id = [0; 16];
        // Without random numbers nothing of this node works; a span with this id is only refused by the collector.
        let _ = getrandom::fill(&mut span_id);
        let before = match parent {
            Parent::None => None,
            Parent::Caller(context) | Parent::Client(context) | Parent::Own(context) => Some(context),
        };
        match before {
            Some(context) => trace_id = context.trace_id,
            None => drop(getrandom::fill(&mut trace_id)),
        }
        let is_sampled = decided.unwrap_or_else(|| match parent {
            Parent::Own(context) => context.is_sampled,
            Parent::Caller(context) if self.sampler.follows_callers => context.is_sampled,
            // A client chooses its trace's id as well, so that cannot decide.
            Parent::Client(_) => self.is_drawn(),
            _ => is_chosen(&trace_id, self.sampler.ratio),
        });
        let state = before.and_then(|context| context.state.clone());
        let context = TraceContext { trace_id, span_id, is_sampled, state };
        let span = is_sampled.then(|| {
            Box::new(Span {
                context: context.clone(),
                parent_id: before.map(|context| context.span_id),
                name: name.into(),
                kind,
                began_unix_ns: unix_ns(),
                ended_unix_ns: 0,
                attributes: Vec::new(),
                error: None,
            })
        });
        OpenSpan { tracer: Arc::clone(self), context, span, began: Instant::now() }
    }

    /// The requests that are opening rooms.
    pub fn room_openers(&self) -> &RoomOpeners {
        &self.room_openers
    }

    /// Spans that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.queue.messages() as u64
    }

    fn put(&self, span: Box<Span>) {
        let bytes = span.bytes();
        if let Err(Refused::Full(_) | Refused::Closed(_)) = self.queue.try_send(span, bytes) {
            self.shared.counters.count_spans(ExportOutcome::Dropped, 1);
        }
    }
}

impl Span {
    /// Its size in memory, roughly.
    fn bytes(&self) -> usize {
        let of_attribute = |(_, value): &(&str, Attribute)| match value {
            Attribute::Text(text) => 48 + text.len(),
            Attribute::Number(_) => 48,
        };
        let attributes = self.attributes.iter().map(of_attribute).sum::<usize>();
        let state = self.context.state.as_ref().map_or(0, |state| state.len());
        SPAN_BYTES + self.name.len() + attributes + state + self.error.as_ref().map_or(0, |error| error.len())
    }
}

impl OpenSpan {
    /// How others refer to the span.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Attribute>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((name, value.into()));
        }
    }

    /// The span has failed.
    pub fn fail(&mut self, why: &str) {
        if let Some(span) = &mut self.span {
            span.error = Some(shortened(why).into());
        }
    }

    /// The span has begun so long ago.
    #[must_use]
    pub fn begun_before(mut self, ago: Duration) -> Self {
        if let Some(span) = &mut self.span {
            let ago_ns = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
            span.began_unix_ns = span.began_unix_ns.saturating_sub(ago_ns);
        }
        self.began = self.began.checked_sub(ago).unwrap_or(self.began);
        self
    }

    /// The span is not sent.
    pub fn discard(&mut self) {
        self.span = None;
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            // Not the time of the day at the end, which may have been set meanwhile.
            let took_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            span.ended_unix_ns = span.began_unix_ns.saturating_add(took_ns);
            self.tracer.put(span);
        }
    }
}

/// The span of a request.
struct Current {
    tracer: Arc<Tracer>,
    context: TraceContext,
    /// Spans inside of it so far.
    children: Cell<u32>,
}

tokio::task_local! {
    /// The span of the request that this task answers.
    static CURRENT: Current;
}

/// Does `work` with this span as the current one.
pub async fn traced<T>(span: &OpenSpan, work: impl Future<Output = T>) -> T {
    let (tracer, context) = (Arc::clone(&span.tracer), span.context.clone());
    CURRENT.scope(Current { tracer, context, children: Cell::new(0) }, work).await
}

/// Opens a span inside of the current one; `None` if there is none, if it is not recorded, or if it has too many.
pub fn current_child(name: impl Into<Cow<'static, str>>) -> Option<OpenSpan> {
    let open = |current: &Current| {
        let Current { tracer, context, children } = current;
        if !context.is_sampled {
            return None;
        }
        if children.get() >= CHILDREN_MAX {
            tracer.shared.counters.count_spans(ExportOutcome::Dropped, 1);
            return None;
        }
        children.set(children.get() + 1);
        Some(tracer.open(name, SpanKind::Internal, Parent::Own(context)))
    };
    CURRENT.try_with(open).ok().flatten()
}

/// While it lives, the current span is that of a request which opens a room.
pub struct RoomOpener {
    tracer: Arc<Tracer>,
    channel: Box<str>,
    span_id: [u8; 8],
}

/// Notes that the current span opens this room; `None` if there is none.
pub fn current_opens_room(channel: &str) -> Option<RoomOpener> {
    let opener = |Current { tracer, context, .. }: &Current| {
        tracer.room_openers.add(channel, context);
        RoomOpener { tracer: Arc::clone(tracer), channel: channel.into(), span_id: context.span_id }
    };
    CURRENT.try_with(opener).ok()
}

impl Drop for RoomOpener {
    fn drop(&mut self) {
        self.tracer.room_openers.remove(&self.channel, self.span_id);
    }
}

/// The requests of the server API that are opening rooms. The builder of rooms, which is another thread, finds there what its
/// span belongs to.
#[derive(Debug, Default)]
pub struct RoomOpeners(Mutex<HashMap<Box<str>, TraceContext>>);

impl RoomOpeners {
    /// A request opens this room. It is the newest that counts.
    fn add(&self, channel: &str, context: &TraceContext) {
        let mut openers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if openers.len() < ROOM_OPENERS_MAX || openers.contains_key(channel) {
            openers.insert(channel.into(), context.clone());
        }
    }

    /// The request of this span has been answered. The entry may be that of a newer request.
    fn remove(&self, channel: &str, span_id: [u8; 8]) {
        let mut openers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if openers.get(channel).is_some_and(|context| context.span_id == span_id) {
            openers.remove(channel);
        }
    }

    /// The request that opens this room, if any.
    pub fn of(&self, channel: &str) -> Option<TraceContext> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(channel).cloned()
    }
}

/// Values of the random part of a trace's id.
const RANDOM_VALUES: u64 = 1 << 56;

/// Whether a share of all traces has this one, by the last seven bytes of its id, which the specification has random.
fn is_chosen(trace_id: &[u8; 16], ratio: f64) -> bool {
    is_below_ratio(u128::from_be_bytes(*trace_id) as u64, ratio)
}

/// Whether a share of all random numbers has this one.
fn is_below_ratio(random: u64, ratio: f64) -> bool {
    ((random & (RANDOM_VALUES - 1)) as f64) < ratio * RANDOM_VALUES as f64
}

/// Random numbers that cost no system call (`SplitMix64`). They only decide what is recorded, so none has to be secret.
struct Draws(AtomicU64);

impl Draws {
    fn new() -> Self {
        let mut seed = [0; 8];
        // Without a seed, the numbers are still spread evenly.
        let _ = getrandom::fill(&mut seed);
        Self(AtomicU64::new(u64::from_ne_bytes(seed)))
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text)
}
