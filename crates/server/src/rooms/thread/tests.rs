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
        links,
        tests::games,
    },
};

#[test]
fn shards_get_messages_before_a_job_of_unknown_length() {
    let waker = Arc::new(dunlin_net::Waker::eventfd().expect("an eventfd"));
    let shard_wakers = [Arc::new(ShardWaker::new(waker))];
    let wakers = [Arc::new(ThreadWaker::default())];
    let (mut links, mut outgoing) =
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
    let mut open = |number, namespace| {
        let room = RoomKey { owner: ShardIndex(0), number };
        links[0].send(
            RoomThreadIndex(0),
            ToRoom::Open { room, channel: "a".into(), namespace, overrides: std::sync::Arc::default() },
        );
    };
    // Create a room and wait until its first tick is scheduled and all messages are announced.
    open(1, 1);
    while room_thread.scheduler().next_ns().is_none() {
        assert!(matches!(next(&room_thread, 0), Next::Sleep | Next::Nap(_)));
        if room_thread.scheduler().opening_count() > 0 {
            assert!(builder.carry_out_next(0));
        }
    }
    while links[0].next(0).is_some() {}
    while room_thread.scheduler().next_ns().is_some_and(|due_ns| due_ns > room_thread.shared.now_ns()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // When the tick is due, the refusal of another room waits for its owner.
    shard_wakers[0].sleeping.arm();
    (0..room_thread.shared.options.lost_threads_max).for_each(|_| room_thread.shared.lose_thread(0));
    let room = RoomKey { owner: ShardIndex(0), number: 2 };
    links[0].send(
        RoomThreadIndex(0),
        ToRoom::Open { room, channel: "b".into(), namespace: 0, overrides: std::sync::Arc::default() },
    );
    let Next::Run(_) = next(&room_thread, 0) else { panic!("a room is to tick") };
    assert!(links[0].has_messages());
    assert!(!shard_wakers[0].wake(), "the shard sleeps on");
}
