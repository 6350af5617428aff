//! `dunlin check-config`.

use clap::Args;
use dunlin_games::Registry;

use super::{ConfigFile, Failure, warn};

/// Tell what is wrong with a configuration.
#[derive(Debug, Args)]
pub(super) struct CheckConfigArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Count warnings as errors
    #[arg(short, long)]
    strict: bool,
}

pub(super) fn run(args: &CheckConfigArgs, registry: &Registry) -> Result<(), Failure> {
    let (config, warnings) = args.config.load(Vec::new(), registry)?;
    warn(&warnings);
    if args.strict && !warnings.is_empty() {
        return Err(Failure::Strict);
    }
    let name = args.config.path.as_ref().map_or("the environment".to_owned(), |path| path.display().to_string());
    println!("{name}: good, with {} namespaces and {} warnings", config.engine.namespaces.len(), warnings.len());
    Ok(())
}
