//! Parses the head of a Protobuf snapshot (`schema/room.proto`): the fields before its cells.

use dunlin_protocol::protobuf::wire::{Reader, Value};

/// The tick of a snapshot, its base and its time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub tick: u32,
    pub base: u32,
    pub time_us: u64,
}

/// Parses the fields up to the time, and ignores the rest. `None` if the data is not a snapshot.
pub fn read(data: &[u8]) -> Option<Head> {
    let mut head = Head::default();
    let mut reader = Reader::new(data);
    while let Some((field, value)) = reader.field().ok()? {
        match (field, value) {
            (4, Value::Varint(tick)) => head.tick = u32::try_from(tick).ok()?,
            (5, Value::Varint(base)) => head.base = u32::try_from(base).ok()?,
            (6, Value::Fixed64(time_us)) => {
                head.time_us = time_us;
                return Some(head);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_snapshot_is_parsed_alone() {
        let data = [0x0d, 1, 0, 0, 0, 0x20, 9, 0x28, 8, 0x31, 5, 0, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(read(&data), Some(Head { tick: 9, base: 8, time_us: 5 }));
        assert_eq!(read(&data[..10]), None, "the time is missing");
        assert_eq!(read(&data[5..7]), None);
    }
}
