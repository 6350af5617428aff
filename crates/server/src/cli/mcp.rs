//! `dunlin mcp`: a server of the Model Context Protocol, with which agents ask a running node.
//!
//! - `message.rs` a line as a request or a notification of JSON-RPC
//! - `protocol.rs` the methods of the protocol, and its versions
//! - `tools.rs` what the server offers, and `arguments.rs` what it is given
//! - `node.rs` the node that is asked
//! - `bounded.rs` results of a bounded size
//! - `metrics.rs` a selection of the page of metrics
//! - `pages.rs` the pages of the documentation
//!
//! The protocol is JSON-RPC, one message a line, and eight methods. Its crate, `rmcp`, would bring macros, schemas and a
//! second client for HTTP: more code than these files have.

mod arguments;
mod bounded;
mod message;
mod metrics;
mod node;
mod pages;
mod protocol;
#[cfg(test)]
mod tests;
mod tools;

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Write},
    sync::{Mutex, PoisonError},
    thread,
};

use clap::Args;
use dunlin_games::Registry;
use serde_json::Value;

use super::{ConfigFile, Failure};
use message::{ErrorAnswer, Incoming};
use node::{ConfiguredNode, Node};
use protocol::{Protocol, Reaction};

/// Maximum length of a line. The node refuses bodies above `http_api.request_size_limit`, which is smaller by default.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Calls that are in progress at a time: each has a thread and a connection to the node, which serves
/// `http_api.requests_limit`.
const CALLS_MAX: usize = 16;

/// Let an agent ask a running node: a server of the Model Context Protocol on standard input and output.
///
/// It offers tools that read: sessions, channels, presence, history, rooms, why clients are behind, metrics, the configuration
/// without its secrets, and the documentation. A client of the protocol starts it: `claude mcp add dunlin -- dunlin mcp
/// --config FILE`, or `{"mcpServers": {"dunlin": {"command": "dunlin", "args": ["mcp", "--config", "FILE"]}}}`.
#[derive(Debug, Args)]
pub(super) struct McpArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Also offer tools that change something: publish, disconnect, unsubscribe, block users, remove histories, and kick
    /// players from rooms, lock and close rooms
    #[arg(long)]
    allow_writes: bool,
}

pub(super) fn run(args: &McpArgs, registry: &Registry) -> Result<(), Failure> {
    let node = ConfiguredNode { config: &args.config, registry };
    serve(io::stdin().lock(), io::stdout(), &node, args.allow_writes).map_err(Failure::Output)
}

/// The calls in progress, by the text of their ids, and the output that they share.
struct Calls<W> {
    in_progress: Mutex<BTreeMap<String, Awaited>>,
    output: Mutex<W>,
}

/// Whether the client waits for the answer of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Yes,
    /// It was cancelled. Its thread still waits for the node, so it counts.
    No,
}

/// What is read next.
enum Line {
    Whole(Vec<u8>),
    /// It has more than [`LINE_BYTES_MAX`].
    TooLong,
    /// The input has ended.
    End,
}

/// Answers until the input ends, and then the calls in progress.
fn serve(mut input: impl BufRead, output: impl Write + Send, node: &impl Node, allow_writes: bool) -> io::Result<()> {
    let calls = Calls { in_progress: Mutex::default(), output: Mutex::new(output) };
    let mut protocol = Protocol::new(allow_writes);
    thread::scope(|scope| {
        loop {
            let incoming = match read_line(&mut input)? {
                Line::End => return Ok(()),
                Line::TooLong => Err(ErrorAnswer::too_long(LINE_BYTES_MAX)),
                Line::Whole(line) if line.trim_ascii().is_empty() => continue,
                Line::Whole(line) => Incoming::parse(&line),
            };
            match incoming.map_or_else(|error| Reaction::Answer(error.to_json()), |incoming| protocol.react(incoming)) {
                Reaction::Silence => {}
                Reaction::Answer(answer) => calls.write(&answer)?,
                Reaction::Cancel(id) => calls.cancel(&id),
                Reaction::Call(call) => {
                    let id = call.id.key();
                    if let Err(why) = calls.begin(&id) {
                        calls.write(&call.refused(&why))?;
                        continue;
                    }
                    let (calls, without_thread) =
                        (&calls, call.refused("its thread could not be started: call again later"));
                    let task = move || {
                        let answer = call.run(node);
                        // Nobody waits for the answer of a call that was cancelled. If the client has closed the output,
                        // the input ends as well.
                        if calls.end(&call.id.key()) {
                            let _ = calls.write(&answer);
                        }
                    };
                    if thread::Builder::new().spawn_scoped(scope, task).is_err() {
                        calls.end(&id);
                        calls.write(&without_thread)?;
                    }
                }
            }
        }
    })
}

impl<W: Write> Calls<W> {
    /// Counts a call, unless it cannot begin.
    fn begin(&self, id: &str) -> Result<(), String> {
        let mut in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if in_progress.len() >= CALLS_MAX {
            return Err(format!(
                "{CALLS_MAX} calls are in progress, the maximum: call again when one of them has ended"
            ));
        }
        if in_progress.contains_key(id) {
            return Err(format!("a call with the id {id} is in progress: give each request its own id"));
        }
        in_progress.insert(id.to_owned(), Awaited::Yes);
        Ok(())
    }

    fn cancel(&self, id: &str) {
        if let Some(awaited) = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id) {
            *awaited = Awaited::No;
        }
    }

    /// Ends a call. Returns whether the client waits for its answer.
    fn end(&self, id: &str) -> bool {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner).remove(id) == Some(Awaited::Yes)
    }

    fn write(&self, answer: &Value) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(output, "{answer}")?;
        output.flush()
    }
}

fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    loop {
        let part = input.fill_buf()?;
        let (taken, is_last) = match part.iter().position(|byte| *byte == b'\n') {
            _ if part.is_empty() => (0, true),
            Some(end) => (end + 1, true),
            None => (part.len(), false),
        };
        let is_end = part.is_empty() && line.is_empty();
        // Of a line that is too long, only the end is looked for.
        if line.len() <= LINE_BYTES_MAX {
            line.extend_from_slice(part.get(..taken).unwrap_or_default());
        }
        input.consume(taken);
        if is_end {
            return Ok(Line::End);
        } else if is_last {
            let is_too_long = line.trim_ascii_end().len() > LINE_BYTES_MAX;
            return Ok(if is_too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}
