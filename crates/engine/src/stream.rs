//! A channel's history: offsets, an epoch, and the newest publications.

use std::{collections::VecDeque, sync::Arc};

use dunlin_protocol::{ErrorCode, Payload, Publication};

use crate::{
    api::HistoryQuery,
    message::{HistoryPart, RecoverFrom, Subscribed},
    options::{ClientOptions, NamespaceOptions, RecoveryMode},
};

/// How long a stream without a publication is remembered when nobody listens.
const EMPTY_STREAM_TTL_MS: u64 = 60_000;

/// The stream of one channel. Offsets start at 1 and step by one within an epoch.
#[derive(Debug)]
pub(crate) struct Stream {
    epoch: Box<str>,
    top: u64,
    /// The newest publications; the last has offset `top`.
    publications: VecDeque<Arc<Publication>>,
    /// When the publications are forgotten.
    pub(crate) data_until_us: u64,
    /// When epoch and top are forgotten.
    pub(crate) meta_until_us: u64,
}

impl Stream {
    /// An empty stream.
    pub(crate) fn new(epoch: Box<str>) -> Self {
        Self { epoch, top: 0, publications: VecDeque::new(), data_until_us: 0, meta_until_us: 0 }
    }

    /// The epoch.
    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The offset that the next publication gets.
    pub(crate) fn next_offset(&self) -> u64 {
        self.top + 1
    }

    /// How long the position outlives its last use. One at which nothing was ever published is worth little, and a client
    /// that asks for one name after another could make many.
    pub(crate) fn remembered_ms(&self, namespace: &NamespaceOptions) -> u64 {
        if self.top == 0 {
            namespace.history_meta_ttl_ms.min(EMPTY_STREAM_TTL_MS)
        } else {
            namespace.history_meta_ttl_ms
        }
    }

    /// Puts `publication` on top, and forgets the oldest ones beyond `size`.
    pub(crate) fn append(&mut self, publication: Arc<Publication>, size: usize) {
        assert_eq!(publication.offset, self.next_offset(), "offsets step by one");
        self.top = publication.offset;
        self.publications.push_back(publication);
        while self.publications.len() > size {
            self.publications.pop_front();
        }
    }

    /// Forgets the publications, not the position.
    pub(crate) fn clear(&mut self) {
        self.publications = VecDeque::new();
    }

    /// The part of the history that `query` asks for.
    ///
    /// # Errors
    /// 112 for another epoch, 107 for going backwards from offset 0.
    pub(crate) fn history(&self, query: &HistoryQuery) -> Result<HistoryPart, ErrorCode> {
        let since = query.since.as_ref();
        if query.reverse && since.is_some_and(|(offset, _)| *offset == 0) {
            return Err(ErrorCode::BadRequest);
        }
        if since.is_some_and(|(_, epoch)| !epoch.is_empty() && **epoch != *self.epoch) {
            return Err(ErrorCode::UnrecoverablePosition);
        }
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let publications = if query.reverse {
            self.before(since.map(|(offset, _)| *offset)).take(limit).cloned().collect()
        } else {
            self.after(since.map_or(0, |(offset, _)| *offset)).take(limit).cloned().collect()
        };
        Ok(HistoryPart { publications, epoch: self.epoch.clone(), offset: self.top })
    }

    /// Where a subscription stands that wants to go on from `from`; without it, at the top.
    ///
    /// # Errors
    /// 112 if the position is lost and the client wants an error rather than `recovered: false`.
    pub(crate) fn subscribe(
        &self,
        from: Option<&RecoverFrom>,
        namespace: &NamespaceOptions,
        client: &ClientOptions,
    ) -> Result<Subscribed, ErrorCode> {
        let mut subscribed = Subscribed { epoch: self.epoch.clone(), offset: self.top, ..Subscribed::default() };
        let Some(from) = from else { return Ok(subscribed) };
        subscribed.was_recovering = true;
        let missed = match namespace.recovery_mode {
            RecoveryMode::Stream => self.recover_stream(from, client),
            RecoveryMode::Cache => self.recover_cache(from),
        };
        match missed {
            Some(publications) => {
                subscribed.recovered = true;
                subscribed.offset = from.offset;
                subscribed.publications = publications;
            }
            None if from.reject_unrecoverable => return Err(ErrorCode::UnrecoverablePosition),
            None => {}
        }
        Ok(subscribed)
    }

    /// Everything after `from`, or `None` if something is missing, or if it is more than may wait for a session: such a
    /// reply would end the session as slow, and the client would come back for the same.
    fn recover_stream(&self, from: &RecoverFrom, client: &ClientOptions) -> Option<Vec<Arc<Publication>>> {
        if !from.epoch.is_empty() && *from.epoch != *self.epoch {
            return None;
        }
        let missed = self.top.checked_sub(from.offset)?;
        if missed > self.publications.len().min(client.recovery_publications_max) as u64 {
            return None;
        }
        let reply_bytes: usize = self.after(from.offset).map(|publication| encoded_bytes_max(publication)).sum();
        (reply_bytes <= client.queue_bytes_max).then(|| self.after(from.offset).cloned().collect())
    }

    /// The newest publication, unless the client has it; `None` if it is gone and the client does not have it.
    fn recover_cache(&self, from: &RecoverFrom) -> Option<Vec<Arc<Publication>>> {
        let client_has_it = from.offset > 0 && from.offset == self.top && *from.epoch == *self.epoch;
        match self.publications.back() {
            _ if client_has_it => Some(Vec::new()),
            Some(newest) => Some(vec![Arc::clone(newest)]),
            None => None,
        }
    }

    /// Publications with offsets above `offset` that are still there, oldest first.
    fn after(&self, offset: u64) -> impl Iterator<Item = &Arc<Publication>> {
        let skipped = offset.saturating_sub(self.first_offset() - 1);
        self.publications.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// Publications with offsets below `offset` (without it, all), newest first. None if the one right below is not
    /// there.
    fn before(&self, offset: Option<u64>) -> impl Iterator<Item = &Arc<Publication>> {
        let kept = match offset {
            None => self.publications.len(),
            Some(offset) if offset > self.top + 1 => 0,
            Some(offset) => usize::try_from(offset.saturating_sub(self.first_offset())).unwrap_or(0),
        };
        self.publications.range(..kept.min(self.publications.len())).rev()
    }

    fn first_offset(&self) -> u64 {
        self.top + 1 - self.publications.len() as u64
    }
}

/// More bytes than a publication takes in a reply, but for text that needs many escapes.
fn encoded_bytes_max(publication: &Publication) -> usize {
    const FIELD_NAMES_BYTES: usize = 160;
    const PAIR_PUNCTUATION_BYTES: usize = 8;
    let payload_bytes = |payload: &Option<Payload>| payload.as_ref().map_or(0, |payload| payload.bytes().len());
    let info_bytes = publication.info.as_ref().map_or(0, |info| {
        info.user.len() + info.client.len() + payload_bytes(&info.conn_info) + payload_bytes(&info.chan_info)
    });
    let tags_bytes: usize =
        publication.tags.iter().map(|(key, value)| key.len() + value.len() + PAIR_PUNCTUATION_BYTES).sum();
    FIELD_NAMES_BYTES + publication.data.bytes().len() + info_bytes + tags_bytes
}
