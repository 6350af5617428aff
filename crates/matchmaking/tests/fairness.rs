//! Whatever happens: no ticket is lost, none is placed in two rooms, no room is overfull, and none starves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_matchmaking::{EndReason, MatchRules, OpenFailure, SkillWindow, TicketId, TicketStatus};
use proptest::{collection::vec, prelude::*};

use crate::rig::{Rig, criteria, request};

#[derive(Clone, Debug)]
enum Step {
    Submit {
        size: u8,
        mode: u8,
        region: u8,
        skill: u16,
    },
    Cancel(u8),
    Pass(u16),
    /// Users of one room come.
    Come(u8),
    Close(u8),
    Opens(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let submit = (1..=4_u8, 0..2_u8, 0..3_u8, 0..1_000_u16);
    let step = prop_oneof![
        6 => submit.prop_map(|(size, mode, region, skill)| Step::Submit { size, mode, region, skill }),
        1 => any::<u8>().prop_map(Step::Cancel),
        4 => (0..3_000_u16).prop_map(Step::Pass),
        2 => any::<u8>().prop_map(Step::Come),
        1 => any::<u8>().prop_map(Step::Close),
        1 => (0..4_u8).prop_map(Step::Opens),
    ];
    vec(step, 1..120)
}

fn rules() -> MatchRules {
    MatchRules {
        players_min: 2,
        players_max: 4,
        fill_wait_ms: 1_000,
        skill: SkillWindow { width: 50, growth_per_s: 20, width_max: 0 },
        region_wait_ms: 4_000,
        party_max: 4,
        rooms_opening_max: 3,
        ..MatchRules::default()
    }
}

/// The rig, with the users of each ticket.
struct Run {
    rig: Rig,
    sizes: BTreeMap<TicketId, u32>,
    users: u32,
}

impl Run {
    fn submit(&mut self, size: u8, mode: u8, region: u8, skill: u16) -> TicketId {
        let names: Vec<_> = (0..size).map(|seat| format!("u{}.{seat}", self.users)).collect();
        self.users += 1;
        let mut request = request(&names.iter().map(String::as_str).collect::<Vec<_>>());
        request.criteria = criteria(&[("mode", &mode.to_string())]);
        request.region = (region > 0).then(|| format!("r{region}").into());
        request.skill = skill.into();
        let id = self.rig.submit(request).expect("accepted");
        self.sizes.insert(id, size.into());
        id
    }

    fn reserved(&self, channel: &str) -> u32 {
        let is_here = |id: &TicketId| self.rig.status(*id) == Some(TicketStatus::Placed(channel.into()));
        self.sizes.iter().filter(|(id, _)| is_here(id)).map(|(_, size)| size).sum()
    }

    fn nth_room(&self, index: u8) -> Option<Arc<str>> {
        let rooms = &self.rig.rooms;
        rooms.keys().nth(usize::from(index) % rooms.len().max(1)).cloned()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Submit { size, mode, region, skill } => drop(self.submit(size, mode, region, skill)),
            Step::Cancel(index) => {
                let ids: Vec<_> = self.sizes.keys().copied().collect();
                if let Some(id) = ids.get(usize::from(index) % ids.len().max(1)) {
                    let _ = self.rig.cancel(*id, None);
                }
            }
            Step::Pass(after_ms) => self.rig.pass(after_ms.into()),
            Step::Come(index) => {
                if let Some(room) = self.nth_room(index) {
                    let players = self.rig.rooms[&room] + self.reserved(&room);
                    self.rig.players(&room, players);
                }
            }
            Step::Close(index) => {
                if let Some(room) = self.nth_room(index) {
                    self.rig.report();
                    self.rig.rooms.remove(&room);
                    self.rig.report();
                }
            }
            Step::Opens(0) => self.rig.opens = Err(OpenFailure::Busy),
            Step::Opens(1) => self.rig.opens = Err(OpenFailure::Failed),
            Step::Opens(_) => self.rig.opens = Ok(()),
        }
        self.check();
    }

    fn check(&self) {
        let pending = self
            .sizes
            .keys()
            .filter(|id| matches!(self.rig.status(**id), Some(TicketStatus::Waiting | TicketStatus::Unconfirmed(_))));
        assert_eq!(self.rig.matchmaker.gauges().pending, pending.count());
        let placed = |id: &TicketId| matches!(self.rig.status(*id), Some(TicketStatus::Placed(_)));
        let reserved: u32 = self.sizes.iter().filter(|(id, _)| placed(id)).map(|(_, size)| size).sum();
        assert_eq!(self.rig.matchmaker.gauges().reserved_places, u64::from(reserved));
        for (room, players) in &self.rig.rooms {
            assert!(players + self.reserved(room) <= 4, "{room} has too many users");
        }
    }
}

/// The largest sum of some of the sizes that is not above the limit.
fn largest_sum(sizes: &[u32], limit: u32) -> u32 {
    let mut sums = BTreeSet::from([0]);
    for size in sizes {
        let more: Vec<_> = sums.iter().map(|sum| sum + size).filter(|sum| *sum <= limit).collect();
        sums.extend(more);
    }
    sums.last().copied().unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_ticket_is_lost_and_no_room_overfull(steps in steps()) {
        let mut run = Run { rig: Rig::new(rules()), sizes: BTreeMap::new(), users: 0 };
        for step in &steps {
            run.take(step);
        }
        // When all is well again, each ticket comes to an end, and nothing remains.
        run.rig.opens = Ok(());
        for _ in 0..300 {
            run.rig.pass(1_000);
        }
        prop_assert_eq!(run.rig.matchmaker.gauges().pending, 0);
        prop_assert_eq!(run.rig.matchmaker.gauges().reserved_places, 0);
        let counters = run.rig.matchmaker.counters();
        let over = counters.joined + counters.ended.iter().sum::<u64>();
        prop_assert_eq!(over, counters.submitted);
        prop_assert!(run.sizes.keys().all(|id| run.rig.status(*id).is_none()));
    }

    /// After a pass no tickets wait that would make a legal room: neither a full one nor, after `fill_wait`, one of
    /// `players_min`. And the oldest ticket is in the fullest room that it can be in.
    #[test]
    fn a_legal_group_is_formed(
        sizes in vec(1..=5_u32, 1..40),
        players_max in 5..=9_u32,
        players_min in 1..=9_u32,
        fills in any::<bool>(),
    ) {
        let players_min = players_min.min(players_max);
        let fill_wait_ms = if fills { 1_000 } else { 0 };
        let rules = MatchRules {
            players_min, players_max, fill_wait_ms, party_max: 5, rooms_opening_max: 100, ..MatchRules::default()
        };
        let mut run = Run { rig: Rig::new(rules), sizes: BTreeMap::new(), users: 0 };
        let ids: Vec<_> = sizes.iter().map(|size| run.submit(*size as u8, 0, 0, 0)).collect();
        let legal_min = if fills { players_max } else { players_min };
        run.rig.pass(0);
        let fullest = largest_sum(&sizes[1..], players_max - sizes[0]) + sizes[0];
        let room = run.rig.placed.get(&ids[0]).map(|rooms| rooms[0].clone());
        prop_assert_eq!(room.is_some(), fullest >= legal_min, "{} users", fullest);
        if let Some(room) = room {
            prop_assert_eq!(run.reserved(&room), fullest);
        }
        let waiting = ids.iter().filter(|id| run.rig.status(**id) == Some(TicketStatus::Waiting));
        let waiting: Vec<u32> = waiting.map(|id| run.sizes[id]).collect();
        let rest = largest_sum(&waiting, players_max);
        prop_assert!(rest < legal_min, "{:?} wait, and {} of them would do", waiting, rest);
    }

    /// Tickets keep coming. Each one is placed before its timeout, however far its skill and its region are from those
    /// of the others, as long as there is another one with its criteria.
    #[test]
    fn no_ticket_starves(
        skill in 0..1_000_u16,
        others in vec((1..=3_u8, 0..3_u8, 0..1_000_u16), 150),
    ) {
        let mut run = Run { rig: Rig::new(rules()), sizes: BTreeMap::new(), users: 0 };
        let odd = run.submit(1, 0, 2, skill);
        for (size, region, skill) in others {
            run.submit(size, 0, region, skill);
            run.rig.pass(400);
        }
        prop_assert!(!run.rig.ended.values().any(|reason| *reason == EndReason::TimedOut));
        prop_assert!(run.rig.placed.contains_key(&odd));
    }
}
