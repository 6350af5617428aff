//! Source files for clients: the kinds of a schema as types, and functions that read them from the bytes of a state.
//!
//! A file needs nothing but its language. It reads states, which every client has, whether it has asked for fields or
//! not. A state that does not have the declared form is not read.
//!
//! ```
//! use dunlin_codegen::{Language, write_source};
//! use dunlin_rooms::{Schema, state};
//!
//! state! {
//!     /// A runner.
//!     pub struct Runner: 1 {
//!         pub points: u16,
//!     }
//! }
//!
//! let source = write_source(&Schema::new().with::<Runner>(), Language::TypeScript, "race").expect("the names are usable");
//! assert!(source.contains("export function readRunner(state: Uint8Array): Runner | null"));
//! ```

#![forbid(unsafe_code)]

mod c;
mod csharp;
mod gdscript;
mod names;
mod python;
mod typescript;

use std::fmt::Write as _;

use dunlin_rooms::{Field, FieldType, Integer, Kind, Motion, Schema};

pub use names::NameError;
use names::Names;

/// A language of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C99, as one header.
    C,
    /// C# 7.2, for Unity and .NET.
    CSharp,
    /// The language of Godot 4.
    GdScript,
    /// Python 3.9.
    Python,
    /// TypeScript, without a library.
    TypeScript,
}

/// A source file with the kinds of the schema. `game` is the name of the simulation; C and C# use it as a prefix and as a
/// namespace.
///
/// # Errors
/// A name that the language cannot have, or two that are the same in it.
pub fn write_source(schema: &Schema, language: Language, game: &str) -> Result<String, NameError> {
    let (names, write): (&Names, fn(&Source<'_>) -> String) = match language {
        Language::C => (&c::NAMES, c::write),
        Language::CSharp => (&csharp::NAMES, csharp::write),
        Language::GdScript => (&gdscript::NAMES, gdscript::write),
        Language::Python => (&python::NAMES, python::write),
        Language::TypeScript => (&typescript::NAMES, typescript::write),
    };
    Ok(write(&Source {
        about: format!("Written by `dunlin schema {game} --lang {}`. Do not edit.", language.option()),
        game: names.game(game)?,
        document: schema.document(),
        classes: names.classes(schema)?,
    }))
}

impl Language {
    /// Its name on the command line.
    pub fn option(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::CSharp => "csharp",
            Self::GdScript => "gdscript",
            Self::Python => "python",
            Self::TypeScript => "ts",
        }
    }
}

/// What a file is written from.
struct Source<'a> {
    /// Its first line.
    about: String,
    game: String,
    document: &'a str,
    classes: Vec<Class<'a>>,
}

/// A kind.
struct Class<'a> {
    kind: &'a Kind,
    name: String,
    members: Vec<Member<'a>>,
}

/// A field.
struct Member<'a> {
    field: &'a Field,
    name: String,
    /// A length is not written for the last field, because it takes the rest of the state.
    is_last: bool,
    is_first_optional: bool,
}

impl Source<'_> {
    /// Whether a field moves so.
    fn has(&self, motion: Motion) -> bool {
        self.classes.iter().flat_map(|class| &class.members).any(|member| member.field.motion == motion)
    }
}

impl Class<'_> {
    /// Whether a client shows any of its fields between two states.
    fn has_motion(&self) -> bool {
        self.members.iter().any(|member| member.field.motion != Motion::Step)
    }
}

impl Member<'_> {
    /// Whether its values can lie between two integers.
    fn is_fraction(&self) -> bool {
        self.field.per_unit != 1 || self.field.motion != Motion::Step
    }

    /// The range of one number of it.
    fn integer(&self) -> Integer {
        match &self.field.of {
            FieldType::Integer(integer) | FieldType::List { of: integer, .. } => *integer,
            FieldType::Flag => Integer { bytes: 1, min: 0, max: 1 },
            FieldType::Choice(names) => Integer { bytes: 1, min: 0, max: names.iter().skip(1).map(|_| 1).sum() },
            FieldType::Object => Integer { bytes: 4, min: 0, max: u32::MAX.into() },
            FieldType::Text { .. } => Integer { bytes: 1, min: 0, max: u8::MAX.into() },
        }
    }

    /// The least and the largest number of elements of a list, or bytes of a text.
    fn counts(&self) -> Option<(u16, u16)> {
        match self.field.of {
            FieldType::Text { bytes_max } => Some((0, bytes_max)),
            FieldType::List { count_min, count_max, .. } => Some((count_min, count_max)),
            _ => None,
        }
    }

    /// The bytes of its length in a state.
    fn length_bytes(&self) -> u8 {
        match self.counts() {
            Some((min, max)) if min != max && !self.is_last => 1 + u8::from(max > 255),
            _ => 0,
        }
    }

    /// The arguments with which a reader reads a text or a list: the least number, the largest, and the bytes of the length; 4
    /// if the length is the rest of the state.
    fn length_arguments(&self) -> Option<String> {
        let (min, max) = self.counts()?;
        let is_rest = self.is_last && min != max;
        Some(format!("{min}, {max}, {}", if is_rest { "REST".to_owned() } else { self.length_bytes().to_string() }))
    }

    /// What an engineer needs to know about it beside its type.
    fn remark(&self) -> String {
        let mut remark = match &self.field.of {
            FieldType::Integer(Integer { min, max, .. }) => format!("{min} to {max}"),
            FieldType::Flag | FieldType::Choice(_) => String::new(),
            FieldType::Object => "the id of an object; 0: none".to_owned(),
            FieldType::Text { bytes_max } => format!("at most {bytes_max} bytes"),
            FieldType::List { of, count_min, count_max } if count_min == count_max => {
                format!("{count_max} numbers from {} to {}", of.min, of.max)
            }
            FieldType::List { of, count_max, .. } => {
                format!("at most {count_max} numbers from {} to {}", of.min, of.max)
            }
        };
        if self.field.per_unit != 1 {
            let _ = write!(remark, ", divided by {}", self.field.per_unit);
        }
        match self.field.motion {
            Motion::Step => {}
            Motion::Linear => remark.push_str(", moves evenly"),
            Motion::Angle => remark.push_str(", turns the shorter way"),
        }
        remark
    }

    /// The largest difference of an angle that is not larger in the other direction, in units.
    fn turn(&self) -> String {
        let Integer { min, max, .. } = self.integer();
        fraction(max - min + 1, self.field.per_unit)
    }

    fn min(&self) -> String {
        fraction(self.integer().min, self.field.per_unit)
    }
}

/// A number in units, as all these languages write it.
fn fraction(number: i64, per_unit: u32) -> String {
    if per_unit == 1 { format!("{number}.0") } else { format!("({number}.0 / {per_unit}.0)") }
}

#[cfg(test)]
mod tests;
