//! What a room thread does without holding its deck: whatever runs a game's code.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_engine::host::{Batch, Done, Step, Table};
use dunlin_games::Registry;
use dunlin_rooms::{Grid, Room};

use super::{FailureReason, RoomSettings, heap::Account, slot::Live};

/// Something to do that runs a game's code.
pub(super) struct Job {
    /// The room's place in the deck.
    pub(super) place: usize,
    /// The room's namespace.
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    /// How long it will take, as far as one can tell from before; as long as can be, if one cannot.
    pub(super) expected_ns: u64,
    pub(super) work: Work,
}

/// What is to be done.
pub(super) enum Work {
    /// Make the room.
    Make { registry: Arc<Registry>, seed: u64 },
    /// One tick.
    Tick { live: Box<Live>, batch: Batch, time_us: u64 },
    /// Let go of a room that is over.
    Discard(Box<Live>),
}

/// A job that is done.
pub(super) struct Finished {
    pub(super) place: usize,
    /// What the tick began with.
    pub(super) steps: Vec<Step>,
    pub(super) product: Result<Product, Failure>,
}

/// What came of it.
pub(super) enum Product {
    Made { table: Box<Table>, account: Account, grid: Grid },
    Ticked { live: Box<Live>, done: Done },
    Discarded,
}

/// Why nothing came of it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: FailureReason,
    /// In the game's words, where it had some.
    pub(super) detail: String,
}

/// Characters of a game's words that are kept.
const DETAIL_CHARS_MAX: usize = 200;

impl Job {
    /// Does it. Returns when the game's code does, or panics.
    pub(super) fn run(self) -> Finished {
        let Self { place, settings, work, .. } = self;
        let mut steps = Vec::new();
        let product = match work {
            Work::Make { registry, seed } => make(&registry, &settings, seed),
            Work::Tick { live, batch, time_us } => {
                // Keeps what shards allocated from being freed on the room's account.
                steps.clone_from(&batch.steps);
                // Past the limit after a call, a room ends; a single call may take as much again before its thread is
                // stopped.
                tick(live, batch, &steps, time_us, settings.memory_bytes_max)
            }
            Work::Discard(live) => {
                discard(live);
                Ok(Product::Discarded)
            }
        };
        Finished { place, steps, product }
    }
}

fn make(registry: &Registry, settings: &RoomSettings, seed: u64) -> Result<Product, Failure> {
    let mut account = Account::default();
    let made = catch_unwind(AssertUnwindSafe(|| {
        account.charge(settings.memory_bytes_max, || {
            let no_start = |detail: String| Failure { reason: FailureReason::Start, detail };
            let simulation = registry
                .make(&settings.simulation, &settings.params)
                .ok_or_else(|| no_start("there is no such simulation".to_owned()))?
                .map_err(|error| no_start(error.to_string()))?;
            Room::new(settings.room.clone(), seed, simulation).map_err(|error| no_start(error.to_string()))
        })
    }));
    let room = made.map_err(panicked)??;
    let grid = room.grid().clone();
    let table = account.charge(u64::MAX, || Table::new(room));
    Ok(Product::Made { table: Box::new(table), account, grid })
}

fn tick(
    mut live: Box<Live>,
    batch: Batch,
    steps: &[Step],
    time_us: u64,
    growth_bytes_max: u64,
) -> Result<Product, Failure> {
    let Live { table, account, recorder } = &mut *live;
    if let Some(recorder) = recorder {
        account.charge(u64::MAX, || recorder.begin_tick(steps));
        recorder.keep(0);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| account.charge(growth_bytes_max, || table.run(batch, time_us))));
    let done = match ran {
        Ok(done) => done,
        Err(payload) => {
            discard(live);
            return Err(panicked(payload));
        }
    };
    // What leaves the room is a copy, so that what the room allocated is freed on its account.
    let copy = done.detached();
    done.updates().for_each(|update| account.lend(update));
    account.charge(u64::MAX, || drop(done));
    account.collect();
    if let Some(recorder) = recorder {
        // The hash is of what the game saves, so this runs its code as well.
        let end_tick = || account.charge(growth_bytes_max, || recorder.end_tick(steps, &copy, table.room()));
        if let Err(payload) = catch_unwind(AssertUnwindSafe(end_tick)) {
            discard(live);
            return Err(panicked(payload));
        }
        recorder.keep(1);
    }
    Ok(Product::Ticked { live, done: copy })
}

/// Lets go of a room; of its game's own code for that, nothing is believed.
pub(super) fn discard(live: Box<Live>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(live))) {
        forget(payload);
    }
}

fn panicked(payload: Box<dyn Any + Send>) -> Failure {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    let detail = text.chars().take(DETAIL_CHARS_MAX).collect();
    forget(payload);
    Failure { reason: FailureReason::Panic, detail }
}

/// What a game panics with may itself panic when it is dropped, so it never is.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}
