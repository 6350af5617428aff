//! Names in the languages of clients.

use std::{collections::BTreeSet, fmt, iter::once};

use dunlin_rooms::{FieldType, Kind, Schema};

use crate::{Class, Member};

/// A name of the schema that a language cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is not made of letters, digits and `_`, or does not begin with a letter.
    NotAnIdentifier(String),
    /// Two names are the same when they are written in the style of the language.
    Twice(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnIdentifier(name) => {
                write!(
                    f,
                    "{name:?} cannot be a name in this language: use letters, digits and _, and begin with a letter"
                )
            }
            Self::Twice(name) => write!(f, "two names become {name:?} in this language: rename one of them"),
        }
    }
}

impl std::error::Error for NameError {}

/// How a language writes names.
pub(crate) struct Names {
    pub(crate) game: fn(&str) -> String,
    pub(crate) kind: fn(&str) -> String,
    pub(crate) field: fn(&str) -> String,
    /// Whether the names of choices become names of the language.
    pub(crate) has_choices: bool,
    /// What a field cannot be called. It gets a `_` at its end.
    pub(crate) reserved: &'static [&'static str],
    /// What a kind cannot be called, likewise.
    pub(crate) reserved_kinds: &'static [&'static str],
    /// A second member that a field has.
    pub(crate) second_member: fn(&Member<'_>) -> Option<String>,
    /// The names that a kind with this name declares in the file.
    pub(crate) declared: fn(&str) -> Vec<String>,
    /// A type of its own that a field has.
    pub(crate) own_type: fn(&Class<'_>, &Member<'_>) -> Option<String>,
}

impl Names {
    pub(crate) fn game(&self, name: &str) -> Result<String, NameError> {
        // `dunlin new-game` allows hyphens in the name of a game.
        Ok((self.game)(identifier(&name.replace('-', "_"))?))
    }

    pub(crate) fn classes<'a>(&self, schema: &'a Schema) -> Result<Vec<Class<'a>>, NameError> {
        let classes: Vec<Class<'a>> = schema.kinds().iter().map(|kind| self.class(kind)).collect::<Result<_, _>>()?;
        let (own_type, declared) = (self.own_type, self.declared);
        all_differ(classes.iter().flat_map(|class| {
            let own_types = class.members.iter().filter_map(move |member| own_type(class, member));
            declared(&class.name).into_iter().chain(own_types)
        }))?;
        Ok(classes)
    }

    fn class<'a>(&self, kind: &'a Kind) -> Result<Class<'a>, NameError> {
        let mut name = (self.kind)(identifier(&kind.name)?);
        if self.reserved_kinds.contains(&&*name) {
            name.push('_');
        }
        let mut members = Vec::new();
        let mut has_optional = false;
        for (place, field) in kind.fields.iter().enumerate() {
            if let FieldType::Choice(choices) = &field.of
                && self.has_choices
            {
                let choices: Vec<&str> = choices.iter().map(|choice| identifier(choice)).collect::<Result<_, _>>()?;
                all_differ(choices.into_iter().map(self.kind))?;
            }
            let mut member = (self.field)(identifier(&field.name)?);
            // In C#, a member cannot have the name of its type.
            while self.reserved.contains(&&*member) || member == name {
                member.push('_');
            }
            members.push(Member {
                field,
                name: member,
                is_last: place + 1 == kind.fields.len(),
                is_first_optional: field.is_optional && !has_optional,
            });
            has_optional |= field.is_optional;
        }
        all_differ(members.iter().flat_map(|member| once(member.name.clone()).chain((self.second_member)(member))))?;
        Ok(Class { kind, name, members })
    }
}

fn identifier(name: &str) -> Result<&str, NameError> {
    let is_right = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_right { Ok(name) } else { Err(NameError::NotAnIdentifier(name.to_owned())) }
}

fn all_differ(names: impl Iterator<Item = String>) -> Result<(), NameError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(NameError::Twice(name));
        }
        seen.insert(name);
    }
    Ok(())
}

/// The words of `PlayerState`, `player_state` and `playerState`, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    let mut ends_word = true;
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' {
            ends_word = true;
            continue;
        }
        if ends_word || letter.is_ascii_uppercase() && was_lower {
            words.push(String::new());
        }
        ends_word = false;
        was_lower = !letter.is_ascii_uppercase();
        if let Some(word) = words.last_mut() {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.into_iter()
}

/// `PlayerState`
pub(crate) fn pascal(name: &str) -> String {
    words(name).map(|word| capitalized(&word)).collect()
}

/// `playerState`
pub(crate) fn camel(name: &str) -> String {
    words(name).enumerate().map(|(place, word)| if place == 0 { word } else { capitalized(&word) }).collect()
}

/// `player_state`
pub(crate) fn snake(name: &str) -> String {
    words(name).collect::<Vec<_>>().join("_")
}

/// `PLAYER_STATE`
pub(crate) fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

pub(crate) fn unchanged(name: &str) -> String {
    name.to_owned()
}

fn capitalized(word: &str) -> String {
    word.char_indices().map(|(at, letter)| if at == 0 { letter.to_ascii_uppercase() } else { letter }).collect()
}

/// Items with a separator between them.
pub(crate) fn joined<T: fmt::Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}
