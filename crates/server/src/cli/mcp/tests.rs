//! Transcripts: the lines that a client sends, and what it receives. In `transcripts/`, each is a file with a node that gives
//! fixed answers. What is expected of an object are its members that are named; a text may end with `*`, and `{"$json": …}` is a
//! text with JSON.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Condvar, Mutex},
    thread,
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{message::Incoming, node::Node, protocol::Protocol, *};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transcript {
    about: String,
    #[serde(default)]
    allow_writes: bool,
    #[serde(default)]
    node: FixedNode,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// A message, or a text that is sent as it is.
    send: Value,
    /// `null`: nothing is received.
    receive: Value,
}

/// A node that gives fixed answers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FixedNode {
    /// By method: what the API has to be asked, and its answer.
    api: Map<String, Value>,
    metrics: Option<String>,
    configuration: Option<Value>,
}

impl Node for FixedNode {
    fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        let fixed = self.api.get(method).ok_or_else(|| format!("error 104: {method}"))?;
        assert_eq!(*params, fixed["params"], "{method}");
        match &fixed["error"] {
            Value::String(text) => Err(text.clone()),
            _ => Ok(fixed["result"].clone()),
        }
    }

    fn metrics(&self) -> Result<String, String> {
        self.metrics.clone().ok_or_else(|| "the node serves no metrics: set `prometheus.enabled` to true".to_owned())
    }

    fn configuration(&self) -> Result<Value, String> {
        self.configuration.clone().ok_or_else(|| "no configuration".to_owned())
    }
}

fn matches(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(members), Value::String(text)) if members.contains_key("$json") => {
            serde_json::from_str(text).is_ok_and(|found| matches(&members["$json"], &found))
        }
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().all(|(name, value)| matches(value, found.get(name).unwrap_or(&Value::Null)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(expected, found)| matches(expected, found))
        }
        (Value::String(expected), Value::String(found)) => match expected.strip_suffix('*') {
            Some(beginning) => found.starts_with(beginning),
            None => expected == found,
        },
        _ => expected == found,
    }
}

/// What a client receives after this line.
fn exchange(protocol: &mut Protocol, node: &FixedNode, line: &[u8]) -> Value {
    match Incoming::parse(line).map(|incoming| protocol.react(incoming)) {
        Err(error) => error.to_json(),
        Ok(Reaction::Answer(answer)) => answer,
        Ok(Reaction::Call(call)) => call.run(node),
        Ok(Reaction::Silence | Reaction::Cancel(_)) => Value::Null,
    }
}

#[test]
fn transcripts_are_answered_as_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/mcp/transcripts");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file");
        let transcript: Transcript =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut protocol = Protocol::new(transcript.allow_writes);
        for (number, Step { send, receive }) in transcript.steps.iter().enumerate() {
            let line = send.as_str().map_or_else(|| send.to_string(), str::to_owned);
            let found = exchange(&mut protocol, &transcript.node, line.as_bytes());
            let about = format!("{}, step {number} ({})", path.display(), transcript.about);
            assert!(matches(receive, &found), "{about}: sent {line}\nexpected {receive:#}\nfound {found:#}");
        }
        count += 1;
    }
    assert!(count >= 6, "{count} transcripts");
}

#[test]
fn an_error_is_bounded_as_a_result_is() {
    let api = json!({ "info": { "params": {}, "error": "x".repeat(bounded::RESULT_BYTES_MAX + 1) } });
    let node = FixedNode { api: api.as_object().expect("an object").clone(), ..FixedNode::default() };
    let mut protocol = Protocol::new(false);
    for (method, params) in
        [("initialize", json!({ "protocolVersion": "2025-11-25" })), ("tools/call", json!({ "name": "info" }))]
    {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let result = exchange(&mut protocol, &node, line.as_bytes())["result"].clone();
        if method == "tools/call" {
            let text = result["content"][0]["text"].as_str().expect("a text");
            assert_eq!(result["isError"], true);
            assert!(
                text.len() <= bounded::RESULT_BYTES_MAX && text.ends_with("bytes are shown: the rest is left out]")
            );
        }
    }
}

/// A node whose answers wait until they are allowed.
#[derive(Default)]
struct SlowNode {
    allowed: Mutex<usize>,
    changed: Condvar,
}

impl SlowNode {
    fn allow(&self, answers: usize) {
        *self.allowed.lock().expect("not poisoned") += answers;
        self.changed.notify_all();
    }
}

impl Node for SlowNode {
    fn call(&self, _: &str, _: &Value) -> Result<Value, String> {
        let allowed = self.allowed.lock().expect("not poisoned");
        *self.changed.wait_while(allowed, |allowed| *allowed == 0).expect("not poisoned") -= 1;
        Ok(json!({ "nodes": [] }))
    }

    fn metrics(&self) -> Result<String, String> {
        Ok(String::new())
    }

    fn configuration(&self) -> Result<Value, String> {
        Ok(json!({}))
    }
}

/// A client of a server with a slow node.
struct Client {
    requests: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client {
    fn send(&mut self, message: &Value) {
        writeln!(self.requests, "{message}").expect("it reads");
    }

    fn call(&mut self, id: u64) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "info" } }));
    }

    fn cancel(&mut self, id: u64) {
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    }

    fn ping(&mut self) {
        self.send(&json!({ "jsonrpc": "2.0", "id": "ping", "method": "ping" }));
        assert_eq!(self.receive()["id"], "ping");
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it writes");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    /// The rest of the answers, after the input has ended.
    fn finish(self) -> Vec<Value> {
        self.requests.shutdown(std::net::Shutdown::Write).expect("it is open");
        self.answers.lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON")).collect()
    }
}

/// Lets all calls end, so that a test that fails ends as well.
struct Release<'a>(&'a SlowNode);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.allow(CALLS_MAX * 2);
    }
}

/// Runs a client against a server on a slow node.
fn with_client(act: impl FnOnce(Client, &SlowNode)) {
    let node = SlowNode::default();
    let (requests, input) = UnixStream::pair().expect("sockets");
    let (output, answers) = UnixStream::pair().expect("sockets");
    thread::scope(|scope| {
        let _release = Release(&node);
        scope.spawn(|| serve(BufReader::new(input), output, &node, false).expect("it ends"));
        let mut client = Client { requests, answers: BufReader::new(answers) };
        client.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25" } }));
        assert_eq!(client.receive()["result"]["protocolVersion"], "2025-11-25");
        act(client, &node);
    });
}

#[test]
fn a_cancelled_call_is_not_answered_and_others_go_on() {
    with_client(|mut client, node| {
        client.call(1);
        client.call(2);
        // The server answers other requests meanwhile.
        client.ping();
        client.cancel(1);
        client.ping();
        node.allow(2);
        let answers = client.finish();
        assert_eq!(answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn calls_are_bounded_and_end_with_the_input() {
    with_client(|mut client, node| {
        for id in 1..=CALLS_MAX as u64 {
            client.call(id);
        }
        client.call(CALLS_MAX as u64 + 1);
        let refused = client.receive();
        assert_eq!(refused["id"], CALLS_MAX as u64 + 1);
        assert!(
            refused["error"]["message"].as_str().expect("a text").starts_with("16 calls are in progress"),
            "{refused}"
        );
        node.allow(1);
        assert!(client.receive()["result"].is_object());
        client.call(99);
        client.ping();
        node.allow(CALLS_MAX);
        assert_eq!(client.finish().len(), CALLS_MAX);
    });
}

#[test]
fn a_cancelled_call_counts_until_the_node_has_answered() {
    with_client(|mut client, node| {
        for id in 1..=CALLS_MAX as u64 {
            client.call(id);
        }
        client.cancel(1);
        client.call(CALLS_MAX as u64 + 1);
        let refused = client.receive();
        assert_eq!(refused["id"], CALLS_MAX as u64 + 1);
        assert!(
            refused["error"]["message"].as_str().expect("a text").starts_with("16 calls are in progress"),
            "{refused}"
        );
        node.allow(CALLS_MAX);
        assert_eq!(client.finish().len(), CALLS_MAX - 1);
    });
}

#[test]
fn an_id_in_progress_is_refused() {
    with_client(|mut client, node| {
        client.call(1);
        client.call(1);
        let refused = client.receive();
        assert!(refused["error"]["message"].as_str().expect("a text").contains("the id 1 is in progress"), "{refused}");
        node.allow(1);
        assert_eq!(client.finish().len(), 1);
    });
}

/// What is answered to this input.
fn answers(input: impl Read) -> Vec<Value> {
    let mut output = Vec::new();
    serve(BufReader::new(input), &mut output, &FixedNode::default(), false).expect("it ends");
    output.lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON")).collect()
}

#[test]
fn a_line_is_read_up_to_its_limit_and_skipped_past_it() {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let at_limit = format!("{}{ping}\n", " ".repeat(LINE_BYTES_MAX - ping.len()));
    let past_limit = format!("{}{ping}\n{ping}\n", " ".repeat(LINE_BYTES_MAX - ping.len() + 1));
    assert_eq!(answers(at_limit.as_bytes()), [json!({ "jsonrpc": "2.0", "id": 1, "result": {} })]);
    let answered = answers(past_limit.as_bytes());
    assert_eq!(answered.len(), 2, "{answered:?}");
    assert_eq!((&answered[0]["id"], &answered[0]["error"]["code"]), (&Value::Null, &json!(-32_600)));
    assert!(answered[0]["error"]["message"].as_str().expect("a text").contains("longer than 16777216 bytes"));
    assert_eq!(answered[1]["result"], json!({}));
    // A line without an end, far longer than the limit, takes no more memory than one at the limit.
    let endless = io::repeat(b'x').take(LINE_BYTES_MAX as u64 * 4);
    assert_eq!(answers(endless).len(), 1);
}

#[test]
fn empty_lines_and_the_end_of_the_input_are_no_messages() {
    for input in ["", "\n", "\r\n \n\n"] {
        assert!(answers(input.as_bytes()).is_empty(), "{input:?}");
    }
    // The last line needs no end.
    assert_eq!(answers(&br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#[..]).len(), 1);
    assert_eq!(answers(&b"\xff\xfe\n"[..])[0]["error"]["code"], -32_700);
}

#[test]
fn a_closed_output_ends_the_server() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let ping = &b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"[..];
    let ended = serve(ping, Closed, &FixedNode::default(), false);
    assert_eq!(ended.expect_err("nobody reads").kind(), io::ErrorKind::BrokenPipe);
}
