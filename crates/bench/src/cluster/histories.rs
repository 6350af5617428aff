//! Publishes into channels through the HTTP API, and stores the positions.

use serde_json::{Value, json};

use crate::api;
use crate::error::Error;
use crate::payload::{Stamp, write_payload};
use crate::proc;
use crate::spawn::ServerProcess;

const PAYLOAD_BYTES: usize = 128;
/// Number of commands in one request.
const BATCH: usize = 100;

/// The offsets of a channel's newest publications.
pub struct Positions {
    pub channel: String,
    pub epoch: String,
    /// The offsets in ascending order.
    pub offsets: Vec<u64>,
}

/// Publishes this number of times into each channel.
pub fn publish(
    node: &ServerProcess,
    api_key: &str,
    channels: usize,
    publications: usize,
) -> Result<Vec<Positions>, Error> {
    let new = |number| Positions { channel: format!("recovery{number}"), epoch: String::new(), offsets: Vec::new() };
    let mut all: Vec<Positions> = (0..channels).map(new).collect();
    for sequence in 0..publications as u64 {
        for part in all.chunks_mut(BATCH) {
            publish_once(node, api_key, sequence, part)?;
        }
    }
    Ok(all)
}

fn publish_once(node: &ServerProcess, api_key: &str, sequence: u64, channels: &mut [Positions]) -> Result<(), Error> {
    let mut payload = Vec::new();
    write_payload(&mut payload, Stamp { intended_ns: proc::now_ns(), sequence }, PAYLOAD_BYTES);
    let data: Value = serde_json::from_slice(&payload).expect("a payload is a JSON string");
    let command = |to: &Positions| json!({ "publish": { "channel": to.channel, "data": data } });
    let commands: Vec<Value> = channels.iter().map(command).collect();
    let body = json!({ "commands": commands, "parallel": true }).to_string();
    let answer = api::post(node.operators, "/api/batch", api_key, &body)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    for (number, channel) in channels.iter_mut().enumerate() {
        let result = &answer["replies"][number]["publish"];
        let (Some(offset), Some(epoch)) = (result["offset"].as_u64(), result["epoch"].as_str()) else {
            let did = format!("did not publish: {}", answer["replies"][number]);
            return Err(Error::Server { did, remedy: "check its log".into() });
        };
        epoch.clone_into(&mut channel.epoch);
        channel.offsets.push(offset);
    }
    Ok(())
}
