//! For whom a token has to be, from whom, and which claim names the user.

use std::{borrow::Cow, fmt};

use regex::Regex;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{Fault, object::Object};

/// What a token's issuer or its audience has to be.
#[derive(Clone, Debug)]
pub enum Rule {
    /// This text.
    Exactly(String),
    /// Text that this matches.
    Matches(Regex),
}

/// What is asked of every token beside its signature.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `aud`, of which one has to fit; `None` for any or none.
    pub audience: Option<Rule>,
    /// `iss`; `None` for any or none.
    pub issuer: Option<Rule>,
    /// The claim that names the user; `None` for `sub`.
    pub user_claim: Option<String>,
}

/// What the named groups of both rules caught, to be put into an address.
pub(super) type Caught = Vec<(Box<str>, Box<str>)>;

impl Rules {
    /// Whether the claims keep to them; and what the named groups caught.
    pub(super) fn check(&self, claims: &Object<'_>) -> Result<Caught, Fault> {
        let mut caught = Vec::new();
        if let Some(rule) = &self.issuer {
            let issuer = claims.get::<Cow<'_, str>>("iss").map_err(|_| Fault::Claim)?.unwrap_or_default();
            if !rule.fits(&issuer, &mut caught) {
                return Err(Fault::Issuer);
            }
        }
        if let Some(rule) = &self.audience {
            let Audience(audiences) = claims.get("aud").map_err(|_| Fault::Claim)?.unwrap_or_default();
            if !audiences.iter().any(|audience| rule.fits(audience, &mut caught)) {
                return Err(Fault::Audience);
            }
        }
        Ok(caught)
    }
}

impl Rule {
    fn fits(&self, text: &str, caught: &mut Caught) -> bool {
        match self {
            Self::Exactly(expected) => expected == text,
            Self::Matches(regex) => {
                let Some(captures) = regex.captures(text) else { return false };
                let named = regex.capture_names().flatten();
                caught.extend(named.map(|name| {
                    let value = captures.name(name).map_or("", |group| group.as_str());
                    (name.into(), value.into())
                }));
                true
            }
        }
    }
}

/// One audience, or several.
#[derive(Default)]
struct Audience(Vec<String>);

impl<'de> Deserialize<'de> for Audience {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AudienceVisitor;

        impl<'de> Visitor<'de> for AudienceVisitor {
            type Value = Audience;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Audience, E> {
                Ok(Audience(vec![text.to_owned()]))
            }

            fn visit_unit<E>(self) -> Result<Audience, E> {
                Ok(Audience::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Audience, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Audience(texts))
            }
        }

        deserializer.deserialize_any(AudienceVisitor)
    }
}
