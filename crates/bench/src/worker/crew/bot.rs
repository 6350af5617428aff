//! A player of a room that follows a script, and what it expects.

use std::borrow::Cow;
use std::collections::VecDeque;

use dunlin_rooms::Replica;
use dunlin_rooms::wire::{Input, encode_input};
use memchr::memmem;

use crate::commands::{self, EncodingOption};
use crate::push::{self, PlayerPush};
use crate::scenario::crew_commands::{PlayPlan, Played};

/// Maximum number of inputs without an acknowledgement of one player; the oldest count as lost.
const WAITING_MAX: usize = 4_096;

/// The player.
pub struct Bot {
    encoding: EncodingOption,
    replica: Replica,
    inputs: u32,
    /// Inputs that no snapshot has acknowledged: their numbers and intended times.
    waiting: VecDeque<(u32, u64)>,
    /// Which expectations are met.
    met: Vec<bool>,
    /// Snapshots of this phase.
    snapshots: u64,
    stage: BotStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BotStage {
    Playing,
    /// The target has ended its subscription. What it is not told any more is not lost.
    Removed,
}

impl Bot {
    pub fn new(plan: &PlayPlan, encoding: EncodingOption) -> Self {
        Bot {
            encoding,
            replica: Replica::default(),
            inputs: 0,
            waiting: VecDeque::new(),
            met: vec![false; plan.expect.len()],
            snapshots: 0,
            stage: BotStage::Playing,
        }
    }

    /// The frame with the next input of the script, if the script has one. A removed bot sends none.
    pub fn input(&mut self, plan: &PlayPlan, intended_ns: u64, played: &mut Played) -> Option<Vec<u8>> {
        if self.stage == BotStage::Removed {
            return None;
        }
        let at = (self.inputs as usize).checked_rem(plan.script.len())?;
        let data = plan.script.get(at)?;
        self.inputs += 1;
        let input = Input { number: self.inputs, room: Cow::Borrowed(""), data: Cow::Borrowed(data) };
        let mut bytes = Vec::with_capacity(data.len() + 32);
        encode_input(self.encoding.of_rooms(), &input, &mut bytes);
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            played.inputs_lost += 1;
        }
        self.waiting.push_back((self.inputs, intended_ns));
        played.inputs += 1;
        Some(commands::send(self.encoding, &bytes))
    }

    /// Takes a message. Returns whether it is one of the room; the second value says that an input is acknowledged.
    pub fn message(&mut self, message: &[u8], plan: &PlayPlan, now_ns: u64, played: &mut Played) -> (bool, bool) {
        match push::push(self.encoding, message) {
            Some(PlayerPush::Publication { data, offset: 0 }) => (true, self.snapshot(data, now_ns, played)),
            Some(PlayerPush::Publication { data, .. }) => {
                played.events += 1;
                for (met, expected) in self.met.iter_mut().zip(&plan.expect) {
                    *met |= memmem::find(data, expected.as_bytes()).is_some();
                }
                (true, false)
            }
            Some(PlayerPush::Unsubscribed { .. }) => {
                played.removed += 1;
                self.stage = BotStage::Removed;
                self.waiting.clear();
                (true, false)
            }
            Some(PlayerPush::Other) => (true, false),
            None => (false, false),
        }
    }

    fn snapshot(&mut self, data: &[u8], now_ns: u64, played: &mut Played) -> bool {
        if self.replica.apply(self.encoding.of_rooms(), data).is_err() {
            played.snapshots_broken += 1;
            return false;
        }
        played.snapshots += 1;
        self.snapshots += 1;
        let acknowledged = self.replica.ack();
        let waiting_before = self.waiting.len();
        while let Some((_, intended_ns)) = self.waiting.pop_front_if(|(number, _)| *number <= acknowledged) {
            played.input_time.record_ns(now_ns.saturating_sub(intended_ns));
        }
        self.waiting.len() < waiting_before
    }

    /// The number of inputs without an acknowledgement.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Ends a phase. A removed bot is no player any more.
    pub fn settle(&mut self, played: &mut Played) {
        if self.stage == BotStage::Removed {
            return;
        }
        played.players += 1;
        played.inputs_lost += std::mem::take(&mut self.waiting).len() as u64;
        played.expectations_missed += self.met.iter().filter(|met| !**met).count() as u64;
        played.silent_players += u64::from(std::mem::take(&mut self.snapshots) == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> PlayPlan {
        PlayPlan {
            room: "game:1".into(),
            join: None,
            inputs: 1.0,
            script: vec![vec![3, 4], b"text".to_vec()],
            expect: vec!["joined".into(), "won".into()],
        }
    }

    #[test]
    fn a_bot_follows_its_script_and_counts_what_does_not_come() {
        let (plan, mut played) = (plan(), Played::default());
        let mut bot = Bot::new(&plan, EncodingOption::Protobuf);
        let first = bot.input(&plan, 5, &mut played).unwrap();
        let second = bot.input(&plan, 6, &mut played).unwrap();
        let third = bot.input(&plan, 7, &mut played).unwrap();
        assert!(first != second && first.len() == third.len(), "the script begins again");
        assert_eq!((played.inputs, bot.waiting()), (3, 3));
        bot.settle(&mut played);
        assert_eq!((played.players, played.inputs_lost, bot.waiting()), (1, 3, 0));
        assert_eq!((played.silent_players, played.expectations_missed), (1, 2));
        let silent = PlayPlan { script: Vec::new(), ..plan };
        assert!(bot.input(&silent, 8, &mut played).is_none());
    }

    #[test]
    fn an_expectation_is_met_by_an_event_and_stays_so() {
        let (plan, mut played) = (plan(), Played::default());
        let mut bot = Bot::new(&plan, EncodingOption::Json);
        let event = br#"{"push":{"channel":"game:1","pub":{"data":{"joined":7},"offset":3}}}"#;
        assert_eq!(bot.message(event, &plan, 1, &mut played), (true, false));
        assert_eq!(bot.message(br#"{"id":1,"connect":{}}"#, &plan, 1, &mut played), (false, false));
        bot.settle(&mut played);
        assert_eq!((played.events, played.expectations_missed), (1, 1));
        let broken = br#"{"push":{"channel":"game:1","pub":{"data":{"no":"snapshot"}}}}"#;
        assert_eq!(bot.message(broken, &plan, 1, &mut played), (true, false));
        assert_eq!(played.snapshots_broken, 1);
    }

    #[test]
    fn a_bot_that_is_removed_loses_nothing() {
        let (plan, mut played) = (plan(), Played::default());
        let mut bot = Bot::new(&plan, EncodingOption::Json);
        bot.input(&plan, 5, &mut played).unwrap();
        let removal = br#"{"push":{"channel":"game:1","unsubscribe":{"code":2500,"reason":"kicked"}}}"#;
        assert_eq!(bot.message(removal, &plan, 1, &mut played), (true, false));
        assert!(bot.input(&plan, 6, &mut played).is_none() && bot.waiting() == 0);
        bot.settle(&mut played);
        assert_eq!((played.removed, played.inputs, played.inputs_lost), (1, 1, 0));
        assert_eq!((played.players, played.silent_players, played.expectations_missed), (0, 0, 0));
    }
}
