//! Writes sources in all languages for a schema with each type of field, and states with what is to be read from them, for
//! `tests/clients/run`.
//!
//!     write_sources FOLDER
//!
//! A line of `FOLDER/states` is a kind, a state in hexadecimal, and the values, or `-` if it does not have the form of the
//! kind. Lines that begin with `between` have two states and a share.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use dunlin_codegen::{Language, write_source};
use dunlin_rooms::{ObjectId, Schema, State, StateReader, StateWriter, choice, state};

choice! {
    #[derive(Clone, Copy, Debug)]
    enum Light { Red, Amber, DarkGreen }
}

state! {
    #[derive(Clone)]
    struct Walker: 1 {
        heading: u8 [angle(), delta_bits(4)],
        score: i16 [range(-300, 299), delta_bits(5), per_unit(10), linear()],
        is_on: bool,
        light: Light,
        target: Option<ObjectId>,
        wide: u32,
        deep: i32 [range(-2_147_483_648, 2_147_483_647)],
        name: String [max(6)],
    }
}

state! {
    #[derive(Clone)]
    struct Bag: 2 {
        label: String [max(300)],
        pair: [i8; 2],
        amount: u16 [optional()],
        items: Vec<u16> [range(5, 700), max(4), optional()],
    }
}

state! {
    struct Log: 300 {
        numbers: Vec<u8> [max(4)],
        long: Vec<i16> [max(300)],
        class: u8 [range(3, 9)],
    }
}

impl Walker {
    fn shown(&self) -> String {
        let Self { heading, score, is_on, light, target, wide, deep, name } = self;
        let (target, name) = (target.map_or(0, |id| id.0), hex(name.as_bytes()));
        let (score, is_on) = (f64::from(*score) / 10.0, u8::from(*is_on));
        format!(
            "heading={heading}.0 score={score:.1} is_on={is_on} light={light:?} target={target} wide={wide} deep={deep} name={name}"
        )
    }
}

impl Bag {
    fn shown(&self) -> String {
        let Self { label, pair, amount, items } = self;
        format!("label={} pair={} amount={amount} items={}", hex(label.as_bytes()), list(pair), list(items))
    }
}

impl Log {
    fn shown(&self) -> String {
        format!("numbers={} long={} class={}", list(&self.numbers), list(&self.long), self.class)
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn bytes_of(state: &impl State) -> Vec<u8> {
    let mut bytes = Vec::new();
    StateWriter::write(state, &mut bytes);
    bytes
}

/// What the Rust types read from a state.
fn line(kind: u16, state: &[u8]) -> String {
    let shown = match kind {
        Walker::KIND => StateReader::read::<Walker>(state).map(|walker| walker.shown()),
        Bag::KIND => StateReader::read::<Bag>(state).map(|bag| bag.shown()),
        _ => StateReader::read::<Log>(state).map(|log| log.shown()),
    };
    // An empty state is a word of its own in the line.
    let bytes = if state.is_empty() { "empty".to_owned() } else { hex(state) };
    format!("{kind} {bytes} {}\n", shown.as_deref().unwrap_or("-"))
}

/// States with values at the ends of their ranges.
fn states() -> Vec<(u16, Vec<u8>)> {
    let walker = |heading, score, light, name: &str| Walker {
        heading,
        score,
        is_on: heading > 3,
        light,
        target: (heading > 3).then_some(ObjectId(u32::from(heading) << 24)),
        wide: u32::MAX - u32::from(heading),
        deep: if heading > 3 { i32::MIN } else { i32::MAX },
        name: name.to_owned(),
    };
    let bag = |label: &str, amount, items: &[u16]| Bag {
        label: label.to_owned(),
        pair: [-128, 127],
        amount,
        items: items.to_vec(),
    };
    let log = |numbers: &[u8], long: &[i16]| Log { numbers: numbers.to_vec(), long: long.to_vec(), class: 9 };
    let many: Vec<i16> = (-150..150).map(|number| number * 218).collect();
    let walkers =
        [walker(250, -300, Light::Amber, "Ada"), walker(0, 299, Light::DarkGreen, ""), walker(3, 0, Light::Red, "ö€€")];
    let long_label = "ü".repeat(150);
    let bags = [bag("", 0, &[]), bag(&long_label, 0, &[5, 700, 5, 6]), bag("a", 65_535, &[]), bag("b", 1, &[7])];
    // The first and last code points of each length, and those around the surrogates.
    let ends: String = ['\u{80}', '\u{7ff}', '\u{800}', '\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', '\u{10ffff}']
        .iter()
        .collect();
    let bag_of_ends = Bag { label: ends, pair: [0, 0], amount: 0, items: Vec::new() };
    let logs = [log(&[], &[]), log(&[0, 255, 1, 2], &many), log(&[9], &[i16::MIN, i16::MAX])];
    let mut states: Vec<_> = walkers.iter().map(|state| (Walker::KIND, bytes_of(state))).collect();
    states.extend(bags.iter().chain([&bag_of_ends]).map(|state| (Bag::KIND, bytes_of(state))));
    states.extend(logs.iter().map(|state| (Log::KIND, bytes_of(state))));
    states
}

/// A state cut at lengths, with one more byte, and with single bytes changed. Of a long state, only the ends are damaged.
fn damaged(state: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![state.to_vec(), [state, &[0]].concat(), [state, &[1]].concat()];
    for at in (0..state.len()).filter(|at| *at < 40 || *at + 8 > state.len()) {
        all.push(state[..at].to_vec());
        for change in [1, 0x80, 0xff] {
            let mut other = state.to_vec();
            other[at] ^= change;
            all.push(other);
        }
    }
    all
}

/// The formula of `docs/rooms-protocol.md`, in whole hundredths of a turn's steps.
fn between(from: &Walker, to: &Walker, share: f64) -> String {
    let steps = f64::from(to.heading.wrapping_sub(from.heading).cast_signed());
    let heading = (f64::from(from.heading) + steps * share).rem_euclid(256.0);
    let score = (f64::from(from.score) * (1.0 - share) + f64::from(to.score) * share) / 10.0;
    let light = if share < 1.0 { from.light } else { to.light };
    format!(
        "between {} {} {share} heading={heading:.2} score={score:.2} light={light:?}\n",
        hex(&bytes_of(from)),
        hex(&bytes_of(to))
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args().nth(1).ok_or("name a folder")?);
    let schema = Schema::new().with::<Walker>().with::<Bag>().with::<Log>();
    let files = [
        (Language::C, "states.h"),
        (Language::CSharp, "States.cs"),
        (Language::GdScript, "states.gd"),
        (Language::Python, "states.py"),
        (Language::TypeScript, "states.ts"),
    ];
    for (language, name) in files {
        fs::write(folder.join(name), write_source(&schema, language, "state_test")?)?;
    }
    let mut lines = String::new();
    for (kind, state) in states() {
        for state in damaged(&state) {
            lines.push_str(&line(kind, &state));
        }
    }
    let walkers: Vec<Walker> = states()
        .iter()
        .filter_map(|(kind, state)| (*kind == 1).then(|| StateReader::read::<Walker>(state)).flatten())
        .collect();
    for from in &walkers {
        for to in &walkers {
            for share in [0.0, 0.2, 0.5, 1.0] {
                lines.push_str(&between(from, to, share));
            }
        }
    }
    fs::write(folder.join("states"), lines)?;
    Ok(())
}
