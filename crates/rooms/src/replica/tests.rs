use dunlin_protocol::Encoding;

use super::{Limits, Replica, ReplicaError};
use crate::{
    CellIndex, ClockRate, GridShape, ObjectId, ObjectView, Schema,
    wire::{self, BodyHead, SegmentHead},
};

const SHAPE: GridShape =
    GridShape { columns: 2, rows: 2, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };

/// A snapshot with objects of these ids and states in cell 0.
fn snapshot(encoding: Encoding, tick: u32, base: u32, departed: &[u32], objects: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::write_player_header(encoding, 0, 0, None, &mut out);
    let head = BodyHead {
        tick,
        base,
        time_us: 1,
        grid: (base == 0).then_some((&SHAPE, 60)),
        view: CellIndex(0),
        rate: ClockRate::FULL,
        waited: 0,
    };
    wire::write_body_head(encoding, &head, &mut out);
    let mut upserts = Vec::new();
    for (id, state) in objects {
        let object = ObjectView { id: ObjectId(*id), kind: 1, x: 1, y: 1, state };
        wire::write_upsert(encoding.into(), &Schema::new(), &object, &mut upserts);
    }
    let head = SegmentHead { cell: CellIndex(0), is_full: false, departed, changes: &[] };
    wire::write_segment(encoding.into(), &head, &upserts, &mut out);
    wire::write_body_end(encoding, &mut out);
    out
}

fn small() -> Replica {
    Replica { limits: Limits { objects: 3, state_bytes: 10 }, ..Replica::default() }
}

#[test]
fn objects_of_a_replica_are_limited() {
    assert_eq!(Limits::default().objects, 1_000_000);
    for encoding in Encoding::ALL {
        let four: &[(u32, &[u8])] = &[(1, b""), (2, b""), (3, b""), (4, b"")];
        let mut replica = small();
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 1, 0, &[], four)), Err(ReplicaError::TooLarge));
        assert_eq!((replica.tick(), replica.objects().count()), (0, 0));
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 1, 0, &[], &four[..3])), Ok(()));
        // Known objects do not count again.
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 2, 1, &[], &four[..3])), Ok(()));
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 3, 2, &[], &four[3..])), Err(ReplicaError::TooLarge));
        assert_eq!((replica.tick(), replica.objects().count()), (2, 3));
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 3, 2, &[1], &[])), Ok(()));
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 4, 3, &[], &four[3..])), Ok(()));
        assert_eq!(replica.objects().count(), 3);
    }
}

#[test]
fn state_bytes_of_a_replica_are_limited() {
    assert_eq!(Limits::default().state_bytes, 256 << 20);
    for encoding in Encoding::ALL {
        let mut replica = small();
        let objects: &[(u32, &[u8])] = &[(1, &[0; 6]), (2, &[0; 4])];
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 1, 0, &[], objects)), Ok(()));
        let longer = snapshot(encoding, 2, 1, &[], &[(2, &[0; 5])]);
        assert_eq!(replica.apply(encoding, &longer), Err(ReplicaError::TooLarge));
        assert_eq!(replica.apply(encoding, &snapshot(encoding, 2, 1, &[], &[(1, &[0; 2])])), Ok(()));
        let longer = snapshot(encoding, 3, 2, &[], &[(2, &[0; 8])]);
        assert_eq!(replica.apply(encoding, &longer), Ok(()));
        assert_eq!(replica.object(ObjectId(2)).map(|seen| seen.state.len()), Some(8));
        assert_eq!(replica.seen.state_bytes(), 10);
        let forgetting = snapshot(encoding, 4, 3, &[1, 2], &[]);
        assert_eq!(replica.apply(encoding, &forgetting), Ok(()));
        assert_eq!(replica.seen.state_bytes(), 0);
    }
}

/// A list whose elements can only be 7 needs no bit for an element, so two bytes of a change are 4 KiB of a state.
#[test]
fn changes_end_at_the_limit_of_state_bytes() {
    let document = br#"{"kinds":[{"kind":1,"name":"Sevens","fields":[
        {"name":"all","type":"list","bytes":4,"min":7,"max":7,"count_min":0,"count_max":1024}]}]}"#;
    let schema = Schema::from_document(document).expect("a schema");
    let sevens = &7_u32.to_le_bytes()[..];
    let three = [(1, sevens), (2, sevens), (3, sevens)];
    // Three objects, but the bits end behind the second. Both have a list of 1,024 numbers.
    let bits = "100100 0 0 01 00000000001 0 1 00000000001";
    let mut written = vec![0_u8; 5];
    for (at, _) in bits.bytes().filter(|bit| *bit != b' ').enumerate().filter(|(_, bit)| *bit == b'1') {
        written[at / 8] |= 1 << (at % 8);
    }
    for (state_bytes, expected) in [(8_191, ReplicaError::TooLarge), (8_192, ReplicaError::Malformed)] {
        let mut replica =
            Replica { limits: Limits { objects: 3, state_bytes }, schema: schema.clone(), ..Replica::default() };
        assert_eq!(replica.apply(Encoding::Protobuf, &snapshot(Encoding::Protobuf, 1, 0, &[], &three)), Ok(()));
        let mut sent = Vec::new();
        wire::write_player_header(Encoding::Protobuf, 0, 0, None, &mut sent);
        let head =
            BodyHead { tick: 2, base: 1, time_us: 1, grid: None, view: CellIndex(0), rate: ClockRate::FULL, waited: 0 };
        wire::write_body_head(Encoding::Protobuf, &head, &mut sent);
        let head = SegmentHead { cell: CellIndex(0), is_full: false, departed: &[], changes: &written };
        wire::write_segment(Encoding::Protobuf.into(), &head, &[], &mut sent);
        wire::write_body_end(Encoding::Protobuf, &mut sent);
        assert_eq!(replica.apply(Encoding::Protobuf, &sent), Err(expected), "at most {state_bytes} bytes");
    }
}
