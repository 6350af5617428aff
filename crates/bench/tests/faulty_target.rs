//! A target with the minimum of the protocol for a scenario: JSON and channels. It delivers with a planted fault.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// What the target does wrong. Publications and subscriptions are counted from 0, over all channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It delivers this publication to nobody.
    Drop(u64),
    /// It delivers every n-th publication to nobody.
    DropEvery(u64),
    /// It delivers this publication to nobody, and pings its clients all the time.
    DropAndPing(u64),
    /// It delivers this publication after the next one.
    Swap(u64),
    /// It delivers this publication twice.
    Duplicate(u64),
    /// It delivers this publication and all later ones so much later.
    Delay(u64, Duration),
    /// It delivers everything to this subscription so much later.
    SlowSubscription(u64, Duration),
    /// It refuses every n-th publication.
    RefuseEvery(u64),
    /// It refuses the first publication, but delivers it, and accepts the second one, but does not deliver it.
    RefuseAndDrop(u64, u64),
    /// It refuses this subscription.
    RefuseSubscription(u64),
    /// It delivers this publication also to the subscribers of other channels.
    Leak(u64),
    /// It ends all connections at this publication.
    End(u64),
    /// Each connection leaves so many bytes behind.
    LeakMemory(usize),
}

struct State {
    fault: Fault,
    published: u64,
    subscribed: u64,
    subscribers: HashMap<String, Vec<Subscriber>>,
    connections: Vec<TcpStream>,
    /// The push that waits for the next publication.
    held: Option<(String, String)>,
}

enum Subscriber {
    Prompt(TcpStream),
    /// Its thread waits until the push may be sent.
    Slow(Sender<(Instant, String)>, Duration),
}

impl Subscriber {
    /// Sends a push. Returns whether the client is still there.
    fn push(&mut self, push: &str) -> bool {
        match self {
            Subscriber::Prompt(socket) => send(socket, push),
            Subscriber::Slow(thread, delay) => thread.send((Instant::now() + *delay, push.to_owned())).is_ok(),
        }
    }

    fn slow(mut socket: TcpStream, delay: Duration) -> Self {
        let (sender, pushes) = mpsc::channel::<(Instant, String)>();
        thread::spawn(move || {
            for (due, push) in pushes {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                send(&mut socket, &push);
            }
        });
        Subscriber::Slow(sender, delay)
    }
}

/// Starts the target.
pub fn start(fault: Fault) -> SocketAddr {
    start_counting(fault).0
}

/// Starts the target. Returns as well how many publications it has received until a moment.
pub fn start_counting(fault: Fault) -> (SocketAddr, impl Fn() -> u64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let state =
        State { fault, published: 0, subscribed: 0, subscribers: HashMap::new(), connections: Vec::new(), held: None };
    let state = Arc::new(Mutex::new(state));
    let counted = Arc::clone(&state);
    if matches!(fault, Fault::DropAndPing(_)) {
        let state = Arc::clone(&state);
        thread::spawn(move || ping(&state));
    }
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let state = Arc::clone(&state);
            thread::spawn(move || serve(socket, &state));
        }
    });
    (address, move || lock(&counted).published)
}

fn ping(state: &Mutex<State>) {
    loop {
        thread::sleep(Duration::from_millis(200));
        for connection in &mut lock(state).connections {
            send(connection, "{}");
        }
    }
}

/// A target in a process of its own, which ends when this is dropped.
pub struct OwnProcess {
    child: Child,
    pub address: String,
}

impl OwnProcess {
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // Fails only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LEAKED_BYTES: &str = "LEAKED_BYTES_OF_FAULTY_TARGET";

/// Starts a target whose connections leave so many bytes behind.
pub fn start_process(leaked_bytes: usize) -> OwnProcess {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--ignored", "--exact", "faulty_target::target_of_another_test", "--nocapture"])
        .env(LEAKED_BYTES, leaked_bytes.to_string())
        // Fewer arenas: the memory of a thread does not depend on the arena that it happens to get.
        .env("MALLOC_ARENA_MAX", "1")
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("this program starts again");
    let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let address = stdout.lines().map_while(Result::ok).find_map(|line| Some(line.split_once("serves ")?.1.to_owned()));
    OwnProcess { child, address: address.expect("the target says where it is") }
}

/// No test, but the process of [`start_process`].
#[test]
#[ignore = "it serves another test until that ends it"]
fn target_of_another_test() {
    let bytes = std::env::var(LEAKED_BYTES).ok().and_then(|bytes| bytes.parse().ok());
    let address = start(Fault::LeakMemory(bytes.expect("the other test says how much leaks")));
    println!("serves {address}");
    loop {
        thread::park();
    }
}

impl State {
    /// Takes a publication. Returns whether it is accepted.
    fn publish(&mut self, channel: &str, data: &Value) -> bool {
        let number = self.published;
        self.published += 1;
        let push = format!(r#"{{"push":{{"channel":"{channel}","pub":{{"data":{data}}}}}}}"#);
        match self.fault {
            Fault::Drop(of) | Fault::DropAndPing(of) | Fault::RefuseAndDrop(_, of) if number == of => return true,
            Fault::DropEvery(every) if (number + 1).is_multiple_of(every) => return true,
            Fault::RefuseEvery(every) if (number + 1).is_multiple_of(every) => return false,
            Fault::Swap(of) if number == of => {
                self.held = Some((channel.to_owned(), push));
                return true;
            }
            Fault::Delay(of, time) if number == of => thread::sleep(time),
            Fault::End(of) if number == of => {
                for connection in &self.connections {
                    // The client may be gone.
                    let _ = connection.shutdown(std::net::Shutdown::Both);
                }
            }
            _ => {}
        }
        self.deliver(channel, &push);
        if self.fault == Fault::Duplicate(number) {
            self.deliver(channel, &push);
        }
        if self.fault == Fault::Leak(number) {
            for other in self.subscribers.keys().filter(|name| *name != channel).cloned().collect::<Vec<_>>() {
                self.deliver(&other, &push);
            }
        }
        if let Some((channel, push)) = self.held.take() {
            self.deliver(&channel, &push);
        }
        !matches!(self.fault, Fault::RefuseAndDrop(refused, _) if number == refused)
    }

    fn deliver(&mut self, channel: &str, push: &str) {
        if let Some(subscribers) = self.subscribers.get_mut(channel) {
            subscribers.retain_mut(|subscriber| subscriber.push(push));
        }
    }

    /// Takes a subscription. Returns whether it is accepted.
    fn subscribe(&mut self, channel: String, client: &TcpStream) -> bool {
        let number = self.subscribed;
        self.subscribed += 1;
        let socket = client.try_clone().expect("a socket can be cloned");
        let subscriber = match self.fault {
            Fault::RefuseSubscription(of) if number == of => return false,
            Fault::SlowSubscription(of, delay) if number == of => Subscriber::slow(socket, delay),
            _ => Subscriber::Prompt(socket),
        };
        self.subscribers.entry(channel).or_default().push(subscriber);
        true
    }
}

fn serve(socket: TcpStream, state: &Mutex<State>) {
    let mut writer = socket.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(socket);
    let (mut line, mut is_upgrade) = (String::new(), false);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        is_upgrade |= line.starts_with("Upgrade:");
    }
    if !is_upgrade {
        // It has no metrics.
        let _ = writer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let _ = writer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    let mut client = writer.try_clone().expect("a socket can be cloned");
    let fault = lock(state).fault;
    match fault {
        Fault::LeakMemory(bytes) => drop(Box::leak(vec![1_u8; bytes].into_boxed_slice())),
        _ => lock(state).connections.push(client.try_clone().expect("a socket can be cloned")),
    }
    while let Some(frame) = receive(&mut reader) {
        for command in frame.lines() {
            let command: Value = serde_json::from_str(command).expect("a command is JSON");
            answer(&command, &mut client, state);
        }
    }
}

/// Answers under the lock, so that no delivery comes between.
fn answer(command: &Value, client: &mut TcpStream, state: &Mutex<State>) {
    let id = &command["id"];
    let channel = |of: &str| command[of]["channel"].as_str().expect("a command names its channel").to_owned();
    let mut state = lock(state);
    let refusal = format!(r#"{{"id":{id},"error":{{"code":111,"message":"limit"}}}}"#);
    if command.get("publish").is_some() {
        let text = if state.publish(&channel("publish"), &command["publish"]["data"]) {
            format!(r#"{{"id":{id},"publish":{{}}}}"#)
        } else {
            refusal
        };
        send(client, &text);
    } else if command.get("subscribe").is_some() {
        let is_accepted = state.subscribe(channel("subscribe"), client);
        send(client, &if is_accepted { format!(r#"{{"id":{id},"subscribe":{{}}}}"#) } else { refusal });
    } else {
        send(client, &format!(r#"{{"id":{id},"connect":{{}}}}"#));
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next frame of a client; none at its end.
pub fn receive(reader: &mut impl Read) -> Option<String> {
    let mut head = [0; 2];
    reader.read_exact(&mut head).ok()?;
    let mut length = usize::from(head[1] & 0x7f);
    if length == 126 {
        let mut long = [0; 2];
        reader.read_exact(&mut long).ok()?;
        length = usize::from(u16::from_be_bytes(long));
    }
    let mut mask = [0; 4];
    reader.read_exact(&mut mask).ok()?;
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    String::from_utf8(payload).ok()
}

/// Sends a text frame. Returns whether the client is still there.
pub fn send(writer: &mut TcpStream, text: &str) -> bool {
    let mut frame = vec![0x81, 126];
    frame.extend_from_slice(&u16::try_from(text.len()).expect("a short frame").to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    writer.write_all(&frame).is_ok()
}
