//! A channel's history: offsets, an epoch, and the newest publications.
//!
//! Offsets increase and may have gaps: if a log orders the publications, other channels may use offsets in between. An
//! offset only says which publication came first. [`Stream::floor`] is the offset above which no publication is
//! missing.

use std::{collections::VecDeque, sync::Arc};

use dunlin_protocol::{ClientInfo, DeltaEncoder, ErrorCode, Publication, TagsFilter};

use crate::{
    api::HistoryQuery,
    event::payload_bytes,
    log::LogPage,
    message::{HistoryPart, RecoverFrom, Subscribed},
    options::{ClientOptions, NamespaceOptions, RecoveryMode},
    refused::Refused,
};

/// The stream of one channel. Offsets start above 0 and rise within an epoch.
#[derive(Debug)]
pub(crate) struct Stream {
    epoch: Box<str>,
    /// The offset of the newest publication ever; stays when it is forgotten.
    top: u64,
    /// Every publication with an offset above it is present.
    floor: u64,
    /// The newest publications, in ascending order of offset.
    publications: VecDeque<Kept>,
    /// Bytes of the publications and their patches.
    bytes: usize,
    /// The value of `bytes` that the shard's total includes.
    pub(crate) counted_bytes: usize,
    /// Version and version epoch of the newest publication, if it had one.
    version: Option<Box<(u64, Box<str>)>>,
    /// Whether the answer cache may hold publications of this stream.
    has_answers: bool,
    /// When the publications are forgotten.
    pub(crate) data_until_us: u64,
    /// When epoch and top are forgotten.
    pub(crate) meta_until_us: u64,
}

/// A publication in a history.
#[derive(Clone, Debug)]
struct Kept {
    publication: Arc<Publication>,
    /// The users who may read it, in ascending order; `None` for all.
    readers: Option<Arc<[Arc<str>]>>,
    /// The patch against the previous publication.
    patch: KeptPatch,
}

/// The patch of a publication against the previous one, computed once on first use.
#[derive(Clone, Debug)]
enum KeptPatch {
    NotMade,
    /// A patch would not be smaller.
    Useless,
    Made(Arc<[u8]>),
}

/// The reader of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader<'a> {
    /// The application, which may read everything.
    Server,
    /// A user; the anonymous user has an empty id and reads only publications for all users.
    User(&'a str),
}

impl KeptPatch {
    fn bytes(&self) -> usize {
        match self {
            Self::Made(patch) => patch.len(),
            Self::NotMade | Self::Useless => 0,
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        kept_bytes(&self.publication) + self.patch.bytes()
    }

    fn is_for(&self, reader: Reader<'_>) -> bool {
        match (&self.readers, reader) {
            (None, _) | (_, Reader::Server) => true,
            (Some(readers), Reader::User(user)) => {
                !user.is_empty() && readers.binary_search_by(|of_readers| (**of_readers).cmp(user)).is_ok()
            }
        }
    }
}

impl Stream {
    /// An empty stream.
    pub(crate) fn new(epoch: Box<str>) -> Self {
        Self {
            epoch,
            top: 0,
            floor: 0,
            version: None,
            publications: VecDeque::new(),
            bytes: 0,
            counted_bytes: 0,
            has_answers: false,
            data_until_us: 0,
            meta_until_us: 0,
        }
    }

    /// A stream with the publications of a page of the log, continued with those of `tail`. If publications between the
    /// two are missing, the stream has those of the tail only. It has none above `top`.
    pub(crate) fn of_page(page: LogPage, tail: &Self, top: u64) -> Self {
        let mut stream = Self::new(page.epoch);
        if tail.floor <= page.through {
            stream.floor = page.floor;
            for record in page.records.into_iter().filter(|record| record.publication.offset <= top) {
                stream.set_version(record.publication.version, &record.version_epoch);
                stream.append(record.publication, None);
            }
            // The page has the version because the newest publication, which set it, may have expired.
            if page.version > 0 {
                stream.set_version(page.version, &page.version_epoch);
            }
        } else {
            stream.floor = tail.floor;
        }
        let from = stream.top.max(stream.floor);
        let behind = tail.publications.iter().filter(|kept| kept.publication.offset > from).cloned();
        let behind: Vec<Kept> = behind.collect();
        if !behind.is_empty() {
            stream.bytes += behind.iter().map(Kept::bytes).sum::<usize>();
            stream.publications.extend(behind);
            stream.version.clone_from(&tail.version);
        }
        stream.top = top;
        stream
    }

    /// A stream with the publications of a page only, whose position is `top`.
    pub(crate) fn of_part(page: LogPage, top: u64) -> Self {
        let nothing = Self::new(Box::default());
        Self::of_page(LogPage { through: u64::MAX, ..page }, &nothing, top)
    }

    /// Whether `limit` publications before `offset` (the newest, if `None`), or more than `bytes_max` bytes of them, are
    /// present.
    pub(crate) fn has_before(&self, offset: Option<u64>, reader: Reader<'_>, limit: usize, bytes_max: usize) -> bool {
        if offset.is_some_and(|offset| offset == 0 || offset > self.next_offset()) {
            // The query is answered without publications.
            return true;
        }
        let (mut count, mut bytes) = (0, 0);
        self.before(offset, reader).any(|publication| {
            (count, bytes) = (count + 1, bytes + encoded_bytes_max(publication));
            count >= limit || bytes > bytes_max
        })
    }

    /// Whether it holds no publication.
    pub(crate) fn is_empty(&self) -> bool {
        self.publications.is_empty()
    }

    /// Whether a log can give it back as it is: it has its position and nothing else.
    pub(crate) fn is_bare(&self) -> bool {
        self.publications.is_empty() && self.version.is_none()
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The offset of the newest publication ever; 0 if there was none.
    pub(crate) const fn top(&self) -> u64 {
        self.top
    }

    /// The offset of the next publication, if the channel's owner orders them.
    pub(crate) const fn next_offset(&self) -> u64 {
        self.top + 1
    }

    /// Every publication with an offset above it is present.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Whether nothing has been published to it.
    pub(crate) const fn is_new(&self) -> bool {
        self.top == 0
    }

    /// The epoch and the top offset of the stream.
    pub(crate) fn position(&self) -> (u64, Box<str>) {
        (self.top, self.epoch.clone())
    }

    /// Whether `version` is newer than that of the newest publication. An empty `version_epoch` matches any epoch;
    /// another epoch is always newer.
    pub(crate) fn is_newer(&self, version: u64, version_epoch: &str) -> bool {
        let (newest, newest_epoch) = self.version.as_deref().map_or((0, ""), |(newest, epoch)| (*newest, epoch));
        version > newest || !version_epoch.is_empty() && version_epoch != newest_epoch
    }

    /// Sets the version of the newest publication.
    pub(crate) fn set_version(&mut self, version: u64, version_epoch: &str) {
        let has_version = version > 0 || !version_epoch.is_empty();
        self.version = has_version.then(|| Box::new((version, version_epoch.into())));
    }

    /// The patch from the previous to the newest publication, if the previous one is present and a patch is smaller.
    pub(crate) fn newest_patch(&mut self, deltas: &mut DeltaEncoder) -> Option<Arc<[u8]>> {
        self.patch_at(self.publications.len().checked_sub(1)?, deltas)
    }

    /// The patches between `publications` of this stream. The first publication and one whose predecessor was left out
    /// have none.
    pub(crate) fn patches(
        &mut self,
        publications: &[Arc<Publication>],
        deltas: &mut DeltaEncoder,
    ) -> Vec<Option<Arc<[u8]>>> {
        let mut before = None;
        let patch_of = |publication: &Arc<Publication>| {
            let place = self.place_of(publication.offset);
            let follows = before.is_some_and(|before: usize| place == Some(before + 1));
            before = place;
            self.patch_at(place.filter(|_| follows)?, deltas)
        };
        publications.iter().map(patch_of).collect()
    }

    /// Whether `publications` of this stream are all that it has between the first and the last of them.
    pub(crate) fn is_whole(&self, publications: &[Arc<Publication>]) -> bool {
        let place = |publication: Option<&Arc<Publication>>| self.place_of(publication?.offset);
        match (place(publications.first()), place(publications.last())) {
            (Some(first), Some(last)) => last - first + 1 == publications.len(),
            _ => false,
        }
    }

    /// The index of the publication with this offset.
    fn place_of(&self, offset: u64) -> Option<usize> {
        self.publications.binary_search_by_key(&offset, |kept| kept.publication.offset).ok()
    }

    /// Returns the patch of a publication, which is computed once.
    fn patch_at(&mut self, place: usize, deltas: &mut DeltaEncoder) -> Option<Arc<[u8]>> {
        let old = Arc::clone(&self.publications.get(place.checked_sub(1)?)?.publication);
        let kept = self.publications.get_mut(place)?;
        if matches!(kept.patch, KeptPatch::NotMade) {
            let patch = deltas.patch(old.data.bytes(), kept.publication.data.bytes());
            kept.patch = patch.map_or(KeptPatch::Useless, |patch| KeptPatch::Made(patch.into()));
            self.bytes += kept.patch.bytes();
        }
        match &kept.patch {
            KeptPatch::Made(patch) => Some(Arc::clone(patch)),
            KeptPatch::NotMade | KeptPatch::Useless => None,
        }
    }

    /// Notes that the answer cache holds publications of this stream.
    pub(crate) fn mark_answer_kept(&mut self) {
        self.has_answers = true;
    }

    /// Whether the answer cache may hold publications of this stream; resets the flag, because the caller drops them.
    pub(crate) fn take_answers(&mut self) -> bool {
        std::mem::take(&mut self.has_answers)
    }

    /// Appends `publication`; the caller then calls [`Stream::forget_beyond`]. `readers` are the users who may read it,
    /// in ascending order; `None` for all.
    pub(crate) fn append(&mut self, publication: Arc<Publication>, readers: Option<Arc<[Arc<str>]>>) {
        assert!(publication.offset > self.top, "offsets rise");
        self.top = publication.offset;
        self.bytes += kept_bytes(&publication);
        self.publications.push_back(Kept { publication, readers, patch: KeptPatch::NotMade });
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, counted again.
    pub(crate) fn recounted_bytes(&self) -> usize {
        self.publications.iter().map(Kept::bytes).sum()
    }

    /// Bytes that are freed when one more publication is added and at most `size` stay.
    pub(crate) fn bytes_beyond(&self, size: usize) -> usize {
        let leaving = (self.publications.len() + 1).saturating_sub(size);
        self.publications.iter().take(leaving).map(Kept::bytes).sum()
    }

    /// Forgets the oldest publications, so that at most `size` remain.
    pub(crate) fn forget_beyond(&mut self, size: usize) {
        while self.publications.len() > size {
            self.forget_oldest();
        }
    }

    pub(crate) fn forget_oldest(&mut self) {
        if let Some(oldest) = self.publications.pop_front() {
            self.bytes -= oldest.bytes();
            self.floor = oldest.publication.offset;
        }
    }

    /// Forgets the publications and keeps the position.
    pub(crate) fn clear(&mut self) {
        self.publications = VecDeque::new();
        self.bytes = 0;
        self.floor = self.top;
    }

    /// The part of the history that `query` selects, limited to what `reader` may read.
    ///
    /// # Errors
    /// 112 for another epoch, 107 for a reverse query from offset 0.
    pub(crate) fn history(&self, query: &HistoryQuery, reader: Reader<'_>) -> Result<HistoryPart, Refused> {
        let since = query.since.as_ref();
        if query.reverse && since.is_some_and(|(offset, _)| *offset == 0) {
            return Err(Refused::new(ErrorCode::BadRequest, "a reverse history since offset 0"));
        }
        if since.is_some_and(|(_, epoch)| !epoch.is_empty() && **epoch != *self.epoch) {
            return Err(ErrorCode::UnrecoverablePosition.into());
        }
        let limit = query.publications_max();
        let bytes_max = query.bytes_max.unwrap_or(usize::MAX);
        let (publications, is_cut) = if query.reverse {
            page(self.before(since.map(|(offset, _)| *offset), reader).take(limit), bytes_max)
        } else {
            page(self.after(since.map_or(0, |(offset, _)| *offset), reader).take(limit), bytes_max)
        };
        Ok(HistoryPart { publications, epoch: self.epoch.clone(), offset: self.top, is_cut })
    }

    /// The position and publications of a subscription that resumes at `from`; without it, at the top.
    ///
    /// # Errors
    /// 112 if the position is lost and the client wants an error rather than `recovered: false`.
    pub(crate) fn subscribe(
        &self,
        from: Option<&RecoverFrom>,
        reader: Reader<'_>,
        filter: Option<&TagsFilter>,
        namespace: &NamespaceOptions,
        client: &ClientOptions,
    ) -> Result<Subscribed, ErrorCode> {
        let mut subscribed = Subscribed { epoch: self.epoch.clone(), offset: self.top, ..Subscribed::default() };
        let Some(from) = from else { return Ok(subscribed) };
        subscribed.was_recovering = true;
        let missed = match namespace.recovery_mode {
            RecoveryMode::Stream => self.recover_stream(from, reader, filter, client),
            RecoveryMode::Cache => self.recover_cache(from, reader, filter),
        };
        match missed {
            Some(publications) => {
                subscribed.recovered = true;
                // Without missed publications, the client continues at the top. Otherwise it continues at its own
                // offset, and the publications advance it.
                subscribed.offset = if publications.is_empty() { self.top } else { from.offset };
                subscribed.has_newest = publications.last().is_some_and(|newest| newest.offset == self.top);
                subscribed.publications = publications;
            }
            None if from.reject_unrecoverable => return Err(ErrorCode::UnrecoverablePosition),
            None => {}
        }
        Ok(subscribed)
    }

    /// All publications after `from`. `None` if one is missing, or if they exceed the session's queue limits: such a
    /// reply would end the session as slow, and the client would reconnect and request it again.
    fn recover_stream(
        &self,
        from: &RecoverFrom,
        reader: Reader<'_>,
        filter: Option<&TagsFilter>,
        client: &ClientOptions,
    ) -> Option<Vec<Arc<Publication>>> {
        if !from.epoch.is_empty() && *from.epoch != *self.epoch {
            return None;
        }
        if !(self.floor..=self.top).contains(&from.offset) {
            return None;
        }
        let passing = || self.after(from.offset, reader).filter(|publication| passes(filter, publication));
        let (mut count, mut reply_bytes) = (0, 0);
        for publication in passing() {
            count += 1;
            reply_bytes += encoded_bytes_max(publication);
        }
        // A single publication may be as large as a live one.
        let bytes_max = if count <= 1 { client.queue_bytes_max } else { client.recovery_bytes_max() };
        let fits = count <= client.recovery_publications_max && reply_bytes <= bytes_max;
        fits.then(|| passing().cloned().collect())
    }

    /// The newest publication that the client may read, unless it has it. `None` if there is no such publication and
    /// the client is not at the top.
    fn recover_cache(
        &self,
        from: &RecoverFrom,
        reader: Reader<'_>,
        filter: Option<&TagsFilter>,
    ) -> Option<Vec<Arc<Publication>>> {
        let newest = self.before(None, reader).find(|publication| passes(filter, publication));
        let offsets_with_it = newest.map_or(self.top, |newest| newest.offset)..=self.top;
        let client_has_it = from.offset > 0 && offsets_with_it.contains(&from.offset) && *from.epoch == *self.epoch;
        match newest {
            _ if client_has_it => Some(Vec::new()),
            Some(newest) => Some(vec![Arc::clone(newest)]),
            None => None,
        }
    }

    /// All publications in memory, oldest first.
    pub(crate) fn publications(&self) -> impl Iterator<Item = &Arc<Publication>> {
        self.publications.iter().map(|kept| &kept.publication)
    }

    /// Publications in memory with offsets above `offset`, oldest first.
    fn after<'a>(&'a self, offset: u64, reader: Reader<'a>) -> impl Iterator<Item = &'a Arc<Publication>> {
        let first = self.publications.partition_point(|kept| kept.publication.offset <= offset);
        self.publications.range(first..).filter(move |kept| kept.is_for(reader)).map(|kept| &kept.publication)
    }

    /// Publications with offsets below `offset` (all if `None`), newest first. Empty for an offset above the next one.
    fn before<'a>(&'a self, offset: Option<u64>, reader: Reader<'a>) -> impl Iterator<Item = &'a Arc<Publication>> {
        let end = match offset {
            None => self.publications.len(),
            Some(offset) if offset > self.next_offset() => 0,
            Some(offset) => self.publications.partition_point(|kept| kept.publication.offset < offset),
        };
        self.publications.range(..end).rev().filter(move |kept| kept.is_for(reader)).map(|kept| &kept.publication)
    }
}

/// The first of `publications`, with at most `bytes_max` bytes but at least one, so that a client that pages through
/// them makes progress; and whether more follow.
fn page<'a>(
    mut publications: impl Iterator<Item = &'a Arc<Publication>>,
    bytes_max: usize,
) -> (Vec<Arc<Publication>>, bool) {
    let (mut page, mut bytes) = (Vec::new(), 0);
    let past_it = publications.find(|publication| {
        bytes += encoded_bytes_max(publication);
        let fits = bytes <= bytes_max || page.is_empty();
        if fits {
            page.push(Arc::clone(publication));
        }
        !fits
    });
    (page, past_it.is_some())
}

fn passes(filter: Option<&TagsFilter>, publication: &Publication) -> bool {
    filter.is_none_or(|filter| filter.passes(&publication.tags))
}

/// Upper bound on the field names and punctuation of a publication or a client's info.
const FIELD_NAMES_BYTES: usize = 160;

/// Upper bound on a publication's bytes in a reply, except for text that needs many escapes.
pub(crate) fn encoded_bytes_max(publication: &Publication) -> usize {
    const PAIR_PUNCTUATION_BYTES: usize = 8;
    let tags_bytes: usize =
        publication.tags.iter().map(|(key, value)| key.len() + value.len() + PAIR_PUNCTUATION_BYTES).sum();
    let info_bytes = publication.info.as_ref().map_or(0, |info| info_bytes(info));
    FIELD_NAMES_BYTES + publication.data.bytes().len() + info_bytes + tags_bytes
}

/// Estimated memory of a publication, besides its data, tags and info.
const KEPT_OVERHEAD_BYTES: usize = 256;
/// Estimated memory of a tag, besides its bytes.
const KEPT_TAG_OVERHEAD_BYTES: usize = 64;

/// The bytes that a publication counts for in the limits on histories.
pub(crate) fn kept_bytes(publication: &Publication) -> usize {
    let of_tag = |(key, value): &(Box<str>, Box<str>)| key.len() + value.len() + KEPT_TAG_OVERHEAD_BYTES;
    let tags_bytes: usize = publication.tags.iter().map(of_tag).sum();
    let info_bytes = publication.info.as_ref().map_or(0, |info| info_bytes(info));
    KEPT_OVERHEAD_BYTES + publication.data.bytes().len() + tags_bytes + info_bytes
}

fn info_bytes(info: &ClientInfo) -> usize {
    let payloads = payload_bytes(info.conn_info.as_ref()) + payload_bytes(info.chan_info.as_ref());
    info.user.len() + info.client.len() + payloads
}

/// Upper bound on a client's bytes in a presence reply, which contains it twice, except for text that needs many
/// escapes.
pub(crate) fn present_bytes_max(info: &ClientInfo) -> usize {
    FIELD_NAMES_BYTES + info.client.len() + info_bytes(info)
}

#[cfg(test)]
mod tests;
