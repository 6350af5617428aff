//! The pages that answer loads: from the window in memory, or from messages that were read.

use dunlin_engine::{
    Now,
    log::{LoadQuery, LogPage, LogRecord},
};

use crate::{link::StoredMessage, record};

use super::{channel::FollowedChannel, known_stream::KnownStream, read::Read};

/// The pages of one channel at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages<'a> {
    stream: &'a KnownStream,
    channel: &'a FollowedChannel,
    now: Now,
}

impl<'a> Pages<'a> {
    pub(super) const fn new(stream: &'a KnownStream, channel: &'a FollowedChannel, now: Now) -> Self {
        Self { stream, channel, now }
    }

    /// The page of a query that the window answers.
    pub(super) fn of_window(self, query: LoadQuery) -> LogPage {
        let mut page = self.empty();
        let window = &self.channel.window;
        page.through = self.channel.position;
        if self.is_expired() {
            page.floor = self.channel.position;
            return page;
        }
        if let Some(after) = query.after {
            page.floor = after;
            let count = oldest_within(window.behind(after).map(|one| one.record.kept_bytes()), query);
            page.records = window.behind(after).take(count).map(|one| one.record.clone()).collect();
            if window.behind(after).nth(count).is_some() {
                page.through = page.records.last().map_or(page.through, offset);
            }
        } else {
            let (publications, _) = self.channel.newest_in_window(query);
            let below = window.below(query.below);
            page.records = below.clone().skip(below.len() - publications).map(|one| one.record.clone()).collect();
            page.through = page.through.min(query.below.saturating_sub(1));
            let floor = window.floor().max(page.records.first().map_or(0, offset).saturating_sub(1));
            page.floor = floor.min(page.through);
            page.has_more_below = true;
        }
        page
    }

    /// The page of a read. It reaches as far as the read: messages delivered in the meantime may be missing from it,
    /// and messages that have not been delivered are not in it.
    pub(super) fn of_read(self, read: &Read, floor: u64) -> LogPage {
        let mut page = self.empty();
        let last_read = read.messages.list.last().map_or(0, |message| message.sequence);
        let reached = if read.ended_early() { last_read } else { last_read.max(read.position) };
        let reached = reached.min(self.channel.position);
        page.through = reached.min(read.below().saturating_sub(1));
        page.top = reached;
        if self.is_expired() {
            page.floor = page.through;
            return page;
        }
        page.floor = floor.min(page.through);
        let of_page = (page.floor + 1)..=page.through;
        let is_in_page =
            |message: &&StoredMessage| record::purged_through(message).is_none() && of_page.contains(&message.sequence);
        let publications = read.messages.list.iter().filter(is_in_page);
        let after = read.query().filter(|query| query.after.is_some());
        let Some(query) = after else {
            page.records = publications.map(record::decode).collect();
            // If a purge has removed what was left out, there is nothing below.
            let left_out = read.messages.left_out;
            page.has_more_below = left_out > 0 && page.floor == left_out;
            return page;
        };
        let count = oldest_within(publications.clone().map(StoredMessage::bytes), query);
        page.records = publications.clone().take(count).map(record::decode).collect();
        if publications.clone().nth(count).is_some() {
            page.through = page.records.last().map_or(page.through, offset);
        }
        page
    }

    /// A page without publications after `after`, if the channel was compared up to there. A position beyond that is
    /// not from this stream.
    pub(super) fn ahead(self, after: u64, compared: u64) -> LogPage {
        let mut page = self.empty();
        page.through = page.top.max(compared);
        page.top = page.through;
        page.floor = after.min(page.through);
        page
    }

    fn empty(self) -> LogPage {
        let newest = self.channel.window.newest();
        LogPage {
            epoch: self.stream.current_epoch().into(),
            top: self.channel.position,
            version: newest.map_or(0, |newest| newest.version),
            version_epoch: newest.map(|newest| newest.version_epoch.clone()).unwrap_or_default(),
            ..LogPage::default()
        }
    }

    /// Whether the history has expired: it expires as a whole, some time after its newest publication.
    fn is_expired(self) -> bool {
        let newest_ms = self.channel.window.newest().map_or(0, |newest| newest.time_ms);
        newest_ms > 0 && self.now.unix_ms > newest_ms.saturating_add(self.stream.history.ttl_ms)
    }
}

/// The number of the oldest publications with these sizes that a page for this query has. It has at least one.
fn oldest_within(sizes: impl Iterator<Item = usize>, query: LoadQuery) -> usize {
    let mut bytes_before = 0;
    let fits = |size: &usize| {
        let fits = bytes_before == 0 || bytes_before < query.bytes_max;
        bytes_before += size;
        fits
    };
    sizes.take(query.publications_max).take_while(fits).count()
}

pub(super) fn offset(record: &LogRecord) -> u64 {
    record.publication.offset
}
