//! Tickets that this node has passed to the node that runs the queues. If that one dies, they are entered again.
//!
//! The node that runs the queues asks all others for their rooms twice a second. Each answers with the tickets that it
//! remembers, and hears with the next question which of them need not be remembered any more, and which are not known.

use std::{
    collections::{BTreeMap, HashMap},
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_config::MatchSettings;
use dunlin_matchmaking::{HandedTicket, Initiator, TicketRequest};

use super::{HandedTickets, NamedTicket, TicketAnswer, TicketName};

/// Maximum number of tickets. Their names are in one message. Further ones are lost if their node dies.
const REMEMBERED_MAX: usize = 4_096;

/// How long a ticket that was entered again may be on its way. Until then, the node that runs the queues says that it is not known.
const ENTER_PAUSE: Duration = Duration::from_secs(2);

/// What the node that runs the queues says about tickets that another one remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// They have a room, or are over.
    pub settled: Vec<TicketName>,
    /// It does not know them.
    pub unknown: Vec<TicketName>,
}

#[derive(Debug)]
pub(super) struct RememberedTickets {
    /// How long a ticket waits, by namespace.
    timeouts: BTreeMap<Box<str>, Duration>,
    by_name: HashMap<TicketName, RememberedTicket>,
    /// Tickets for which there was no space.
    refused: u64,
}

#[derive(Debug)]
struct RememberedTicket {
    namespace: Box<str>,
    request: TicketRequest,
    since: Instant,
    until: Instant,
    /// The id of the node that has accepted it. While it lives, it hands the ticket over by itself.
    at: Box<str>,
    /// When it was last entered again.
    entered: Option<Instant>,
}

/// The users who have no other ticket once a queue has accepted this request. The others have to confirm it.
pub(super) fn bound_users(request: &TicketRequest) -> &[Arc<str>] {
    match &request.initiator {
        Initiator::Backend => &request.users,
        Initiator::User(user) => slice::from_ref(user),
    }
}

impl RememberedTickets {
    pub(super) fn new(settings: &[MatchSettings]) -> Self {
        let timeout = |settings: &MatchSettings| {
            (settings.namespace.as_str().into(), Duration::from_millis(settings.rules.ticket_timeout_ms))
        };
        Self { timeouts: settings.iter().map(timeout).collect(), by_name: HashMap::new(), refused: 0 }
    }

    /// The node `at` has accepted a ticket. It is remembered if it waits and there is space, and earlier ones of its users are
    /// over.
    pub(super) fn on_submitted(
        &mut self,
        now: Instant,
        (namespace, request): (Box<str>, TicketRequest),
        answer: &TicketAnswer,
        at: Box<str>,
    ) {
        self.forget_of(&namespace, bound_users(&request));
        // One that is not confirmed is not remembered: this node does not know who confirms it.
        let name = answer.ticket.as_ref().filter(|_| answer.status == "waiting").and_then(|name| name.parse().ok());
        if let Some(name) = name {
            self.insert(now, name, (namespace, request), at);
        }
    }

    /// Forgets a ticket that no longer waits, as the node says that has it.
    pub(super) fn on_answered(&mut self, answer: &TicketAnswer) {
        let name = answer.ticket.as_ref().and_then(|name| name.parse().ok());
        if let (Some(name), "placed" | "joined" | "ended") = (name, &*answer.status) {
            self.forget(name);
        }
    }

    /// Forgets the tickets of users who have another one in this namespace. Otherwise a ticket that is lost would wait again, and
    /// its users would get a second room when the other ticket is over.
    pub(super) fn forget_of(&mut self, namespace: &str, users: &[Arc<str>]) {
        self.by_name.retain(|_, ticket| {
            *ticket.namespace != *namespace || !ticket.request.users.iter().any(|user| users.contains(user))
        });
    }

    pub(super) fn forget(&mut self, name: TicketName) {
        self.by_name.remove(&name);
    }

    fn insert(
        &mut self,
        now: Instant,
        name: TicketName,
        (namespace, request): (Box<str>, TicketRequest),
        at: Box<str>,
    ) {
        let timeout = self.timeouts.get(&namespace).copied().unwrap_or_default();
        if self.by_name.len() >= REMEMBERED_MAX {
            self.by_name.retain(|_, ticket| now < ticket.until);
        }
        if self.by_name.len() < REMEMBERED_MAX {
            let until = now + timeout;
            let ticket = RememberedTicket { namespace, request, since: now, until, at, entered: None };
            self.by_name.insert(name, ticket);
        } else {
            self.refused += 1;
        }
    }

    /// The number of tickets, and how many there was no space for.
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.by_name.len(), self.refused)
    }

    /// The tickets that may wait.
    pub(super) fn names(&mut self, now: Instant) -> Vec<TicketName> {
        self.by_name.retain(|_, ticket| now < ticket.until);
        self.by_name.keys().copied().collect()
    }

    /// Forgets what is settled. Returns the tickets that have to be entered again: the node that runs the queues does not know
    /// them, and the one that has accepted them is gone. They are still remembered.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        verdicts: &Verdicts,
        is_live: impl Fn(&str) -> bool,
    ) -> Vec<HandedTickets> {
        for name in &verdicts.settled {
            self.by_name.remove(name);
        }
        let mut again: BTreeMap<Box<str>, Vec<NamedTicket>> = BTreeMap::new();
        for name in &verdicts.unknown {
            let ticket = self.by_name.get_mut(name);
            if let Some(ticket) = ticket.filter(|ticket| !ticket.is_entering(now) && !is_live(&ticket.at)) {
                ticket.entered = Some(now);
                let named = NamedTicket { name: *name, ticket: ticket.handed(now) };
                again.entry(ticket.namespace.clone()).or_default().push(named);
            }
        }
        let handed = |(namespace, tickets)| HandedTickets { namespace, tickets, unreadable: 0 };
        again.into_iter().map(handed).collect()
    }
}

impl RememberedTicket {
    /// Whether it may be on its way, so that it is not entered twice.
    fn is_entering(&self, now: Instant) -> bool {
        self.entered.is_some_and(|entered| now.saturating_duration_since(entered) < ENTER_PAUSE)
    }

    fn handed(&self, now: Instant) -> HandedTicket {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let TicketRequest { initiator: _, users, criteria, region, skill } = self.request.clone();
        HandedTicket {
            users: users.into_iter().map(|user| (user, true)).collect(),
            criteria,
            region,
            skill,
            age_ms: ms(now.saturating_duration_since(self.since)),
            left_ms: ms(self.until.saturating_duration_since(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_matchmaking::{Initiator, MatchCriteria, MatchRules, TicketId};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(id: u64) -> TicketName {
        TicketName { boot: 7, queue: 0, id: TicketId(id) }
    }

    fn of(user: &str) -> (Box<str>, TicketRequest) {
        let request = TicketRequest {
            initiator: Initiator::Backend,
            users: vec![user.into()],
            criteria: MatchCriteria::default(),
            region: None,
            skill: 3,
        };
        ("arena".into(), request)
    }

    fn none() -> RememberedTickets {
        let rules = MatchRules { ticket_timeout_ms: 60_000, ..MatchRules::default() };
        RememberedTickets::new(&[MatchSettings { namespace: "arena".into(), rules, ..MatchSettings::default() }])
    }

    fn unknown(ids: &[u64]) -> Verdicts {
        Verdicts { settled: Vec::new(), unknown: ids.iter().copied().map(name).collect() }
    }

    fn ids(handed: &[HandedTickets]) -> Vec<u64> {
        handed.iter().flat_map(|handed| &handed.tickets).map(|ticket| ticket.name.id.0).collect()
    }

    #[test]
    fn tickets_that_nobody_has_are_entered_again_with_their_time() {
        let now = Instant::now();
        let mut tickets = none();
        for id in 1..4 {
            let at = if id == 3 { "alive" } else { "dead" };
            tickets.insert(now, name(id), of(&format!("user-{id}")), at.into());
        }
        let settled = Verdicts { settled: vec![name(1), name(9)], unknown: vec![name(8)] };
        assert!(tickets.follow(now, &settled, |_| false).is_empty());
        let again = tickets.follow(now + 2 * SECOND, &unknown(&[1, 2, 3]), |node| *node == *"alive");
        assert_eq!(ids(&again), [2], "1 has a room, and the node of 3 hands it over");
        let HandedTicket { users, skill, age_ms, left_ms, .. } = &again[0].tickets[0].ticket;
        assert_eq!((users.as_slice(), *skill, *age_ms, *left_ms), (&[("user-2".into(), true)][..], 3, 2_000, 58_000));
        // It is remembered until it is settled, because the next node may die as well.
        assert_eq!(ids(&tickets.follow(now + 4 * SECOND, &unknown(&[2]), |_| false)), [2]);
        assert_eq!(tickets.names(now + 59 * SECOND).len(), 2);
        assert!(tickets.names(now + 60 * SECOND).is_empty(), "their time is over");
    }

    fn answer(id: u64, status: &'static str) -> TicketAnswer {
        TicketAnswer {
            ticket: Some(name(id).to_string()),
            status: status.into(),
            ..TicketAnswer::of_backend("".into())
        }
    }

    #[test]
    fn a_ticket_that_may_be_on_its_way_is_not_entered_twice() {
        let now = Instant::now();
        let mut tickets = none();
        tickets.insert(now, name(1), of("u"), "dead".into());
        let mut entered = |after: Duration| ids(&tickets.follow(now + after, &unknown(&[1]), |_| false));
        assert_eq!(entered(SECOND), [1]);
        assert!(entered(SECOND + Duration::from_millis(1_999)).is_empty());
        assert_eq!(entered(SECOND + ENTER_PAUSE), [1]);
    }

    #[test]
    fn a_ticket_whose_user_has_another_one_is_forgotten() {
        let now = Instant::now();
        let mut tickets = none();
        for (id, user) in [(1, "u"), (2, "v"), (3, "w"), (4, "x")] {
            tickets.insert(now, name(id), of(user), "dead".into());
        }
        tickets.forget_of("other", &["u".into()]);
        tickets.on_submitted(now, of("u"), &answer(5, "waiting"), "next".into());
        // One verdict settles the new ticket, and does not know the old one.
        let verdicts = Verdicts { settled: vec![name(5)], unknown: vec![name(1), name(2)] };
        assert_eq!(ids(&tickets.follow(now, &verdicts, |_| false)), [2]);

        // The others of a party may still wait with another ticket.
        let (namespace, mut request) = of("w");
        request.initiator = Initiator::User("w".into());
        request.users.push("v".into());
        tickets.on_submitted(now, (namespace, request), &answer(6, "unconfirmed"), "next".into());
        let mut left = tickets.names(now);
        left.sort_unstable_by_key(|name| name.id);
        assert_eq!(left, [name(2), name(4)]);
    }

    #[test]
    fn a_ticket_that_an_answer_settles_is_forgotten() {
        let now = Instant::now();
        for (status, is_kept) in [("waiting", true), ("placed", false), ("joined", false), ("ended", false)] {
            let mut tickets = none();
            tickets.insert(now, name(1), of("u"), "dead".into());
            tickets.on_answered(&answer(2, status));
            tickets.on_answered(&answer(1, status));
            assert_eq!(tickets.counts(), (usize::from(is_kept), 0), "{status}");
        }
    }

    #[test]
    fn tickets_past_the_limit_are_not_remembered() {
        let now = Instant::now();
        let mut tickets = none();
        let limit = REMEMBERED_MAX as u64;
        (0..limit).for_each(|id| tickets.insert(now, name(id), of("u"), "n".into()));
        assert_eq!(tickets.counts(), (REMEMBERED_MAX, 0));
        tickets.insert(now, name(limit), of("u"), "n".into());
        assert_eq!(tickets.counts(), (REMEMBERED_MAX, 1), "one past the limit");
        let later = now + 60 * SECOND;
        tickets.insert(later, name(limit), of("u"), "n".into());
        assert_eq!(tickets.names(later), [name(limit)], "the time of the others is over");
    }
}
