//! What differs between the schema that a room was saved with and that of the game now, and the conversion of states.
//!
//! Whether the states of a kind can be converted depends on both schemas and on which version of the game is higher, never
//! on values. So a game knows which of its kinds have their new form when it takes over a room.

use std::fmt;

use super::{Field, FieldReader, FieldType, FieldWriter, Integer, Kind, RawValue, Schema, read_integer};

/// A kind of objects whose states have another form than before.
#[derive(Clone, Debug)]
pub(crate) struct KindChange<'a> {
    pub(crate) number: u16,
    pub(crate) change: StateChange<'a>,
}

/// How the states of a kind get their new form.
#[derive(Clone, Debug)]
pub(crate) enum StateChange<'a> {
    /// Field by field.
    Convert(Conversion<'a>),
    /// Only the game knows.
    Unknown { now: Option<&'a Kind>, difference: SchemaDifference },
}

/// Converts the states of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Conversion<'a> {
    was: &'a Kind,
    now: &'a Kind,
    /// For each field, the index that it had; `None` for a new one.
    places: Vec<Option<usize>>,
}

/// What happens to the values of fields that are not declared any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoneFields {
    /// The game has a higher version than before, so it has given them up.
    Dropped,
    /// It may be an earlier build that does not know of them, after a rollback or during an update of a cluster.
    Kept,
}

/// The first difference between two schemas that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaDifference {
    kind: u16,
    name: Box<str>,
    what: Box<str>,
}

impl Schema {
    /// The kinds of an earlier schema whose states do not have their form any more. A kind that the earlier schema does not
    /// have is not among them: its states were bytes, and a declaration may describe them.
    pub(crate) fn changes_since<'a>(&'a self, old: &'a Self, gone: GoneFields) -> Vec<KindChange<'a>> {
        let changed = old.kinds().iter().filter_map(|was| {
            let now = self.kind(was.number);
            let change = now
                .map_or_else(|| Some(unknown(was, None, "it is not declared any more")), |now| change(was, now, gone));
            Some(KindChange { number: was.number, change: change? })
        });
        changed.collect()
    }
}

impl Kind {
    /// Whether bytes have the form of the kind.
    pub(crate) fn describes(&self, state: &[u8]) -> bool {
        let mut reader = FieldReader::new(self.fields.len(), state);
        self.fields.iter().all(|field| reader.next(field).is_some()) && reader.is_finished()
    }
}

/// How the states of a kind change; `None` if their bytes stay valid.
fn change<'a>(was: &'a Kind, now: &'a Kind, if_gone: GoneFields) -> Option<StateChange<'a>> {
    if is_extended(&was.fields, &now.fields) {
        return None;
    }
    let place_in = |fields: &[Field], name: &str| fields.iter().position(|field| field.name == name);
    let places: Vec<Option<usize>> = now.fields.iter().map(|field| place_in(&was.fields, &field.name)).collect();
    let gone = was.fields.iter().find(|field| place_in(&now.fields, &field.name).is_none());
    let added = now.fields.iter().zip(&places).find(|(_, place)| place.is_none()).map(|(field, _)| field);
    // A field with another name would lose its values.
    if let (Some(gone), Some(added)) = (gone, added) {
        let what = format!("the field `{}` is gone and `{}` is new, which may be its new name", gone.name, added.name);
        return Some(unknown(was, Some(now), &what));
    }
    if let (Some(gone), GoneFields::Kept) = (gone, if_gone) {
        let what = format!("the field `{}` is gone, and the game does not have a higher version", gone.name);
        return Some(unknown(was, Some(now), &what));
    }
    let kept = now.fields.iter().zip(&places).filter_map(|(field, place)| Some((&was.fields[(*place)?], field)));
    for (old, new) in kept {
        if !is_wider(old, new) {
            let what = format!("the field `{}` was {}, and is {}", new.name, form_of(old), form_of(new));
            return Some(unknown(was, Some(now), &what));
        }
    }
    Some(StateChange::Convert(Conversion { was, now, places }))
}

fn unknown<'a>(was: &Kind, now: Option<&'a Kind>, what: &str) -> StateChange<'a> {
    let difference = SchemaDifference { kind: was.number, name: was.name.as_ref().into(), what: what.into() };
    StateChange::Unknown { now, difference }
}

/// Whether all states of the old fields are states of the new ones: nothing has changed but what clients do with it, and
/// optional fields at the end.
fn is_extended(was: &[Field], now: &[Field]) -> bool {
    let is_same = |(was, now): (&Field, &Field)| {
        (&was.name, &was.of, was.per_unit, was.is_optional) == (&now.name, &now.of, now.per_unit, now.is_optional)
    };
    let Some((kept, added)) = now.split_at_checked(was.len()) else { return false };
    let ends_with_length = was.last().is_some_and(|last| match last.of {
        FieldType::Text { .. } => true,
        FieldType::List { count_min, count_max, .. } => count_min != count_max,
        _ => false,
    });
    was.iter().zip(kept).all(is_same)
        && added.iter().all(|field| field.is_optional)
        && (added.is_empty() || !ends_with_length)
}

/// Whether each value of the old field is one of the new field.
fn is_wider(was: &Field, now: &Field) -> bool {
    let holds = |was: &Integer, now: &Integer| now.min <= was.min && now.max >= was.max;
    was.per_unit == now.per_unit
        && match (&was.of, &now.of) {
            (FieldType::Integer(was), FieldType::Integer(now)) => holds(was, now),
            (FieldType::Flag, FieldType::Flag) | (FieldType::Object, FieldType::Object) => true,
            (FieldType::Choice(was), FieldType::Choice(now)) => was.iter().all(|name| now.contains(name)),
            (FieldType::Text { bytes_max: was }, FieldType::Text { bytes_max: now }) => now >= was,
            (
                FieldType::List { of: was, count_min: was_min, count_max: was_max },
                FieldType::List { of: now, count_min, count_max },
            ) => holds(was, now) && count_min <= was_min && count_max >= was_max,
            _ => false,
        }
}

fn form_of(field: &Field) -> String {
    let range = |integer: &Integer| format!("{} to {}", integer.min, integer.max);
    let form = match &field.of {
        FieldType::Integer(integer) => format!("an integer from {}", range(integer)),
        FieldType::Flag => "a flag".to_owned(),
        FieldType::Choice(names) => format!("a choice of {}", names.join(", ")),
        FieldType::Object => "an object".to_owned(),
        FieldType::Text { bytes_max } => format!("a text of at most {bytes_max} bytes"),
        FieldType::List { of, count_min, count_max } => {
            format!("a list of {count_min} to {count_max} integers from {}", range(of))
        }
    };
    if field.per_unit == 1 { form } else { format!("{form} with per_unit({})", field.per_unit) }
}

impl Conversion<'_> {
    /// Appends the new form of a state. Returns whether it had the old one: others stay as they are.
    pub(crate) fn convert(&self, state: &[u8], out: &mut Vec<u8>) -> bool {
        let mut reader = FieldReader::new(self.was.fields.len(), state);
        let read: Option<Vec<RawValue<'_>>> = self.was.fields.iter().map(|field| reader.next(field)).collect();
        let Some(values) = read.filter(|_| reader.is_finished()) else { return false };
        let mut writer = FieldWriter::new(self.now.fields.len(), out);
        for (field, place) in self.now.fields.iter().zip(&self.places) {
            match place {
                Some(place) => put(&mut writer, (&self.was.fields[*place], values[*place]), field),
                None => put_default(&mut writer, field),
            }
        }
        writer.finish();
        true
    }
}

fn put(writer: &mut FieldWriter<'_>, (was, value): (&Field, RawValue<'_>), now: &Field) {
    match (value, &was.of, &now.of) {
        (RawValue::Number(index), FieldType::Choice(were), FieldType::Choice(are)) => {
            let name = usize::try_from(index).ok().and_then(|index| were.get(index));
            let index = are.iter().position(|choice| Some(choice) == name).unwrap_or(0);
            writer.put(now, RawValue::Number(i64::try_from(index).unwrap_or(0)));
        }
        (RawValue::Bytes(bytes), FieldType::List { of, .. }, _) => {
            writer.put_list(now, bytes.chunks_exact(of.bytes.into()).map(|element| read_integer(element, *of)));
        }
        _ => writer.put(now, value),
    }
}

/// A field that no state has had: empty, or the value nearest to 0.
fn put_default(writer: &mut FieldWriter<'_>, field: &Field) {
    match &field.of {
        FieldType::Integer(integer) => writer.put(field, RawValue::Number(0.clamp(integer.min, integer.max))),
        FieldType::List { of, count_min, .. } => {
            let element = 0.clamp(of.min, of.max);
            writer.put_list(field, std::iter::repeat_n(element, usize::from(*count_min)));
        }
        _ => writer.put(field, field.nothing()),
    }
}

impl fmt::Display for SchemaDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {} ({}): {}", self.kind, self.name, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{State, StateReader, StateWriter, choice, state};

    choice! {
        /// What a runner did.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Did { Nothing, Digging }
    }

    choice! {
        /// What a runner does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Doing { Swimming, Nothing, Digging }
    }

    state! {
        /// A runner of version 1.
        #[derive(Clone, Debug, PartialEq)]
        struct Runner: 1 {
            points: u8,
            lives: u8,
            doing: Did,
            path: Vec<i8> [max(4)],
            name: String [max(16)],
        }
    }

    mod next {
        use super::Doing;
        use crate::state;

        state! {
            /// Points and path are wider, in another order, and the level is new.
            #[derive(Clone, Debug, PartialEq)]
            pub struct Runner: 1 {
                pub level: u8 [range(1, 9)],
                pub lives: u8,
                pub name: String [max(300)],
                pub points: i32,
                pub doing: Doing,
                pub path: Vec<i16> [max(8)],
            }
        }

        state! {
            /// Lives are gone.
            #[derive(Clone, Debug, PartialEq)]
            pub struct Fewer: 1 {
                pub points: u8,
                pub doing: super::Did,
                pub path: Vec<i8> [max(4)],
                pub name: String [max(16)],
            }
        }

        state! {
            /// A field has another name.
            pub struct Renamed: 1 {
                pub score: u8,
                pub lives: u8,
                pub doing: super::Did,
                pub path: Vec<i8> [max(4)],
                pub name: String [max(16)],
            }
        }

        state! {
            /// A field is narrower.
            pub struct Narrow: 1 {
                pub points: u8 [range(0, 99)],
                pub lives: u8,
                pub doing: super::Did,
                pub path: Vec<i8> [max(4)],
                pub name: String [max(16)],
            }
        }
    }

    state! {
        /// A door, and one with a lock at the end.
        struct Door: 4 {
            angle: u8 [angle()],
        }
    }

    state! {
        /// The fields before the lock are the same.
        struct LockedDoor: 4 {
            angle: u8,
            lock: u16 [optional()],
        }
    }

    fn runner() -> Runner {
        Runner { points: 200, lives: 3, doing: Did::Digging, path: vec![-1, 2], name: "Ada".to_owned() }
    }

    fn bytes_of<T: State>(state: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        StateWriter::write(state, &mut bytes);
        bytes
    }

    fn conversion<'a>(was: &'a Schema, now: &'a Schema) -> Conversion<'a> {
        match now.changes_since(was, GoneFields::Dropped).as_slice() {
            [KindChange { number: 1, change: StateChange::Convert(conversion) }] => conversion.clone(),
            changes => panic!("{changes:?}"),
        }
    }

    fn difference(was: &Schema, now: &Schema, gone: GoneFields) -> String {
        match now.changes_since(was, gone).as_slice() {
            [KindChange { change: StateChange::Unknown { difference, .. }, .. }] => difference.to_string(),
            changes => panic!("{changes:?}"),
        }
    }

    #[test]
    fn fields_that_are_added_removed_or_widened_are_converted() {
        // As it comes out of a checkpoint.
        let was = Schema::from_document(Schema::new().with::<Runner>().document().as_bytes()).expect("a schema");
        let (wider, fewer) = (Schema::new().with::<next::Runner>(), Schema::new().with::<next::Fewer>());
        let mut converted = Vec::new();
        assert!(conversion(&was, &fewer).convert(&bytes_of(&runner()), &mut converted));
        let Runner { points, doing, path, name, .. } = runner();
        let expected = next::Fewer { points, doing, path, name: name.clone() };
        assert_eq!(StateReader::read::<next::Fewer>(&converted), Some(expected));

        converted.clear();
        let conversion = conversion(&was, &wider);
        assert!(conversion.convert(&bytes_of(&runner()), &mut converted));
        let path = vec![-1, 2];
        let expected = next::Runner { level: 1, lives: 3, name, points: 200, doing: Doing::Digging, path };
        assert_eq!(StateReader::read::<next::Runner>(&converted), Some(expected));
        converted.clear();
        assert!(!conversion.convert(&[1], &mut converted), "it is not of the old form");
        assert!(converted.is_empty());
    }

    #[test]
    fn states_that_stay_valid_need_no_conversion() {
        let (was, now) = (Schema::new().with::<Door>(), Schema::new().with::<LockedDoor>());
        let gone = GoneFields::Kept;
        assert!(now.changes_since(&was, gone).is_empty());
        assert!(was.changes_since(&was, gone).is_empty());
        assert!(was.changes_since(&Schema::new(), gone).is_empty(), "its states were bytes");
    }

    #[test]
    fn an_earlier_build_does_not_drop_the_fields_that_it_does_not_know() {
        let (was, fewer) = (Schema::new().with::<Runner>(), Schema::new().with::<next::Fewer>());
        let lives = "kind 1 (Runner): the field `lives` is gone, and the game does not have a higher version";
        assert_eq!(difference(&was, &fewer, GoneFields::Kept), lives);
        let (door, locked) = (Schema::new().with::<Door>(), Schema::new().with::<LockedDoor>());
        let lock = "kind 4 (LockedDoor): the field `lock` is gone, and the game does not have a higher version";
        assert_eq!(difference(&locked, &door, GoneFields::Kept), lock);
        let dropped = door.changes_since(&locked, GoneFields::Dropped);
        assert!(matches!(dropped.as_slice(), [KindChange { change: StateChange::Convert(_), .. }]), "{dropped:?}");
    }

    #[test]
    fn what_only_the_game_knows_is_named() {
        let was = Schema::new().with::<Runner>();
        assert_eq!(
            difference(&was, &Schema::new().with::<next::Renamed>(), GoneFields::Dropped),
            "kind 1 (Runner): the field `points` is gone and `score` is new, which may be its new name"
        );
        assert_eq!(
            difference(&was, &Schema::new().with::<next::Narrow>(), GoneFields::Dropped),
            "kind 1 (Runner): the field `points` was an integer from 0 to 255, and is an integer from 0 to 99"
        );
        assert_eq!(
            difference(&was, &Schema::new(), GoneFields::Dropped),
            "kind 1 (Runner): it is not declared any more"
        );
    }
}
