use super::*;

const POST: Transport = Transport::HttpStream { body_bytes_max: 16 };
const SSE: Transport = Transport::Sse { body_bytes_max: 16 };

fn judge(transport: Transport, method: &str, query: &str, fields: &[(&str, &str)]) -> Result<Stream, String> {
    let mut fields: Vec<_> =
        fields.iter().map(|(name, value)| httparse::Header { name, value: value.as_bytes() }).collect();
    fields.push(httparse::Header { name: "Host", value: b"a" });
    let judged = BodyLength::of(1, &fields)
        .and_then(|length| StreamRequest { method, query, fields: &fields, length }.judge(transport));
    judged.map_err(|refused| String::from_utf8_lossy(&refused.response[9..12]).into_owned())
}

#[test]
fn body_length_follows_the_header_fields() {
    let status = |fields: &[(&str, &str)]| judge(POST, "POST", "", fields).map(|stream| stream.body.is_whole());
    assert_eq!(status(&[]), Ok(true), "an empty one");
    assert_eq!(status(&[("content-length", "0")]), Ok(true));
    assert_eq!(status(&[("Content-Length", " 16 ")]), Ok(false));
    assert_eq!(status(&[("Transfer-Encoding", "Chunked")]), Ok(false));
    for (fields, expected) in [
        (&[("content-length", "17")][..], "413"),
        (&[("content-length", "99999999999999999999999")], "413"),
        (&[("content-length", "-1")], "400"),
        (&[("content-length", "+1")], "400"),
        (&[("content-length", "")], "400"),
        (&[("content-length", "1, 1")], "400"),
        (&[("content-length", "1"), ("content-length", "1")], "400"),
        (&[("content-length", "1"), ("transfer-encoding", "chunked")], "400"),
        (&[("transfer-encoding", "gzip, chunked")], "400"),
        (&[("host", "b")], "400"),
    ] {
        assert_eq!(status(fields), Err(expected.to_owned()), "{fields:?}");
    }
}

#[test]
fn methods_and_wires_follow_the_transport() {
    let octets = [("Content-Type", "application/octet-stream")];
    let uni = Transport::UniHttpStream { body_bytes_max: 16 };
    let uni_sse = Transport::UniSse { body_bytes_max: 16 };
    for (transport, method, fields, expected) in [
        (POST, "POST", &[][..], Ok(Wire::HttpStreamJson)),
        (POST, "POST", &octets, Ok(Wire::HttpStreamProtobuf)),
        (POST, "GET", &[], Err("405")),
        (uni, "POST", &octets, Ok(Wire::UniHttpStream)),
        (uni, "GET", &[], Err("405")),
        (SSE, "POST", &[], Ok(Wire::Sse)),
        (SSE, "PUT", &[], Err("405")),
        // Without a connect command there is nothing to begin with.
        (SSE, "GET", &[], Err("400")),
        (uni_sse, "GET", &[], Ok(Wire::UniSse)),
    ] {
        let judged = judge(transport, method, "", fields).map(|stream| stream.wire);
        assert_eq!(judged, expected.map_err(str::to_owned), "{transport:?} {method}");
    }
}

#[test]
fn connect_commands_are_percent_decoded() {
    let connect = |query: &str| judge(SSE, "GET", query, &[]).map(|stream| stream.body.into_bytes());
    assert_eq!(connect("cf_connect=%7B%22id%22%3a1%7D+x"), Ok(b"{\"id\":1} x".to_vec()));
    assert_eq!(connect("a=b&cf_connect={}&c"), Ok(b"{}".to_vec()));
    for query in ["cf_connect", "cf_connect=", "cf_connect=%", "cf_connect=%7", "cf_connect=%xx", "xcf_connect=a"] {
        assert_eq!(connect(query), Err("400".to_owned()), "{query}");
    }
}

#[test]
fn the_response_has_the_fields_that_prevent_buffering() {
    let head = |fields: &[(&str, &str)]| {
        let stream = judge(SSE, "POST", "", fields).expect("a stream");
        String::from_utf8(stream.response).expect("ASCII")
    };
    let plain = head(&[]);
    for field in [
        "Content-Type: text/event-stream; charset=utf-8\r\n",
        "X-Accel-Buffering: no\r\n",
        "Cache-Control: private, no-cache, no-store, must-revalidate, max-age=0\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        assert!(plain.contains(field), "{field}");
    }
    assert!(plain.ends_with("\r\n\r\n2\r\n\r\n\r\n") && !plain.contains("Access-Control"));
    let cross = head(&[("origin", "https://good.example")]);
    assert!(cross.contains("\r\nAccess-Control-Allow-Origin: https://good.example\r\n"));
    assert!(cross.contains("\r\nAccess-Control-Allow-Credentials: true\r\n"));
}
