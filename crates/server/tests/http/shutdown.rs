//! Shutdown by signals.

use serde_json::json;

use crate::http::server::{Server, handshake};

#[test]
fn sessions_are_disconnected_and_the_process_exits_with_success() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&json!({}));
        let mut session = server.open_session();
        let mut idle = server.connect();
        assert_eq!(idle.ask("GET", "/health", "").status, 200);
        server.signal(signal);
        let (first, payload) = session.frame();
        assert_eq!((first, &payload[..]), (0x88, &[&3001_u16.to_be_bytes()[..], b"shutdown"].concat()[..]));
        assert!(idle.is_ended(), "idle HTTP connections are closed");
        drop(session);
        assert_eq!(server.logged("closing sessions with 3001 (shutdown)")["signal"], format!("SIG{signal}"));
        server.logged("all sessions are closed");
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn a_session_that_does_not_hang_up_is_cut_off_in_time() {
    let mut server = Server::start(&json!({ "shutdown": { "timeout": "300ms" } }));
    let _session = server.open_session();
    server.signal("TERM");
    let cut = server.logged("sessions cut off at the shutdown timeout with unsent frames");
    assert_eq!(cut["sessions"], 1);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_signal_exits_at_once() {
    let mut server = Server::start(&json!({ "shutdown": { "timeout": "10m" } }));
    let _session = server.open_session();
    server.signal("TERM");
    server.logged("closing sessions with 3001 (shutdown)");
    assert_eq!(server.signal_until_it_ends("TERM").code(), Some(1));
    server.logged("second signal; exiting immediately");
}

#[test]
fn two_signals_at_once_are_one() {
    let mut server = Server::start(&json!({ "shutdown": { "timeout": "300ms" } }));
    let _session = server.open_session();
    // Both signals are delivered when the process continues.
    for signal in ["STOP", "TERM", "INT", "CONT"] {
        server.signal(signal);
    }
    server.logged("sessions cut off at the shutdown timeout with unsent frames");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn readiness_fails_before_any_session_is_closed() {
    let mut server = Server::start(&json!({ "shutdown": { "delay": "10m" } }));
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    server.signal("TERM");
    server.logged("closing sessions with 3001 (shutdown)");
    let deadline = std::time::Instant::now() + crate::http::server::PATIENCE;
    while server.ask("GET", "/health", "").status != 503 {
        assert!(std::time::Instant::now() < deadline, "the health check notices nothing");
    }
    // New clients are still served.
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    let mut late = server.connect();
    late.send(handshake(""));
    assert_eq!(late.answer().status, 101);
    assert_eq!(server.signal_until_it_ends("TERM").code(), Some(1));
}

on_io_uring![
    sessions_are_disconnected_and_the_process_exits_with_success,
    a_session_that_does_not_hang_up_is_cut_off_in_time,
    a_second_signal_exits_at_once,
    two_signals_at_once_are_one,
    readiness_fails_before_any_session_is_closed,
];
