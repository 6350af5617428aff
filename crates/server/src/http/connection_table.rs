//! The HTTP connections of one port: their limits per port and per address, and which one is closed in favor of a new
//! one.
//!
//! A connection *rests* while none of its requests is in progress. When the port or an address has reached its limit,
//! the connection that has rested longest is closed in favor of the new one. If none rests, the new connection is
//! refused, except for some reserved connections, which serve only operators' paths.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{node::SourceNetwork, telemetry::api_counters::HttpRefusal};

/// The limits of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableLimits {
    /// Maximum number of connections for all paths.
    pub connections_max: usize,
    /// Maximum number of connections per address; 0 for no limit.
    pub address_connections_max: usize,
    /// Additional connections that serve only operators' paths.
    pub reserved_max: usize,
}

/// The HTTP connections of one port; see the module's documentation.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: TableLimits,
    entries: Mutex<Entries>,
    /// Notified when the last connection has ended.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    next_number: u64,
    by_number: HashMap<u64, Entry>,
    /// Resting connections, the longest-resting first.
    resting: BTreeMap<u64, u64>,
    by_address: HashMap<SourceNetwork, AddressEntries>,
}

#[derive(Debug)]
struct Entry {
    address: Option<SourceNetwork>,
    /// Sequence number of the start of its rest.
    resting_since: Option<u64>,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct AddressEntries {
    connections: usize,
    resting: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Signal {
    gives_way: AtomicBool,
    notify: Notify,
}

/// A connection's place in the table, released on drop.
#[derive(Debug)]
pub struct ConnectionPlace {
    table: Arc<ConnectionTable>,
    number: u64,
    /// The connection serves only operators' paths.
    pub is_reserved: bool,
    signal: Arc<Signal>,
}

impl ConnectionTable {
    /// An empty table.
    pub fn new(limits: TableLimits) -> Arc<Self> {
        Arc::new(Self { limits, entries: Mutex::default(), emptied: Notify::new() })
    }

    /// Reserves a place for a connection from `address`. `None`: no limit per address applies.
    ///
    /// # Errors
    /// [`HttpRefusal::Connections`] or [`HttpRefusal::AddressConnections`]
    pub fn admit(self: &Arc<Self>, address: Option<SourceNetwork>) -> Result<ConnectionPlace, HttpRefusal> {
        let TableLimits { connections_max, address_connections_max, reserved_max } = self.limits;
        let mut entries = self.entries();
        if let Some(address) = address
            && address_connections_max > 0
            && let Some(own) = entries.by_address.get(&address)
            && own.connections >= address_connections_max
        {
            let oldest = own.resting.first().copied().ok_or(HttpRefusal::AddressConnections)?;
            entries.request_close(oldest);
        }
        if entries.by_number.len() >= connections_max
            && let Some((oldest, _)) = entries.resting.first_key_value()
        {
            let oldest = *oldest;
            entries.request_close(oldest);
        }
        let open = entries.by_number.len();
        if open >= connections_max + reserved_max {
            return Err(HttpRefusal::Connections);
        }
        let signal = Arc::new(Signal::default());
        let number = entries.insert(address, Arc::clone(&signal));
        Ok(ConnectionPlace { table: Arc::clone(self), number, is_reserved: open >= connections_max, signal })
    }

    /// Waits until there are no connections.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.entries().by_number.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn next(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A new connection rests until its first request.
    fn insert(&mut self, address: Option<SourceNetwork>, signal: Arc<Signal>) -> u64 {
        let number = self.next();
        if let Some(address) = address {
            self.by_address.entry(address).or_default().connections += 1;
        }
        self.by_number.insert(number, Entry { address, resting_since: None, signal });
        self.rest(number);
        number
    }

    fn rest(&mut self, number: u64) {
        let since = self.next();
        let Some(entry) = self.by_number.get_mut(&number) else { return };
        if entry.resting_since.is_some() {
            return;
        }
        entry.resting_since = Some(since);
        self.resting.insert(since, number);
        if let Some(own) = entry.address.and_then(|address| self.by_address.get_mut(&address)) {
            own.resting.insert(since);
        }
    }

    fn work(&mut self, number: u64) {
        let Some(entry) = self.by_number.get_mut(&number) else { return };
        let Some(since) = entry.resting_since.take() else { return };
        self.resting.remove(&since);
        if let Some(own) = entry.address.and_then(|address| self.by_address.get_mut(&address)) {
            own.resting.remove(&since);
        }
    }

    /// Releases the place at once. The connection ends as soon as it is notified.
    fn request_close(&mut self, resting_since: u64) {
        let Some(number) = self.resting.get(&resting_since).copied() else { return };
        let Some(signal) = self.remove(number) else { return };
        signal.gives_way.store(true, Ordering::Relaxed);
        signal.notify.notify_one();
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Signal>> {
        self.work(number);
        let Entry { address, signal, .. } = self.by_number.remove(&number)?;
        if let Some(address) = address
            && let Some(own) = self.by_address.get_mut(&address)
        {
            own.connections -= 1;
            if own.connections == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(signal)
    }
}

impl ConnectionPlace {
    /// Marks the connection as active.
    pub fn work(&self) {
        self.table.entries().work(self.number);
    }

    /// Marks the connection as resting.
    pub fn rest(&self) {
        self.table.entries().rest(self.number);
    }

    /// Waits until the connection must give way to another one.
    pub async fn given_away(&self) {
        while !self.signal.gives_way.load(Ordering::Relaxed) {
            self.signal.notify.notified().await;
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        drop(entries.remove(self.number));
        if entries.by_number.is_empty() {
            self.table.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(connections_max: usize, address_connections_max: usize, reserved_max: usize) -> Arc<ConnectionTable> {
        ConnectionTable::new(TableLimits { connections_max, address_connections_max, reserved_max })
    }

    fn address(last: u8) -> SourceNetwork {
        SourceNetwork::of([192, 0, 2, last].into())
    }

    fn gives_way(place: &ConnectionPlace) -> bool {
        place.signal.gives_way.load(Ordering::Relaxed)
    }

    #[test]
    fn the_connection_idle_for_longest_is_closed_first() {
        let table = table(3, 0, 0);
        let places: Vec<_> = (0..3).map(|last| table.admit(Some(address(last))).expect("there is room")).collect();
        // The first connection has just completed a request, and the second has one in progress.
        places[0].work();
        places[0].rest();
        places[1].work();
        let _one_more = table.admit(Some(address(9))).expect("one gives way");
        assert_eq!(places.iter().map(gives_way).collect::<Vec<_>>(), [false, false, true]);
        let _another = table.admit(Some(address(9))).expect("one gives way");
        assert_eq!(places.iter().map(gives_way).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn busy_connections_past_the_limit_use_the_reserve_or_are_refused() {
        let table = table(2, 0, 1);
        let mut places: Vec<_> = (0..2).map(|_| table.admit(None).expect("there is room")).collect();
        assert!(places.iter().all(|place| !place.is_reserved));
        places.iter().for_each(ConnectionPlace::work);
        places.push(table.admit(None).expect("the reserve"));
        assert!(places[2].is_reserved);
        let second = table.admit(None).expect("the first of the reserve has not begun");
        assert!(second.is_reserved && gives_way(&places[2]));
        second.work();
        assert_eq!(table.admit(None).err(), Some(HttpRefusal::Connections));
        drop(second);
        places.truncate(1);
        assert!(!table.admit(None).expect("there is room").is_reserved);
    }

    #[test]
    fn an_address_at_its_limit_closes_its_own_oldest_connection() {
        let table = table(100, 2, 0);
        let own: Vec<_> = (0..2).map(|_| table.admit(Some(address(1))).expect("there is room")).collect();
        let other = table.admit(Some(address(2))).expect("another address");
        let third = table.admit(Some(address(1))).expect("its own first gives way");
        assert!(gives_way(&own[0]) && !gives_way(&own[1]) && !gives_way(&other));
        own[1].work();
        third.work();
        assert_eq!(table.admit(Some(address(1))).err(), Some(HttpRefusal::AddressConnections));
        assert!(table.admit(None).is_ok(), "one that is not bounded by its address");
        drop((own, third));
        assert!(table.admit(Some(address(1))).is_ok());
    }

    #[test]
    fn closed_connections_leave_no_entries() {
        let table = table(4, 2, 1);
        for round in 0..100_u8 {
            let places: Vec<_> =
                (0..6).filter_map(|last| table.admit(Some(address(last % 3 + round % 2))).ok()).collect();
            places.iter().step_by(2).for_each(ConnectionPlace::work);
            drop(places);
        }
        let entries = table.entries();
        assert!(entries.by_number.is_empty() && entries.resting.is_empty() && entries.by_address.is_empty());
    }
}
