//! Runs the fuzz target's body over its committed seeds, so that old findings stay fixed, and keeps them in the format that
//! relays send.

use std::fs;

use dunlin_engine::{ShardIndex, room::SeatKey};
use dunlin_proof::{corpus, repository};
use dunlin_relay::format::FrameHead;

use crate::{
    fuzzing,
    nodes::{Nodes, encoding_of},
};

#[test]
fn relay_frame() {
    corpus::play("relay_frame", fuzzing::frames);
}

/// Changes that are not of the objects or of the schema end the link, or show something else. A mirror writes none that a
/// state does not have.
#[test]
fn damaged_changes_are_refused_or_shown() {
    let batch = fs::read(repository().join("fuzz/corpus/relay_frame/keyframe-and-changes")).expect("a seed");
    for place in 0..batch.len() {
        let byte = batch[place];
        for other in [0, 1, byte ^ 1, byte ^ 0x80, byte.wrapping_add(1), byte.wrapping_sub(1), 0xff] {
            let mut damaged = batch.clone();
            damaged[place] = other;
            fuzzing::frames(&damaged);
        }
    }
}

/// With `DUNLIN_WRITE=1` in the environment, writes the seeds anew.
#[test]
fn the_seeds_are_what_relays_send() {
    let folder = repository().join("fuzz/corpus/relay_frame");
    for (name, batch) in seeds() {
        let file = folder.join(name);
        if std::env::var_os("DUNLIN_WRITE").is_some_and(|value| value == "1") {
            fs::write(&file, &batch).expect("the file is writable");
        }
        let stale = "DUNLIN_WRITE=1 cargo test -p dunlin-relay seeds rewrites it";
        assert!(fs::read(&file).is_ok_and(|committed| committed == batch), "{} is stale; {stale}", file.display());
    }
}

/// A batch for each kind of message, as nodes send them while a room is played.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let seat = |shard, index| SeatKey { shard: ShardIndex(shard), index, generation: 1 };
    let mut nodes = Nodes::new(1);
    let mut seeds = Vec::new();
    let mut record = |nodes: &mut Nodes, name: &'static str| {
        nodes.settle(|frame| {
            let (_, batch) = postcard::take_from_bytes::<FrameHead<'_>>(frame).expect("a frame has a head");
            seeds.push((name, batch.to_vec()));
            true
        });
    };
    nodes.open(0);
    nodes.join(0, seat(0, 0), b"", encoding_of(seat(0, 0)));
    record(&mut nodes, "join");
    nodes.join(0, seat(1, 1), b"", encoding_of(seat(1, 1)));
    record(&mut nodes, "second-shard");
    nodes.tick();
    record(&mut nodes, "joined-keyframe-tick");
    for (number, input, sent, came) in [
        (1, vec![40], "input", "moved"),
        (2, b"shout".to_vec(), "shout", "event"),
        (3, b"whisper".to_vec(), "whisper", "private-event"),
    ] {
        nodes.input(0, seat(0, 0), number, input);
        record(&mut nodes, sent);
        nodes.tick();
        record(&mut nodes, came);
    }
    nodes.tick();
    record(&mut nodes, "tick");
    nodes.join(0, seat(0, 3), b"", encoding_of(seat(0, 3)));
    record(&mut nodes, "typed-join");
    nodes.tick();
    record(&mut nodes, "second-keyframe");
    nodes.leave(0, seat(0, 0));
    record(&mut nodes, "leave");
    nodes.input(0, seat(0, 3), 1, vec![41]);
    nodes.settle(|_| true);
    nodes.tick();
    record(&mut nodes, "changes");
    // Changes are read only in a room whose schema is known.
    let batch = |name| seeds.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, batch)| batch);
    let both = [batch("second-keyframe"), batch("changes")].concat();
    seeds.push(("keyframe-and-changes", both));
    seeds
}
