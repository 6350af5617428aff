//! `dunlin config-reference`: generates `docs/configuration.md`, `docs/compatibility.md` and `schema/config.json`.

use clap::{Args, ValueEnum};
use dunlin_config::reference;

use super::{Failure, output};
use crate::compatibility;

/// Print the reference of all keys.
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
    }
}
