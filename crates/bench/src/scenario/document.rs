//! Reads a TOML document strictly: each key must be known, and has a type and a range.

use std::cell::RefCell;
use std::time::Duration;

use toml::{Table, Value};

use super::quantity::Unit;

/// Minimum similarity of a suggestion, from 0 to 1.
const LIKENESS_MIN: f64 = 0.5;

/// A table of the document. It notes which keys were asked for, so that the others are errors.
pub struct Section<'a> {
    /// The path of the table in messages, such as `crew.audience`.
    path: String,
    table: &'a Table,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub fn new(path: impl Into<String>, table: &'a Table) -> Self {
        Section { path: path.into(), table, known: RefCell::default() }
    }

    /// The path of a key in messages.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn find(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    fn wrong(&self, key: &str, remedy: &str) -> String {
        let value = self.table.get(key).map(shown).unwrap_or_default();
        format!("{} = {value}: {remedy}", self.path_of(key))
    }

    pub fn text(&self, key: &'static str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(key, "give a text in quotes"))
    }

    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, "give true or false"))
    }

    /// A whole number from `min` to `max`.
    pub fn count(&self, key: &'static str, min: u64, max: u64) -> Result<Option<u64>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, &format!("give a whole number from {min} to {max}"))),
        }
    }

    /// A number from 0 to `max`.
    pub fn number(&self, key: &'static str, max: f64) -> Result<Option<f64>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        match number.filter(|number| (0.0..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, &format!("give a number from 0 to {max}"))),
        }
    }

    /// A time with its unit.
    pub fn duration(&self, key: &'static str) -> Result<Option<Duration>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.wrong(key, "give a time in quotes, such as \"10s\""))?;
        let us = Unit::Time.parse(text).map_err(|remedy| self.wrong(key, &remedy))?;
        Ok(Some(Duration::from_secs_f64(us / 1e6)))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some(word) = self.text(key)? else { return Ok(None) };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == word) {
            return Ok(Some(*choice));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.wrong(key, &format!("give {}", names.join(", "))))
    }

    /// A table whose keys the caller checks.
    pub fn table(&self, key: &'static str) -> Result<Option<&'a Table>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        value.as_table().map(Some).ok_or_else(|| self.wrong(key, &format!("give a table: [{}]", self.path_of(key))))
    }

    /// A list of any values.
    pub fn list(&self, key: &'static str) -> Result<&'a [Value], String> {
        let Some(value) = self.find(key) else { return Ok(&[]) };
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(key, "give a list in brackets"))
    }

    /// The tables of an array, each with its path: by its name, if it has one.
    pub fn tables(&self, key: &'static str) -> Result<Vec<Section<'a>>, String> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let remedy = || self.wrong(key, &format!("write each as [[{key}]]"));
        let items = value.as_array().ok_or_else(remedy)?;
        let section = |(number, item): (usize, &'a Value)| {
            let table = item.as_table().ok_or_else(remedy)?;
            let name = table.get("name").and_then(Value::as_str).map_or(number.to_string(), ToOwned::to_owned);
            Ok(Section::new(format!("{}.{name}", self.path_of(key)), table))
        };
        items.iter().enumerate().map(section).collect()
    }

    /// Reports a key that nobody asked for, with the known key that is most like it. Comes after all others.
    pub fn finish(&self) -> Result<(), String> {
        let known = self.known.borrow();
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(unknown) => Err(format!("{} is unknown; {}", self.path_of(unknown), suggestion(unknown, &known))),
            None => Ok(()),
        }
    }
}

/// A value for messages. JSON writes numbers, texts and lists as TOML does.
pub fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The known name that is most like the given one, or all.
pub fn suggestion(wanted: &str, known: &[&str]) -> String {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(name, wanted);
    let best = known.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match best.filter(|name| likeness(name) >= LIKENESS_MIN) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// Sets a value at its path, such as `crew.audience.connections`. In an array, a part of the path is the name of a table
/// or its number. A value that is no TOML is a text, so `10s` needs no quotes.
pub fn set(document: &mut Table, path: &str, text: &str) -> Result<(), String> {
    let value = format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()));
    set_value(document, path, value)
}

/// The same with a value.
pub fn set_value(document: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let mut parts: Vec<&str> = path.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut table = document;
    let mut at = String::new();
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        at = if at.is_empty() { part.to_owned() } else { format!("{at}.{part}") };
        let place = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        table = match place {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let name = parts.next().ok_or_else(|| format!("{at} is a list; name one of its tables"))?;
                at = format!("{at}.{name}");
                named(items, name).ok_or_else(|| format!("there is no {at}"))?
            }
            _ => return Err(format!("{at} is a value, not a table")),
        };
    }
    table.insert(last.to_owned(), value);
    Ok(())
}

fn named<'a>(items: &'a mut [Value], name: &str) -> Option<&'a mut Table> {
    let at = items
        .iter()
        .position(|item| item.get("name").and_then(Value::as_str) == Some(name))
        .or_else(|| name.parse().ok())?;
    items.get_mut(at)?.as_table_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_path_and_the_nearest_one() {
        let table = document("[[crew]]\nname = \"a\"\nconections = 3\n");
        let root = Section::new("", &table);
        let crews = root.tables("crew").unwrap();
        root.finish().unwrap();
        for crew in crews {
            assert_eq!(crew.text("name"), Ok(Some("a")));
            assert_eq!(crew.count("connections", 0, 9), Ok(None));
            let error = crew.finish().unwrap_err();
            assert_eq!(error, "crew.a.conections is unknown; did you mean connections?");
        }
        assert_eq!(suggestion("zzz", &["a", "b"]), "known are a, b");
    }

    #[test]
    fn values_of_a_wrong_type_or_out_of_range_name_what_is_right() {
        let table = document("a = 5\nb = \"x\"\nc = \"10\"\n");
        let section = Section::new("phase.hold", &table);
        assert_eq!(section.count("a", 0, 4).unwrap_err(), "phase.hold.a = 5: give a whole number from 0 to 4");
        assert_eq!(section.text("a").unwrap_err(), "phase.hold.a = 5: give a text in quotes");
        assert_eq!(section.number("a", 9.0), Ok(Some(5.0)));
        assert_eq!(section.choice("b", &[("y", 1), ("z", 2)]).unwrap_err(), "phase.hold.b = \"x\": give y, z");
        assert!(section.duration("c").unwrap_err().contains("such as 500us"));
    }

    #[test]
    fn values_are_set_at_their_path() {
        let mut table = document("[[crew]]\nname = \"a\"\n[[phase]]\nname = \"hold\"\nduration = \"1s\"\n");
        set(&mut table, "crew.a.connections", "5").unwrap();
        set(&mut table, "phase.0.duration", "10s").unwrap();
        set(&mut table, "server.client.limit", "true").unwrap();
        assert_eq!(table["crew"][0]["connections"].as_integer(), Some(5));
        assert_eq!(table["phase"][0]["duration"].as_str(), Some("10s"));
        assert_eq!(table["server"]["client"]["limit"].as_bool(), Some(true));
        assert_eq!(set(&mut table, "crew.b.connections", "5"), Err("there is no crew.b".to_owned()));
        assert!(set(&mut table, "phase.hold.duration.x", "5").is_err());
    }
}
