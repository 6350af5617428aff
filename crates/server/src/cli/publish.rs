//! `dunlin publish`.

use clap::Args;
use dunlin_games::Registry;
use serde_json::{Map, Value, json};

use super::{
    ConfigFile, Failure, api_call,
    output::{self, Shown},
};

/// Publish data into a channel of a running node.
#[derive(Debug, Args)]
pub(super) struct PublishArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The channel, such as chat:lobby
    channel: String,
    /// The data as JSON, such as '{"text": "hello"}' or '"hello"'
    data: String,
    /// A tag of the publication; can be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Publish once, also if the command is repeated with the same key within five minutes
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn run(args: &PublishArgs, registry: &Registry) -> Result<(), Failure> {
    let data: Value = serde_json::from_str(&args.data).map_err(|error| {
        Failure::Usage(format!("the data is not JSON: {error}. Write text in two pairs of quotes: '\"hello\"'"))
    })?;
    let loaded = args.config.load_whole(Vec::new(), registry)?;
    let mut request = json!({ "channel": args.channel, "data": data });
    if !args.tags.is_empty() {
        let tags = args.tags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        request["tags"] = tags.collect::<Map<_, _>>().into();
    }
    if let Some(key) = &args.idempotency_key {
        request["idempotency_key"] = key.as_str().into();
    }
    let result = api_call::call(&loaded, "publish", &request)?;
    let channel = &args.channel;
    match (result["offset"].as_u64(), result["epoch"].as_str()) {
        (Some(offset), Some(epoch)) => {
            output::line(format_args!("published in {channel}: offset {offset}, epoch {}", Shown(epoch)))
        }
        _ => output::line(format_args!("published in {channel}, which has no history")),
    }
}
