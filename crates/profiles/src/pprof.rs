//! Writes a profile as the protocol buffer of pprof (`perftools.profiles.Profile`), with the names of functions as far as
//! the program has symbols.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, SystemTime},
};

use crate::{
    mappings::{self, Mapping},
    waits::Wait,
};

/// A profile before its addresses have names.
pub(crate) struct Profile {
    /// What the values of a sample mean: a type and a unit each.
    pub(crate) value_types: &'static [(&'static str, &'static str)],
    /// The type that `go tool pprof` shows if nobody chooses one.
    pub(crate) default_type: &'static str,
    /// What is sampled, and the mean distance of two samples.
    pub(crate) period_type: (&'static str, &'static str),
    pub(crate) period: i64,
    pub(crate) duration_ns: i64,
    /// What a reader should know about the profile.
    pub(crate) comments: Vec<String>,
    /// What takes the sample is left out at the inner end of stacks: functions in whose names one of these occurs.
    pub(crate) own_functions: &'static [&'static str],
    pub(crate) samples: Vec<Sample>,
}

/// Values of a stack, or of a stack in one thread.
pub(crate) struct Sample {
    /// Addresses, innermost first.
    pub(crate) frames: Box<[usize]>,
    pub(crate) values: Vec<i64>,
    pub(crate) thread: Option<String>,
}

/// The types of a profile without addresses.
pub(crate) struct ValueTypes {
    pub(crate) types: &'static [(&'static str, &'static str)],
    pub(crate) default: &'static str,
    pub(crate) period: (&'static str, &'static str),
}

/// Maximum number of addresses whose names are kept: with files and inlined functions some 8 MB.
const NAMES_MAX: usize = 16_384;

/// Names of functions that earlier profiles have looked up. A program that writes one profile after the other keeps them:
/// looking up names again takes longer than all the rest of a profile.
#[derive(Debug, Default)]
pub struct Names(HashMap<usize, Vec<Line>>);

/// The functions at an address: those that are inlined there first.
struct Place<'n> {
    mapping: u64,
    lines: &'n [Line],
}

#[derive(Debug)]
struct Line {
    name: String,
    file: String,
    line: i64,
}

impl Profile {
    /// The profile in pprof format, not compressed. Looks up names that are not known, which may take a second.
    pub(crate) fn encode(&self, names: &mut Names) -> Vec<u8> {
        let mappings = mappings::of_this_process();
        let addresses: HashSet<usize> = self.samples.iter().flat_map(|sample| &sample.frames).copied().collect();
        names.look_up(&addresses);
        let names = &*names;
        let place = |address: &usize| (*address, Place::new(*address, &mappings, names));
        let places: HashMap<_, _> = addresses.iter().map(place).collect();
        let mut out = Encoder::default();
        for (kind, unit) in self.value_types {
            out.value_type(1, (kind, unit));
        }
        self.samples(&mut out, &places);
        let is_named = |id: u64| places.values().any(|place| place.mapping == id && !place.lines.is_empty());
        for (id, mapping) in (1..).zip(&mappings) {
            out.mapping(id, mapping, is_named(id));
        }
        out.places(&places);
        out.when(self.duration_ns);
        out.value_type(11, self.period_type);
        out.number(12, self.period);
        for comment in &self.comments {
            let comment = out.text(comment);
            out.number(13, comment);
        }
        let default_type = out.text(self.default_type);
        out.number(14, default_type);
        out.finish()
    }

    fn samples(&self, out: &mut Encoder, places: &HashMap<usize, Place<'_>>) {
        let is_own = |address: &usize| {
            places[address].lines.iter().any(|line| self.own_functions.iter().any(|own| line.name.contains(own)))
        };
        for Sample { frames, values, thread } in &self.samples {
            let own = frames.iter().take_while(|address| is_own(address)).count();
            let mut sample = Message::default();
            sample.packed(1, frames[own..].iter().map(|address| *address as u64));
            sample.packed(2, values.iter().map(|value| value.cast_unsigned()));
            if let Some(thread) = thread {
                let mut label = Message::default();
                label.number(1, out.text("thread"));
                label.number(2, out.text(thread));
                sample.message(3, &label);
            }
            out.message(2, &sample);
        }
    }
}

/// A profile whose stacks are names.
pub(crate) fn encode_named(types: &ValueTypes, over: Duration, waits: &[Wait]) -> Vec<u8> {
    let mut out = Encoder::default();
    for (kind, unit) in types.types {
        out.value_type(1, (kind, unit));
    }
    // A name is a function with one location, and both have the same id. 0 means that there is none.
    let mut ids = HashMap::<&str, u64>::new();
    for Wait { place, count, total } in waits {
        let of_place: Vec<u64> = place
            .iter()
            .map(|name| {
                let next = ids.len() as u64 + 1;
                *ids.entry(name).or_insert(next)
            })
            .collect();
        let nanoseconds = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        let mut sample = Message::default();
        sample.packed(1, of_place.into_iter());
        sample.packed(2, [*count, nanoseconds].into_iter());
        out.message(2, &sample);
    }
    for (name, id) in ids {
        let mut line = Message::default();
        line.number(1, id.cast_signed());
        let mut location = Message::default();
        location.number(1, id.cast_signed());
        location.message(4, &line);
        out.message(4, &location);
        let mut function = Message::default();
        function.number(1, id.cast_signed());
        function.number(2, out.text(name));
        out.message(5, &function);
    }
    out.when(over.as_nanos() as i64);
    out.value_type(11, types.period);
    out.number(12, 1);
    let default_type = out.text(types.default);
    out.number(14, default_type);
    out.finish()
}

impl Names {
    fn look_up(&mut self, addresses: &HashSet<usize>) {
        let missing: Vec<_> = addresses.iter().copied().filter(|address| !self.0.contains_key(address)).collect();
        if missing.is_empty() {
            return;
        }
        if self.0.len() + missing.len() > NAMES_MAX {
            // Those of this profile are kept, however many they are.
            self.0.retain(|address, _| addresses.contains(address));
        }
        for address in missing {
            self.0.insert(address, lines_at(address));
        }
        // It holds the symbols of the whole program.
        backtrace::clear_symbol_cache();
    }
}

fn lines_at(address: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    // It takes a return address, and looks up the one before it.
    backtrace::resolve(address.wrapping_add(1) as *mut _, |symbol| {
        let Some(name) = symbol.name() else { return };
        let file = symbol.filename().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        lines.push(Line { name: format!("{name:#}"), file, line: symbol.lineno().unwrap_or(0).into() });
    });
    lines
}

impl<'n> Place<'n> {
    fn new(address: usize, mappings: &[Mapping], names: &'n Names) -> Self {
        let is_in = |mapping: &Mapping| (mapping.start..mapping.limit).contains(&(address as u64));
        let mapping = mappings.iter().position(is_in).map_or(0, |at| at as u64 + 1);
        Self { mapping, lines: names.0.get(&address).map_or(&[], |lines| lines) }
    }
}

/// The whole profile, and the table of its texts.
struct Encoder {
    profile: Message,
    texts: Vec<String>,
    text_places: HashMap<String, i64>,
}

/// A protocol buffer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Default for Encoder {
    fn default() -> Self {
        // The first text is empty.
        let text_places = HashMap::from([(String::new(), 0)]);
        Self { profile: Message::default(), texts: vec![String::new()], text_places }
    }
}

impl Encoder {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(place) = self.text_places.get(text) {
            return *place;
        }
        let place = self.texts.len().cast_signed() as i64;
        self.texts.push(text.to_owned());
        self.text_places.insert(text.to_owned(), place);
        place
    }

    fn number(&mut self, field: u32, number: i64) {
        self.profile.number(field, number);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.profile.message(field, message);
    }

    /// The profile ends now, and covers this time.
    fn when(&mut self, duration_ns: i64) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.number(9, now.as_nanos() as i64);
        self.number(10, duration_ns);
    }

    fn value_type(&mut self, field: u32, (kind, unit): (&str, &str)) {
        let mut message = Message::default();
        message.number(1, self.text(kind));
        message.number(2, self.text(unit));
        self.message(field, &message);
    }

    fn mapping(&mut self, id: u64, mapping: &Mapping, is_named: bool) {
        let mut message = Message::default();
        for (field, number) in [(1, id), (2, mapping.start), (3, mapping.limit), (4, mapping.offset)] {
            message.number(field, number.cast_signed());
        }
        message.number(5, self.text(&mapping.file));
        message.number(6, self.text(&mapping.build_id));
        // Without these, pprof looks for the symbols itself.
        for field in 7..=10 {
            message.number(field, is_named.into());
        }
        self.message(3, &message);
    }

    /// Each address is the id of its location.
    fn places(&mut self, places: &HashMap<usize, Place<'_>>) {
        let mut functions = HashMap::<(i64, i64), i64>::new();
        for (address, place) in places {
            let mut location = Message::default();
            for (field, number) in [(1, *address as u64), (2, place.mapping), (3, *address as u64)] {
                location.number(field, number.cast_signed());
            }
            for line in place.lines {
                let key = (self.text(&line.name), self.text(&line.file));
                let next = functions.len().cast_signed() as i64 + 1;
                let id = *functions.entry(key).or_insert(next);
                let mut message = Message::default();
                message.number(1, id);
                message.number(2, line.line);
                location.message(4, &message);
            }
            self.message(4, &location);
        }
        for ((name, file), id) in functions {
            let mut function = Message::default();
            for (field, number) in [(1, id), (2, name), (3, name), (4, file)] {
                function.number(field, number);
            }
            self.message(5, &function);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        for text in &self.texts {
            self.profile.bytes(6, text.as_bytes());
        }
        self.profile.0
    }
}

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u32, number: i64) {
        self.varint(u64::from(field) << 3);
        self.varint(number.cast_unsigned());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u32, numbers: impl Iterator<Item = u64>) {
        let mut packed = Self::default();
        numbers.for_each(|number| packed.varint(number));
        self.message(field, &packed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_once_and_bounded() {
        let own = names_are_looked_up_once_and_bounded as *const () as usize;
        let mut names = Names::default();
        names.look_up(&HashSet::from([own]));
        assert!(names.0[&own].iter().any(|line| line.name.contains("names_are_looked_up")), "{names:?}");
        names.0.insert(own, Vec::new());
        names.look_up(&HashSet::from([own]));
        assert!(names.0[&own].is_empty(), "it was looked up again");
        // Addresses without a name are kept as well.
        let many: HashSet<usize> = (1..=NAMES_MAX).collect();
        names.0.extend(many.iter().map(|address| (*address, Vec::new())));
        names.look_up(&HashSet::from([1, NAMES_MAX + 1]));
        assert_eq!(names.0.len(), 2);
    }

    #[test]
    fn numbers_are_varints_and_messages_have_lengths() {
        let mut inner = Message::default();
        inner.number(1, 300);
        inner.packed(2, [1, 128].into_iter());
        let mut outer = Message::default();
        outer.message(3, &inner);
        outer.number(16, -1);
        let mut expected = vec![3 << 3 | 2, 8, 1 << 3, 0xAC, 2, 2 << 3 | 2, 3, 1, 0x80, 1, 0x80, 1];
        expected.extend([0xFF; 9]);
        expected.push(1);
        assert_eq!(outer.0, expected);
    }
}
