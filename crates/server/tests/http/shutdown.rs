//! What signals do.

use serde_json::json;

use crate::server::{Server, handshake};

#[test]
fn sessions_are_told_and_the_process_ends_well() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&json!({}));
        let mut session = server.connect();
        session.send(handshake(""));
        assert_eq!(session.answer().status, 101);
        session.send_text(r#"{"id":1,"connect":{}}"#);
        session.frame();
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
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    server.signal("TERM");
    let cut = server.logged("cut off sessions that did not take their last frames in time");
    assert_eq!(cut["sessions"], 1);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_signal_is_the_last() {
    let mut server = Server::start(&json!({ "shutdown": { "timeout": "10m" } }));
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    server.signal("TERM");
    server.logged("closing sessions with 3001 (shutdown)");
    server.signal("TERM");
    server.logged("a second signal: stopping at once");
    assert_eq!(server.wait().code(), Some(1));
}

#[test]
fn a_load_balancer_is_told_before_anybody_is_closed() {
    let mut server = Server::start(&json!({ "shutdown": { "delay": "10m" } }));
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    server.signal("TERM");
    server.logged("closing sessions with 3001 (shutdown)");
    let deadline = std::time::Instant::now() + crate::server::PATIENCE;
    while server.ask("GET", "/health", "").status != 503 {
        assert!(std::time::Instant::now() < deadline, "the health check notices nothing");
    }
    // Who comes all the same is served.
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    let mut late = server.connect();
    late.send(handshake(""));
    assert_eq!(late.answer().status, 101);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
}
