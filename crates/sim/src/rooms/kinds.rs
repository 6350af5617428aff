//! The kinds of objects whose fields the game declares, and their states as bytes, written without the code of rooms.

use std::num::NonZeroU32;

use dunlin_rooms::{ObjectId, Schema, choice, state};

state! {
    /// A kind with differences, an angle, and fields that may be left out.
    pub struct Walker: 1 {
        pub heading: u8 [angle(), delta_bits(4)],
        pub speed: i8 [range(-100, 100)],
        pub steps: u16 [delta_bits(5), linear()],
        pub is_running: bool,
        pub target: Option<ObjectId> [optional()],
        pub name: String [max(12), optional()],
    }
}

choice! {
    /// What a heap is made of.
    pub enum Matter { Sand, Stone, Gold }
}

state! {
    /// A kind with a list and a choice.
    pub struct Heap: 2 {
        pub counts: Vec<u8> [range(0, 99), max(6)],
        pub matter: Matter,
        pub height: i16 [delta_bits(3)],
    }
}

/// Bytes of a walker without optional fields; then those of a target, after which its name begins.
const WALKER_BYTES: usize = 5;
const TARGET_BYTES: usize = 4;

/// Names of walkers. Some need escapes in JSON.
const NAMES: [&str; 4] = ["", "Ada", "\"\u{e9}\"", "a\u{1}\\"];

/// What the game declares.
pub fn schema() -> Schema {
    Schema::new().with::<Walker>().with::<Heap>()
}

/// The same, with weights for a kind with fields and for some without: zones of a limited player's view wait for longer or less.
pub fn weighted_schema() -> Schema {
    let others = (300..=u16::MAX).step_by(9).take(9);
    others.fold(schema().with_weight(2, 5), |schema, kind| schema.with_weight(kind, u8::MAX))
}

/// The kinds that are visible only near, and how far, in units: one with fields, and some without.
pub fn near_kinds(units: NonZeroU32) -> impl Iterator<Item = (u16, u32)> {
    let others = (300..400).step_by(2).map(move |kind| (kind, units.get() * 2));
    std::iter::once((2, units.get())).chain(others)
}

/// The kind of a new object: most have fields.
pub fn kind_of(number: u16) -> u16 {
    match number {
        0..200 => 1,
        200..300 => 2,
        other => other,
    }
}

/// The next state of an object of a kind with fields: mostly with one other field. `bits` are random.
pub fn next_state(kind: u16, before: &[u8], bits: u64) -> Option<Vec<u8>> {
    let [what, much, more, ..] = bits.to_le_bytes();
    match kind {
        1 => Some(next_walker(before, what, much, more)),
        2 => Some(heap(what, much, more)),
        _ => None,
    }
}

fn next_walker(before: &[u8], what: u8, much: u8, more: u8) -> Vec<u8> {
    let mut state = if has_form(1, before) { before.to_vec() } else { vec![much, 7, more, 0, 1] };
    let small = (much % 16).wrapping_sub(8);
    match what % 7 {
        0 => state[0] = state[0].wrapping_add(small),
        1 => state[1] = (i16::from(much % 201) - 100).to_le_bytes()[0],
        2 => {
            let steps = u16::from_le_bytes([state[2], state[3]]).wrapping_add_signed(small.cast_signed().into());
            state[2..4].copy_from_slice(&steps.to_le_bytes());
        }
        3 => state[4] ^= 1,
        4 => {
            state.truncate(WALKER_BYTES);
            state.extend_from_slice(&[much | 1, more, 0, 0]);
        }
        5 => {
            state.resize(WALKER_BYTES + TARGET_BYTES, 0);
            state.extend_from_slice(NAMES[usize::from(more) % NAMES.len()].as_bytes());
        }
        _ => state[2] = much,
    }
    if state[WALKER_BYTES..].iter().all(|byte| *byte == 0) {
        state.truncate(WALKER_BYTES);
    }
    state
}

fn heap(what: u8, much: u8, more: u8) -> Vec<u8> {
    let count = what % 7;
    let mut state = vec![count];
    state.extend((0..count).map(|place| (more >> place) % 100));
    state.push(what % 3);
    state.extend_from_slice(&i16::from(much).wrapping_sub(100).to_le_bytes());
    state
}

/// Whether a state has the form of its kind, so that a client that asked for fields receives it as fields.
pub fn has_form(kind: u16, state: &[u8]) -> bool {
    match (kind, state) {
        (1, [_, speed, _, _, is_running, rest @ ..]) => {
            let is_inside = (-100..=100).contains(&speed.cast_signed()) && *is_running <= 1;
            let is_optional_right = match rest.split_at_checked(TARGET_BYTES) {
                None => rest.is_empty(),
                Some((target, name)) => {
                    let is_needed = target != [0; TARGET_BYTES] || !name.is_empty();
                    is_needed && name.len() <= 12 && std::str::from_utf8(name).is_ok()
                }
            };
            is_inside && is_optional_right
        }
        (2, [count, rest @ ..]) => {
            let count = usize::from(*count);
            count <= 6 && rest.len() == count + 3 && rest[..count].iter().all(|number| *number < 100) && rest[count] < 3
        }
        _ => false,
    }
}
