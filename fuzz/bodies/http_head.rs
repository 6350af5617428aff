//! The body of the fuzz target `http_head`.

use std::{net::IpAddr, sync::Arc};

use dunlin_net::{
    Acceptor, ClientEndpoint, HEAD_FIELDS_MAX, HeadBuffer, HeadLimits, HeadVerdict, HeaderPicker, RefusalReason,
    RequestBody, Transport, TrustedProxies,
};

const BODY_BYTES_MAX: usize = 64;
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 1_024, request_line_bytes_max: 256 };
/// What the proxies of an operator write, whatever their clients say.
const CLIENT: &str = "203.0.113.7";

/// A request to a shard. The first byte determines the size of the pieces, which must not affect the result.
pub fn head(data: &[u8]) {
    let Some((step, request)) = data.split_first() else { return };
    let acceptor = acceptor();
    let mut at_once = HeadBuffer::default();
    let verdict = acceptor.judge(&mut at_once, request);
    let mut in_pieces = HeadBuffer::default();
    let mut judged = request.chunks(usize::from(*step).max(1)).map(|piece| acceptor.judge(&mut in_pieces, piece));
    let other = judged.find(|verdict| *verdict != HeadVerdict::Unfinished).unwrap_or(HeadVerdict::Unfinished);
    assert_eq!(verdict, other, "it does not matter how a request comes");

    match verdict {
        HeadVerdict::Unfinished => {
            assert!(request.len() <= LIMITS.head_bytes_max, "what does not end is refused");
        }
        HeadVerdict::HandOver => {}
        HeadVerdict::Refused(refused) => assert!(status(&refused.response) >= 400),
        HeadVerdict::WebSocket { response, connect, head_len, .. } => {
            assert_eq!(status(&response), 101);
            assert!(head_len <= LIMITS.head_bytes_max && head_len <= request.len());
            assert!(connect.is_none_or(|connect| !connect.is_empty() && connect.len() < head_len));
        }
        HeadVerdict::Stream { response, body, head_len, .. } => {
            assert!(head_len <= LIMITS.head_bytes_max);
            // If the transport sends something at once, it follows the response's head.
            assert_eq!(status(&response), 200);
            let behind = request.get(head_len..).expect("a head is a part of what came");
            // The acceptor gives a body only once, so the other comes from another acceptor.
            let mut again = HeadBuffer::default();
            let HeadVerdict::Stream { body: other, .. } = acceptor.judge(&mut again, request) else {
                unreachable!("the same request comes to the same")
            };
            assert_eq!(read(body, behind, behind.len().max(1)), read(other, behind, usize::from(*step).max(1)));
        }
    }
    address(request);
}

/// What is read of a body that comes in pieces of `step` bytes: `None` as long as it is not whole.
fn read(mut body: RequestBody, bytes: &[u8], step: usize) -> Result<Option<Vec<u8>>, RefusalReason> {
    for piece in bytes.chunks(step) {
        body.push(piece)?;
    }
    let limit = if body.bytes_max() == 0 { LIMITS.head_bytes_max } else { BODY_BYTES_MAX };
    let (is_whole, bytes) = (body.is_whole(), body.into_bytes());
    assert!(bytes.len() <= limit, "a body keeps to its limit");
    Ok(is_whole.then_some(bytes))
}

/// Nobody's address can be invented: what a trusted proxy appends counts, whatever stands before it, or else the proxy.
fn address(fields: &[u8]) {
    let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap_or_else(|text| unreachable!("{text} is a network"));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap_or_else(|_| unreachable!("{text} is an address"));
    let head =
        [b"GET / HTTP/1.1\r\n", fields, b"\r\nX-Forwarded-For: ", CLIENT.as_bytes(), b", 10.1.1.1\r\n\r\n"].concat();
    let (stranger, proxy) = (ip("192.0.2.1"), ip("10.0.0.1"));
    assert_eq!(proxies.client(stranger, &head), stranger, "a stranger's word counts for nothing");
    let mut room = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
    let mut request = httparse::Request::new(&mut room);
    let is_whole = request.parse(&head).is_ok_and(|parsed| parsed == httparse::Status::Complete(head.len()));
    if is_whole {
        assert_eq!(proxies.client(proxy, &head), ip(CLIENT), "what the proxy wrote stands last");
    } else if request.parse(&head).is_err() {
        assert_eq!(proxies.client(proxy, &head), proxy, "fields of an invalid head are ignored");
    }
}

/// The status of a response, whose head has to be sound: nothing that a client sent can end it early.
fn status(response: &[u8]) -> u16 {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut fields);
    let parsed = head.parse(response).expect("a response");
    let httparse::Status::Complete(head_len) = parsed else { unreachable!("a whole response") };
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    assert_eq!(end, Some(head_len), "a head ends once");
    assert!(head.headers.iter().all(|field| !field.name.eq_ignore_ascii_case("set-cookie")));
    head.code.expect("a status")
}

fn acceptor() -> Acceptor {
    let body_bytes_max = BODY_BYTES_MAX;
    let places = [
        ("/w", Transport::WebSocket { deflate: true }),
        ("/u", Transport::UniWebSocket { deflate: true }),
        ("/h", Transport::HttpStream { body_bytes_max }),
        ("/s", Transport::Sse { body_bytes_max }),
        ("/uh", Transport::UniHttpStream { body_bytes_max }),
        ("/us", Transport::UniSse { body_bytes_max }),
    ];
    Acceptor {
        places: places.map(|(path, transport)| ClientEndpoint { path: path.to_owned(), transport }).into(),
        // All but one: what of an origin is repeated has to be harmless.
        origins: Arc::new(|origin, _| origin != Some("http://evil.example")),
        limits: LIMITS,
        headers: HeaderPicker::new([Box::from("cookie")]),
    }
}
