//! Limits of time and memory. `schema/vectors/websocket/limits.txt` has further cases for bytes and fragments.

use dunlin_proof::allocations::allocations_of;
use dunlin_websocket::{MessageKind, ReceiveError, Received, Receiver, WebSocketLimits};

/// A masked frame with a key of zeros.
fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    assert!(len < 126);
    [&[first_byte, 0x80 | len, 0, 0, 0, 0], payload].concat()
}

fn receive_none(receiver: &mut Receiver, now_ms: u64, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let mut rest: &mut [u8] = &mut bytes;
    assert_eq!(receiver.receive(now_ms, &WebSocketLimits::default(), &mut rest), Ok(None));
}

fn receive_one(receiver: &mut Receiver, now_ms: u64, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let mut rest: &mut [u8] = &mut bytes;
    assert!(matches!(receiver.receive(now_ms, &WebSocketLimits::default(), &mut rest), Ok(Some(_))));
    assert!(rest.is_empty());
}

#[test]
fn message_age_counts_from_the_first_byte() {
    let limits = WebSocketLimits::default();
    let mut receiver = Receiver::new();
    assert!(!receiver.overdue(u64::MAX, &limits), "nothing is open");

    receive_none(&mut receiver, 1_000, &[0x01]);
    receive_none(&mut receiver, 5_000, &frame(0x01, b"a")[1..]);
    receive_none(&mut receiver, 9_000, &frame(0x00, b"b"));
    receive_one(&mut receiver, 9_500, &frame(0x89, b"a ping is no progress"));
    assert_eq!(receiver.unfinished_since_ms(), Some(1_000));
    assert!(!receiver.overdue(11_000, &limits), "at the limit");
    assert!(receiver.overdue(11_001, &limits), "one past it");
    assert!(!receiver.overdue(0, &limits), "a clock that went back is no reason");

    receive_one(&mut receiver, 11_001, &frame(0x80, b"c"));
    assert_eq!(receiver.unfinished_since_ms(), None);
    assert!(!receiver.overdue(u64::MAX, &limits));
}

#[test]
fn each_message_has_its_own_age() {
    let mut receiver = Receiver::new();
    receive_none(&mut receiver, 1_000, &frame(0x01, b"a"));
    let mut end_and_next_begin = [frame(0x80, b"b"), vec![0x81]].concat();
    let mut rest: &mut [u8] = &mut end_and_next_begin;
    assert!(matches!(receiver.receive(2_000, &WebSocketLimits::default(), &mut rest), Ok(Some(_))));
    assert_eq!(receiver.receive(2_000, &WebSocketLimits::default(), &mut rest), Ok(None));
    assert_eq!(receiver.unfinished_since_ms(), Some(2_000));

    // The same for a control frame that is cut off, without a message around it.
    let mut receiver = Receiver::new();
    receive_none(&mut receiver, 3_000, &frame(0x89, b"ping")[..7]);
    assert_eq!(receiver.unfinished_since_ms(), Some(3_000));
    receive_one(&mut receiver, 4_000, &frame(0x89, b"ping")[7..]);
    assert_eq!(receiver.unfinished_since_ms(), None);
}

#[test]
fn endless_one_byte_fragments_are_refused() {
    let limits = WebSocketLimits::default();
    let mut receiver = Receiver::new();
    let mut fragments = 0;
    let mut heap_bytes_max = 0;
    let error = (0..131_000).find_map(|index| {
        let mut bytes = frame(u8::from(index == 0), b"x");
        let mut rest: &mut [u8] = &mut bytes;
        let result = receiver.receive(0, &limits, &mut rest);
        heap_bytes_max = heap_bytes_max.max(receiver.heap_bytes());
        fragments += u32::from(result == Ok(None));
        result.err()
    });
    assert_eq!(error, Some(ReceiveError::TooManyFragments));
    assert_eq!(fragments, limits.fragments_max);
    assert!(heap_bytes_max < 1_024, "{heap_bytes_max} bytes for 128");
    assert_eq!(receiver.heap_bytes(), 0, "a failed connection holds nothing");
}

#[test]
fn memory_follows_received_bytes_not_the_announced_length() {
    let mut receiver = Receiver::new();
    receive_none(&mut receiver, 0, &[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    assert!(receiver.heap_bytes() < 512, "{} bytes for 3", receiver.heap_bytes());
}

#[test]
fn whole_frames_cost_no_allocation_and_an_idle_receiver_holds_none() {
    let limits = WebSocketLimits::default();
    let stream: Vec<u8> =
        [frame(0x81, b"text"), frame(0x82, b"binary"), frame(0x89, b"ping"), frame(0x8A, b"")].concat();
    let mut reads = vec![stream.clone(); 100];
    reads.push([stream, frame(0x88, &[0x03, 0xe8])].concat());

    let (allocations, received) = allocations_of(|| {
        let mut receiver = Receiver::new();
        let mut count = 0;
        for read in &mut reads {
            let mut rest: &mut [u8] = read;
            while let Ok(Some(_)) = receiver.receive(0, &limits, &mut rest) {
                count += 1;
            }
        }
        count
    });
    assert_eq!((allocations, received), (0, 405));
    assert!(size_of::<Receiver>() <= 16);
}

#[test]
fn buffers_are_returned_at_the_end_of_a_message() {
    let limits = WebSocketLimits::default();
    let mut receiver = Receiver::new();
    receive_none(&mut receiver, 0, &frame(0x02, &[7; 100]));
    receive_one(&mut receiver, 0, &frame(0x89, b"between"));
    receive_none(&mut receiver, 0, &frame(0x80, &[8; 100])[..50]);
    assert!(receiver.heap_bytes() >= 144);

    let mut bytes = frame(0x80, &[8; 100])[50..].to_vec();
    let mut rest: &mut [u8] = &mut bytes;
    let Ok(Some(Received::Message { kind: MessageKind::Binary, payload })) = receiver.receive(0, &limits, &mut rest)
    else {
        panic!("no message");
    };
    // The receiver lets go of the message before the caller does.
    assert_eq!(receiver.heap_bytes(), 0);
    assert_eq!(*payload, [[7; 100], [8; 100]].concat());
}

#[test]
fn a_whole_message_lies_in_the_callers_buffer() {
    let mut bytes = [frame(0x81, b"one"), frame(0x81, b"two")].concat();
    let buffer = bytes.as_ptr_range();
    let mut rest: &mut [u8] = &mut bytes;
    let mut receiver = Receiver::new();
    let Ok(Some(Received::Message { payload, .. })) = receiver.receive(0, &WebSocketLimits::default(), &mut rest)
    else {
        panic!("no message");
    };
    assert!(buffer.contains(&payload.as_ptr()));
    // What is left can be looked at while the message is in use: a paused session keeps it.
    assert_eq!(rest, frame(0x81, b"two"));
    assert_eq!(*payload, *b"one");
}
