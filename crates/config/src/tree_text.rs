//! Writes a tree as JSON, YAML or TOML.

use std::fmt::Write as _;

use super::tree::{Format, Tree};

/// The text of a tree, which parses to the same tree. TOML has no notation for nothing, so such entries are left out.
pub(super) fn write(tree: &Tree, format: Format) -> String {
    let mut out = String::new();
    match (format, tree) {
        (Format::Json, _) => json(tree, 0, &mut out),
        (Format::Yaml, Tree::Table(entries)) if !entries.is_empty() => yaml_table(entries, 0, &mut out),
        (Format::Toml, Tree::Table(entries)) => toml_table(entries, "", &mut out),
        (Format::Yaml | Format::Toml, _) => out.push_str(&inline(tree, format)),
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn json(tree: &Tree, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match tree {
        Tree::Table(entries) if !entries.is_empty() => {
            out.push_str("{\n");
            for (at, (key, value)) in entries.iter().enumerate() {
                let _ = write!(out, "{indent}{}: ", quoted(key));
                json(value, depth + 1, out);
                out.push_str(if at + 1 == entries.len() { "\n" } else { ",\n" });
            }
            let _ = write!(out, "{end}}}");
        }
        Tree::List(items) if items.iter().any(|item| matches!(item, Tree::Table(_))) => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                out.push_str(&indent);
                json(item, depth + 1, out);
                out.push_str(if at + 1 == items.len() { "\n" } else { ",\n" });
            }
            let _ = write!(out, "{end}]");
        }
        _ => out.push_str(&inline(tree, Format::Json)),
    }
}

fn yaml_table(entries: &[(String, Tree)], depth: usize, out: &mut String) {
    for (at, (key, value)) in entries.iter().enumerate() {
        // The first key of a table in a list stands behind the dash.
        if at > 0 || !out.ends_with("- ") {
            out.push_str(&"  ".repeat(depth));
        }
        let _ = write!(out, "{}:", key_of(key));
        match value {
            Tree::Table(inner) if !inner.is_empty() => {
                out.push('\n');
                yaml_table(inner, depth + 1, out);
            }
            Tree::List(items) if !items.is_empty() && items.iter().all(is_full_table) => {
                out.push('\n');
                for item in items {
                    let _ = write!(out, "{}- ", "  ".repeat(depth + 1));
                    if let Tree::Table(inner) = item {
                        yaml_table(inner, depth + 2, out);
                    }
                }
            }
            _ => {
                let _ = writeln!(out, " {}", inline(value, Format::Yaml));
            }
        }
    }
}

fn toml_table(entries: &[(String, Tree)], path: &str, out: &mut String) {
    let is_block = |value: &Tree| match value {
        Tree::Table(_) => true,
        Tree::List(items) => !items.is_empty() && items.iter().all(|item| matches!(item, Tree::Table(_))),
        _ => false,
    };
    // A key below a header belongs to that table, so plain values come first.
    for (key, value) in entries.iter().filter(|(_, value)| !is_block(value) && *value != Tree::Null) {
        let _ = writeln!(out, "{} = {}", key_of(key), inline(value, Format::Toml));
    }
    for (key, value) in entries.iter().filter(|(_, value)| is_block(value)) {
        let path = if path.is_empty() { key_of(key) } else { format!("{path}.{}", key_of(key)) };
        let blank = if out.is_empty() { "" } else { "\n" };
        match value {
            Tree::Table(inner) => {
                // A table with tables only needs no header of its own.
                if inner.is_empty() || inner.iter().any(|(_, value)| !is_block(value)) {
                    let _ = writeln!(out, "{blank}[{path}]");
                }
                toml_table(inner, &path, out);
            }
            Tree::List(items) => {
                for item in items {
                    let blank = if out.is_empty() { "" } else { "\n" };
                    let _ = writeln!(out, "{blank}[[{path}]]");
                    if let Tree::Table(inner) = item {
                        toml_table(inner, &path, out);
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_full_table(tree: &Tree) -> bool {
    matches!(tree, Tree::Table(entries) if !entries.is_empty())
}

/// A value in one line.
fn inline(tree: &Tree, format: Format) -> String {
    match tree {
        Tree::Bool(value) => value.to_string(),
        Tree::Int(number) => number.to_string(),
        // With a point or an exponent, so that it stays no whole number.
        Tree::Float(number) if number.is_finite() => format!("{number:?}"),
        // No format of all three has a text for the rest, and a configuration that is read contains none.
        Tree::Float(_) | Tree::Null => "null".to_owned(),
        Tree::Text(text) => quoted(text),
        Tree::List(items) => {
            let items = items.iter().filter(|item| format != Format::Toml || **item != Tree::Null);
            let items: Vec<_> = items.map(|item| inline(item, format)).collect();
            format!("[{}]", items.join(", "))
        }
        Tree::Table(entries) => {
            let entries = entries.iter().filter(|(_, value)| format != Format::Toml || *value != Tree::Null);
            let of_entry = |(key, value): &(String, Tree)| {
                let key = if format == Format::Json { quoted(key) } else { key_of(key) };
                let sign = if format == Format::Toml { " =" } else { ":" };
                format!("{key}{sign} {}", inline(value, format))
            };
            let entries: Vec<_> = entries.map(of_entry).collect();
            if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
        }
    }
}

/// A key without quotes where YAML and TOML allow it. Words that are values, such as `true`, are quoted.
fn key_of(key: &str) -> String {
    let mut bytes = key.bytes();
    let is_plain = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_value =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].iter().any(|word| key.eq_ignore_ascii_case(word));
    if is_plain && !is_value { key.to_owned() } else { quoted(key) }
}

/// A text in double quotes, with escapes that all three formats have.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z_]{1,6}",
            "\\PC{0,12}",
            Just("true".to_owned()),
            Just("- a: #b".to_owned()),
            Just("\u{7f}\u{0}\n\t\r\"\\'".to_owned())
        ]
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Tree::Bool),
            any::<i64>().prop_map(Tree::Int),
            // The parser of JSON rounds others by one place.
            any::<i32>().prop_map(|number| Tree::Float(f64::from(number) / 4.0)),
            text().prop_map(Tree::Text),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
                prop::collection::btree_map(text(), inner, 0..4)
                    .prop_map(|entries| Tree::Table(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(entries in prop::collection::btree_map(text(), tree(), 1..5)) {
            let tree = Tree::Table(entries.into_iter().collect());
            for format in [Format::Json, Format::Yaml, Format::Toml] {
                let text = write(&tree, format);
                let read = Tree::parse(format, &text).map(|read| read.to_json());
                prop_assert_eq!(read, Ok(tree.to_json()), "{:?}\n{}", format, text);
            }
        }
    }
}
