//! Header fields of a session's own request that are passed on to backends.

use std::sync::Arc;

/// Header fields kept of one request, by lower-case name, in their order. Shared by the session's questions.
pub type PickedHeaders = Arc<[(Box<str>, Box<[u8]>)]>;

/// Which fields are kept: those that some proxy passes on, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct HeaderPicker {
    names: Arc<[Box<str>]>,
}

impl HeaderPicker {
    /// Of lower-case names.
    pub fn new(names: impl IntoIterator<Item = Box<str>>) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        names.dedup();
        Self { names: names.into() }
    }

    /// The fields to keep; `None` where there is none, which costs nothing.
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
    fn what_nobody_wants_is_not_kept() {
        let fields = [("Cookie", &b"a=b"[..]), ("X-Other", b"1"), ("cookie", b"c=d"), ("Host", b"h")];
        assert!(HeaderPicker::default().pick(fields).is_none());
        assert!(HeaderPicker::new(["authorization".into()]).pick(fields).is_none());
        let kept = HeaderPicker::new(["cookie".into(), "cookie".into()]).pick(fields).unwrap();
        let kept: Vec<_> = kept.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(kept, [("cookie", &b"a=b"[..]), ("cookie", b"c=d")]);
    }
}
