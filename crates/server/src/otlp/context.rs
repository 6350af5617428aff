//! W3C Trace Context: which trace a request belongs to.

use std::fmt::Write as _;

use dunlin_net::{PickedField, PickedHeaders};
use hyper::header::HeaderMap;

/// The header fields of the context, which sessions keep of their first request.
pub const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Maximum length of `tracestate` that is passed on, as the specification requires at least.
const STATE_BYTES_MAX: usize = 512;

/// Length of `traceparent` in version 00.
const PARENT_BYTES: usize = 55;

/// A span, as others refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, never 0.
    pub trace_id: [u8; 16],
    /// The span, never 0.
    pub span_id: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// What the systems on the way have added, unread.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    /// The context of a request; `None` without one, or with one that is not valid.
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let fields = |name| headers.get_all(name).iter().map(hyper::header::HeaderValue::as_bytes);
        Self::of_fields(fields("traceparent"), fields("tracestate"))
    }

    /// The context of a client's own request, of which these fields were kept.
    pub fn of_picked(picked: &[PickedField]) -> Option<Self> {
        let fields =
            |wanted: &'static str| picked.iter().filter(move |(name, _)| **name == *wanted).map(|(_, value)| &**value);
        let [parent, state] = TRACE_HEADERS;
        Self::of_fields(fields(parent), fields(state))
    }

    /// The same fields with no more of the context than is used: sessions keep them, and those of a client may be long.
    pub fn shorten_picked(picked: &PickedHeaders) -> PickedHeaders {
        let is_of_trace = |(name, _): &&PickedField| TRACE_HEADERS.contains(&&**name);
        if !picked.iter().any(|field| is_of_trace(&field)) {
            return picked.clone();
        }
        let mut kept: Vec<PickedField> = picked.iter().filter(|field| !is_of_trace(field)).cloned().collect();
        if let Some(context) = Self::of_picked(picked) {
            let [parent, state] = TRACE_HEADERS.map(Box::from);
            kept.push((parent, context.traceparent().into_bytes().into()));
            kept.extend(context.state.map(|text| (state, text.into_boxed_bytes())));
        }
        kept.into()
    }

    /// The context in these fields.
    pub fn of_fields<'f>(
        parents: impl IntoIterator<Item = &'f [u8]>,
        states: impl IntoIterator<Item = &'f [u8]>,
    ) -> Option<Self> {
        let mut parents = parents.into_iter();
        // More than one are invalid.
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let (trace_id, span_id, is_sampled) = parsed(parent)?;
        let states: Vec<_> = states.into_iter().collect();
        let state = String::from_utf8(states.join(&b','));
        let is_valid = |state: &String| {
            !state.is_empty()
                && state.len() <= STATE_BYTES_MAX
                && state.bytes().all(|byte| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic())
        };
        let state = state.ok().filter(is_valid).map(String::into_boxed_str);
        Some(Self { trace_id, span_id, is_sampled, state })
    }

    /// The value of `traceparent`.
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(PARENT_BYTES);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.span_id);
        text.push_str(if self.is_sampled { "-01" } else { "-00" });
        text
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

/// Trace, span, and whether it is sampled.
fn parsed(parent: &[u8]) -> Option<([u8; 16], [u8; 8], bool)> {
    let (known, rest) = parent.split_at_checked(PARENT_BYTES)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let [version] = hex(parts.next()?)?;
    let (trace_id, span_id) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let [flags] = hex(parts.next()?)?;
    // Later versions may add parts, and keep these.
    let fits = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.starts_with(b"-") };
    let is_valid = fits && version != 0xff && trace_id != [0; 16] && span_id != [0; 8] && parts.next().is_none();
    is_valid.then_some((trace_id, span_id, flags & 1 == 1))
}

/// Bytes in hexadecimal, in small letters.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn context(parents: &[&str], states: &[&str]) -> Option<TraceContext> {
        let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        let (parents, states) = (bytes(parents), bytes(states));
        TraceContext::of_fields(parents.iter().map(|one| &one[..]), states.iter().map(|one| &one[..]))
    }

    #[test]
    fn a_context_is_read_and_written() {
        let read = context(&[PARENT], &["a=1", "b=2"]).expect("valid");
        assert_eq!((read.trace_id[0], read.span_id[7], read.is_sampled), (0x4b, 0xb7, true));
        assert_eq!(read.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(read.traceparent(), PARENT);
        let off = PARENT.replace("-01", "-00");
        assert_eq!(context(&[&off], &[]).expect("valid").traceparent(), off);
        // A later version with more parts, and flags that are not known.
        let later = format!("cc{}-what", PARENT.strip_prefix("00").unwrap().replace("-01", "-ff"));
        assert!(context(&[&later], &[]).expect("valid").is_sampled);
    }

    #[test]
    fn sessions_keep_no_more_than_is_used() {
        let long = "s".repeat(513);
        let field = |name: &str, value: &str| -> PickedField { (name.into(), value.as_bytes().into()) };
        let shortened = |fields: Vec<PickedField>| TraceContext::shorten_picked(&fields.into()).to_vec();
        let (parent, cookie) = (field("traceparent", PARENT), field("cookie", "a"));
        let fits = vec![cookie.clone(), parent.clone(), field("tracestate", "a=1")];
        assert_eq!(shortened(fits.clone()), fits);
        assert_eq!(
            shortened(vec![parent.clone(), field("tracestate", &long), cookie.clone()]),
            [cookie.clone(), parent]
        );
        assert_eq!(shortened(vec![field("traceparent", &long), cookie.clone(), field("tracestate", "a=1")]), [cookie]);
    }

    #[test]
    fn what_is_no_context_is_not_continued() {
        let zero_trace = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = PARENT.replace("00f067aa0ba902b7", &"0".repeat(16));
        for parent in [
            "",
            "00",
            "nonsense",
            &PARENT.to_uppercase(),
            &format!("{PARENT}-"),
            &format!("{PARENT}0"),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replacen('-', "_", 1),
            &PARENT.replace("-01", "-0g"),
            &PARENT.replace("-01", "0-1"),
            &format!("cc{}x", PARENT.strip_prefix("00").unwrap()),
            &zero_trace,
            &zero_span,
            &"é".repeat(30),
        ] {
            assert!(context(&[parent], &[]).is_none(), "{parent}");
        }
        assert!(context(&[PARENT, PARENT], &[]).is_none() && context(&[], &["a=1"]).is_none());
        let state = |state: &str| context(&[PARENT], &[state]).expect("valid").state;
        assert!(state(&"s".repeat(512)).is_some() && state(&"s".repeat(513)).is_none() && state("a=\u{1}").is_none());
    }
}
