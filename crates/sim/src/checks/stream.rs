//! Checks the reliable lane: publications are in order, without duplicates and without gaps.

use crate::{
    model::{Model, Publisher},
    wire::PublicationBody,
};
use dunlin_engine::options::Lane;

use super::Subscription;

impl Subscription {
    /// Checks and records a publication that was delivered live. Returns its number.
    ///
    /// # Errors
    /// If it is not the next publication for this subscription.
    pub fn publication(&mut self, model: &mut Model, seen: &PublicationBody) -> Result<u64, String> {
        let seen = &self.full_publication(seen)?;
        let epoch = Some(&*self.epoch).filter(|epoch| !epoch.is_empty());
        let number = model.identify(&self.channel, seen, epoch)?;
        self.check_filter(model, number)?;
        let lane = model.channel(&self.channel).ok_or("a publication in an unknown channel")?.lane();
        check_tags(model, number, seen, lane)?;
        match lane {
            Lane::Reliable => self.next_reliable(model, number, seen.offset)?,
            Lane::Latest => self.next_latest(model, number, seen)?,
        }
        Ok(number)
    }

    fn next_reliable(&mut self, model: &mut Model, number: u64, offset: u64) -> Result<(), String> {
        if offset > 0 {
            match self.offset {
                Some(last) if offset <= last => {
                    return Err(format!("{}: offset {offset} comes after {last}", self.channel));
                }
                Some(last) => self.may_skip(model, last, offset)?,
                None if self.positioned => {
                    return Err(format!("{}: an offset arrives, but the position is not known", self.channel));
                }
                None => {}
            }
            self.offset = Some(offset);
        }
        let published = &model.published[number as usize];
        match &published.publisher {
            Publisher::Api => self.next_of_api(model, published.count),
            Publisher::Session(session) => {
                let last = self.sessions_seen.insert(session.clone(), published.count).unwrap_or(0);
                if published.count > last {
                    Ok(())
                } else {
                    Err(format!("{}: publication {} of {session} after {last}", self.channel, published.count))
                }
            }
        }
    }

    fn next_of_api(&mut self, model: &Model, count: u64) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        let none_between = |low| model.passing_between(facts, self.filter.as_ref(), low, count) == 0;
        let fits = match self.api_seen {
            Some(last) => count > last && none_between(last),
            None => count > self.request_count.max(self.recovered_count) && none_between(self.live_count),
        };
        if !fits {
            return Err(format!("{}: the API's publication {count} is out of order for {self:?}", self.channel));
        }
        self.api_seen = Some(count);
        Ok(())
    }

    /// Checks that a received publication passes the filter.
    pub(super) fn check_filter(&self, model: &mut Model, number: u64) -> Result<(), String> {
        let published = &model.published[number as usize];
        if !published.passes(self.filter.as_ref()) {
            return Err(format!("{}: the filter {:?} rejects {published:?}", self.channel, self.filter));
        }
        if self.filter.is_some() {
            model.count("passed a filter");
        }
        Ok(())
    }

    /// Checks that the server may send offset `next` directly after `last`.
    pub(super) fn may_skip(&self, model: &mut Model, last: u64, next: u64) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        if let Err(missing) = model.may_skip(facts, self.filter.as_ref(), &self.epoch, last, next) {
            return Err(format!("{}: offset {next} comes after {last}, without {missing}", self.channel));
        }
        if last + 1 < next {
            model.count("skipped by a filter");
        }
        Ok(())
    }

    /// Records the recovered publications of a subscribe reply, oldest first.
    ///
    /// # Errors
    /// If a publication is unknown, does not pass the filter, or is at another position than before.
    pub(super) fn recovered(&mut self, model: &mut Model, seen: &[PublicationBody]) -> Result<(), String> {
        for publication in seen {
            if publication.delta {
                model.count("recovered as a delta");
            }
            let publication = &self.full_publication(publication)?;
            let number = model.identify(&self.channel, publication, Some(&self.epoch))?;
            self.check_filter(model, number)?;
            let published = &model.published[number as usize];
            if published.publisher == Publisher::Api {
                self.recovered_count = self.recovered_count.max(published.count);
            }
            self.offset = Some(publication.offset);
        }
        Ok(())
    }

    /// Checks, when nothing is in flight, that no publication is missing at the end.
    ///
    /// # Errors
    /// If the last publications are missing.
    pub fn check_complete(&self, model: &Model, top: Option<(&str, u64)>) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a subscription to an unknown channel")?;
        if facts.lane() == Lane::Latest {
            return self.check_newest(model, facts);
        }
        let seen = self.api_seen.unwrap_or(self.live_count);
        let filter = self.filter.as_ref();
        if model.passing_between(facts, filter, seen.max(self.live_count), facts.api_count + 1) > 0 {
            return Err(format!(
                "{}: the last API publication received is {} of {}",
                self.channel, seen, facts.api_count
            ));
        }
        let Some((epoch, top)) = top.filter(|_| self.positioned) else { return Ok(()) };
        let has_all = self.offset.is_some_and(|last| {
            last <= top && (last == top || model.may_skip(facts, filter, epoch, last, top + 1).is_ok())
        });
        if epoch != self.epoch || !has_all {
            return Err(format!(
                "{}: the stream is at {epoch} {top}, the subscriber at {} {:?}",
                self.channel, self.epoch, self.offset
            ));
        }
        Ok(())
    }
}

/// Checks that the tags are those of the publication. The latest lane adds one tag.
fn check_tags(model: &Model, number: u64, seen: &PublicationBody, lane: Lane) -> Result<(), String> {
    let given = &model.published[number as usize].tags;
    let mut tags = seen.tags.clone();
    if lane == Lane::Latest {
        tags.remove("skipped");
    }
    if *given == tags { Ok(()) } else { Err(format!("publication {number} has the tags {:?}", seen.tags)) }
}
