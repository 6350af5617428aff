//! Pages of channels with subscribers, for the console: found by name, in the order of names or of subscribers.

use serde::Deserialize;

use super::{ApiError, glob::Glob};

/// Maximum number of channels in a page.
const PAGE_MAX: usize = 200;

/// The channels that a page lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsWanted {
    /// A part of the name, or a pattern; empty for all.
    pub find: String,
    /// The most subscribers first; otherwise by name.
    pub largest: bool,
    /// How many channels to skip.
    pub skip: usize,
}

impl ChannelsWanted {
    /// The pattern: as it is if it has `*` or `?`, otherwise of all names that contain it.
    pub(super) fn pattern(&self) -> Result<Option<Glob>, ApiError> {
        let pattern = match self.find.as_str() {
            "" => return Ok(None),
            find if find.contains(['*', '?']) => find.to_owned(),
            find => format!("*{}*", escaped(find)),
        };
        Glob::compile(&pattern).map(Some).map_err(ApiError::bad_request)
    }

    /// This page of `channels`, which are in the order of their names, and whether more follow.
    pub(super) fn page<N>(&self, mut channels: Vec<(N, u32)>) -> (Vec<(N, u32)>, bool) {
        if self.largest {
            channels.sort_by_key(|(_, num_clients)| std::cmp::Reverse(*num_clients));
        }
        let has_more = channels.len() > self.skip.saturating_add(PAGE_MAX);
        (channels.into_iter().skip(self.skip).take(PAGE_MAX).collect(), has_more)
    }
}

fn escaped(find: &str) -> String {
    let mut pattern = String::with_capacity(find.len());
    for c in find.chars() {
        if matches!(c, '[' | ']' | '{' | '}' | '\\' | '!' | ',' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::{super::glob::Budget, *};

    fn finds(find: &str, name: &str) -> bool {
        let wanted = ChannelsWanted { find: find.to_owned(), ..ChannelsWanted::default() };
        let pattern = wanted.pattern().expect("a pattern");
        pattern.is_none_or(|pattern| pattern.matches(name, &mut Budget::new(1 << 20)).expect("cheap"))
    }

    #[test]
    fn a_part_of_a_name_is_found_literally_and_a_pattern_as_a_pattern() {
        for (find, name, expected) in [
            ("", "chat:1", true),
            ("hat", "chat:1", true),
            ("hats", "chat:1", false),
            ("c*1", "chat:1", true),
            ("c?at", "chat:1", false),
            ("[a-z]", "x[a-z]y", true),
            ("[a-z]", "xby", false),
            ("{a,b}", "<{a,b}>", true),
            ("a\\b", "a\\b", true),
            ("!-,", "x!-,y", true),
        ] {
            assert_eq!(finds(find, name), expected, "{find} in {name}");
        }
    }

    #[test]
    fn pages_follow_each_other() {
        let channels =
            || (0..=PAGE_MAX as u32).map(|number| (format!("c{number:03}"), number % 100)).collect::<Vec<_>>();
        let mut wanted = ChannelsWanted::default();
        let (first, has_more) = wanted.page(channels());
        assert_eq!((first.len(), &*first[0].0, has_more), (PAGE_MAX, "c000", true));
        wanted.skip = PAGE_MAX;
        let (last, has_more) = wanted.page(channels());
        assert_eq!((last, has_more), (vec![("c200".to_owned(), 0)], false));
        wanted = ChannelsWanted { largest: true, skip: usize::MAX, ..ChannelsWanted::default() };
        assert!(wanted.page(channels()).0.is_empty());
        wanted.skip = 0;
        assert_eq!(wanted.page(channels()).0[..2], [("c099".to_owned(), 99), ("c199".to_owned(), 99)]);
    }
}
