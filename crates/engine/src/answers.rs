//! Cache of encoded recoveries. After a mass reconnect, many sessions recover from the same position and share one
//! encoding.

use std::sync::Arc;

use dunlin_protocol::{EncodedPublications, Encoding, Publication};

/// Maximum number of cached answers per shard, over all its channels.
const ANSWERS_MAX: usize = 64;
/// Maximum bytes of the cached answers per shard.
const ANSWERS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// All publications of a stream from `first` to `last`, in one form. Because a publication never changes within its
/// epoch, a span identifies the encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    epoch: Box<str>,
    first: u64,
    last: u64,
    /// Offsets may have gaps.
    count: usize,
    encoding: Encoding,
    delta: bool,
}

impl Span {
    /// The span of `publications`, which have no gaps between them. `None` if there are none.
    pub(crate) fn of(publications: &[Arc<Publication>], epoch: &str, encoding: Encoding, delta: bool) -> Option<Self> {
        let (first, last, count) = (publications.first()?.offset, publications.last()?.offset, publications.len());
        Some(Self { epoch: epoch.into(), first, last, count, encoding, delta })
    }

    /// All publications of a channel's [`crate::conflation_keys::KeyCache`] in this state. `first` is 0, which no offset is.
    pub(crate) fn of_keys(state: u64, encoding: Encoding, delta: bool) -> Self {
        Self { epoch: Box::default(), first: 0, last: state, count: 0, encoding, delta }
    }
}

/// The answers that were encoded most recently.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The most recently used one is last.
    kept: Vec<Answer>,
    bytes: usize,
}

#[derive(Debug)]
struct Answer {
    channel: Arc<str>,
    span: Span,
    encoded: Arc<EncodedPublications>,
}

impl Answers {
    /// Returns the cached publications of `channel`.
    pub(crate) fn find(&mut self, channel: &str, span: &Span) -> Option<Arc<EncodedPublications>> {
        let is_meant = |answer: &Answer| answer.span == *span && *answer.channel == *channel;
        let place = self.kept.iter().rposition(is_meant)?;
        self.kept[place..].rotate_left(1);
        self.kept.last().map(|answer| Arc::clone(&answer.encoded))
    }

    /// Caches an answer that is not cached yet, and evicts the least recently used ones. Returns false for an answer
    /// that is too large.
    pub(crate) fn keep(&mut self, channel: &Arc<str>, span: Span, encoded: &Arc<EncodedPublications>) -> bool {
        let bytes = encoded.bytes().len();
        if bytes > ANSWERS_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.kept.push(Answer { channel: Arc::clone(channel), span, encoded: Arc::clone(encoded) });
        let mut too_many = 0;
        while self.kept.len() - too_many > ANSWERS_MAX || self.bytes > ANSWERS_BYTES_MAX {
            self.bytes -= self.kept[too_many].encoded.bytes().len();
            too_many += 1;
        }
        self.kept.drain(..too_many);
        true
    }

    /// Drops the answers of `channel`, which are no longer valid.
    pub(crate) fn forget(&mut self, channel: &str) {
        let bytes = &mut self.bytes;
        self.kept.retain(|answer| {
            let stays = *answer.channel != *channel;
            *bytes -= if stays { 0 } else { answer.encoded.bytes().len() };
            stays
        });
    }

    /// The number of cached answers, and their bytes.
    pub(crate) fn kept(&self) -> [usize; 2] {
        [self.kept.len(), self.bytes]
    }
}

#[cfg(test)]
mod tests;
