//! README's pictures exist and are small, and the one that moves does.

use std::{fs, ops::RangeInclusive};

use crate::{read, root};

const BYTES_MAX: usize = 1_500_000;
/// README is shown about as wide.
const MOVING_WIDTH_MAX: u32 = 900;
/// Long enough to be read, and short enough to be waited for.
const MOVING_MS: RangeInclusive<u32> = 3_000..=12_000;

#[test]
fn pictures_of_readme_are_small_and_one_moves() {
    let readme = read("README.md");
    let names: Vec<&str> = readme.split("](").filter_map(|rest| rest.split_once(')')).map(|(name, _)| name).collect();
    let mut moving = Vec::new();
    for name in names
        .into_iter()
        .filter(|name| std::path::Path::new(name).extension().is_some_and(|extension| extension == "png"))
    {
        let picture = fs::read(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(picture.len() <= BYTES_MAX, "{name} has {} bytes", picture.len());
        let chunks = chunks(&picture);
        let frames: Vec<&[u8]> = chunks.iter().filter(|(kind, _)| *kind == b"fcTL").map(|(_, data)| *data).collect();
        if frames.is_empty() {
            continue;
        }
        let milliseconds: u32 = frames.iter().map(|frame| frame_ms(frame)).sum();
        assert!(MOVING_MS.contains(&milliseconds), "{name} moves for {milliseconds} ms");
        let width = number(&chunks[0].1[..4]);
        assert!(width <= MOVING_WIDTH_MAX, "{name} is {width} pixels wide");
        moving.push(name);
    }
    assert_eq!(moving.len(), 1, "`make pictures` makes README's moving picture: {moving:?}");
}

/// The chunks of a PNG: their types and their data (PNG specification, section 5.3).
fn chunks(picture: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut rest = picture.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let length = number(&rest[..4]) as usize;
        chunks.push((&rest[4..8], &rest[8..8 + length]));
        rest = &rest[12 + length..];
    }
    chunks
}

/// How long a frame is shown: `delay_num` and `delay_den` of its `fcTL` (section 11.3.6.2).
fn frame_ms(control: &[u8]) -> u32 {
    let numerator = u32::from(u16::from_be_bytes([control[20], control[21]]));
    let denominator = u32::from(u16::from_be_bytes([control[22], control[23]]));
    numerator * 1000 / if denominator == 0 { 100 } else { denominator }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}
