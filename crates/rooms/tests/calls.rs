//! Calls from a game to the backend: limits, timeouts, recordings, and rooms that are restored after a restart.

use dunlin_rooms::{
    CallError, CallId, GridShape, InputError, PlayerId, Refusal, RestoreError, Room, RoomOptions, Scope, Scoped,
    Simulation, TickOutcome, Visitor, World, WorldError,
    recording::{Header, Recorder, replay},
};

/// Each message makes a call: its first byte is the timeout, the rest is the data. The outcome becomes an event.
#[derive(Default)]
struct Caller {
    answers: u8,
}

const METHOD: &str = "m";

impl Simulation for Caller {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 64, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let (timeout_ticks, data) = data.split_first().expect("a timeout");
        let code = |error| match error {
            WorldError::NoBackend => 401,
            WorldError::CallTooLong => 402,
            WorldError::TooManyCalls => 403,
            _ => 404,
        };
        let called = world.call(METHOD, data, u32::from(*timeout_ticks));
        called.map(|call| vec![call.0 as u8]).map_err(|error| Refusal { code: code(error), message: "".into() })
    }

    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        self.answers += 1;
        let text = match outcome {
            Ok(data) => String::from_utf8_lossy(data).into_owned(),
            Err(error) => error.name().to_owned(),
        };
        world.emit(Scope::All, &format!(r#""{} {text} {}""#, call.0, world.tick())).expect("a short event");
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, out: &mut Vec<u8>) {
        out.push(self.answers);
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let [answers] = saved else { return Err(RestoreError) };
        self.answers = *answers;
        Ok(())
    }
}

fn options() -> RoomOptions {
    RoomOptions { calls_max: 2, call_bytes_max: 4, ..RoomOptions::default() }
}

fn room() -> Room {
    Room::new(options(), 1, Box::<Caller>::default()).expect("a map")
}

/// Makes the game call. Returns the number of the call, or the code of the refusal.
fn call(room: &mut Room, timeout_ticks: u8, data: &[u8]) -> Result<u8, u16> {
    let message = [&[timeout_ticks], data].concat();
    room.message(&message).map(|answer| answer[0]).map_err(|refusal| refusal.code)
}

fn sent(outcome: &TickOutcome) -> Vec<u32> {
    outcome.calls.sent.iter().map(|call| call.id.0).collect()
}

fn events(outcome: TickOutcome) -> Vec<String> {
    let text = |scoped| match scoped {
        Scoped::Event { data, .. } => {
            let data = String::from_utf8_lossy(&data).into_owned();
            let event = data.split_once(r#""event":""#).and_then(|(_, event)| event.strip_suffix(r#""}"#));
            event.expect("a text").to_owned()
        }
        Scoped::Publication { .. } => "a publication".to_owned(),
    };
    outcome.scoped.into_iter().map(text).collect()
}

#[test]
fn a_call_is_sent_with_its_tick_and_answered_once() {
    let mut room = room();
    assert_eq!(call(&mut room, 9, b"abc"), Ok(1));
    assert!(!room.answer(CallId(1), Ok(b"early")), "the call is not sent yet");
    let outcome = room.tick(0);
    let [first] = &outcome.calls.sent[..] else { panic!("{:?}", outcome.calls) };
    assert_eq!((first.id, &*first.method, &first.data[..]), (CallId(1), METHOD, &b"abc"[..]));
    assert_eq!(sent(&room.tick(0)), [] as [u32; 0], "the call is sent only once");
    assert!(room.answer(CallId(1), Ok(b"yes")));
    assert!(!room.answer(CallId(1), Ok(b"again")) && !room.answer(CallId(7), Ok(b"unknown")));
    assert_eq!(events(room.tick(0)), ["1 yes 2"]);
    assert_eq!(room.world().call_count(), 0);
}

#[test]
fn a_call_times_out_in_its_tick() {
    for (timeout_ticks, expected) in [(0, 1), (1, 1), (3, 3)] {
        let mut room = room();
        call(&mut room, timeout_ticks, b"a").expect("a call");
        call(&mut room, timeout_ticks, b"b").expect("a call");
        room.tick(0);
        for _ in 1..expected {
            assert_eq!(events(room.tick(0)), [] as [&str; 0]);
        }
        // An answer before the tick of the timeout is accepted.
        assert!(room.answer(CallId(1), Ok(b"yes")));
        let outcome = room.tick(0);
        assert_eq!(outcome.calls.timed_out, 1);
        let last = 1 + expected;
        assert_eq!(events(outcome), [format!("1 yes {}", last - 1), format!("2 timeout {last}")]);
        assert!(!room.answer(CallId(2), Ok(b"late")));
        assert_eq!(events(room.tick(0)), [] as [&str; 0], "a late answer has no effect");
    }
}

#[test]
fn calls_are_limited_in_number_and_length() {
    let mut room = room();
    assert_eq!(call(&mut room, 9, b"1234"), Err(402), "the data and the method have 5 bytes");
    assert_eq!((call(&mut room, 9, b"123"), call(&mut room, 9, b"")), (Ok(1), Ok(2)));
    assert_eq!(call(&mut room, 9, b""), Err(403));
    let outcome = room.tick(0);
    assert_eq!((sent(&outcome), outcome.calls.refused), (vec![1, 2], 2));
    assert_eq!(call(&mut room, 9, b""), Err(403), "both calls still wait for their answers");
    assert!(room.answer(CallId(2), Err(CallError::Busy)));
    assert_eq!((call(&mut room, 9, b""), call(&mut room, 9, b"")), (Ok(3), Err(403)));

    let without = RoomOptions { calls_max: 0, ..options() };
    let mut room = Room::new(without, 1, Box::<Caller>::default()).expect("a map");
    assert_eq!(call(&mut room, 9, b""), Err(401));
}

#[test]
fn a_replay_repeats_answers_and_timeouts() {
    let header = Header {
        simulation: "caller".to_owned(),
        params: "null".to_owned(),
        seed: 1,
        channel: String::new(),
        options: options(),
    };
    let mut recorder = Recorder::new(&header, Vec::new());
    let mut room = Room::open(options(), header.info(), Box::<Caller>::default()).expect("a map");
    let refused = Err(CallError::Refused(Refusal { code: 1_000, message: "no".into() }));
    let outcomes = [
        Ok(&b"yes"[..]),
        refused,
        Err(CallError::Failed),
        Err(CallError::Busy),
        Err(CallError::TooLong),
        Err(CallError::Lost),
        Err(CallError::Timeout),
    ];
    for (number, outcome) in (1..).zip(outcomes) {
        recorder.message(&[3, b'x']);
        call(&mut room, 3, b"x").expect("a call");
        room.tick(0);
        recorder.tick(&room);
        recorder.answer(CallId(number), outcome.as_ref().map(|data| *data));
        assert!(room.answer(CallId(number), outcome));
        room.tick(0);
        recorder.tick(&room);
    }
    recorder.message(&[1, b'x']);
    call(&mut room, 1, b"x").expect("a call");
    for _ in 0..3 {
        room.tick(0);
        recorder.tick(&room);
    }
    // The answer is late. The recorder records it nevertheless.
    recorder.answer(CallId(8), Ok(b"late"));
    assert!(!room.answer(CallId(8), Ok(b"late")));
    room.tick(0);
    recorder.tick(&room);
    let recording = std::mem::take(recorder.written());
    assert_eq!(replay(&recording, |_| Box::<Caller>::default()).expect("a recording").finish(), Ok(18));
}

#[test]
fn a_restored_room_keeps_its_calls_or_loses_them_after_a_restart() {
    let mut room = room();
    call(&mut room, 2, b"x").expect("a call");
    room.tick(0);
    call(&mut room, 2, b"y").expect("a call");
    let mut saved = Vec::new();
    room.save(&mut saved);
    let restored = || Room::restore(options(), &saved, Box::<Caller>::default()).expect("the state is valid");
    let mut other = restored();
    assert_eq!(other.state_hash(), room.state_hash());
    for _ in 0..4 {
        let (outcome, other_outcome) = (room.tick(0), other.tick(0));
        assert_eq!(sent(&outcome), sent(&other_outcome));
        assert_eq!(events(outcome), events(other_outcome));
        assert_eq!(other.state_hash(), room.state_hash());
    }

    // After a restart, the first call has already been sent, and the second one must not be sent twice.
    let mut other = restored();
    assert_eq!(other.lose_calls(), 2);
    let outcome = other.tick(0);
    assert_eq!(sent(&outcome), [] as [u32; 0]);
    assert_eq!(events(outcome), ["1 lost 1", "2 lost 1"]);
    assert!(!other.answer(CallId(1), Ok(b"late")) && other.world().call_count() == 0);
    // Call numbers are not reused.
    assert_eq!(call(&mut other, 1, b""), Ok(3));

    // A truncated state is refused without a panic.
    for length in 0..saved.len() {
        assert!(Room::restore(options(), &saved[..length], Box::<Caller>::default()).is_err(), "{length}");
    }
}
