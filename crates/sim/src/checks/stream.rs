//! The reliable lane: in order, nothing twice, nothing missing.

use crate::{
    model::{Model, Publisher},
    wire::PublicationBody,
};
use dunlin_engine::options::Lane;

use super::Subscription;

impl Subscription {
    /// Takes in a publication that came live; returns its number.
    ///
    /// # Errors
    /// If it is not the next one.
    pub fn publication(&mut self, model: &mut Model, seen: &PublicationBody) -> Result<u64, String> {
        let epoch = Some(&*self.epoch).filter(|epoch| !epoch.is_empty());
        let number = model.recognise(&self.channel, seen, epoch)?;
        let lane = model.channel(&self.channel).ok_or("a publication in an unknown channel")?.lane();
        check_tags(model, number, seen, lane)?;
        match lane {
            Lane::Reliable => self.next_reliable(model, number, seen.offset)?,
            Lane::Latest => self.next_latest(model, number, seen)?,
        }
        Ok(number)
    }

    fn next_reliable(&mut self, model: &Model, number: u64, offset: u64) -> Result<(), String> {
        let published = &model.published[number as usize];
        if offset > 0 {
            match self.offset {
                Some(last) if offset != last + 1 => {
                    return Err(format!("{}: offset {offset} comes after {last}", self.channel));
                }
                None if self.positioned => return Err(format!("{}: a position is not known", self.channel)),
                _ => self.offset = Some(offset),
            }
        }
        match &published.publisher {
            Publisher::Api => self.next_of_api(published.count),
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

    fn next_of_api(&mut self, count: u64) -> Result<(), String> {
        let fits = match self.api_seen {
            Some(last) => count == last + 1,
            None => count > self.asked_count.max(self.recovered_count) && count <= self.live_count + 1,
        };
        if !fits {
            return Err(format!("{}: the API's publication {count} comes next for {self:?}", self.channel));
        }
        self.api_seen = Some(count);
        Ok(())
    }

    /// Takes in what came with the answer to a subscribe command, oldest first.
    ///
    /// # Errors
    /// If there is a gap, or something twice.
    pub(super) fn recovered(&mut self, model: &mut Model, seen: &[PublicationBody]) -> Result<(), String> {
        for publication in seen {
            let number = model.recognise(&self.channel, publication, Some(&self.epoch))?;
            let published = &model.published[number as usize];
            if published.publisher == Publisher::Api {
                self.recovered_count = self.recovered_count.max(published.count);
            }
            self.offset = Some(publication.offset);
        }
        Ok(())
    }

    /// Everything has been delivered and read: nothing may be missing at the end either.
    ///
    /// # Errors
    /// If the last publications are missing.
    pub fn check_complete(&self, model: &Model, top: Option<(&str, u64)>) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a subscription to an unknown channel")?;
        if facts.lane() == Lane::Latest {
            return self.check_newest(facts);
        }
        let seen = self.api_seen.unwrap_or(self.live_count);
        if facts.api_count > seen.max(self.live_count) {
            return Err(format!("{}: {} of {} of the API's publications came", self.channel, seen, facts.api_count));
        }
        let Some((epoch, top)) = top.filter(|_| self.positioned) else { return Ok(()) };
        if epoch != self.epoch || Some(top) != self.offset {
            return Err(format!(
                "{}: at {epoch} {top}, the subscriber at {} {:?}",
                self.channel, self.epoch, self.offset
            ));
        }
        Ok(())
    }
}

/// Tags come as they were given, but for the one that the latest lane adds.
fn check_tags(model: &Model, number: u64, seen: &PublicationBody, lane: Lane) -> Result<(), String> {
    let key = &model.published[number as usize].key;
    let mut tags = seen.tags.clone();
    if lane == Lane::Latest {
        tags.remove("skipped");
    }
    let given: Vec<(&str, &str)> = key.iter().map(|value| (crate::plan::KEY_TAG, &**value)).collect();
    let came: Vec<(&str, &str)> = tags.iter().map(|(tag, value)| (&**tag, &**value)).collect();
    if given == came { Ok(()) } else { Err(format!("publication {number} has the tags {:?}", seen.tags)) }
}
