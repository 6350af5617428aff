//! Python.

use std::fmt::Write as _;

use dunlin_rooms::{Field, FieldType, Motion};

use crate::{
    Class, Member, Source,
    names::{Names, joined, pascal, screaming, snake, unchanged},
};

pub(crate) const NAMES: Names = Names {
    game: unchanged,
    kind: pascal,
    field: unchanged,
    has_choices: false,
    reserved: &[
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
        "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
        "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    ],
    reserved_kinds: &["False", "List", "Literal", "None", "Optional", "True"],
    second_member: |_| None,
    declared: |kind| {
        let name = snake(kind);
        vec![kind.to_owned(), format!("read_{name}"), format!("{name}_between"), format!("{}_KIND", screaming(kind))]
    },
    own_type: |_, _| None,
};

const HEAD: &str = "
from dataclasses import dataclass, replace
from typing import List, Literal, Optional
";

/// Reads the bytes of a state as `FieldReader` of `dunlin-rooms` does.
const READER: &str = r#"

REST = -1


class _Reader:
    def __init__(self, state: bytes) -> None:
        self.state = state
        self.at = 0
        self.is_wrong = False
        self.is_cut = False
        self.has_optional = False
        self.has_value = False

    def optional(self) -> None:
        """Before the first optional field: all of them are left out if the state ends here."""
        self.is_cut = self.at == len(self.state)
        self.has_optional = not self.is_cut

    def number(self, size: int, least: int, most: int) -> int:
        if self.is_cut or not self._has(size):
            return 0
        value = int.from_bytes(self.state[self.at : self.at + size], "little", signed=least < 0)
        self.at += size
        self.is_wrong |= not least <= value <= most
        self.has_value |= self.has_optional and value != 0
        return value

    def choice(self, names: tuple) -> str:
        index = self.number(1, 0, len(names) - 1)
        return names[0 if self.is_wrong else index]

    def text(self, least: int, most: int, length_bytes: int) -> str:
        count = self._count(least, most, length_bytes, 1)
        self.at += count
        try:
            return self.state[self.at - count : self.at].decode("utf-8")
        except UnicodeDecodeError:
            self.is_wrong = True
            return ""

    def list(self, size: int, low: int, high: int, least: int, most: int, length_bytes: int) -> List[int]:
        return [self.number(size, low, high) for _ in range(self._count(least, most, length_bytes, size))]

    def is_right(self) -> bool:
        """Whether the state has the form of its kind."""
        return not self.is_wrong and self.at == len(self.state) and (not self.has_optional or self.has_value)

    def _count(self, least: int, most: int, length_bytes: int, size: int) -> int:
        if self.is_cut:
            return 0
        count = least
        if length_bytes == REST:
            count, left = divmod(len(self.state) - self.at, size)
            self.is_wrong |= left != 0
        elif length_bytes > 0 and self._has(length_bytes):
            count = int.from_bytes(self.state[self.at : self.at + length_bytes], "little")
            self.at += length_bytes
        self.is_wrong |= not least <= count <= most or self.at + count * size > len(self.state)
        if self.is_wrong:
            return 0
        self.has_value |= self.has_optional and count > 0
        return count

    def _has(self, count: int) -> bool:
        self.is_wrong |= self.at + count > len(self.state)
        return not self.is_wrong
"#;

const BETWEEN: &str = r#"

def _linear(old: float, new: float, share: float) -> float:
    return old + (new - old) * share


def _angle(old: float, new: float, share: float, least: float, turn: float) -> float:
    """The shorter way round; `turn` is the whole way."""
    way = (new - old) % turn
    value = old + (way - turn if way > turn / 2 else way) * share
    return least + (value - least) % turn
"#;

pub(crate) fn write(source: &Source<'_>) -> String {
    let mut out = format!("# {}\n", source.about);
    out.push_str(HEAD);
    let _ = writeln!(
        out,
        "\n# What this file was written from. A room with another schema may have states that it does not read."
    );
    let _ = writeln!(out, "SCHEMA = {}", crate::typescript::quoted(source.document));
    for class in &source.classes {
        write_class(class, &mut out);
    }
    out.push_str(READER);
    if source.classes.iter().any(Class::has_motion) {
        out.push_str(BETWEEN);
    }
    out
}

fn write_class(class: &Class<'_>, out: &mut String) {
    let (name, number) = (&class.name, class.kind.number);
    let _ = writeln!(out, "\n\n{}_KIND = {number}\n\n\n@dataclass(frozen=True)\nclass {name}:", screaming(name));
    for member in &class.members {
        let remark = member.remark();
        let space = if remark.is_empty() { "" } else { "  # " };
        let _ = writeln!(out, "    {}: {}{space}{remark}", member.name, type_of(member));
    }
    let _ = writeln!(out, "\n\ndef read_{}(state: bytes) -> \"Optional[{name}]\":", snake(name));
    let _ = writeln!(out, "    \"\"\"None if the state does not have the form of this kind.\"\"\"");
    let _ = writeln!(out, "    reader = _Reader(state)");
    for member in &class.members {
        if member.is_first_optional {
            let _ = writeln!(out, "    reader.optional()");
        }
        let _ = writeln!(out, "    {}_ = {}", member.name, read(member));
    }
    let values = joined(class.members.iter().map(|member| format!("{}_", member.name)), ", ");
    let _ = writeln!(out, "    return {name}({values}) if reader.is_right() else None");
    if class.has_motion() {
        write_between(class, out);
    }
}

fn write_between(class: &Class<'_>, out: &mut String) {
    let name = &class.name;
    let _ = writeln!(out, "\n\ndef {}_between(old: {name}, new: {name}, share: float) -> {name}:", snake(name));
    let _ = writeln!(
        out,
        "    \"\"\"What to show between two states: `share` is 0 at the first, and 1 at the second.\"\"\""
    );
    let _ = writeln!(out, "    return replace(\n        old if share < 1 else new,");
    for member in &class.members {
        let field = &member.name;
        let _ = match member.field.motion {
            Motion::Step => Ok(()),
            Motion::Linear => writeln!(out, "        {field}=_linear(old.{field}, new.{field}, share),"),
            Motion::Angle => {
                let (min, turn) = (member.min(), member.turn());
                writeln!(out, "        {field}=_angle(old.{field}, new.{field}, share, {min}, {turn}),")
            }
        };
    }
    let _ = writeln!(out, "    )");
}

fn type_of(member: &Member<'_>) -> String {
    match &member.field.of {
        FieldType::Integer(_) if member.is_fraction() => "float".to_owned(),
        FieldType::Integer(_) | FieldType::Object => "int".to_owned(),
        FieldType::Flag => "bool".to_owned(),
        FieldType::Choice(_) => format!("Literal[{}]", choices(member.field)),
        FieldType::Text { .. } => "str".to_owned(),
        FieldType::List { .. } => "List[int]".to_owned(),
    }
}

fn choices(field: &Field) -> String {
    match &field.of {
        FieldType::Choice(names) => joined(names.iter().map(|name| crate::typescript::quoted(name)), ", "),
        _ => String::new(),
    }
}

fn read(member: &Member<'_>) -> String {
    let integer = member.integer();
    let number = format!("reader.number({}, {}, {})", integer.bytes, integer.min, integer.max);
    let lengths = member.length_arguments().unwrap_or_default();
    match &member.field.of {
        FieldType::Integer(_) if member.field.per_unit != 1 => format!("{number} / {}", member.field.per_unit),
        FieldType::Integer(_) | FieldType::Object => number,
        FieldType::Flag => format!("{number} == 1"),
        FieldType::Choice(_) => format!("reader.choice(({},))", choices(member.field)),
        FieldType::Text { .. } => format!("reader.text({lengths})"),
        FieldType::List { .. } => {
            format!("reader.list({}, {}, {}, {lengths})", integer.bytes, integer.min, integer.max)
        }
    }
}
