//! Header fields of a client's HTTP request that are forwarded to backends.

use std::sync::Arc;

/// The selected header fields of one request in order, with lower-case names. All backend requests of a session share
/// them.
pub type PickedHeaders = Arc<[PickedField]>;

/// A header field: its lower-case name, and its value.
pub type PickedField = (Box<str>, Box<[u8]>);

/// Selects the fields that at least one proxy forwards.
#[derive(Clone, Debug, Default)]
pub struct HeaderPicker {
    names: Arc<[Box<str>]>,
}

impl HeaderPicker {
    /// A picker for these lower-case names.
    pub fn new(names: impl IntoIterator<Item = Box<str>>) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        names.dedup();
        Self { names: names.into() }
    }

    /// The selected fields; `None`, without an allocation, if there are none.
    pub fn pick<'f>(&self, fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Option<PickedHeaders> {
        if self.names.is_empty() {
            return None;
        }
        let wanted = |name: &str| self.names.iter().find(|known| known.eq_ignore_ascii_case(name));
        let kept = fields.into_iter().filter_map(|(name, value)| Some((wanted(name)?.clone(), value.into())));
        let kept: Vec<_> = kept.collect();
        (!kept.is_empty()).then(|| kept.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_not_configured_are_dropped() {
        let fields = [("Cookie", &b"a=b"[..]), ("X-Other", b"1"), ("cookie", b"c=d"), ("Host", b"h")];
        assert!(HeaderPicker::default().pick(fields).is_none());
        assert!(HeaderPicker::new(["authorization".into()]).pick(fields).is_none());
        let kept = HeaderPicker::new(["cookie".into(), "cookie".into()]).pick(fields).unwrap();
        let kept: Vec<_> = kept.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(kept, [("cookie", &b"a=b"[..]), ("cookie", b"c=d")]);
    }
}
