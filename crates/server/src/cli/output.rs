//! Standard output. A full disk or a closed pipe is an error, not a panic. What a node has answered is printed so that it
//! does not control the terminal.

use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
};

use serde_json::Value;

use super::Failure;
use crate::telemetry::log::is_unsafe;

/// Prints a line.
pub(super) fn line(line: impl fmt::Display) -> Result<(), Failure> {
    text(format_args!("{line}\n"))
}

/// Prints a line of JSON.
pub(super) fn json(value: &Value) -> Result<(), Failure> {
    line(escaped_json(value))
}

/// Only texts contain such characters, where JSON has an escape for each of them.
fn escaped_json(value: &Value) -> String {
    let mut json = String::new();
    for character in value.to_string().chars() {
        if is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(json, "\\u{unit:04x}");
            }
        } else {
            json.push(character);
        }
    }
    json
}

/// A text that someone else has chosen: it does not move the cursor of the terminal, and ends no line.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if is_unsafe(character) { write!(f, "{}", character.escape_unicode())? } else { f.write_char(character)? }
        }
        Ok(())
    }
}

/// Prints text unchanged.
pub(super) fn text(text: impl fmt::Display) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    write!(output, "{text}").and_then(|()| output.flush()).map_err(Failure::Output)
}

/// Prints a line to stderr. If that fails, there is no place to report it.
pub(crate) fn error_line(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(Shown("a\u{1b}[2Jb\nc\u{202e}d\u{7f}é").to_string(), "a\\u{1b}[2Jb\\u{a}c\\u{202e}d\\u{7f}é");
    }

    #[test]
    fn json_has_no_control_characters_and_stays_the_same_value() {
        let value = serde_json::json!({ "a\u{9b}2J": ["\u{1b}\u{202e}\u{7f}\n", "é😀", 1.5] });
        let json = escaped_json(&value);
        assert_eq!(json, r#"{"a\u009b2J":["\u001b\u202e\u007f\n","é😀",1.5]}"#);
        assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), value);
    }
}
