//! A room thread's next step, taken by hand.

use dunlin_engine::{
    ShardIndex,
    room::{RoomKey, RoomThreadIndex, ToRoom},
};
use tokio::sync::mpsc;

use super::*;
use crate::{
    node::Doorbell,
    rooms::{RoomSettings, RoomsOptions, post},
};

#[test]
fn shards_are_told_before_a_job_of_unknown_length() {
    let poll = mio::Poll::new().expect("an epoll instance");
    let waker = Arc::new(crate::net::Waker::Epoll(mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker")));
    let doorbells = [Arc::new(Doorbell::new(waker))];
    let doors = [Arc::new(ThreadDoor::default())];
    let (mut links, mut posts) = post::connect(&doorbells, &doors, 16);
    let namespaces = vec![Some(Arc::new(RoomSettings::default())); 2];
    let shared = Arc::new(Shared::new(RoomsOptions { namespaces, ..RoomsOptions::default() }, 1, 1));
    let deck = Deck::new(0, posts.remove(0), mpsc::channel(1).0);
    let [door] = doors;
    let seat = Seat::new(0, shared, door, deck);
    // Everything was announced just now.
    assert!(matches!(next(&seat, 0), Next::Sleep | Next::Nap(_)));
    doorbells[0].sleeping.arm();
    // The first room is not opened, which its owner is to know; the second has its game made.
    (0..seat.shared.options.lost_threads_max).for_each(|_| seat.shared.lose_thread(0));
    for (number, namespace) in [(1, 0), (2, 1)] {
        let room = RoomKey { owner: ShardIndex(0), number };
        links[0].send(RoomThreadIndex(0), ToRoom::Open { room, channel: "a".into(), namespace });
    }
    let Next::Run(_) = next(&seat, 0) else { panic!("a room is to be made") };
    assert!(links[0].has_messages());
    assert!(!doorbells[0].ring(), "the shard sleeps on");
}
