//! Pages of channels with subscribers, for the console: found by name, in the order of names or of subscribers. Each node
//! returns a page of its own channels, so a page of the cluster does not depend on how many channels there are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use serde::Deserialize;

use super::{ApiError, glob::Glob, paging::PageLimit};
use crate::peers::{ChannelCountsQuestion, ChannelPageQuestion, ChannelPart, CountedChannel};

/// Maximum number of channels in a page.
pub(super) const PAGE_MAX: usize = 200;

/// Maximum number of channels that may be among the largest ones of a cluster, of which all nodes are asked for their
/// subscribers.
const CANDIDATES_MAX: usize = 1_000;

/// The channels that a page lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsWanted {
    /// A part of the name, or a pattern; empty for all.
    pub find: String,
    /// The most subscribers first; otherwise by name. The former has one page.
    pub largest: bool,
    /// The name after which the page begins.
    pub cursor: String,
}

impl ChannelsWanted {
    /// The question to each node.
    pub(super) fn to_question(&self) -> Result<ChannelPageQuestion, ApiError> {
        if self.largest && !self.cursor.is_empty() {
            return Err(ApiError::bad_request("cursor is for the order of names"));
        }
        let pattern = self.pattern()?.as_ref().map(Glob::pattern).unwrap_or_default().into();
        let cursor = self.cursor.as_str().into();
        Ok(ChannelPageQuestion { cursor, largest: self.largest, limit: PAGE_MAX, pattern })
    }

    /// The pattern: as it is if it has `*` or `?`, otherwise of all names that contain it.
    fn pattern(&self) -> Result<Option<Glob>, ApiError> {
        let pattern = match self.find.as_str() {
            "" => return Ok(None),
            find if find.contains(['*', '?']) => find.to_owned(),
            find => format!("*{}*", escaped(find)),
        };
        Glob::compile(&pattern).map(Some).map_err(ApiError::bad_request)
    }
}

/// A page of the channels of one node, while they are visited.
pub(super) struct NodePage<'a> {
    wanted: &'a ChannelPageQuestion,
    limit: usize,
    /// The first ones so far; the last one of them comes off first.
    kept: BinaryHeap<(Reverse<u32>, Arc<str>, u32)>,
    /// How many match, and how many of these are not before the page.
    matching: u64,
    from_cursor: u64,
}

impl<'a> NodePage<'a> {
    pub(super) fn new(wanted: &'a ChannelPageQuestion) -> Self {
        let limit = wanted.limit.clamp(1, PAGE_MAX);
        Self { wanted, limit, kept: BinaryHeap::new(), matching: 0, from_cursor: 0 }
    }

    /// Adds a channel that matches the pattern.
    pub(super) fn add(&mut self, channel: Arc<str>, num_clients: u32) {
        self.matching += 1;
        if *channel <= *self.wanted.cursor && !self.wanted.cursor.is_empty() {
            return;
        }
        self.from_cursor += 1;
        let by_size = if self.wanted.largest { num_clients } else { 0 };
        let counted = (Reverse(by_size), channel, num_clients);
        if self.kept.len() < self.limit {
            self.kept.push(counted);
        } else if let Some(mut last) = self.kept.peek_mut()
            && counted < *last
        {
            // Not pushed and popped: of 100,000 channels, nearly all come after the last one of the page.
            *last = counted;
        }
    }

    pub(super) fn finish(self) -> ChannelPart {
        let mut limit = PageLimit::new(self.limit);
        let in_order = self.kept.into_sorted_vec().into_iter();
        let counted = in_order
            .map(|(_, channel, num_clients)| CountedChannel { channel: Box::from(&*channel), num_clients })
            .take_while(|counted| limit.takes(bytes_of(counted)));
        let channels: Vec<_> = counted.collect();
        let more = self.from_cursor > channels.len() as u64;
        ChannelPart { channels, more, total: self.matching }
    }
}

/// Its size in an answer.
fn bytes_of(counted: &CountedChannel) -> usize {
    serde_json::to_string(counted).map_or(0, |json| json.len() + 1)
}

/// The page of all nodes in the order of names.
pub(super) struct NamedPage {
    pub(super) channels: Vec<CountedChannel>,
    /// The name of the last one, if more follow.
    pub(super) more: Option<Box<str>>,
}

/// Merges the pages of nodes in the order of names.
pub(super) fn by_name(parts: Vec<ChannelPart>) -> NamedPage {
    let (mut all, mut end) = (BTreeMap::<Box<str>, u32>::new(), None::<Box<str>>);
    for ChannelPart { channels, more, .. } in parts {
        // The channels after the end of a node's page are unknown.
        let own_end = channels.last().filter(|_| more).map(|last| last.channel.clone());
        end = own_end.into_iter().chain(end).min();
        for CountedChannel { channel, num_clients } in channels {
            let sum = all.entry(channel).or_default();
            *sum = sum.saturating_add(num_clients);
        }
    }
    let (mut limit, mut channels, mut has_more) = (PageLimit::new(PAGE_MAX), Vec::new(), end.is_some());
    for (channel, num_clients) in all {
        let counted = CountedChannel { channel, num_clients };
        if end.as_ref().is_some_and(|end| counted.channel > *end) || !limit.takes(bytes_of(&counted)) {
            has_more = true;
            break;
        }
        channels.push(counted);
    }
    let more = channels.last().filter(|_| has_more).map(|last| last.channel.clone());
    NamedPage { channels, more }
}

/// The channels that may be the largest ones of the cluster: those in the pages of its nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) names: Vec<Box<str>>,
    /// No other channel has more subscribers than this.
    pub(super) others_max: u32,
}

impl Candidates {
    pub(super) fn of(parts: &[ChannelPart]) -> Self {
        let last = |part: &ChannelPart| part.channels.last().filter(|_| part.more).map_or(0, |last| last.num_clients);
        let of_pages = parts.iter().map(last).fold(0, u32::saturating_add);
        let mut known = BTreeMap::<&str, u32>::new();
        for CountedChannel { channel, num_clients } in parts.iter().flat_map(|part| &part.channels) {
            let sum = known.entry(channel).or_default();
            *sum = sum.saturating_add(*num_clients);
        }
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_by_key(|(_, num_clients)| Reverse(*num_clients));
        let mut limit = PageLimit::new(CANDIDATES_MAX);
        let names = known.iter().take_while(|(channel, _)| limit.takes(json_bytes(channel)));
        let names: Vec<Box<str>> = names.map(|(channel, _)| Box::from(*channel)).collect();
        // Each node may have as many more of a channel that is not in its page.
        let left_out = known.get(names.len()).map_or(0, |(_, num_clients)| *num_clients);
        Self { names, others_max: of_pages.saturating_add(left_out) }
    }

    pub(super) fn to_question(&self) -> ChannelCountsQuestion {
        ChannelCountsQuestion { channels: self.names.iter().cloned().collect() }
    }
}

fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |json| json.len() + 1)
}

/// The largest of these, and up to how many subscribers a channel may have that is not among them; 0 if none is missing.
pub(super) fn largest(counts: BTreeMap<Box<str>, u32>, others_max: u32) -> (Vec<CountedChannel>, u32) {
    let counted = counts.into_iter().map(|(channel, num_clients)| CountedChannel { channel, num_clients });
    let mut channels: Vec<_> = counted.collect();
    channels.sort_by_key(|counted| Reverse(counted.num_clients));
    let left_out = channels.get(PAGE_MAX).map_or(0, |first| first.num_clients);
    channels.truncate(PAGE_MAX);
    (channels, others_max.max(left_out))
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
    use super::*;

    fn finds(find: &str, name: &str) -> bool {
        let wanted = ChannelsWanted { find: find.to_owned(), ..ChannelsWanted::default() };
        let pattern = wanted.pattern().expect("a pattern");
        pattern.is_none_or(|pattern| pattern.matcher().matches(name).expect("few states"))
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

    fn question(largest: bool, cursor: &str, limit: usize) -> ChannelPageQuestion {
        ChannelPageQuestion { cursor: cursor.into(), largest, limit, pattern: "".into() }
    }

    fn part(channels: &[(&str, u32)], more: bool) -> ChannelPart {
        let counted = |(channel, num_clients): &(&str, u32)| CountedChannel {
            channel: (*channel).into(),
            num_clients: *num_clients,
        };
        ChannelPart { channels: channels.iter().map(counted).collect(), more, total: channels.len() as u64 }
    }

    fn pairs(channels: &[CountedChannel]) -> Vec<(&str, u32)> {
        channels.iter().map(|counted| (&*counted.channel, counted.num_clients)).collect()
    }

    #[test]
    fn the_pages_of_a_node_follow_each_other_and_fit_into_a_message_whatever_its_channels_are() {
        let channels: Vec<Arc<str>> =
            (0..30_000).map(|number| format!("{number:05}-{}", "x".repeat(240)).into()).collect();
        let (mut cursor, mut found, mut pages) = (Box::<str>::default(), 0, 0);
        loop {
            let question = question(false, &cursor, PAGE_MAX);
            let mut page = NodePage::new(&question);
            channels.iter().rev().for_each(|channel| page.add(Arc::clone(channel), 1));
            let part = page.finish();
            assert!(serde_json::to_string(&part).expect("JSON").len() < 600 << 10);
            assert_eq!(part.total, 30_000);
            for CountedChannel { channel, .. } in &part.channels {
                assert!(channel.starts_with(&format!("{found:05}-")), "{channel} is number {found}");
                found += 1;
            }
            (cursor, pages) = (part.channels.last().expect("a page").channel.clone(), pages + 1);
            if !part.more {
                break;
            }
        }
        assert_eq!((found, pages), (30_000, 30_000 / PAGE_MAX));
    }

    #[test]
    fn a_page_is_bounded_by_channels_and_by_bytes() {
        for (limit, expected) in [(0, 1), (1, 1), (2, 2), (PAGE_MAX, PAGE_MAX), (PAGE_MAX + 1, PAGE_MAX)] {
            let question = question(true, "", limit);
            let mut page = NodePage::new(&question);
            (0..=PAGE_MAX as u32).for_each(|number| page.add(format!("{number}").into(), number));
            let part = page.finish();
            assert_eq!((part.channels.len(), part.more), (expected, true), "{limit}");
            assert_eq!(part.channels[0].num_clients, PAGE_MAX as u32, "the largest first");
        }
        let question = question(false, "", PAGE_MAX);
        let mut page = NodePage::new(&question);
        (0..10).for_each(|number| page.add(format!("{number}{}", "\u{1}".repeat(20_000)).into(), 1));
        let part = page.finish();
        assert!(part.more && (1..10).contains(&part.channels.len()), "{}", part.channels.len());
    }

    #[test]
    fn pages_of_nodes_are_merged_up_to_the_end_that_all_of_them_know() {
        let NamedPage { channels, more } =
            by_name(vec![part(&[("a", 1), ("c", 2)], true), part(&[("a", 4), ("d", 1)], false)]);
        assert_eq!((pairs(&channels), more.as_deref()), (vec![("a", 5), ("c", 2)], Some("c")));
        let NamedPage { channels, more } = by_name(vec![part(&[("a", 1)], false), part(&[("b", u32::MAX)], false)]);
        assert_eq!((pairs(&channels), more.as_deref()), (vec![("a", 1), ("b", u32::MAX)], None));
        let many: Vec<_> = (0..=PAGE_MAX).map(|number| format!("{number:03}")).collect();
        let many: Vec<_> = many.iter().map(|name| (&**name, 1)).collect();
        let (first, second) = many.split_at(PAGE_MAX / 2);
        let NamedPage { channels, more } = by_name(vec![part(first, false), part(second, false)]);
        assert_eq!((channels.len(), more.as_deref()), (PAGE_MAX, Some("199")));
    }

    #[test]
    fn the_largest_channels_of_a_cluster_are_counted_everywhere_and_what_may_be_missing_is_said() {
        let parts = [part(&[("a", 5), ("b", 3)], true), part(&[("c", 4), ("a", 2)], true), part(&[("b", 1)], false)];
        let candidates = Candidates::of(&parts);
        assert_eq!(candidates, Candidates { names: vec!["a".into(), "b".into(), "c".into()], others_max: 5 });
        let counts = [("a".into(), 7), ("b".into(), 6), ("c".into(), 6)].into();
        let (channels, missing_up_to) = largest(counts, candidates.others_max);
        assert_eq!((pairs(&channels), missing_up_to), (vec![("a", 7), ("b", 6), ("c", 6)], 5));
        assert_eq!(Candidates::of(&[part(&[("a", 5)], false)]).others_max, 0, "all are known");
    }

    #[test]
    fn candidates_are_bounded_and_those_that_are_left_out_may_be_missing() {
        let names: Vec<_> = (0..=CANDIDATES_MAX).map(|number| format!("{number:04}")).collect();
        let channels = |count: usize| {
            let all = names.iter().take(count).map(|name| (&**name, 2));
            part(&all.collect::<Vec<_>>(), false)
        };
        let all = Candidates::of(&[channels(CANDIDATES_MAX)]);
        assert_eq!((all.names.len(), all.others_max), (CANDIDATES_MAX, 0));
        let some = Candidates::of(&[channels(CANDIDATES_MAX + 1)]);
        assert_eq!((some.names.len(), some.others_max), (CANDIDATES_MAX, 2));
        let counts = names.iter().take(PAGE_MAX + 1).map(|name| (name.as_str().into(), 9)).collect();
        let (page, missing_up_to) = largest(counts, 0);
        assert_eq!((page.len(), missing_up_to), (PAGE_MAX, 9));
    }

    #[test]
    fn the_largest_have_one_page() {
        let wanted = ChannelsWanted { largest: true, cursor: "a".into(), ..ChannelsWanted::default() };
        assert!(wanted.to_question().is_err());
    }
}
