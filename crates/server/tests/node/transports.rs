//! Transports other than the plain WebSocket, over real sockets.

use dunlin::node::NodeNetOptions;
use dunlin_net::{ClientEndpoint, STREAM_BEHIND_BYTES_MAX, Transport};
use dunlin_websocket::{
    MessageKind, WebSocketLimits,
    deflate::{Deflater, Inflater},
};

use crate::node::{
    client::Client,
    rig::{Rig, engine_options, net_options, wait_until},
};

fn rig_with(transport: Transport) -> Rig {
    let places = vec![ClientEndpoint { path: "/t".to_owned(), transport }];
    Rig::start(NodeNetOptions { places, ..net_options() }, engine_options())
}

const UPGRADE: &str = "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn compressed_frame(message: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    assert!(Deflater::new(6).deflate(message, &mut payload), "it gets shorter");
    assert!(payload.len() < 126);
    [&[0xc1, 0x80 | payload.len() as u8, 0, 0, 0, 0], &payload[..]].concat()
}

#[test]
fn messages_are_compressed_in_both_directions() {
    let rig = rig_with(Transport::WebSocket { deflate: true });
    let mut client = Client::connect(rig.address());
    client.write(
        format!(
            "GET /t HTTP/1.1\r\n{UPGRADE}Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
        )
        .as_bytes(),
    );
    let head = client.read_head();
    let agreed =
        "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n";
    assert!(head.contains(agreed), "{head}");

    let spaces = " ".repeat(200);
    client.write(&compressed_frame(format!(r#"{{"id":1,"connect":{{}}{spaces}}}"#).as_bytes()));
    let (first, payload) = client.read_raw_frame().expect("a frame");
    let reply = match first {
        0xc1 => {
            let mut inflater = Inflater::default();
            inflater.inflate(MessageKind::Text, &payload, &WebSocketLimits::default()).expect("deflate").to_vec()
        }
        other => {
            assert_eq!(other, 0x81);
            payload
        }
    };
    assert!(reply.starts_with(br#"{"id":1,"connect":{"#), "{}", String::from_utf8_lossy(&reply));

    client.send(r#"{"id":2,"subscribe":{"channel":"news"}}"#);
    client.read_raw_frame().expect("a reply");
    let words = "the same words again ".repeat(20);
    rig.publish("news", &format!("{words:?}")).expect("published");
    let (first, payload) = client.read_raw_frame().expect("a publication");
    assert_eq!(first, 0xc1, "compressed text");
    assert!(payload.len() < 100, "{} bytes", payload.len());
    let mut inflater = Inflater::default();
    let message = inflater.inflate(MessageKind::Text, &payload, &WebSocketLimits::default()).expect("deflate");
    assert!(String::from_utf8_lossy(message).contains(&words));
}

/// Messages are compressed once for all clients, with the full window. A client that requires a smaller window receives
/// uncompressed messages, but may send compressed ones.
#[test]
fn a_client_with_a_smaller_window_gets_messages_as_they_are() {
    let rig = rig_with(Transport::WebSocket { deflate: true });
    let mut client = Client::connect(rig.address());
    let offer = "permessage-deflate; server_max_window_bits=9";
    client.write(format!("GET /t HTTP/1.1\r\n{UPGRADE}Sec-WebSocket-Extensions: {offer}\r\n\r\n").as_bytes());
    let head = client.read_head();
    assert!(head.contains("; server_max_window_bits=9\r\n"), "{head}");
    let spaces = " ".repeat(200);
    client.write(&compressed_frame(format!(r#"{{"id":1,"connect":{{}}{spaces}}}"#).as_bytes()));
    assert!(client.read_line().starts_with(r#"{"id":1,"connect":{"#));
    client.write(&compressed_frame(format!(r#"{{"id":2,"subscribe":{{"channel":"news"}}{spaces}}}"#).as_bytes()));
    assert!(client.read_line().starts_with(r#"{"id":2,"subscribe":{"#));
    let words = format!("{:?}", "the same words again ".repeat(20));
    rig.publish("news", &words).expect("published");
    let (first, payload) = client.read_raw_frame().expect("a publication");
    assert_eq!(first, 0x81, "plain text");
    assert!(String::from_utf8_lossy(&payload).contains(&words));
}

#[test]
fn a_compression_bomb_closes_only_its_connection() {
    let rig = rig_with(Transport::WebSocket { deflate: true });
    let connect = || {
        let mut client = Client::connect(rig.address());
        let extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
        client.write(format!("GET /t HTTP/1.1\r\n{UPGRADE}{extension}\r\n").as_bytes());
        client.read_head();
        client
    };
    let mut other = connect();
    let mut client = connect();
    client.write(&compressed_frame(&vec![b' '; 65_537]));
    assert_eq!(client.read_close(), 1009);
    other.send(r#"{"id":1,"connect":{}}"#);
    assert!(other.read_raw_frame().is_some());
}

#[test]
fn without_an_offer_and_without_the_option_nothing_is_compressed() {
    for (deflate, offer) in [(true, ""), (false, "Sec-WebSocket-Extensions: permessage-deflate\r\n")] {
        let rig = rig_with(Transport::WebSocket { deflate });
        let mut client = Client::connect(rig.address());
        client.write(format!("GET /t HTTP/1.1\r\n{UPGRADE}{offer}\r\n").as_bytes());
        let head = client.read_head();
        assert!(!head.contains("Extensions"), "{head}");
        client.write(&compressed_frame(&[b' '; 100]));
        assert_eq!(client.read_close(), 1002);
    }
}

const HTTP_STREAM: Transport = Transport::HttpStream { body_bytes_max: 1_000 };

#[test]
fn an_http_stream_carries_replies_and_publications_as_lines() {
    let rig = rig_with(HTTP_STREAM);
    let connect = r#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"news"}}"#;
    let (half, rest) = connect.split_at(20);
    let mut client = Client::connect(rig.address());
    let length = connect.len();
    client.write(format!("POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{half}").as_bytes());
    client.write(rest.as_bytes());
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut lines = client.read_chunk();
    while lines.lines().count() < 2 {
        lines.push_str(&client.read_chunk());
    }
    assert!(lines.starts_with(r#"{"id":1,"connect":{"#) && lines.contains("\n{\"id\":2,\"subscribe\":{"), "{lines}");
    rig.publish("news", "{\"a\":1}").expect("published");
    let publication = client.read_chunk();
    assert!(publication.starts_with(r#"{"push":{"#) && publication.ends_with('\n'), "{publication}");
    // Further bytes from the client are not commands.
    client.write(b"POST /t HTTP/1.1\r\n\r\n");
    rig.publish("news", "{\"a\":2}").expect("published");
    assert!(client.read_chunk().contains("\"a\":2"));
}

#[test]
fn server_sent_events_begin_with_the_command_in_the_url() {
    let rig = rig_with(Transport::Sse { body_bytes_max: 1_000 });
    let mut client = Client::connect(rig.address());
    client.write(
        b"GET /t?cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n",
    );
    let head = client.read_head();
    assert!(head.contains("text/event-stream") && head.contains("Access-Control-Allow-Origin: http://b\r\n"), "{head}");
    assert_eq!(client.read_chunk(), "\r\n");
    let reply = client.read_chunk();
    assert!(reply.starts_with("data: {\"id\":1,\"connect\":{") && reply.ends_with("}\n\n"), "{reply:?}");
}

#[test]
fn invalid_stream_requests_get_their_status() {
    let rig = rig_with(HTTP_STREAM);
    for (request, expected) in [
        ("POST /t HTTP/1.0\r\nHost: a\r\n\r\n", "505"),
        ("GET /t HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", "413"),
        ("POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "400"),
        ("POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", "413"),
        ("POST /t HTTP/1.1\r\nHost: a\r\nOrigin: https://evil.example\r\n\r\n", "403"),
    ] {
        let mut client = Client::connect(rig.address());
        client.write(request.as_bytes());
        assert_eq!(client.try_read_status().as_deref(), Some(expected), "{request:?}");
    }
}

#[test]
fn a_missing_body_times_out() {
    let places = vec![ClientEndpoint { path: "/t".to_owned(), transport: HTTP_STREAM }];
    let rig = Rig::start(NodeNetOptions { places, head_timeout_ms: 50, ..net_options() }, engine_options());
    let mut client = Client::connect(rig.address());
    client.write(b"POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{");
    assert_eq!(client.try_read_status().as_deref(), Some("408"));
    rig.wait_for("the refusal", 1, |counters| counters.refused[dunlin_net::RefusalReason::BodyTimeout.index()]);
}

#[test]
fn bytes_after_a_stream_request_are_limited() {
    let rig = rig_with(HTTP_STREAM);
    let mut client = Client::connect(rig.address());
    let commands = r#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"news"}}"#;
    let request = format!("POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{commands}", commands.len());
    client.write(request.as_bytes());
    client.read_head();
    let mut lines = client.read_chunk();
    while lines.lines().count() < 2 {
        lines.push_str(&client.read_chunk());
    }
    let before = rig.count(|net| net.read_bytes);
    let behind = u64::from(STREAM_BEHIND_BYTES_MAX);
    client.write(&vec![b' '; STREAM_BEHIND_BYTES_MAX as usize]);
    rig.wait_for("all of it to be read", before + behind, |net| net.read_bytes);
    rig.publish("news", "1").expect("published");
    assert!(client.read_chunk().contains("\"data\":1"));
    assert_eq!(rig.count(|net| net.connections), 1);

    client.write(b" ");
    wait_until("the connection to be ended", || rig.count(|net| net.connections) == 0);
}

on_io_uring![
    messages_are_compressed_in_both_directions,
    a_client_with_a_smaller_window_gets_messages_as_they_are,
    a_compression_bomb_closes_only_its_connection,
    without_an_offer_and_without_the_option_nothing_is_compressed,
    an_http_stream_carries_replies_and_publications_as_lines,
    server_sent_events_begin_with_the_command_in_the_url,
    invalid_stream_requests_get_their_status,
    a_missing_body_times_out,
    bytes_after_a_stream_request_are_limited,
];
