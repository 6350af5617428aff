//! Runs the fan-out scenario against a server with planted faults, and checks that the report shows them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use serde_json::Value;

use crate::faulty_target::{receive, send};

/// The publications that the faulty server sends to one subscriber for one publication.
type Fault = fn(subscriber: usize, publication: usize) -> &'static [usize];

#[test]
fn a_faultless_run_is_reported_so() {
    let report = run(|_, _| &[0], &[]);
    assert_eq!(counts(&report), (60, 60, 0, 0), "{report:#}");
    assert_eq!(report["publications"], 20);
    assert_eq!(report["accepted"], 20);
    assert_eq!(report["latency"]["count"], 60);
    assert_eq!(report["closed"], serde_json::json!({}));
}

#[test]
fn a_lost_and_a_repeated_publication_are_found() {
    let faults: Fault = |subscriber, publication| match (subscriber, publication) {
        (0, 3) => &[],
        (1, 5) => &[0, 0],
        _ => &[0],
    };
    assert_eq!(counts(&run(faults, &[])), (60, 59, 1, 1));
}

#[test]
fn publications_in_another_order_count_as_lost_and_repeated() {
    let faults: Fault = |subscriber, publication| match (subscriber, publication) {
        (0, 3) => &[],
        (0, 4) => &[0, 1],
        _ => &[0],
    };
    assert_eq!(counts(&run(faults, &[])), (60, 59, 1, 1));
}

#[test]
fn publications_joined_in_one_frame_are_all_counted() {
    // The server delays every second publication, and joins it with the next one into one frame.
    let faults: Fault = |_, publication| if publication % 2 == 0 { &[] } else { &[1, 0] };
    assert_eq!(counts(&run(faults, &[])), (60, 60, 0, 0));
}

#[test]
fn a_saturating_run_is_verified() {
    let report = run(|_, _| &[0], &["--saturate", "2"]);
    let (offered, received, lost, duplicated) = counts(&report);
    assert!(offered > 0 && offered % 3 == 0, "{report:#}");
    assert_eq!((received, lost, duplicated), (offered, 0, 0));
}

/// A run with three subscribers and 20 publications, without a warm-up.
fn run(fault: Fault, more: &[&str]) -> Value {
    let address = start_server(fault);
    let url = format!("ws://{address}/connection/websocket");
    let pid = std::process::id().to_string();
    let mut arguments = vec!["fanout", "--url", &url, "--server-pid", &pid, "--no-pin", "--subscribers", "3"];
    arguments.extend([
        "--rate",
        "100",
        "--duration",
        "200ms",
        "--warm-up",
        "0s",
        "--turns",
        "1",
        "--workers",
        "2",
        "--json",
    ]);
    arguments.extend(more);
    let output = Command::new(env!("CARGO_BIN_EXE_dunlin-bench")).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is the JSON report")
}

fn counts(report: &Value) -> (u64, u64, u64, u64) {
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report:#}"));
    (count("deliveries_offered"), count("deliveries_received"), count("lost"), count("duplicated"))
}

/// Starts a server with the minimum of the protocol for a run: JSON and one channel.
fn start_server(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let (to_publish, publications) = mpsc::channel();
    let (to_join, joined) = mpsc::channel();
    thread::spawn(move || deliver(&publications, &joined, fault));
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let (to_publish, to_join) = (to_publish.clone(), to_join.clone());
            thread::spawn(move || serve(socket, &to_publish, &to_join));
        }
    });
    address
}

/// Delivers the publications of the run to each subscriber, with the planted fault.
fn deliver(publications: &Receiver<String>, joined: &Receiver<TcpStream>, fault: Fault) {
    let mut subscribers: Vec<TcpStream> = Vec::new();
    let mut pushes: Vec<String> = Vec::new();
    for data in publications {
        // All subscribers join before the first publication.
        subscribers.extend(joined.try_iter());
        pushes.push(format!(r#"{{"push":{{"channel":"c","pub":{{"data":{data}}}}}}}"#));
        let newest = pushes.len() - 1;
        for (number, subscriber) in subscribers.iter_mut().enumerate() {
            let messages: Vec<&str> = fault(number, newest).iter().map(|back| pushes[newest - back].as_str()).collect();
            if !messages.is_empty() {
                send(subscriber, &messages.join("\n"));
            }
        }
    }
}

fn serve(socket: TcpStream, to_publish: &Sender<String>, to_join: &Sender<TcpStream>) {
    let mut writer = socket.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = writer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    while let Some(frame) = receive(&mut reader) {
        for command in frame.lines() {
            let command: Value = serde_json::from_str(command).expect("a command is JSON");
            let id = &command["id"];
            if let Some(data) = command["publish"].get("data") {
                to_publish.send(data.to_string()).expect("the other thread lives");
                send(&mut writer, &format!(r#"{{"id":{id},"publish":{{}}}}"#));
            } else if command.get("subscribe").is_some() {
                // The subscriber must be registered before its client can report that it is ready.
                to_join.send(writer.try_clone().expect("a socket can be cloned")).expect("the other thread lives");
                send(&mut writer, &format!(r#"{{"id":{id},"subscribe":{{}}}}"#));
            } else {
                send(&mut writer, &format!(r#"{{"id":{id},"connect":{{}}}}"#));
            }
        }
    }
}
