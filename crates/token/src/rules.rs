//! Requirements on the issuer and the audience of a token, and the claim with the user id.

use std::{borrow::Cow, fmt};

use regex::Regex;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{TokenFault, object::Object};

/// A requirement on the issuer or the audience.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Equal to this text.
    Exactly(String),
    /// Matched by this expression.
    Matches(Regex),
}

/// Requirements on a token beside its signature.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// At least one entry of `aud` must match; `None` for no requirement.
    pub audience: Option<Rule>,
    /// `iss` must match; `None` for no requirement.
    pub issuer: Option<Rule>,
    /// The claim with the user id; `None` for `sub`.
    pub user_claim: Option<String>,
}

/// The values that the named groups of both rules captured, for the URL of a key set.
pub(super) type Caught = Vec<(Box<str>, Box<str>)>;

impl Rules {
    /// Checks the claims. Returns the captured values.
    pub(super) fn check(&self, claims: &Object<'_>) -> Result<Caught, TokenFault> {
        let mut caught = Vec::new();
        if let Some(rule) = &self.issuer {
            let issuer = claims.get::<Cow<'_, str>>("iss").map_err(|_| TokenFault::Claim)?.unwrap_or_default();
            if !rule.fits(&issuer, &mut caught) {
                return Err(TokenFault::Issuer);
            }
        }
        if let Some(rule) = &self.audience {
            let Audience(audiences) = claims.get("aud").map_err(|_| TokenFault::Claim)?.unwrap_or_default();
            if !audiences.iter().any(|audience| rule.fits(audience, &mut caught)) {
                return Err(TokenFault::Audience);
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

/// One audience or a list.
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
