//! The data with which a player joins.

use dunlin_rooms::Refusal;
use serde_json::Value;

/// Number of colours; they are numbered from 0.
pub const COLOURS: u8 = 12;

/// Maximum number of characters of a name.
pub(crate) const NAME_CHARS_MAX: usize = 24;

/// The refusal code for invalid data.
const BAD_JOIN: u16 = 400;

/// A player's name and colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The name without invisible characters.
    pub name: Box<str>,
    /// 0 to 11.
    pub colour: u8,
}

impl Looks {
    /// Parses a join's data. The default name has `role` and `number`.
    ///
    /// # Errors
    /// [`Refusal`] with code 400.
    pub fn read(data: &[u8], role: &str, number: u32) -> Result<Self, Refusal> {
        let table = match data {
            [] => Value::Null,
            data => serde_json::from_slice(data).map_err(|_| refusal("what was sent to join is not JSON"))?,
        };
        if !table.is_object() && !table.is_null() {
            return Err(refusal("what was sent to join is not an object"));
        }
        let name = match table.get("name") {
            None | Some(Value::Null) => format!("{role} {number}").into(),
            Some(Value::String(name)) => clean(name)?,
            Some(_) => return Err(refusal("`name` is not text")),
        };
        let colour = match table.get("colour") {
            None | Some(Value::Null) => (number % u32::from(COLOURS)) as u8,
            Some(colour) => colour
                .as_u64()
                .and_then(|colour| u8::try_from(colour).ok())
                .filter(|colour| *colour < COLOURS)
                .ok_or_else(|| refusal("`colour` is not a whole number from 0 to 11"))?,
        };
        Ok(Self { name, colour })
    }

    /// Replaces the client's name by the `name` in the visitor's info, if any, because the application has confirmed
    /// it.
    #[must_use]
    pub fn with_name_of(self, info: &[u8]) -> Self {
        let info: Value = serde_json::from_slice(info).unwrap_or_default();
        match info["name"].as_str().map(clean) {
            Some(Ok(name)) => Self { name, ..self },
            _ => self,
        }
    }
}

/// Removes invisible characters from a name, so that different names look different and no name changes the writing
/// direction of the text around it.
fn clean(name: &str) -> Result<Box<str>, Refusal> {
    let seen: String = name.chars().filter(|letter| letter.is_whitespace() || !is_invisible(*letter)).collect();
    let words: Vec<&str> = seen.split_whitespace().collect();
    let name = words.join(" ");
    match name.chars().count() {
        1..=NAME_CHARS_MAX => Ok(name.into()),
        0 => Err(refusal("`name` is empty")),
        _ => Err(refusal("`name` has more than 24 characters")),
    }
}

/// Control and format characters, fillers, blanks and variation selectors of Unicode.
fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn refusal(message: &str) -> Refusal {
    Refusal { code: BAD_JOIN, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_looks_have_defaults() {
        for data in ["", "null", "{}", r#"{"name":null,"colour":null}"#, r#"{"shoes":44}"#] {
            let looks = Looks::read(data.as_bytes(), "Hunter", 17).expect(data);
            assert_eq!((&*looks.name, looks.colour), ("Hunter 17", 5), "{data}");
        }
    }

    #[test]
    fn names_are_cleaned() {
        for (given, cleaned) in [
            ("Ada", "Ada"),
            ("  Ada \\n\\t Lovelace ", "Ada Lovelace"),
            ("A\\u0000d\\u200ba\\u202e\\ufeff", "Ada"),
            ("ÄÖÜäöüÄÖÜäöüÄÖÜäöüÄÖÜäöü", "ÄÖÜäöüÄÖÜäöüÄÖÜäöüÄÖÜäöü"),
        ] {
            let data = format!(r#"{{"name":"{given}","colour":11}}"#);
            let looks = Looks::read(data.as_bytes(), "Hunter", 1).expect(given);
            assert_eq!((&*looks.name, looks.colour), (cleaned, 11));
        }
    }

    #[test]
    fn the_name_in_the_info_overrides_that_of_the_client() {
        let looks = || Looks::read(br#"{"name":"Bea"}"#, "Hunter", 1).expect("good data");
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(25));
        for (info, name) in [
            (r#"{"name":" Ada "}"#, "Ada"),
            ("", "Bea"),
            ("[]", "Bea"),
            ("no JSON", "Bea"),
            (r#"{"name":7}"#, "Bea"),
            (r#"{"name":""}"#, "Bea"),
            (&long, "Bea"),
        ] {
            assert_eq!(&*looks().with_name_of(info.as_bytes()).name, name, "{info}");
        }
    }

    #[test]
    fn bad_joins_are_refused_with_400() {
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(25));
        for (data, message) in [
            ("{", "what was sent to join is not JSON"),
            ("[]", "what was sent to join is not an object"),
            ("7", "what was sent to join is not an object"),
            (r#"{"name":7}"#, "`name` is not text"),
            (r#"{"name":""}"#, "`name` is empty"),
            (r#"{"name":" \u200b\u0007 "}"#, "`name` is empty"),
            (r#"{"name":"\u2800"}"#, "`name` is empty"),
            (&long, "`name` has more than 24 characters"),
            (r#"{"colour":12}"#, "`colour` is not a whole number from 0 to 11"),
            (r#"{"colour":-1}"#, "`colour` is not a whole number from 0 to 11"),
            (r#"{"colour":"red"}"#, "`colour` is not a whole number from 0 to 11"),
        ] {
            let refused = Looks::read(data.as_bytes(), "Hunter", 1).expect_err(data);
            assert_eq!((refused.code, &*refused.message), (400, message), "{data}");
        }
    }
}
