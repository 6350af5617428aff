//! Bodies of the fuzz targets, which unit tests run over the committed corpus. A violated invariant is a failed
//! assertion.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    CellIndex, ObjectId, Replica, SeenObject,
    paths::{PATH_BLOCK_BYTES_MAX, decode_block, read_header},
    recording::{Header, Recorder, carried, inputs},
    wire::{decode_input, encode_input, object_hash},
};
use hashbrown::HashMap;

type HashState = foldhash::fast::FixedState;

/// Any bytes as an input, in both encodings: what is read is written and read again as the same.
pub fn input(bytes: &[u8]) {
    for encoding in Encoding::ALL {
        let Ok(input) = decode_input(encoding, bytes) else { continue };
        assert!(input.number > 0 && input.data.len() + input.room.len() <= bytes.len());
        for other in Encoding::ALL {
            let mut written = Vec::new();
            encode_input(other, &input, &mut written);
            assert_eq!(decode_input(other, &written).as_ref(), Ok(&input));
        }
    }
}

/// Any bytes as a block of a player's path: its points have rising ticks and times.
pub fn path(bytes: &[u8]) {
    let Ok(block) = decode_block(bytes) else { return };
    assert!(bytes.len() <= PATH_BLOCK_BYTES_MAX);
    assert_eq!(read_header(bytes).as_ref(), Ok(&block.header));
    assert_eq!(block.points.first().map(|point| point.tick), Some(block.header.first_tick));
    for pair in block.points.windows(2) {
        assert!(pair[0].tick < pair[1].tick);
        assert!(block.header.time_ms(pair[0].tick) <= block.header.time_ms(pair[1].tick));
    }
}

/// Any bytes as a recording: what it says of connections is possible, and is written and read again as the same.
pub fn recording(bytes: &[u8]) {
    let found = inputs(bytes);
    let told = match carried(bytes) {
        Ok(told) => told,
        Err(error) => return assert_eq!(found, Err(error)),
    };
    assert!(found.expect("all records can be read").iter().all(|input| input.data.end <= bytes.len()));
    let mut recorder = Recorder::new(&Header::read(bytes).expect("it has a header"), Vec::new());
    for (player, carried) in &told {
        assert!(carried.is_worth_telling() && carried.first_skipped_tick() + carried.skipped_ticks() == carried.tick);
        recorder.carried(*player, *carried);
    }
    assert_eq!(dunlin_rooms::recording::carried(recorder.written()), Ok(told));
}

/// Snapshots in sequence: a byte whose lowest bit is the encoding, a little-endian length of two bytes, and the
/// snapshot. The replica is either unchanged or consistent.
pub fn snapshots(mut bytes: &[u8]) {
    let mut replica = Replica::default();
    while let Some(([encoding, low, high], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (data, rest) = rest.split_at(length);
        bytes = rest;
        let before = picture(&replica);
        let encoding = Encoding::ALL[usize::from(encoding & 1)];
        match replica.apply(encoding, data) {
            Ok(()) => check(&replica),
            Err(_) => assert_eq!(picture(&replica), before, "nothing changes after an error"),
        }
    }
}

type Picture = (u32, u64, u32, Option<ObjectId>, CellIndex, Vec<(ObjectId, SeenObject)>);

fn picture(replica: &Replica) -> Picture {
    let mut objects: Vec<_> = replica.objects().map(|(id, seen)| (id, seen.clone())).collect();
    objects.sort_unstable_by_key(|(id, _)| *id);
    (replica.tick(), replica.time_us(), replica.ack(), replica.avatar(), replica.view(), objects)
}

fn check(replica: &Replica) {
    let grid = replica.grid().expect("a replica that has a tick has a map");
    assert!(replica.tick() > 0 && replica.ticks_per_second() > 0);
    let mut hashes: HashMap<CellIndex, u64, HashState> = HashMap::default();
    for (id, seen) in replica.objects() {
        assert_eq!(replica.object(id), Some(seen));
        assert!(id.0 != 0 && grid.clamp(seen.position) == seen.position, "within the map");
        let Some(cell) = seen.cell else { continue };
        assert_eq!(grid.cell_of(seen.position), cell);
        assert!(grid.band(replica.view(), cell).is_some(), "what is not visible is dropped");
        *hashes.entry(cell).or_default() ^= object_hash(id, seen.kind, seen.position, &seen.state);
    }
    for (cell, hash) in hashes {
        assert_eq!(replica.cell_hash(cell), hash);
    }
}
