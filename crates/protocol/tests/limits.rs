//! Limits on the decoder's work per frame.

use dunlin_protocol::{Command, Commands, DecodeError, Encoding, FilterLimits, Request, ShapeLimits, TagsFilter};

use crate::meaning;

fn decode_one(encoding: Encoding, frame: &[u8]) -> Result<Command<'_>, DecodeError> {
    Commands::new(encoding, frame).next().expect("a frame contains a command")
}

/// Runs a test on a thread with a small stack. Deep recursion would overflow it, but not the hundred levels that a
/// filter may have.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    const STACK_BYTES: usize = 512 * 1024;
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test).expect("a thread").join().expect("no failure");
}

#[test]
fn depth_of_a_payload_costs_no_stack() {
    on_a_small_stack(|| {
        let depth = 1_000_000;
        let payload = "[".repeat(depth) + &"]".repeat(depth);
        let frame = format!(r#"{{"id":1,"publish":{{"channel":"c","data":{payload}}}}}"#);
        let command = decode_one(Encoding::Json, frame.as_bytes()).expect("a command");
        let Some(Request::Publish(publish)) = command.request else { panic!("{:?}", command.id) };
        assert_eq!(publish.data, Some(payload.as_bytes()));
    });
}

#[test]
fn depth_of_an_unknown_field_costs_no_stack() {
    on_a_small_stack(|| {
        let frame = format!(r#"{{"x":{},"id":1}}"#, r#"{"a":"#.repeat(1_000_000) + "1" + &"}".repeat(1_000_000));
        assert_eq!(decode_one(Encoding::Json, frame.as_bytes()), Ok(Command { id: 1, request: None }));
        let cut = r#"{"x":"#.repeat(1_000_000);
        assert!(decode_one(Encoding::Json, cut.as_bytes()).is_err());
    });
}

#[test]
fn depth_of_a_tags_filter_costs_no_stack() {
    on_a_small_stack(|| {
        let filter = r#"{"nodes":["#.repeat(100_000) + &"]}".repeat(100_000);
        let frame = format!(r#"{{"id":1,"subscribe":{{"channel":"c","tf":{filter}}}}}"#);
        let command = decode_one(Encoding::Json, frame.as_bytes()).expect("a command");
        let Some(Request::Subscribe(subscribe)) = command.request else { panic!("{:?}", command.id) };
        let limits = FilterLimits { bytes_max: usize::MAX, nodes_max: usize::MAX, depth_max: 100 };
        let filter = TagsFilter::parse(Encoding::Json, subscribe.tags_filter.expect("a filter"), &limits);
        assert!(filter.is_err());
    });
}

#[test]
fn depth_in_protobuf_costs_no_stack() {
    on_a_small_stack(|| {
        let mut filter = Vec::new();
        for _ in 0..10_000 {
            filter = meaning::length_prefixed(0x32, &filter);
        }
        let subscribe = meaning::length_prefixed(0x6a, &filter);
        let frame = meaning::length_prefixed(0x2a, &subscribe);
        let frame = meaning::length_prefixed(0, &frame);
        let command = decode_one(Encoding::Protobuf, &frame[1..]).expect("a command");
        let Some(Request::Subscribe(subscribe)) = command.request else { panic!("{:?}", command.id) };
        let limits = FilterLimits { bytes_max: usize::MAX, nodes_max: usize::MAX, depth_max: 100 };
        let filter = TagsFilter::parse(Encoding::Protobuf, subscribe.tags_filter.expect("a filter"), &limits);
        assert!(filter.is_err());
    });
}

/// The text of an error is logged, and the log must not contain bytes of clients.
#[test]
fn errors_do_not_quote_the_frame() {
    let frame = br#"{"id":1,"publish":{"channel":"c","data":SECRET}}"#;
    let error = decode_one(Encoding::Json, frame).expect_err("not JSON");
    assert_eq!(error.what, "not JSON");
    let frame = br#"{"id":"SECRET"}"#;
    assert_eq!(decode_one(Encoding::Json, frame).expect_err("no number").what, "JSON field of the wrong type");
}

#[test]
fn strings_without_escapes_and_payloads_are_borrowed() {
    for (encoding, frame) in [
        (Encoding::Json, br#"{"id":1,"rpc":{"method":"m","data":{"a":1}}}"#.as_slice()),
        (Encoding::Protobuf, b"\x0d\x08\x01\x6a\x09\x0a\x04\"x\" \x12\x01m".as_slice()),
    ] {
        let command = decode_one(encoding, frame).expect("a command");
        let Some(Request::Rpc(rpc)) = command.request else { panic!("{command:?}") };
        assert!(matches!(rpc.method, std::borrow::Cow::Borrowed("m")));
        let data = rpc.data.expect("a payload");
        assert!(frame.as_ptr_range().contains(&data.as_ptr()), "{encoding:?}");
    }
}

/// Frames whose command is at the limit of its width, and one past it.
#[test]
fn subscriptions_of_a_connect_are_bounded_where_limits_are_given() {
    let limits = ShapeLimits::default();
    let most = limits.object_keys_max as usize;
    let of_json = |subs: usize| {
        let subs: Vec<String> = (0..subs).map(|number| format!(r#""c{number}":{{}}"#)).collect();
        format!(r#"{{"id":1,"connect":{{"subs":{{{}}}}}}}"#, subs.join(",")).into_bytes()
    };
    let of_protobuf = |subs: usize| {
        let subs: Vec<u8> = (0..subs)
            .flat_map(|number| {
                let channel = meaning::length_prefixed(0x0a, format!("c{number}").as_bytes());
                meaning::length_prefixed(0x1a, &channel)
            })
            .collect();
        meaning::length_prefixed(0, &meaning::length_prefixed(0x22, &subs))[1..].to_vec()
    };
    let subs_of = |encoding, frame: &[u8], limits: Option<ShapeLimits>| {
        let commands = Commands::new(encoding, frame);
        let mut commands = if let Some(limits) = limits { commands.within(limits) } else { commands };
        let command = commands.next().expect("a frame contains a command")?;
        let Some(Request::Connect(connect)) = command.request else { panic!("{:?}", command.id) };
        Ok::<usize, DecodeError>(connect.subs.len())
    };
    for (encoding, frame) in
        [(Encoding::Json, &of_json as &dyn Fn(usize) -> Vec<u8>), (Encoding::Protobuf, &of_protobuf)]
    {
        assert_eq!(subs_of(encoding, &frame(most), Some(limits)), Ok(most), "{encoding:?}");
        assert_eq!(subs_of(encoding, &frame(most + 1), None), Ok(most + 1), "{encoding:?}");
        let too_many = subs_of(encoding, &frame(most + 1), Some(limits));
        assert_eq!(too_many, Err(DecodeError { what: "too many fields" }), "{encoding:?}");
    }
}

#[test]
fn other_frame_contents_are_limited() {
    let limits = ShapeLimits { json_depth_max: 3, ..ShapeLimits::default() };
    let frame = "{\"id\":1,\"rpc\":{}}\n{\"id\":2,\"rpc\":{\"data\":[[1]]}}";
    let commands: Vec<_> = Commands::new(Encoding::Json, frame.as_bytes()).within(limits).collect();
    assert!(commands[0].is_ok());
    assert_eq!(commands[1], Err(DecodeError { what: "JSON too deep" }));
    assert_eq!(commands.len(), 2, "nothing comes after an error");
}
