//! Command lines that begin with `centrifugo`, as images and unit files have them.

use std::{ffi::OsString, path::Path};

/// Options that have an answer of their own without a command.
const ANSWERED: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// The command line without the word `centrifugo`. Centrifugo runs a node if no command is given.
pub(crate) fn without_former_name(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_former = |argument: &OsString| Path::new(argument).file_name().is_some_and(|name| name == "centrifugo");
    if !arguments.get(1).is_some_and(is_former) {
        return arguments;
    }
    arguments.remove(1);
    let next = arguments.get(1).map(|next| next.to_string_lossy().into_owned());
    if next.is_none_or(|next| next.starts_with('-') && !ANSWERED.contains(&next.as_str())) {
        arguments.insert(1, "serve".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_with_the_name_of_centrifugo_run_ours() {
        for (line, expected) in [
            ("dunlin centrifugo", "dunlin serve"),
            ("dunlin centrifugo -c config.json", "dunlin serve -c config.json"),
            ("dunlin /usr/local/bin/centrifugo --config=config.json", "dunlin serve --config=config.json"),
            ("dunlin centrifugo checkconfig -c config.json", "dunlin checkconfig -c config.json"),
            ("dunlin centrifugo --version", "dunlin --version"),
            ("dunlin serve -c centrifugo", "dunlin serve -c centrifugo"),
            ("dunlin", "dunlin"),
        ] {
            let arguments = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(without_former_name(arguments(line)), arguments(expected), "{line}");
        }
    }
}
