//! Publishes the simulated prices at the rates of `web/ticker/CONTRACT.md`.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use serde_json::{json, value::RawValue};

use crate::{
    api::{ApiClient, CallError},
    market::{Market, QUOTES_CHANNEL, SYMBOLS},
    reachable_nodes::{Nodes, Refusal},
    retry::{Backoff, next_step},
};

/// Interval of the steps of each symbol: five per second.
const STEP: Duration = Duration::from_millis(200);

/// Interval of the publications of all prices: twenty per second.
const QUOTES: Duration = Duration::from_millis(50);

/// The pause after a failure is at least a step, and at most this.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is refused, in reports.
const PRICES: &str = "the publication of prices";

/// Code of the error for a namespace without history.
const NOT_AVAILABLE: u32 = dunlin_protocol::ErrorCode::NotAvailable as u32;

/// The publisher of one symbol.
struct SymbolPublisher {
    client: ApiClient,
    market: Arc<Mutex<Market>>,
    index: usize,
    channel: String,
    state: SymbolState,
}

/// What the next step of a symbol does.
enum SymbolState {
    /// It reads the newest publication of an earlier run.
    Continuing,
    /// It publishes the next price.
    Current,
    /// It repeats a publication whose outcome is unknown.
    Repeating(Pending),
}

/// A publication. Repeated with the same key, it is published once.
struct Pending {
    payload: String,
    key: String,
}

/// A node refuses the publications. It is reported.
struct Over;

/// Whether a step was done, or is to be tried again because its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Again,
}

/// Starts a thread for each symbol and one for all prices. While the publications of a symbol wait because its stream has no leader, the
/// others go on.
///
/// # Errors
/// A thread could not be started.
pub fn start(nodes: &Arc<Nodes>, key: &Arc<str>, seed: [u8; 32]) -> io::Result<Vec<JoinHandle<()>>> {
    let market = Arc::new(Mutex::new(Market::open(seed)));
    let client = || ApiClient::new(Arc::clone(nodes), Arc::clone(key));
    let mut threads = Vec::new();
    for (index, channel) in (0..SYMBOLS).filter_map(|index| Some((index, Market::channel(index)?))) {
        let (client, market) = (client(), Arc::clone(&market));
        let mut symbol = SymbolPublisher { client, market, index, channel, state: SymbolState::Continuing };
        // The symbols start at different offsets, so that the publications are spread evenly.
        let offset = STEP * u32::try_from(index).unwrap_or(0) / u32::try_from(SYMBOLS).unwrap_or(1);
        threads.push(spawn("demo-symbol", offset, STEP, move || symbol.step())?);
    }
    let mut client = client();
    threads.push(spawn("demo-quotes", Duration::ZERO, QUOTES, move || {
        let payload = locked(&market).quotes(unix_ms());
        publish(&mut client, QUOTES_CHANNEL, &payload, None)
    })?);
    Ok(threads)
}

/// Starts a thread that calls `step` once per interval until it is over.
fn spawn(
    name: &str,
    offset: Duration,
    interval: Duration,
    mut step: impl FnMut() -> Result<Step, Over> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut next = Instant::now() + offset;
    let mut backoff = Backoff::new(interval, PAUSE_MAX);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        loop {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let pause = match step() {
                Ok(Step::Done) => {
                    backoff.reset();
                    Duration::ZERO
                }
                Ok(Step::Again) => backoff.pause(),
                Err(Over) => return,
            };
            next = next_step(next, interval, Instant::now() + pause);
        }
    })
}

impl SymbolPublisher {
    fn step(&mut self) -> Result<Step, Over> {
        let pending = match std::mem::replace(&mut self.state, SymbolState::Current) {
            SymbolState::Continuing => {
                let step = self.continue_symbol()?;
                if step == Step::Again {
                    self.state = SymbolState::Continuing;
                }
                return Ok(step);
            }
            SymbolState::Current => self.next().ok_or(Over)?,
            SymbolState::Repeating(pending) => pending,
        };
        let step = publish(&mut self.client, &self.channel, &pending.payload, Some(&pending.key))?;
        if step == Step::Again {
            self.state = SymbolState::Repeating(pending);
        }
        Ok(step)
    }

    fn next(&self) -> Option<Pending> {
        let time_ms = unix_ms();
        let (channel, payload) = locked(&self.market).step(self.index, time_ms)?;
        Some(Pending { payload, key: format!("{channel}/{time_ms}") })
    }

    /// Continues after the newest publication of an earlier run.
    fn continue_symbol(&mut self) -> Result<Step, Over> {
        let query = json!({ "channel": self.channel, "limit": 1, "reverse": true });
        match self.client.call("history", &query) {
            Ok(result) => {
                if let Some(newest) = result.pointer("/publications/0/data") {
                    locked(&self.market).continue_after(self.index, newest.to_string().as_bytes());
                }
                Ok(Step::Done)
            }
            Err(CallError::Unknown) => Ok(Step::Again),
            // A namespace without history has nothing to continue.
            Err(CallError::Refused(Refusal { code: NOT_AVAILABLE, .. })) => Ok(Step::Done),
            Err(CallError::Refused(refusal)) => Err(refused(&refusal, &self.channel)),
        }
    }
}

#[derive(Serialize)]
struct Publication<'a> {
    channel: &'a str,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

fn publish(client: &mut ApiClient, channel: &str, payload: &str, idempotency_key: Option<&str>) -> Result<Step, Over> {
    // The text of the payload stays as the market has written it: two digits of each price.
    let data: &RawValue = serde_json::from_str(payload).expect("the market writes JSON");
    match client.call("publish", &Publication { channel, data, idempotency_key }) {
        Ok(_) => Ok(Step::Done),
        Err(CallError::Unknown) => Ok(Step::Again),
        Err(CallError::Refused(refusal)) => Err(refused(&refusal, channel)),
    }
}

fn refused(refusal: &Refusal, channel: &str) -> Over {
    refusal.report(PRICES, channel);
    Over
}

fn locked(market: &Mutex<Market>) -> MutexGuard<'_, Market> {
    market.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::{SocketAddr, TcpListener},
        sync::mpsc::{self, Receiver},
    };

    use serde_json::Value;

    use super::*;

    /// A node that answers one request per connection: with a body, or by closing the connection. Returns the requests' bodies.
    fn node(answers: &[Option<&'static str>]) -> (SocketAddr, Receiver<Value>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, (sender, requests)) = (listener.local_addr().expect("bound"), mpsc::channel());
        let mut answers: VecDeque<_> = answers.to_vec().into();
        thread::spawn(move || {
            while let Some(answer) = answers.pop_front() {
                let (socket, _) = listener.accept().expect("a connection");
                let mut reader = BufReader::new(socket);
                let mut bytes = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("a head");
                    bytes = line
                        .strip_prefix("Content-Length: ")
                        .map_or(bytes, |length| length.trim().parse().expect("a number"));
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; bytes];
                reader.read_exact(&mut body).expect("a body");
                sender.send(serde_json::from_slice(&body).expect("JSON")).expect("the test reads it");
                if let Some(answer) = answer {
                    let response = format!(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{answer}",
                        answer.len()
                    );
                    reader.get_mut().write_all(response.as_bytes()).expect("written");
                }
            }
        });
        (address, requests)
    }

    fn symbol(node: SocketAddr) -> SymbolPublisher {
        let client = ApiClient::new(Arc::new(Nodes::new(&[node])), "k".into());
        let market = Arc::new(Mutex::new(Market::open([1; 32])));
        SymbolPublisher { client, market, index: 0, channel: "ticker:ACME".to_owned(), state: SymbolState::Continuing }
    }

    const PUBLISHED: Option<&str> = Some(r#"{"result":{"offset":1}}"#);
    const INTERNAL: Option<&str> = Some(r#"{"error":{"code":100,"message":"internal server error"}}"#);

    #[test]
    fn a_symbol_continues_after_its_history() {
        let newest = r#"{"result":{"publications":[{"data":{"symbol":"ACME","number":7,"price":100.25,"volume":9}}]}}"#;
        let (node, requests) = node(&[None, INTERNAL, Some(newest), PUBLISHED]);
        let mut symbol = symbol(node);
        for _ in 0..4 {
            assert!(symbol.step().is_ok());
        }
        for _ in 0..3 {
            let query = json!({ "channel": "ticker:ACME", "limit": 1, "reverse": true });
            assert_eq!(requests.recv().expect("a request"), query);
        }
        assert_eq!(requests.recv().expect("a request")["data"]["number"], 8);
    }

    #[test]
    fn a_publication_without_an_answer_is_repeated_with_its_key() {
        let (node, requests) = node(&[Some(r#"{"result":{}}"#), None, INTERNAL, PUBLISHED, PUBLISHED]);
        let mut symbol = symbol(node);
        for _ in 0..5 {
            assert!(symbol.step().is_ok());
        }
        let requests: Vec<Value> = requests.try_iter().skip(1).collect();
        assert_eq!(requests[0]["data"]["number"], 1);
        assert!(
            requests[0]["idempotency_key"].as_str().is_some_and(|key| key.starts_with("ticker:ACME/")),
            "{}",
            requests[0]
        );
        assert_eq!((&requests[0], &requests[0]), (&requests[1], &requests[2]));
        assert_eq!(requests[3]["data"]["number"], 2);
    }

    #[test]
    fn a_refusal_ends_a_symbol_and_a_namespace_without_history_does_not() {
        let busy = Some(r#"{"error":{"code":111,"message":"too many requests"}}"#);
        let unknown = Some(r#"{"error":{"code":102,"message":"unknown channel"}}"#);
        let unavailable = Some(r#"{"error":{"code":108,"message":"not available"}}"#);
        let (without_history, _requests) = node(&[unavailable, busy, PUBLISHED, unknown]);
        let mut symbol_without_history = symbol(without_history);
        for step in [Step::Done, Step::Again, Step::Done] {
            assert_eq!(symbol_without_history.step().ok(), Some(step));
        }
        assert!(symbol_without_history.step().is_err());
        let (without_namespace, _requests) = node(&[unknown]);
        assert!(symbol(without_namespace).step().is_err());
    }
}
