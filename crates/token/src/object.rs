//! A JSON object, parsed into names and raw values.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Maximum number of names in one object.
const NAMES_MAX: usize = 1_024;

/// A JSON object. Duplicate names are rejected, because parsers differ in which value they use (RFC 7519, section 4).
#[derive(Debug, Default)]
pub(super) struct Object<'j> {
    entries: Vec<(Cow<'j, str>, &'j RawValue)>,
}

impl<'j> Object<'j> {
    /// Parses an object. Rejects trailing data.
    pub(super) fn read(json: &'j [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// Whether the name occurs, also with the value `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, _)| known == name)
    }

    /// The value of a name; `None` if it is absent or `null`.
    pub(super) fn get<T: Deserialize<'j>>(&self, name: &str) -> serde_json::Result<Option<T>> {
        self.raw(name).map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// The unparsed value of a name; `None` if it is absent or `null`. All members are read here, so `null` is absent
    /// for each of them.
    pub(super) fn raw(&self, name: &str) -> Option<&'j RawValue> {
        #[cfg(test)]
        names_read::add(name);
        let raw = self.entries.iter().find(|(known, _)| known == name).map(|(_, raw)| *raw);
        raw.filter(|raw| raw.get() != "null")
    }

    /// All names and values in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &'j RawValue)> {
        self.entries.iter().map(|(name, raw)| (&**name, *raw))
    }
}

impl<'de: 'j, 'j> Deserialize<'de> for Object<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some((Name(name), raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    if entries.len() == NAMES_MAX {
                        return Err(A::Error::custom("too many names"));
                    }
                    entries.push((name, raw));
                }
                let mut names: Vec<&str> = entries.iter().map(|(name, _)| &**name).collect();
                names.sort_unstable();
                if names.windows(2).any(|pair| matches!(pair, [one, next] if one == next)) {
                    return Err(A::Error::custom("a name occurs twice"));
                }
                Ok(Object { entries })
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

#[derive(Deserialize)]
struct Name<'j>(#[serde(borrow)] Cow<'j, str>);

/// The names that were asked for on this thread, so that a test knows all members.
#[cfg(test)]
pub(super) mod names_read {
    use std::{cell::RefCell, collections::BTreeSet};

    thread_local! {
        static NAMES: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn add(name: &str) {
        NAMES.with_borrow_mut(|names| names.insert(name.to_owned()));
    }

    /// The names since the last call.
    pub(crate) fn take() -> BTreeSet<String> {
        NAMES.take()
    }
}
