//! A load of a part of a log, which takes several pages if one is cut at a limit of the log.

use crate::{
    history_stream::encoded_bytes_max,
    log::{LoadNumber, LoadQuery, LogError, LogPage},
};

/// A load in flight.
#[derive(Debug)]
pub(crate) struct PageLoad {
    number: LoadNumber,
    query: LoadQuery,
    gathered: Option<LogPage>,
    bytes: usize,
}

/// What follows from a page.
#[derive(Debug)]
pub(crate) enum Gathered {
    /// The page contains what was asked, up to a limit of the query, or all that the log has.
    Enough(LogPage),
    /// The log has more, which this query asks for.
    More(LoadQuery),
}

impl PageLoad {
    pub(crate) const fn new(number: LoadNumber, query: LoadQuery) -> Self {
        Self { number, query, gathered: None, bytes: 0 }
    }

    pub(crate) const fn number(&self) -> LoadNumber {
        self.number
    }

    pub(crate) const fn query(&self) -> LoadQuery {
        self.query
    }

    /// Bytes of the pages so far.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a page. What is above `tail_floor` is in memory.
    ///
    /// # Errors
    /// The page says that the log has more, and contains nothing.
    pub(crate) fn gather(&mut self, mut page: LogPage, tail_floor: u64) -> Result<Gathered, LogError> {
        if let Some(known) = &self.gathered {
            // A log may return more than requested.
            let is_known = |offset: u64| match self.query.after {
                Some(_) => offset <= known.through,
                None => offset > known.floor,
            };
            page.records.retain(|record| page.epoch != known.epoch || !is_known(record.publication.offset));
        }
        let is_empty = page.records.is_empty();
        let bytes: usize = page.records.iter().map(|record| encoded_bytes_max(&record.publication)).sum();
        let page = match self.gathered.take() {
            None => {
                self.bytes = bytes;
                page
            }
            Some(earlier) if self.query.after.is_some() => self.add_above(earlier, page, bytes),
            Some(later) => self.add_below(later, page, bytes),
        };
        let has_more = match self.query.after {
            Some(_) => page.through < tail_floor.min(page.top),
            None => page.has_more_below,
        };
        let is_full = page.records.len() >= self.query.publications_max || self.bytes > self.query.bytes_max;
        if !has_more || is_full {
            self.bytes = 0;
            return Ok(Gathered::Enough(page));
        }
        if is_empty {
            return Err(LogError::Unavailable);
        }
        let publications_max = self.query.publications_max - page.records.len();
        let bytes_max = self.query.bytes_max.saturating_sub(self.bytes).saturating_add(1);
        let next = match self.query.after {
            Some(_) => LoadQuery::after(page.through, publications_max),
            None => LoadQuery { below: page.floor + 1, ..LoadQuery::newest(publications_max) },
        };
        self.gathered = Some(page);
        Ok(Gathered::More(next.within(bytes_max)))
    }

    fn add_above(&mut self, mut earlier: LogPage, page: LogPage, bytes: usize) -> LogPage {
        if page.epoch != earlier.epoch || page.floor > earlier.through {
            // The log has deleted the earlier part meanwhile.
            self.bytes = bytes;
            return page;
        }
        self.bytes += bytes;
        earlier.records.extend(page.records);
        LogPage { floor: earlier.floor, records: earlier.records, ..page }
    }

    fn add_below(&mut self, mut later: LogPage, page: LogPage, bytes: usize) -> LogPage {
        later.has_more_below = false;
        if page.epoch == later.epoch && page.through >= later.floor {
            self.bytes += bytes;
            (later.floor, later.has_more_below) = (page.floor, page.has_more_below);
            later.records.splice(0..0, page.records);
        }
        later
    }
}

#[cfg(test)]
mod tests;
