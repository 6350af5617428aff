//! `dunlin gen-config`.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Args;
use dunlin_config::Format;

use super::{Failure, output};

/// Length of a random key in bytes.
const KEY_BYTES: usize = 48;

/// Write a configuration to start with.
#[derive(Debug, Args)]
pub(super) struct GenConfigArgs {
    /// File to write; the extension selects the format: .yaml, .toml or .json (without comments)
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "dunlin.yaml")]
    path: PathBuf,
}

pub(super) fn run(args: &GenConfigArgs) -> Result<(), Failure> {
    let format = Format::of(&args.path)
        .ok_or_else(|| Failure::Usage("the file name must end in .yaml, .yml, .toml or .json".to_owned()))?;
    let text = template(format).replace("<HMAC>", &random_key()?).replace("<API>", &random_key()?);
    let failed = |error| Failure::File(args.path.clone(), error);
    // Never overwrites a file. Only the owner can read the file, because it contains keys.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let path = args.path.display();
    output::line(format_args!("wrote {path} with new random keys; start with: dunlin serve -c {path}"))
}

/// A key that nobody guesses.
pub(super) fn random_key() -> Result<String, Failure> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(Failure::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn template(format: Format) -> &'static str {
    match format {
        Format::Yaml => include_str!("gen_config/starter.yaml"),
        Format::Toml => include_str!("gen_config/starter.toml"),
        Format::Json => include_str!("gen_config/starter.json"),
    }
}
