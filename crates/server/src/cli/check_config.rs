//! `dunlin check-config`.

use clap::Args;
use dunlin_config::Loaded;
use dunlin_games::Registry;

use super::{ConfigFile, Failure, output, warn};

/// Check a configuration and report errors.
#[derive(Debug, Args)]
pub(super) struct CheckConfigArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Treat warnings as errors. Notes are no warnings
    #[arg(short, long)]
    strict: bool,
}

pub(super) fn run(args: &CheckConfigArgs, registry: &Registry) -> Result<(), Failure> {
    let Loaded { config, warnings, .. } = args.config.load_to_start(Vec::new(), registry)?;
    warn(&warnings);
    // Not a warning, of which `--strict` allows none: a node may have no browsers as clients.
    if config.admits_no_page() {
        output::error_line(format_args!("note: {}", dunlin_config::NO_PAGE_ADMITTED));
    }
    if args.strict && !warnings.is_empty() {
        return Err(Failure::Strict);
    }
    let name = config.file.as_deref().unwrap_or("the environment");
    let (namespaces, warnings) = (config.engine.namespaces.len(), warnings.len());
    output::line(format_args!("{name}: valid, {namespaces} namespaces, {warnings} warnings"))
}
