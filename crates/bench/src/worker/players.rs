//! A worker with players: one thread, one epoll, one read buffer.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::dialogue::{Ended, LoadSessionStage};
use super::player::{Clock, LoadPlayer, PlayerSink, Reading, Waking};
use super::session::{Session, Taken};
use super::{BUFFER_BYTES, answer, commands_for, poll_failed, wait_for_events};
use crate::commands::EncodingOption;
use crate::control::{Connected, Target, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::proc;
use crate::room::observation::Observations;
use crate::room::player_commands::{Played, PlayersCommand, PlayersReply, PlayersRole};
use crate::tally::{Slot, Tally};

const COMMANDS: Token = Token(usize::MAX);
/// Maximum time without progress of any player.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

pub fn play(role: Box<PlayersRole>) -> Result<(), Error> {
    let poll = Poll::new().map_err(poll_failed)?;
    let commands = commands_for(&poll, COMMANDS)?;
    let tally = Tally::open(Path::new(&role.tally))?;
    let observations = role.observations.as_deref().map(Observations::create).transpose()?;
    let players = Players {
        poll,
        players: Vec::new(),
        buffer: vec![0; BUFFER_BYTES],
        to_open: 0,
        slow_to_open: 0,
        handshakes: 0,
        patience: None,
        connected: Connected::default(),
        schedule: Schedule::default(),
        played: Played::default(),
        cpu_before_ns: 0,
        snapshots_ever: 0,
        observations,
        failed: None,
        role,
    };
    players.run(&commands, &tally)
}

struct Players {
    role: Box<PlayersRole>,
    poll: Poll,
    players: Vec<LoadPlayer>,
    buffer: Vec<u8>,
    to_open: usize,
    slow_to_open: usize,
    handshakes: usize,
    /// The deadline of a connect command, which progress extends.
    patience: Option<Instant>,
    connected: Connected,
    schedule: Schedule,
    played: Played,
    cpu_before_ns: u64,
    snapshots_ever: u64,
    observations: Option<Observations>,
    /// The error after which the process cannot continue.
    failed: Option<Error>,
}

/// The schedule of inputs, in which all players take turns.
#[derive(Default)]
struct Schedule {
    /// None: no inputs are sent.
    interval_ns: Option<u64>,
    due_ns: u64,
    next_player: usize,
}

impl Schedule {
    fn new(inputs_per_second: f64, players: usize, next_player: usize) -> Self {
        let per_second = inputs_per_second * players as f64;
        let interval_ns = (per_second > 0.0).then(|| crate::report::whole(1e9 / per_second).max(1));
        Schedule { interval_ns, due_ns: proc::now_ns(), next_player }
    }

    /// The time and player of the next input that is due.
    fn next(&mut self, now_ns: u64, players: usize) -> Option<(u64, usize)> {
        let interval_ns = self.interval_ns?;
        if self.due_ns > now_ns || players == 0 {
            return None;
        }
        let due = (self.due_ns, self.next_player % players);
        self.due_ns += interval_ns;
        self.next_player = due.1 + 1;
        Some(due)
    }

    fn pause(&self) -> Option<Duration> {
        self.interval_ns.map(|_| Duration::from_nanos(self.due_ns.saturating_sub(proc::now_ns())))
    }
}

impl Players {
    fn run(mut self, commands: &Receiver<WorkerCommand>, tally: &Tally) -> Result<(), Error> {
        let mut events = Events::with_capacity(1024);
        let slot = tally.slot(self.role.worker);
        loop {
            self.open_more()?;
            self.answer_if_connected();
            let waits = self.patience.map(|_| Duration::from_millis(20));
            let timeout = [waits, self.schedule.pause()].into_iter().flatten().min();
            wait_for_events(&mut self.poll, &mut events, timeout)?;
            for event in &events {
                if event.token() != COMMANDS {
                    self.on_event(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            self.send_inputs();
            self.count(slot);
            while let Ok(command) = commands.try_recv() {
                self.on_command(&command)?;
            }
            if let Some(err) = self.failed.take() {
                return Err(err);
            }
        }
    }

    fn count(&self, slot: &Slot) {
        slot.deliveries.store(self.snapshots_ever, Ordering::Relaxed);
        slot.ready.store(self.connected.ready as u64, Ordering::Relaxed);
    }

    fn on_command(&mut self, command: &WorkerCommand) -> Result<(), Error> {
        match *command {
            WorkerCommand::Connect { sessions, slow } => {
                self.to_open = sessions;
                self.slow_to_open = slow;
                self.patience = Some(Instant::now() + CONNECT_PATIENCE);
                return Ok(());
            }
            WorkerCommand::Play(ref command) => {
                let message = self.on_play(command)?;
                answer(&WorkerReply::Play(message));
            }
            _ => answer(&WorkerReply::Failed { message: "players only connect and play".into() }),
        }
        Ok(())
    }

    fn on_play(&mut self, command: &PlayersCommand) -> Result<PlayersReply, Error> {
        match *command {
            PlayersCommand::Begin { inputs_per_second } => {
                // Sessions that ended between two phases are reported with the later one.
                let before = std::mem::take(&mut self.played);
                self.played = Played {
                    closed: before.closed,
                    inputs_ever: before.inputs_ever,
                    acknowledged_ever: before.acknowledged_ever,
                    ..Played::default()
                };
                self.cpu_before_ns = proc::own_cpu_ns();
                self.set_pace(inputs_per_second);
            }
            PlayersCommand::Pace { inputs_per_second } => self.set_pace(inputs_per_second),
            PlayersCommand::Pause => {
                for player in self.players.iter_mut().filter(|player| player.slow) {
                    if let Some(session) = &mut player.session {
                        self.poll.registry().deregister(session.socket()).map_err(poll_failed)?;
                    }
                }
            }
            PlayersCommand::Wake => {
                for (number, player) in self.players.iter_mut().enumerate().filter(|(_, player)| player.slow) {
                    if let Some(session) = &mut player.session {
                        player.waking = Some(Waking::default());
                        let registry = self.poll.registry();
                        registry.register(session.socket(), Token(number), Interest::READABLE).map_err(poll_failed)?;
                    }
                }
            }
            PlayersCommand::Report => {
                self.played.cpu_ns = proc::own_cpu_ns() - self.cpu_before_ns;
                return Ok(PlayersReply::Played(Box::new(self.played.clone())));
            }
            PlayersCommand::Flush => {
                if let Some(observations) = &mut self.observations {
                    observations.flush()?;
                }
            }
        }
        Ok(PlayersReply::Done)
    }

    fn set_pace(&mut self, inputs_per_second: f64) {
        self.schedule = Schedule::new(inputs_per_second, self.players.len(), self.schedule.next_player);
    }

    fn send_inputs(&mut self) {
        let now_ns = proc::now_ns();
        while let Some((due_ns, number)) = self.schedule.next(now_ns, self.players.len()) {
            let Some(player) = self.players.get_mut(number) else { return };
            if player.session.as_ref().is_none_or(|session| session.stage() != LoadSessionStage::Ready) {
                continue;
            }
            if let Err(why) = player.send(self.role.play, due_ns, &mut self.played) {
                self.end_player(number, LoadSessionStage::Ready, why);
            }
        }
    }

    fn open_more(&mut self) -> Result<(), Error> {
        while self.to_open > 0 && self.handshakes < self.role.handshakes_max {
            let slow = self.slow_to_open > 0;
            self.to_open -= 1;
            self.slow_to_open -= usize::from(slow);
            let receive_bytes = slow.then_some(self.role.slow_receive_bytes);
            match Session::open(self.role.source, self.role.target.address, receive_bytes, true) {
                Ok(mut session) => {
                    let place = self.players.len();
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    self.poll.registry().register(session.socket(), Token(place), interest).map_err(poll_failed)?;
                    let mut player = player_of(&self.role, session, place as u32);
                    player.slow = slow;
                    self.players.push(player);
                    self.handshakes += 1;
                }
                Err(err) => *self.connected.failed.entry(format!("open: {err}")).or_default() += 1,
            }
        }
        Ok(())
    }

    fn on_event(&mut self, number: usize, writable: bool, read_closed: bool) {
        let Some(player) = self.players.get_mut(number) else { return };
        let Some(mut session) = player.session.take() else { return };
        let target = Rc::clone(&player.target);
        let before = session.stage();
        let mut result = Ok(());
        if before == LoadSessionStage::Connecting && writable {
            result = session.connected(&target);
            // From now on, wait only for readable data.
            let token = Token(number);
            let reregistered = self.poll.registry().reregister(session.socket(), token, Interest::READABLE);
            result = result.and(reregistered.map_err(|err| format!("register: {err}")));
        } else if before != LoadSessionStage::Connecting {
            let mut sink = PlayerSink {
                played: &mut self.played,
                observations: self.observations.as_mut(),
                play: self.role.play,
                looks_from_own: self.role.looks_from_own,
                snapshots_ever: &mut self.snapshots_ever,
                failed: &mut self.failed,
                clock: Clock::default(),
            };
            let from = Readable { session: &mut session, target: &target, read_closed };
            result = read_all(from, player, &mut self.buffer, &mut sink);
        }
        let after = session.stage();
        player.session = Some(session);
        if before != LoadSessionStage::Ready && (after == LoadSessionStage::Ready || result.is_err()) {
            self.handshakes -= 1;
        }
        if before != LoadSessionStage::Ready && after == LoadSessionStage::Ready {
            self.connected.ready += 1;
        }
        if before != after {
            self.patience = self.patience.map(|_| Instant::now() + CONNECT_PATIENCE);
        }
        if let Err(why) = result {
            self.end_player(number, after, why);
        }
    }

    fn end_player(&mut self, number: usize, stage: LoadSessionStage, why: Ended) {
        let Some(player) = self.players.get_mut(number) else { return };
        // Dropping the socket closes it, which also takes it out of the poll.
        player.session = None;
        if stage == LoadSessionStage::Ready {
            self.connected.ready -= 1;
            // While others are still joining, the orchestrator must know why a player is gone.
            if self.patience.is_some() {
                *self.connected.failed.entry(format!("after joining: {why}")).or_default() += 1;
            }
            *self.played.closed.entry(why).or_default() += 1;
        } else {
            *self.connected.failed.entry(why).or_default() += 1;
        }
    }

    fn answer_if_connected(&mut self) {
        let Some(patience) = self.patience else { return };
        if Instant::now() > patience {
            let given_up = (self.to_open + self.handshakes) as u64;
            self.to_open = 0;
            *self.connected.failed.entry("no answer in 30 s".into()).or_default() += given_up;
        } else if self.to_open > 0 || self.handshakes > 0 {
            return;
        }
        self.patience = None;
        answer(&WorkerReply::Connected(self.connected.clone()));
    }
}

fn player_of(role: &PlayersRole, session: Session, place: u32) -> LoadPlayer {
    let number = role.first_player + place;
    // JSON players are spread evenly: a player uses JSON if the share passes the next integer.
    let passed = |players: u32| crate::report::whole(f64::from(players) * role.json_share);
    let is_json = passed(number + 1) > passed(number);
    let encoding = if is_json { EncodingOption::Json } else { role.target.encoding };
    let room = number / role.players_per_room;
    let channel = format!("{}{room}", role.target.channel);
    let mut player =
        LoadPlayer::new(Some(session), number, room, Rc::new(Target { encoding, channel, ..role.target.clone() }));
    player.heads_only = encoding == EncodingOption::Protobuf && !number.is_multiple_of(role.full_every);
    player
}

/// A session with unread bytes.
struct Readable<'a> {
    session: &'a mut Session,
    target: &'a Target,
    /// Whether the server has ended the connection after these bytes.
    read_closed: bool,
}

fn read_all(
    from: Readable<'_>,
    player: &mut LoadPlayer,
    buffer: &mut [u8],
    sink: &mut PlayerSink<'_>,
) -> Result<(), Ended> {
    let Readable { session, target, read_closed } = from;
    loop {
        sink.clock = Clock::default();
        let mut reading = Reading { player, sink, ended: None };
        let taken = session.read(target, buffer, &mut reading)?;
        if let Some(why) = reading.ended {
            return Err(why);
        }
        match taken {
            Taken::Nothing => break,
            Taken::Bytes { bytes, more } => {
                sink.played.reads += 1;
                sink.played.bytes += bytes as u64;
                // A read that did not fill the buffer has emptied the socket (epoll(7)), unless the end follows.
                if !more && !read_closed {
                    break;
                }
            }
        }
    }
    player.drained(sink.played);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_due_evenly_and_in_turn() {
        let mut schedule = Schedule::new(2.0, 5, 3);
        let start_ns = schedule.due_ns;
        assert_eq!(schedule.interval_ns, Some(100_000_000));
        assert_eq!(schedule.next(start_ns, 5), Some((start_ns, 3)));
        assert_eq!(schedule.next(start_ns, 5), None, "not due yet");
        let due: Vec<_> = std::iter::from_fn(|| schedule.next(start_ns + 250_000_000, 5)).collect();
        assert_eq!(due, [(start_ns + 100_000_000, 4), (start_ns + 200_000_000, 0)]);
        assert_eq!(Schedule::new(0.0, 5, 0).next(u64::MAX, 5), None);
    }
}
