use dunlin_engine::Event;

use super::*;
use dunlin_engine::log::{LoadNumber, LogPage};

use crate::core::{
    CoreEffect, CoreEvent, CoreLimits,
    page::offset,
    rig::{FENCE, Rig, SHARD, stored},
};
use crate::link::LinkEvent;

/// The newest message, which an attach reads; the window of this node begins with it.
const NEWEST: u64 = FENCE / 10;
const CHANNEL: &str = "chat:1";

fn message(sequence: u64) -> StoredMessage {
    StoredMessage { payload: vec![b'x'; 100].into(), ..stored("dn.p.chat.0.1", sequence) }
}

/// The offsets of a page, its `floor`, and whether the log has more below.
type Page = (Vec<u64>, u64, bool);

/// A node that follows a channel, whose stream has the messages 1 to 10.
struct Reader {
    rig: Rig,
    messages: Vec<StoredMessage>,
}

impl Reader {
    fn new() -> Self {
        let mut rig = Rig::new(CoreLimits::default());
        rig.handle(CoreEvent::Follow { shard: SHARD, channel: CHANNEL.into(), namespace: 1 });
        let mut reader = Self { rig, messages: (1..=NEWEST).map(message).collect() };
        let (offsets, _, has_more_below) = reader.load(LoadQuery::newest(100));
        assert!(offsets == [NEWEST] && has_more_below, "the first page is that of the window");
        reader
    }

    fn load(&mut self, query: LoadQuery) -> Page {
        let page = self.load_page(query);
        (page.records.iter().map(offset).collect(), page.floor, page.has_more_below)
    }

    fn load_page(&mut self, query: LoadQuery) -> LogPage {
        self.rig.effects.clear();
        self.rig.handle(CoreEvent::Load { shard: SHARD, channel: CHANNEL.into(), load: LoadNumber(1), query });
        if let Some((request, _)) = self.rig.ranges.pop() {
            let after = query.after.unwrap_or_default();
            let messages = self.messages.iter().filter(|message| message.sequence > after).cloned().collect();
            let answer = ReadAnswer { messages, ..ReadAnswer::default() };
            self.rig.handle(CoreEvent::Link(LinkEvent::Answered { request, outcome: Ok(answer) }));
        }
        let loaded = self.rig.effects.drain(..).find_map(|effect| match effect {
            CoreEffect::ToShard { event: Event::Loaded { outcome, .. }, .. } => Some(outcome.expect("it is loaded")),
            _ => None,
        });
        *loaded.expect("the load is answered")
    }
}

/// The offsets of a page, the last one that it reaches, and whether there are more.
fn ends(page: &LogPage) -> (Vec<u64>, u64, bool) {
    (page.records.iter().map(offset).collect(), page.through, page.top > page.through)
}

#[test]
fn the_newest_publications_are_cut_at_their_bytes() {
    let each = message(1).bytes();
    let load = |bytes_max| Reader::new().load(LoadQuery::newest(100).within(bytes_max));
    assert_eq!(load(3 * each), (vec![8, 9, 10], 7, true), "at the limit");
    assert_eq!(load(3 * each + 1), (vec![7, 8, 9, 10], 6, true), "one past it");
    assert_eq!(load(1), (vec![10], 9, true), "a page has a publication");
    assert_eq!(load(10 * each), ((1..=10).collect(), 0, false), "all of them");
}

#[test]
fn the_newest_publications_are_cut_at_their_number() {
    let load = |publications_max| Reader::new().load(LoadQuery::newest(publications_max));
    assert_eq!(load(3), (vec![8, 9, 10], 7, true));
    assert_eq!(load(9), ((2..=10).collect(), 1, true), "at the limit");
    assert_eq!(load(10), ((1..=10).collect(), 0, false), "one past it");
}

#[test]
fn the_publications_after_a_position_are_cut_at_their_bytes() {
    let each = message(1).bytes();
    let load = |bytes_max| Reader::new().load_page(LoadQuery::after(2, 100).within(bytes_max));
    assert_eq!(ends(&load(3 * each)), (vec![3, 4, 5], 5, true), "at the limit");
    assert_eq!(ends(&load(3 * each + 1)), (vec![3, 4, 5, 6], 6, true), "one past it");
    assert_eq!(ends(&load(1)), (vec![3], 3, true), "a page has a publication");
    assert_eq!(ends(&load(8 * each)), ((3..=10).collect(), 10, false), "all of them");
}

#[test]
fn a_page_of_the_window_is_cut_at_its_bytes() {
    let mut reader = Reader::new();
    let whole = reader.load_page(LoadQuery::after(2, 100));
    let each = whole.records[0].kept_bytes();
    let mut load = |bytes_max| {
        let page = reader.load_page(LoadQuery::after(2, 100).within(bytes_max));
        assert!(reader.rig.ranges.is_empty(), "the window has all");
        ends(&page)
    };
    assert_eq!(load(3 * each), (vec![3, 4, 5], 5, true), "at the limit");
    assert_eq!(load(3 * each + 1), (vec![3, 4, 5, 6], 6, true), "one past it");
    assert_eq!(load(8 * each), ((3..=10).collect(), 10, false), "all of them");
}

#[test]
fn the_publications_after_a_position_are_cut_at_their_number() {
    let load = |publications_max| Reader::new().load_page(LoadQuery::after(2, publications_max));
    assert_eq!(ends(&load(7)), ((3..=9).collect(), 9, true), "at the limit");
    assert_eq!(ends(&load(8)), ((3..=10).collect(), 10, false), "one past it");
}

#[test]
fn the_pages_below_continue_to_the_oldest_publication() {
    let each = message(1).bytes();
    let mut reader = Reader::new();
    let mut pages = Vec::new();
    let mut query = LoadQuery::newest(100).within(4 * each);
    loop {
        let (offsets, floor, has_more_below) = reader.load(query);
        pages.push(offsets);
        if !has_more_below {
            break;
        }
        query.below = floor + 1;
    }
    // What an earlier page has brought to the window serves the next one, with its own measure of bytes.
    assert_eq!(pages.concat().iter().max(), Some(&NEWEST));
    assert!(pages.iter().all(|page| page.len() <= 10 && !page.is_empty()) && pages.len() > 1, "{pages:?}");
    pages.reverse();
    assert_eq!(pages.concat(), (1..=NEWEST).collect::<Vec<_>>());
}
