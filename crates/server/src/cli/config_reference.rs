//! `dunlin config-reference`: how `docs/configuration.md`, `docs/compatibility.md` and `schema/config.json` are made.

use clap::{Args, ValueEnum};

use crate::{compatibility, config::reference};

/// Print the reference of all keys.
#[derive(Debug, Args)]
pub(super) struct ConfigReferenceArgs {
    /// In which form
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

pub(super) fn run(args: &ConfigReferenceArgs) {
    match args.form {
        Form::Markdown => print!("{}", reference::markdown()),
        Form::JsonSchema => print!("{}", reference::json_schema()),
        Form::Compatibility => {
            let (page, problems) = compatibility::markdown();
            for problem in problems {
                eprintln!("schema/compatibility.json: {problem}");
            }
            print!("{page}");
        }
    }
}
