//! Tickets on their way to the node that runs the queues.

use std::time::{Duration, Instant};

use super::{NamedTicket, TicketCommand, TicketName, TicketTarget};
use crate::peers::HandOverReply;

/// After a batch with tickets that were refused, the next one waits. They are in it again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A batch whose answer is missing waits before it is sent again. Mostly the timeout of a survey has passed already.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// Tickets of one queue, which are in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The index of the queue.
    pub(super) queue: usize,
    pub(super) namespace: Box<str>,
    pub(super) tickets: Vec<NamedTicket>,
    /// When the ages of its tickets were true.
    pub(super) dated: Instant,
}

/// The batch that is on its way, if there is one: at most one at a time.
#[derive(Debug)]
pub(super) struct HandOver {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// No tickets are on their way, and the next ones leave from this time on.
    Idle(Instant),
    /// A node has been asked to go on with these.
    Asked(Batch),
    /// Its answer is missing. It may have taken them, so nothing but a repetition, from this time on, tells where they are. A
    /// ticket that were placed here meanwhile could be placed there as well.
    Unanswered(Batch, Instant),
}

/// How a batch has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    Answered {
        /// How many tickets the node has taken.
        taken: usize,
        /// Those with which this node has to go on.
        kept: Batch,
        /// Those that end, because a user of each has another ticket on the other node.
        over: Batch,
    },
    /// The answer is missing.
    Unanswered,
}

impl HandOver {
    pub(super) const fn new(now: Instant) -> Self {
        Self { stage: Stage::Idle(now) }
    }

    /// Whether a batch may leave.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Idle(from) if now >= from)
    }

    /// A node is asked to take tickets.
    pub(super) fn begin(&mut self, batch: Batch) {
        let before = std::mem::replace(&mut self.stage, Stage::Asked(batch));
        assert!(matches!(before, Stage::Idle(_)), "a batch leaves when no other one is on its way");
    }

    /// The answer of the node that was asked; `None` if there is none.
    pub(super) fn on_reply(&mut self, now: Instant, reply: Option<&HandOverReply>) -> Arrived {
        let stage = std::mem::replace(&mut self.stage, Stage::Idle(now));
        let Stage::Asked(mut batch) = stage else { unreachable!("an answer without a question: {stage:?}") };
        let Some(reply) = reply else {
            self.stage = Stage::Unanswered(batch, now + REPEAT_PAUSE);
            return Arrived::Unanswered;
        };
        let offered = batch.tickets.len();
        batch.tickets.retain(|ticket| !reply.has_taken(ticket.name));
        let taken = offered - batch.tickets.len();
        batch.update_ages(now);
        // Offered again when the other ticket is over, it would get a second room for its users.
        let over: Vec<_> = batch.tickets.extract_if(.., |ticket| reply.is_bound(ticket.name)).collect();
        let over = Batch { tickets: over, namespace: batch.namespace.clone(), ..batch };
        if !batch.tickets.is_empty() {
            self.stage = Stage::Idle(now + REFUSED_PAUSE);
        }
        Arrived::Answered { taken, kept: batch, over }
    }

    /// The batch that has to be sent once more, if there is one.
    pub(super) fn repeat(&mut self, now: Instant) -> Option<&Batch> {
        match std::mem::replace(&mut self.stage, Stage::Idle(now)) {
            Stage::Unanswered(mut batch, from) if now >= from => {
                batch.update_ages(now);
                self.stage = Stage::Asked(batch);
            }
            other => {
                self.stage = other;
                return None;
            }
        }
        self.batch()
    }

    /// Takes back the tickets that no answer tells of: all if this node runs the queues now, otherwise those whose time is over,
    /// because they end somewhere in any case.
    pub(super) fn recall(&mut self, now: Instant, is_here: bool) -> Option<Batch> {
        let Stage::Unanswered(batch, _) = &mut self.stage else { return None };
        batch.update_ages(now);
        let tickets: Vec<_> = batch.tickets.extract_if(.., |ticket| is_here || ticket.ticket.left_ms == 0).collect();
        let recalled = Batch { tickets, namespace: batch.namespace.clone(), ..*batch };
        if batch.tickets.is_empty() {
            self.stage = Stage::Idle(now);
        }
        (!recalled.tickets.is_empty()).then_some(recalled)
    }

    /// Whether a command is about a ticket that is on its way.
    pub(super) fn concerns(&self, command: &TicketCommand) -> bool {
        let Some(batch) = self.batch() else { return false };
        let has = |name: TicketName| batch.tickets.iter().any(|ticket| ticket.name == name);
        match command {
            TicketCommand::Submit { .. } => false,
            TicketCommand::Confirm { ticket, .. } => has(*ticket),
            TicketCommand::Cancel(target) | TicketCommand::Status(target) => match target {
                TicketTarget::Named(ticket) | TicketTarget::OfMember(ticket, _) => has(*ticket),
                TicketTarget::OfUser { namespace, user } => {
                    let is_of_user = |ticket: &NamedTicket| ticket.ticket.users.iter().any(|(id, _)| id == user);
                    *namespace == batch.namespace && batch.tickets.iter().any(is_of_user)
                }
            },
        }
    }

    const fn batch(&self) -> Option<&Batch> {
        match &self.stage {
            Stage::Idle(_) => None,
            Stage::Asked(batch) | Stage::Unanswered(batch, _) => Some(batch),
        }
    }
}

impl Batch {
    /// Tickets grow older on their way.
    fn update_ages(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.dated);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        for NamedTicket { ticket, .. } in &mut self.tickets {
            ticket.age_ms = ticket.age_ms.saturating_add(passed_ms);
            ticket.left_ms = ticket.left_ms.saturating_sub(passed_ms);
        }
        // Not `now`, because parts of a millisecond would be lost each time.
        self.dated += Duration::from_millis(passed_ms);
    }
}

#[cfg(test)]
mod tests {
    use dunlin_matchmaking::{HandedTicket, MatchCriteria, TicketId};

    use super::*;
    use crate::matchmaking::TakenTickets;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(id: u64) -> TicketName {
        TicketName { boot: 7, queue: 0, id: TicketId(id) }
    }

    fn ticket(id: u64, left_ms: u64) -> NamedTicket {
        let users = vec![(format!("user-{id}").into(), true)];
        let criteria = MatchCriteria::default();
        let ticket = HandedTicket { users, criteria, region: None, skill: 0, age_ms: 500, left_ms };
        NamedTicket { name: name(id), ticket }
    }

    /// A hand-over of tickets 1 and 2, which is on its way.
    fn begun(now: Instant) -> HandOver {
        let mut hand_over = HandOver::new(now);
        assert!(hand_over.may_begin(now));
        let tickets = vec![ticket(1, 5_000), ticket(2, 60_000)];
        hand_over.begin(Batch { queue: 3, namespace: "arena".into(), tickets, dated: now });
        assert!(!hand_over.may_begin(now + SECOND));
        hand_over
    }

    fn answer(taken: &[u64], bound: &[u64]) -> HandOverReply {
        let names = |ids: &[u64]| ids.iter().copied().map(name).collect();
        HandOverReply::new(&TakenTickets { taken: names(taken), bound: names(bound) })
    }

    fn ids(batch: &Batch) -> Vec<u64> {
        batch.tickets.iter().map(|ticket| ticket.name.id.0).collect()
    }

    #[test]
    fn tickets_that_the_answer_does_not_name_are_kept() {
        let now = Instant::now();
        let mut hand_over = begun(now);
        let reply = answer(&[2, 9], &[]);
        let Arrived::Answered { taken, kept, over } = hand_over.on_reply(now + SECOND, Some(&reply)) else {
            panic!("an answer")
        };
        assert_eq!((taken, kept.queue, ids(&kept), ids(&over)), (1, 3, vec![1], vec![]));
        assert_eq!((kept.tickets[0].ticket.age_ms, kept.tickets[0].ticket.left_ms), (1_500, 4_000));
        assert!(!hand_over.may_begin(now + SECOND), "it would be refused again at once");
        assert!(hand_over.may_begin(now + SECOND + REFUSED_PAUSE));

        let mut hand_over = begun(now);
        let reply = answer(&[2, 1], &[]);
        assert!(matches!(hand_over.on_reply(now, Some(&reply)), Arrived::Answered { taken: 2, .. }));
        assert!(hand_over.may_begin(now), "the next batch follows at once");
    }

    #[test]
    fn a_ticket_whose_user_has_another_one_there_is_not_offered_again() {
        let now = Instant::now();
        let mut hand_over = begun(now);
        let Arrived::Answered { taken, kept, over } = hand_over.on_reply(now, Some(&answer(&[1], &[2, 9]))) else {
            panic!("an answer")
        };
        assert_eq!((taken, ids(&kept), over.queue, ids(&over)), (1, vec![], 3, vec![2]));
        assert!(hand_over.may_begin(now), "nothing is offered again");
    }

    #[test]
    fn a_batch_without_an_answer_is_sent_again_and_nothing_else() {
        let now = Instant::now();
        let mut hand_over = begun(now);
        assert_eq!(hand_over.on_reply(now + SECOND, None), Arrived::Unanswered);
        assert_eq!(hand_over.recall(now + SECOND, false), None);
        assert!(!hand_over.may_begin(now + 2 * SECOND) && hand_over.repeat(now + SECOND).is_none());
        let again = hand_over.repeat(now + 2 * SECOND).expect("the pause is over");
        assert_eq!(ids(again), [1, 2]);
        assert_eq!((again.tickets[0].ticket.age_ms, again.tickets[0].ticket.left_ms), (2_500, 3_000));
        assert!(hand_over.repeat(now + 3 * SECOND).is_none(), "it is on its way");
        let reply = answer(&[1, 2], &[]);
        assert!(matches!(hand_over.on_reply(now + 3 * SECOND, Some(&reply)), Arrived::Answered { taken: 2, .. }));
    }

    #[test]
    fn tickets_come_back_when_their_time_is_over_or_the_queues_are_here() {
        let now = Instant::now();
        let mut hand_over = begun(now);
        assert_eq!(hand_over.recall(now + 9 * SECOND, true), None, "the answer may come");
        hand_over.on_reply(now + SECOND, None);
        let over = hand_over.recall(now + 5 * SECOND, false).expect("one has no time left");
        assert_eq!(ids(&over), [1]);
        let rest = hand_over.recall(now + 5 * SECOND, true).expect("one is left");
        assert_eq!((ids(&rest), rest.tickets[0].ticket.left_ms), (vec![2], 55_000));
        assert!(hand_over.may_begin(now + 5 * SECOND));
    }

    #[test]
    fn commands_about_tickets_on_their_way_are_known() {
        let now = Instant::now();
        let of_user = |namespace: &str, user: &str| {
            TicketCommand::Cancel(TicketTarget::OfUser { namespace: namespace.into(), user: user.into() })
        };
        let mut hand_over = begun(now);
        for concerned in [
            TicketCommand::Confirm { ticket: name(1), user: "x".into() },
            TicketCommand::Status(TicketTarget::Named(name(2))),
            TicketCommand::Cancel(TicketTarget::OfMember(name(2), "x".into())),
            of_user("arena", "user-1"),
        ] {
            assert!(hand_over.concerns(&concerned), "{concerned:?}");
        }
        for other in [
            TicketCommand::Status(TicketTarget::Named(name(3))),
            of_user("arena", "user-3"),
            of_user("other", "user-1"),
        ] {
            assert!(!hand_over.concerns(&other), "{other:?}");
        }
        hand_over.on_reply(now, None);
        assert!(hand_over.concerns(&of_user("arena", "user-2")), "it may be here or there");
        hand_over.recall(now, true);
        assert!(!hand_over.concerns(&of_user("arena", "user-2")));
    }
}
