//! The events that a simulation emits in a tick.

use serde_json::value::RawValue;

use super::WorldError;
use crate::{
    CellIndex, PlayerId,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// The players that receive an event.
///
/// ```
/// use dunlin_rooms::{Position, Scope};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let cell = world.grid().cell_of(Position { x: 300, y: 300 });
/// world.emit(Scope::Near(cell), r#"{"type": "explosion"}"#)?;
/// world.emit(Scope::Player(ada), r#"{"type": "ammunition", "left": 3}"#)?;
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every player.
    All,
    /// Players whose view includes this cell at the end of the tick.
    Near(CellIndex),
    /// Only this player receives the event.
    Player(PlayerId),
}

/// The destination of an event or a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Players(Scope),
    /// Another channel.
    Channel(Box<str>),
}

/// Events and publications of one tick.
#[derive(Debug)]
pub(crate) struct Events {
    count_max: usize,
    bytes_max: usize,
    /// The target of each entry, and the end of its text in `text`.
    entries: Vec<(Target, usize)>,
    text: String,
}

impl Events {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { count_max, bytes_max, entries: Vec::new(), text: String::new() }
    }

    /// Adds an event. Checks the limits of the tick, and that `json` is valid JSON.
    pub(crate) fn add(&mut self, target: Target, json: &str) -> Result<(), WorldError> {
        if self.entries.len() >= self.count_max {
            return Err(WorldError::TooManyEvents);
        }
        let is_channel_bad = matches!(&target, Target::Channel(name) if name.is_empty() || name.len() > self.bytes_max);
        if is_channel_bad || json.len() > self.bytes_max || serde_json::from_str::<&RawValue>(json).is_err() {
            return Err(WorldError::BadEvent);
        }
        self.text.push_str(json);
        self.entries.push((target, self.text.len()));
        Ok(())
    }

    /// The entries, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Target, &str)> {
        let mut start = 0;
        self.entries.iter().map(move |(target, end)| {
            let json = &self.text[start..*end];
            start = *end;
            (target, json)
        })
    }

    /// Adds the entries to a hash.
    pub(crate) fn hash(&self, hasher: Hasher) -> Hasher {
        self.iter().fold(hasher.number(self.entries.len() as u64), |hasher, (target, json)| {
            let hasher = match target {
                Target::Players(Scope::All) => hasher.number(0),
                Target::Players(Scope::Near(cell)) => hasher.number(1).number(u64::from(cell.0)),
                Target::Players(Scope::Player(player)) => hasher.number(2).number(u64::from(player.0)),
                Target::Channel(name) => hasher.number(3).bytes(name.as_bytes()),
            };
            hasher.bytes(json.as_bytes())
        })
    }

    /// Appends the form that [`Events::restore`] reads.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_number(self.entries.len() as u64, out);
        for (target, json) in self.iter() {
            save_target(target, out);
            put_bytes(json.as_bytes(), out);
        }
    }

    /// Adds what [`Events::save`] wrote.
    pub(crate) fn restore(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        for _ in 0..saved.count()? {
            let target = restore_target(saved)?;
            self.add(target, saved.text()?).map_err(|_| Unreadable::Wrong)?;
        }
        Ok(())
    }

    /// Removes all entries, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.text.clear();
    }

    /// Approximate memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<(Target, usize)>()
    }
}

fn save_target(target: &Target, out: &mut Vec<u8>) {
    match target {
        Target::Players(Scope::All) => out.push(0),
        Target::Players(Scope::Near(cell)) => {
            out.push(1);
            put_number(u64::from(cell.0), out);
        }
        Target::Players(Scope::Player(player)) => {
            out.push(2);
            put_number(u64::from(player.0), out);
        }
        Target::Channel(name) => {
            out.push(3);
            put_bytes(name.as_bytes(), out);
        }
    }
}

fn restore_target(saved: &mut Reader<'_>) -> Result<Target, Unreadable> {
    Ok(match saved.byte()? {
        0 => Target::Players(Scope::All),
        1 => Target::Players(Scope::Near(CellIndex(saved.number_of()?))),
        2 => Target::Players(Scope::Player(PlayerId(saved.number_of()?))),
        3 => Target::Channel(saved.text()?.into()),
        _ => return Err(Unreadable::Wrong),
    })
}
