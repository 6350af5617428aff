//! Limits clients' requests for tickets: the rate of each user (`room.match.user_rate_limit`) and the users of each
//! address (`room.match.address_users_limit`).

use std::{
    collections::{BTreeMap, HashMap, btree_map},
    sync::Arc,
};

use dunlin_config::MatchSettings;
use dunlin_engine::RefillRate;
use dunlin_matchmaking::TicketId;

use super::TicketFault;
use crate::node::SourceNetwork;

/// Maximum number of users with a bucket that is not full. A bucket fills up within a second or little more.
const USERS_MAX: usize = 65_536;

/// The requester of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketRequester {
    /// The user.
    pub user: Arc<str>,
    /// The network of the client; `None` if its address is unknown. Users of unknown addresses are not bounded by
    /// address.
    pub source: Option<SourceNetwork>,
}

/// The users of a namespace who recently requested tickets or have a waiting ticket.
#[derive(Debug)]
pub(super) struct Requesters {
    pace: Option<RefillRate>,
    /// Maximum number of users of an address; 0 for no limit.
    address_users_max: u32,
    /// Maximum number of users.
    users_max: usize,
    users: BTreeMap<Arc<str>, UserEntry>,
    /// The number of users per address, without addresses that have none.
    sources: HashMap<SourceNetwork, u32>,
    refused: RequestsRefused,
}

/// Numbers of refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestsRefused {
    /// Refused because of the user's rate, or because the table was full.
    pub(super) by_rate: u64,
    /// Refused because of the number of users of the address.
    pub(super) by_address: u64,
}

#[derive(Debug)]
struct UserEntry {
    /// The time at which the bucket is full again.
    full_at_ns: u64,
    /// The address of the newest request.
    source: Option<SourceNetwork>,
    /// The newest ticket, which may have ended.
    ticket: Option<TicketId>,
}

impl Requesters {
    /// A table without users.
    pub(super) fn new(settings: &MatchSettings) -> Self {
        Self {
            pace: RefillRate::new(settings.tickets_per_second),
            address_users_max: settings.address_users_max,
            users_max: USERS_MAX.saturating_add(settings.rules.tickets_max),
            users: BTreeMap::new(),
            sources: HashMap::new(),
            refused: RequestsRefused::default(),
        }
    }

    pub(super) const fn refused(&self) -> RequestsRefused {
        self.refused
    }

    /// Counts the user toward the limit of its address, and takes a token from its bucket.
    ///
    /// # Errors
    /// These refusals are counted: the address has too many users, the bucket is empty, or the table is full.
    pub(super) fn try_take(&mut self, requester: &TicketRequester, now_us: u64) -> Result<(), TicketFault> {
        let before_ns = self.users.get(&requester.user).map_or(0, |entry| entry.full_at_ns);
        let full_at_ns = match self.pace {
            Some(pace) => pace.take(before_ns, now_us),
            None => Some(0),
        };
        self.check_address(requester)?;
        let Some(full_at_ns) = full_at_ns else {
            self.refused.by_rate += 1;
            return Err(TicketFault::RateLimited);
        };
        if let Some(entry) = self.enter(requester)? {
            entry.full_at_ns = full_at_ns;
        }
        Ok(())
    }

    /// Counts a user whose ticket is about to be submitted. The user is already counted, unless the backend's decision
    /// took so long that the bucket has filled up.
    ///
    /// # Errors
    /// These refusals are counted: the address has too many users, or the table is full.
    pub(super) fn renew(&mut self, requester: &TicketRequester) -> Result<(), TicketFault> {
        self.check_address(requester)?;
        self.enter(requester).map(drop)
    }

    /// Stores the ticket of a user. The user counts while the ticket waits.
    pub(super) fn hold(&mut self, user: &str, ticket: TicketId) {
        if let Some(entry) = self.users.get_mut(user) {
            entry.ticket = Some(ticket);
        }
    }

    /// Removes the users whose bucket is full again and whose ticket does not wait.
    pub(super) fn sweep(&mut self, now_us: u64, waits: impl Fn(TicketId) -> bool) {
        let Self { users, sources, .. } = self;
        users.retain(|_, entry| {
            let is_kept = entry.full_at_ns / 1_000 > now_us || entry.ticket.is_some_and(&waits);
            if !is_kept {
                discount(sources, entry.source);
            }
            is_kept
        });
    }

    fn check_address(&mut self, requester: &TicketRequester) -> Result<(), TicketFault> {
        let Some(source) = requester.source.filter(|_| self.address_users_max > 0) else { return Ok(()) };
        let is_counted = self.users.get(&requester.user).is_some_and(|entry| entry.source == Some(source));
        if is_counted || self.sources.get(&source).is_none_or(|users| *users < self.address_users_max) {
            return Ok(());
        }
        self.refused.by_address += 1;
        Err(TicketFault::AddressLimited)
    }

    /// The entry of the user, which now counts toward the limit of this address; `None` if no limit is configured.
    fn enter(&mut self, requester: &TicketRequester) -> Result<Option<&mut UserEntry>, TicketFault> {
        if self.pace.is_none() && self.address_users_max == 0 {
            return Ok(None);
        }
        let is_full = self.users.len() >= self.users_max;
        let source = requester.source.filter(|_| self.address_users_max > 0);
        let entry = match self.users.entry(Arc::clone(&requester.user)) {
            btree_map::Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                discount(&mut self.sources, entry.source);
                entry.source = source;
                entry
            }
            btree_map::Entry::Vacant(_) if is_full => {
                self.refused.by_rate += 1;
                return Err(TicketFault::RateLimited);
            }
            btree_map::Entry::Vacant(place) => place.insert(UserEntry { full_at_ns: 0, source, ticket: None }),
        };
        if let Some(source) = source {
            *self.sources.entry(source).or_default() += 1;
        }
        Ok(Some(entry))
    }
}

/// Subtracts a user from the count of an address.
fn discount(sources: &mut HashMap<SourceNetwork, u32>, source: Option<SourceNetwork>) {
    let Some(source) = source else { return };
    if let Some(users) = sources.get_mut(&source) {
        *users -= 1;
        if *users == 0 {
            sources.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests;
