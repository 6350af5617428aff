//! Files and functions are small, and names are specific.

use std::collections::BTreeMap;

use crate::{files, production_files, read, without_tests};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
/// Unspecific names of modules and crates.
const EMPTY_WORDS: [&str; 5] = ["common", "utils", "helpers", "manager", "misc"];

#[test]
fn file_lengths_are_limited() {
    let too_long: BTreeMap<String, usize> = production_files()
        .into_iter()
        .map(|name| (name.clone(), without_tests(&read(&name)).lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(too_long.is_empty(), "over {FILE_LINES_MAX} lines; split by concern: {too_long:#?}");
}

#[test]
fn function_lengths_are_limited() {
    let mut too_long = Vec::new();
    for name in production_files() {
        for (function, lines) in functions(without_tests(&read(&name))) {
            if lines > FUNCTION_LINES_MAX {
                too_long.push(format!("{name}: {function}: {lines} lines"));
            }
        }
    }
    assert!(too_long.is_empty(), "over {FUNCTION_LINES_MAX} lines: {too_long:#?}");
}

#[test]
fn names_are_specific() {
    for name in files() {
        for part in name.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            assert!(!EMPTY_WORDS.contains(&stem), "{name}: call it by what it does, not `{stem}`");
        }
    }
}

/// Functions with a body, with their number of lines. Relies on the formatter: a body ends at a brace with the
/// indentation of the line on which the function begins.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = function_name(code) else { continue };
        let indentation = &line[..line.len() - code.len()];
        let end_line = format!("{indentation}}}");
        let is_end = |candidate: &str| *candidate == *end_line || candidate.starts_with(&format!("{indentation};"));
        if code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        if let Some(length) = lines[start..].iter().position(|candidate| is_end(candidate)) {
            found.push((name.to_owned(), length + 1));
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let mut rest = code;
    loop {
        let word = rest.split([' ', '(']).next()?;
        match word {
            "fn" => return rest.strip_prefix("fn ")?.split(['(', '<']).next(),
            "pub" | "async" | "const" | "unsafe" | "extern" => {
                rest = rest[word.len()..].trim_start();
                if let Some(scope) = rest.strip_prefix('(') {
                    rest = scope.split_once(')')?.1.trim_start();
                }
            }
            _ => return None,
        }
    }
}

#[test]
fn functions_are_measured() {
    let text = "pub(crate) const fn one() -> u8 {\n    1\n}\n\n    async fn two(\n        a: u8,\n    ) {\n        a;\n    }\n";
    assert_eq!(functions(text), [("one".to_owned(), 3), ("two".to_owned(), 5)]);
}
