//! Tests of single steps of a room thread.

use dunlin_config::{RoomSettings, RoomsOptions};
use dunlin_engine::{
    ShardIndex,
    room::{RoomKey, RoomThreadIndex, ToRoom},
};
use tokio::sync::mpsc;

use super::*;
use crate::{
    backend::NoBackends,
    node::ShardWaker,
    rooms::{
        builder::{RoomBuilder, ToThread},
        calls::CallLink,
        links::{self, RoomLinks},
        tests::games,
    },
};

/// A room thread whose steps the test takes. It has a room whose first tick is scheduled, and all messages are announced.
struct Stepped {
    room_thread: RoomThread,
    links: Vec<RoomLinks>,
    shard_waker: Arc<ShardWaker>,
}

impl Stepped {
    fn new() -> Self {
        let waker = Arc::new(dunlin_net::Waker::eventfd().expect("an eventfd"));
        let shard_wakers = [Arc::new(ShardWaker::new(waker))];
        let wakers = [Arc::new(ThreadWaker::default())];
        let (links, mut outgoing) =
            links::connect(&shard_wakers, &wakers, &dunlin_queues::declared::ROOM_RING.with_messages(16));
        let walk = RoomSettings { simulation: "walk".to_owned(), ..RoomSettings::default() };
        let namespaces = vec![Some(Arc::new(walk)); 2];
        let options = RoomsOptions { namespaces, registry: Arc::new(games::registry()), ..RoomsOptions::default() };
        let shared = Arc::new(Shared::new(options, 1, 1, None));
        let ((tasks, waiting_tasks), (made, made_rooms)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let calls = CallLink::new(Arc::new(NoBackends::default()), Arc::clone(&wakers[0]));
        let scheduler = Scheduler::new(0, outgoing.remove(0), calls, (tasks, made_rooms), mpsc::channel(1).0);
        let [waker] = wakers;
        let to_threads = vec![ToThread { made, waker: Arc::clone(&waker) }];
        let builder = RoomBuilder::new(Arc::clone(&shared), waiting_tasks, to_threads, None, None);
        let room_thread = RoomThread::new(0, shared, waker, scheduler);
        let [shard_waker] = shard_wakers;
        let mut stepped = Self { room_thread, links, shard_waker };
        stepped.open(1, 1);
        while stepped.next_ns().is_none() {
            assert!(matches!(next(&stepped.room_thread, 0), Next::Sleep | Next::Nap(_)));
            if stepped.room_thread.scheduler().opening_count() > 0 {
                assert!(builder.carry_out_next(0));
            }
        }
        while stepped.links[0].next(0).is_some() {}
        stepped
    }

    fn open(&mut self, number: u64, namespace: u16) {
        let room = RoomKey { owner: ShardIndex(0), number };
        let open = ToRoom::Open { room, channel: "a".into(), namespace, overrides: std::sync::Arc::default() };
        self.links[0].send(RoomThreadIndex(0), open);
    }

    /// When the next room is due.
    fn next_ns(&self) -> Option<u64> {
        self.room_thread.scheduler().next_ns()
    }
}

#[test]
fn shards_get_messages_before_a_job_of_unknown_length() {
    let mut stepped = Stepped::new();
    while stepped.next_ns().is_some_and(|due_ns| due_ns > stepped.room_thread.shared.now_ns()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // When the tick is due, the refusal of another room waits for its owner.
    stepped.shard_waker.sleeping.arm();
    let shared = &stepped.room_thread.shared;
    (0..shared.options.lost_threads_max).for_each(|_| shared.lose_thread(0));
    stepped.open(2, 0);
    let Next::Run(_) = next(&stepped.room_thread, 0) else { panic!("a room is to tick") };
    assert!(stepped.links[0].has_messages());
    assert!(!stepped.shard_waker.wake(), "the shard sleeps on");
}

/// A thread reads the messages of all its rooms before one of them ticks.
#[test]
fn the_time_for_messages_is_no_part_of_a_tick() {
    const MS: u64 = 1_000_000;
    let stepped = Stepped::new();
    let due_ns = stepped.next_ns().expect("a tick");
    let mut scheduler = stepped.room_thread.scheduler();
    let job = scheduler.next_job(&stepped.room_thread.shared, due_ns, due_ns + 8 * MS).expect("a tick is due");
    scheduler.put_back(job.run(), due_ns + 9 * MS);
    let counters = &scheduler.counters;
    assert_eq!((counters.ticks, counters.tick_duration.sum_ns, counters.busy_ns), (1, MS, 9 * MS));
}
