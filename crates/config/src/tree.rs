//! The parsed text of a configuration before it is typed: the data model that JSON, YAML and TOML share.

use std::{fmt, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

/// A parsed value. Tables preserve the order of their keys, without duplicates.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Table(Vec<(String, Tree)>),
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// The format for a file name; `None` if its extension is unknown.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Yaml => "YAML",
            Self::Toml => "TOML",
        }
    }
}

impl Tree {
    /// Converts to JSON. Numbers that JSON cannot represent become `null`.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(number) => (*number).into(),
            Self::Float(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Table(entries) => entries.iter().map(|(key, tree)| (key.clone(), tree.to_json())).collect(),
        }
    }

    /// Parses a document. The parsers limit the nesting depth. A document without content is [`Tree::Null`] in every
    /// format: an empty one, one that contains only comments, and `null`.
    ///
    /// # Errors
    /// What is wrong, with the position.
    pub(super) fn parse(format: Format, text: &str) -> Result<Self, String> {
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(Self::Null);
        }
        if format == Format::Yaml
            && let Some(mark) = unquoted_mark(text)
        {
            return Err(mark);
        }
        let parsed = match format {
            Format::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
            Format::Yaml => parse_yaml(text),
            Format::Toml => parse_toml(text),
        };
        parsed.map_err(|why| format!("is not {}: {why}", format.name()))
    }

    /// Whether a document sets no key: it has no content, or only tables without content.
    pub(super) fn sets_nothing(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Table(entries) => entries.iter().all(|(_, tree)| tree.sets_nothing()),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::List(_) => false,
        }
    }

    /// The value at a path through tables.
    pub(super) fn get(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |tree, name| match tree {
            Self::Table(entries) => entries.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        })
    }

    /// As [`Self::get`], to change it.
    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut Self> {
        path.split('.').try_fold(self, |tree, name| match tree {
            Self::Table(entries) => entries.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        })
    }

    /// Sets the value at a path, and creates the tables on the way. What is no table on the way becomes one.
    pub(super) fn set(&mut self, path: &str, value: Self) {
        match path.split_once('.') {
            Some((name, rest)) => self.entry(name).set(rest, value),
            None => self.set_entry(path, value),
        }
    }

    /// Whether there is a value at a path. An entry of YAML without one sets nothing.
    pub(super) fn has(&self, path: &str) -> bool {
        self.get(path).is_some_and(|value| *value != Self::Null)
    }

    /// Sets the value at a path that has none.
    pub(super) fn set_absent(&mut self, path: &str, value: Self) {
        if !self.has(path) {
            self.set(path, value);
        }
    }

    /// Sets an entry whose name may contain dots.
    pub(super) fn set_entry(&mut self, name: &str, value: Self) {
        *self.entry(name) = value;
    }

    fn entry(&mut self, name: &str) -> &mut Self {
        if !matches!(self, Self::Table(_)) {
            *self = Self::Table(Vec::new());
        }
        let Self::Table(entries) = self else { unreachable!("it was made a table") };
        let at = entries.iter().position(|(key, _)| key == name).unwrap_or_else(|| {
            entries.push((name.to_owned(), Self::Null));
            entries.len() - 1
        });
        let entry = entries.get_mut(at);
        entry.map_or_else(|| unreachable!("the position is in the table"), |(_, value)| value)
    }

    /// The kind of value, for messages.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// Whether the value is equivalent to an absent one.
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) => true,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Table(entries) => entries.is_empty(),
            Self::Bool(true) | Self::Int(_) | Self::Float(_) => false,
        }
    }
}

/// Messages do not quote the text, because the line may contain a key.
fn parse_yaml(text: &str) -> Result<Tree, String> {
    let options = serde_saphyr::options! {
        // `on` and `no` are ordinary strings.
        strict_booleans: true,
        with_snippet: false,
        // The visitor below reports duplicates, as for JSON.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

fn parse_toml(text: &str) -> Result<Tree, String> {
    match toml::from_str(text) {
        // TOML has no notation for an empty table at the top, so such a document has only comments.
        Ok(Tree::Table(entries)) if entries.is_empty() => Ok(Tree::Null),
        Ok(tree) => Ok(tree),
        Err(error) => {
            let at = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            Err(format!("{} at line {}", error.message(), at.matches('\n').count() + 1))
        }
    }
}

/// The first tag, anchor or alias of a YAML document. No setting needs one, but a key that begins with `!`, `&` or `*`
/// would silently become a shorter or an empty one. Errors of the syntax are left to the parser.
#[allow(clippy::field_reassign_with_default, reason = "the library's options cannot be written as a struct")]
fn unquoted_mark(text: &str) -> Option<String> {
    use serde_saphyr::granit_parser::{Event, Options, Parser};
    let mut options = Options::default();
    options.emit_unresolved_aliases = true;
    options.emit_anchor_events = true;
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.ok()?;
        let (sign, mark, at) = match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => ('!', "a tag", span.tag_start.unwrap_or(span.start)),
            Event::Anchor(..) => ('&', "an anchor", span.start),
            Event::Alias(_) | Event::UnresolvedAlias(_) => ('*', "an alias", span.start),
            _ => continue,
        };
        let line = at.line();
        return Some(format!(
            "line {line}: a value begins with {sign}, which YAML takes for {mark}: write it in quotes"
        ));
    }
    None
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, a list, text, a number, true or false")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(i64::try_from(value).map_or(Tree::Float(value as f64), Tree::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries: Vec<(String, Tree)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, Tree>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("the key {key:?} occurs twice")));
            }
            entries.push((key, value));
        }
        Ok(Tree::Table(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, Tree)]) -> Tree {
        Tree::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn the_three_formats_give_equal_trees() {
        let expected = table(&[
            ("a", Tree::Int(1)),
            ("b", Tree::Bool(true)),
            ("c", table(&[("d", Tree::Text("25s".to_owned())), ("e", Tree::List(vec![Tree::Text("x".to_owned())]))])),
            ("f", Tree::List(vec![table(&[("name", Tree::Text("chat".to_owned()))])])),
        ]);
        for (format, text) in [
            (Format::Json, r#"{"a": 1, "b": true, "c": {"d": "25s", "e": ["x"]}, "f": [{"name": "chat"}]}"#),
            (Format::Yaml, "a: 1\nb: true\nc:\n  d: 25s\n  e: [x]\nf:\n  - name: chat\n"),
            (Format::Toml, "a = 1\nb = true\n[c]\nd = '25s'\ne = ['x']\n[[f]]\nname = 'chat'\n"),
        ] {
            let Tree::Table(mut read) = Tree::parse(format, text).expect(text) else { panic!("{format:?}") };
            read.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(Tree::Table(read), expected, "{format:?}");
        }
    }

    #[test]
    fn duplicate_keys_are_refused() {
        for (format, text) in [
            (Format::Json, r#"{"client": {"insecure": false, "insecure": true}}"#),
            (Format::Yaml, "client:\n  insecure: false\n  insecure: true\n"),
            (Format::Toml, "[client]\ninsecure = false\ninsecure = true\n"),
        ] {
            assert!(Tree::parse(format, text).is_err(), "{format:?}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let deep = 100_000;
        assert!(Tree::parse(Format::Json, &("[".repeat(deep) + &"]".repeat(deep))).is_err());
        assert!(Tree::parse(Format::Yaml, &("[".repeat(deep) + &"]".repeat(deep))).is_err());
        assert!(Tree::parse(Format::Toml, &("a = ".to_owned() + &"[".repeat(deep) + &"]".repeat(deep))).is_err());
    }
    #[test]
    fn documents_without_content_are_null_in_every_format() {
        for (format, texts) in [
            (Format::Json, &["", " \n\t", "null", " null\n", "\u{feff}"][..]),
            (
                Format::Yaml,
                &["", " \n", "# A comment.\n", "---\n", "--- # A comment.\n...\n", "null\n", "~\n", "\u{feff}"][..],
            ),
            (Format::Toml, &["", "\n\n", "# A comment.\n\n# Another one.", "\u{feff}"][..]),
        ] {
            for text in texts {
                assert_eq!(Tree::parse(format, text), Ok(Tree::Null), "{format:?} {text:?}");
            }
        }
        assert_eq!(Tree::parse(Format::Json, "{}"), Ok(table(&[])));
        assert_eq!(Tree::parse(Format::Yaml, "{}"), Ok(table(&[])));
        for (text, expected) in [("{}", true), ("a: {}\nb:\n  c:\n", true), ("a: []", false), ("a: ''", false)] {
            assert_eq!(Tree::parse(Format::Yaml, text).map(|tree| tree.sets_nothing()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn marks_of_yaml_in_values_are_refused() {
        for (text, line, mark) in [
            ("a:\n  hmac_secret_key: !XXXXabcd", 2, "tag"),
            ("a: 1\nb: !XXXX\nc: 2", 2, "tag"),
            ("key: !a word", 1, "tag"),
            ("key: ! word", 1, "tag"),
            ("key: !!str 007", 1, "tag"),
            ("a:\n\n  - x\n  - !y z", 4, "tag"),
            ("a: [x, !y z]", 1, "tag"),
            ("a: !map {b: c}", 1, "tag"),
            ("a: !list\n  - b", 1, "tag"),
            ("key: &word", 1, "anchor"),
            ("x: 1\nkey: &a word", 2, "anchor"),
            ("x: 1\nkey: &a\n  b: c", 2, "anchor"),
            ("key: *word", 1, "alias"),
            ("x: 1\na: &x b\nc: *x", 2, "anchor"),
        ] {
            let why = Tree::parse(Format::Yaml, text).expect_err(text);
            assert!(why.starts_with(&format!("line {line}: ")), "{text}: {why}");
            assert!(why.ends_with(&format!(" {mark}: write it in quotes")), "{text}: {why}");
        }
        for text in
            ["key: '!XXXX'", "key: \"&a word\"", "key: a!b", "key: a&b", "key: a*b", "key: |\n  !a", "# !a &b *c\nd: e"]
        {
            assert!(Tree::parse(Format::Yaml, text).is_ok(), "{text}");
        }
    }
}
