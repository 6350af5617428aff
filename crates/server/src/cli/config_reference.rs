//! `dunlin config-reference`: generates the pages of the reference in `docs`, and `schema/config.json`.

use clap::{Args, ValueEnum};
use dunlin_config::reference;

use super::{Failure, output, reference_pages};
use crate::compatibility;

/// Print a page of the reference.
#[derive(Debug, Args)]
pub(super) struct ConfigReferenceArgs {
    /// Output format
    form: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// `docs/configuration.md`
    Markdown,
    /// `schema/config.json`
    JsonSchema,
    /// `docs/compatibility.md`
    Compatibility,
    /// `docs/cli.md`
    Cli,
    /// `docs/codes.md`
    Codes,
}

pub(super) fn run(args: &ConfigReferenceArgs) -> Result<(), Failure> {
    match args.form {
        Form::Markdown => output::text(reference::markdown()),
        Form::JsonSchema => output::text(reference::json_schema()),
        Form::Compatibility => {
            let (page, problems) = compatibility::markdown();
            for problem in problems {
                output::error_line(format_args!("schema/compatibility.json: {problem}"));
            }
            output::text(page)
        }
        Form::Cli => output::text(reference_pages::commands()),
        Form::Codes => output::text(reference_pages::codes()),
    }
}
