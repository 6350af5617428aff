//! Results of a bounded size, each with a mark where it was shortened.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Maximum number of bytes of a result: about 10,000 tokens. Clients shorten longer ones, or refuse them.
pub(super) const RESULT_BYTES_MAX: usize = 32 << 10;

/// The list of a result, from which entries are left out.
pub(super) struct List {
    /// The name of the field.
    pub(super) name: &'static str,
    pub(super) entries: Vec<Value>,
    /// Maximum number of entries that the call wants.
    pub(super) limit: usize,
    /// What the call can do to see the others.
    pub(super) remedy: &'static str,
}

/// The text of a result whose list is as long as its limit and the size of the result allow.
pub(super) fn listed(mut rest: Map<String, Value>, list: List) -> String {
    let List { name, mut entries, limit, remedy } = list;
    let of = entries.len();
    entries.truncate(limit);
    let is_over_limit = entries.len() < of;
    let mut bytes = Value::from(rest.clone()).to_string().len() + name.len();
    let fits = |entry: &Value| {
        bytes += entry.to_string().len() + 1;
        // The mark needs space as well.
        bytes <= RESULT_BYTES_MAX - 512
    };
    let fitting = entries.iter().map(fits).take_while(|fits| *fits).count();
    let is_over_size = fitting < entries.len();
    // One entry is always there, and shortened as text.
    entries.truncate(fitting.max(1));
    if entries.len() < of {
        let why = match (is_over_size, is_over_limit) {
            (true, _) => format!("a result has at most {RESULT_BYTES_MAX} bytes"),
            _ => format!("`limit` is {limit}"),
        };
        rest.insert("cut".to_owned(), json!({ "shown": entries.len(), "of": of, "why": why, "remedy": remedy }));
        // The next page would not begin with the first entry that was left out.
        if is_over_size {
            rest.remove("more");
        }
    }
    rest.insert(name.to_owned(), entries.into());
    shortened(Value::from(rest).to_string(), "ask for less")
}

/// A text that ends with a mark if it was too long.
pub(super) fn shortened(mut text: String, remedy: &str) -> String {
    let bytes = text.len();
    if bytes <= RESULT_BYTES_MAX {
        return text;
    }
    let end = text.floor_char_boundary(RESULT_BYTES_MAX - 256);
    text.truncate(end);
    let _ = write!(text, "\n[cut: {end} of {bytes} bytes are shown: {remedy}]");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: Vec<Value>, limit: usize) -> Value {
        let rest = json!({ "more": "cursor", "partial": false });
        let list = List { name: "entries", entries, limit, remedy: "raise `limit`" };
        let text = listed(rest.as_object().expect("an object").clone(), list);
        assert!(text.len() <= RESULT_BYTES_MAX, "{}", text.len());
        serde_json::from_str(&text).unwrap_or_else(|_| text.into())
    }

    #[test]
    fn a_list_is_cut_at_its_limit_with_a_mark() {
        let whole = list(vec![json!(1), json!(2)], 2);
        assert_eq!(whole, json!({ "entries": [1, 2], "more": "cursor", "partial": false }));
        let cut = list(vec![json!(1), json!(2), json!(3)], 2);
        let mark = json!({ "shown": 2, "of": 3, "why": "`limit` is 2", "remedy": "raise `limit`" });
        assert_eq!(cut, json!({ "entries": [1, 2], "more": "cursor", "partial": false, "cut": mark }));
        assert_eq!(list(Vec::new(), 2)["entries"], json!([]));
    }

    #[test]
    fn a_result_is_cut_at_its_size_with_a_mark() {
        let entry = json!("é".repeat(500));
        let cut = list(vec![entry; 100], 100);
        let shown = cut["entries"].as_array().expect("a list").len();
        assert!((25..33).contains(&shown), "{shown}");
        assert_eq!(cut["cut"]["shown"], shown);
        assert_eq!((&cut["cut"]["of"], &cut["more"]), (&json!(100), &Value::Null));
    }

    #[test]
    fn one_entry_that_is_too_long_is_cut_as_text() {
        let cut = list(vec![json!("é".repeat(RESULT_BYTES_MAX)), json!(1)], 10);
        let text = cut.as_str().expect("no JSON any more");
        assert!(text.contains("bytes are shown: ask for less]"), "{}", &text[text.len() - 200..]);
        let whole = "x".repeat(RESULT_BYTES_MAX);
        assert_eq!(shortened(whole.clone(), "-"), whole);
        let cut = shortened(whole + "x", "read a section");
        assert!(cut.len() <= RESULT_BYTES_MAX && cut.ends_with("of 32769 bytes are shown: read a section]"));
    }
}
