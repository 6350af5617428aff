//! The language of Godot 4.

use std::fmt::Write as _;

use dunlin_rooms::{FieldType, Motion};

use crate::{
    Class, Member, Source,
    names::{Names, joined, pascal, snake, unchanged},
    typescript::quoted,
};

/// No field begins with a capital letter, because it would hide a class of Godot or of the game.
pub(crate) const NAMES: Names = Names {
    game: unchanged,
    kind: class_name,
    field: snake,
    has_choices: false,
    reserved: &[
        "and",
        "as",
        "assert",
        "await",
        "between",
        "bool",
        "break",
        "breakpoint",
        "class",
        "class_name",
        "const",
        "continue",
        "elif",
        "else",
        "enum",
        "extends",
        "false",
        "float",
        "for",
        "func",
        "if",
        "in",
        "int",
        "is",
        "match",
        "namespace",
        "not",
        "null",
        "or",
        "pass",
        "preload",
        "property_list_changed",
        "read",
        "return",
        "script",
        "script_changed",
        "self",
        "signal",
        "static",
        "super",
        "trait",
        "true",
        "var",
        "void",
        "when",
        "while",
        "yield",
    ],
    // A class of Godot.
    reserved_kinds: &["SceneState"],
    second_member: |_| None,
    declared: |kind| vec![kind.to_owned()],
    own_type: |_, _| None,
};

/// A game often has a class with the name of the kind, and a class in another file may not hide it.
fn class_name(kind: &str) -> String {
    let name = pascal(kind);
    if name.len() > "State".len() && name.ends_with("State") { name } else { format!("{name}State") }
}

/// Reads the bytes of a state as `FieldReader` of `dunlin-rooms` does.
const READER: &str = r#"

class _Reader:
	extends RefCounted

	const REST := -1

	var _state: PackedByteArray
	var _at := 0
	var _is_wrong := false
	var _is_cut := false
	var _has_optional := false
	var _has_value := false

	func _init(state: PackedByteArray) -> void:
		_state = state

	## Before the first optional field: all of them are left out if the state ends here.
	func optional() -> void:
		_is_cut = _at == _state.size()
		_has_optional = not _is_cut

	func number(size: int, least: int, most: int) -> int:
		if _is_cut or not _has(size):
			return 0
		var value := 0
		match size:
			1:
				value = _state.decode_s8(_at) if least < 0 else _state[_at]
			2:
				value = _state.decode_s16(_at) if least < 0 else _state.decode_u16(_at)
			_:
				value = _state.decode_s32(_at) if least < 0 else _state.decode_u32(_at)
		_at += size
		_is_wrong = _is_wrong or value < least or value > most
		_has_value = _has_value or _has_optional and value != 0
		return value

	func choice(names: PackedStringArray) -> String:
		var index := number(1, 0, names.size() - 1)
		return names[0 if _is_wrong else index]

	## Strings of Godot end before the first character 0.
	func text(least: int, most: int, length_bytes: int) -> String:
		var count := _count(least, most, length_bytes, 1)
		var bytes := _state.slice(_at, _at + count)
		_at += count
		_is_wrong = _is_wrong or not _is_utf8(bytes)
		return "" if _is_wrong else bytes.get_string_from_utf8()

	func list(size: int, low: int, high: int, least: int, most: int, length_bytes: int) -> PackedInt64Array:
		var numbers := PackedInt64Array()
		for place in _count(least, most, length_bytes, size):
			numbers.append(number(size, low, high))
		return numbers

	## Whether the state has the form of its kind.
	func is_right() -> bool:
		return not _is_wrong and _at == _state.size() and (not _has_optional or _has_value)

	func _count(least: int, most: int, length_bytes: int, size: int) -> int:
		if _is_cut:
			return 0
		var count := least
		if length_bytes == REST:
			var left := _state.size() - _at
			@warning_ignore("integer_division")
			count = left / size
			_is_wrong = _is_wrong or left % size != 0
		elif length_bytes > 0 and _has(length_bytes):
			count = _state[_at] if length_bytes == 1 else _state.decode_u16(_at)
			_at += length_bytes
		_is_wrong = _is_wrong or count < least or count > most or _at + count * size > _state.size()
		if _is_wrong:
			return 0
		_has_value = _has_value or _has_optional and count > 0
		return count

	func _has(count: int) -> bool:
		_is_wrong = _is_wrong or _at + count > _state.size()
		return not _is_wrong

	## Godot replaces bytes that are none, and writes an error for each.
	static func _is_utf8(bytes: PackedByteArray) -> bool:
		var at := 0
		while at < bytes.size():
			var first := bytes[at]
			at += 1
			if first < 0x80:
				continue
			var more := 1 if first >= 0xc2 and first < 0xe0 else 2 if first >= 0xe0 and first < 0xf0 else 3 if first >= 0xf0 and first < 0xf5 else 0
			if more == 0 or more > bytes.size() - at:
				return false
			var second := bytes[at]
			if first == 0xe0 and second < 0xa0 or first == 0xed and second >= 0xa0 or first == 0xf0 and second < 0x90 or first == 0xf4 and second >= 0x90:
				return false
			for place in more:
				if bytes[at + place] & 0xc0 != 0x80:
					return false
			at += more
		return true

	## The shorter way round; `turn` is the whole way, and half of it goes up.
	static func angle(from: float, to: float, share: float, least: float, turn: float) -> float:
		var way := fposmod(to - from, turn)
		return least + fposmod(from + (way - turn if way > turn / 2.0 else way) * share - least, turn)
"#;

pub(crate) fn write(source: &Source<'_>) -> String {
    let mut out = format!("# {}\nextends RefCounted\n\n", source.about);
    out.push_str(
        "# What this file was written from. A room with another schema may have states that it does not read.\n",
    );
    let _ = writeln!(out, "const SCHEMA := {}", quoted(source.document));
    for class in &source.classes {
        write_class(class, &mut out);
    }
    out.push_str(READER);
    out
}

fn write_class(class: &Class<'_>, out: &mut String) {
    let (name, number) = (&class.name, class.kind.number);
    let _ = writeln!(out, "\n\nclass {name}:\n\textends RefCounted\n\n\tconst KIND := {number}\n");
    for member in &class.members {
        let remark = member.remark();
        let space = if remark.is_empty() { "" } else { "  # " };
        let _ = writeln!(out, "\tvar {}: {}{space}{remark}", member.name, type_of(member));
    }
    let _ = writeln!(out, "\n\t## Null if the state does not have the form of this kind.");
    let _ = writeln!(out, "\tstatic func read(state: PackedByteArray) -> {name}:");
    let _ = writeln!(out, "\t\tvar reader := _Reader.new(state)\n\t\tvar one := {name}.new()");
    for member in &class.members {
        if member.is_first_optional {
            let _ = writeln!(out, "\t\treader.optional()");
        }
        let _ = writeln!(out, "\t\tone.{} = {}", member.name, read(member));
    }
    let _ = writeln!(out, "\t\treturn one if reader.is_right() else null");
    if class.has_motion() {
        write_between(class, out);
    }
}

fn write_between(class: &Class<'_>, out: &mut String) {
    let name = &class.name;
    let _ =
        writeln!(out, "\n\t## What to show between two states: [param share] is 0 at the first, and 1 at the second.");
    let _ = writeln!(out, "\tstatic func between(from: {name}, to: {name}, share: float) -> {name}:");
    let _ = writeln!(out, "\t\tvar one := {name}.new()\n\t\tvar whole := from if share < 1.0 else to");
    for member in &class.members {
        let field = &member.name;
        let _ = match member.field.motion {
            Motion::Step => writeln!(out, "\t\tone.{field} = whole.{field}"),
            Motion::Linear => writeln!(out, "\t\tone.{field} = lerpf(from.{field}, to.{field}, share)"),
            Motion::Angle => {
                let (min, turn) = (member.min(), member.turn());
                writeln!(out, "\t\tone.{field} = _Reader.angle(from.{field}, to.{field}, share, {min}, {turn})")
            }
        };
    }
    let _ = writeln!(out, "\t\treturn one");
}

fn type_of(member: &Member<'_>) -> &'static str {
    match &member.field.of {
        FieldType::Integer(_) if member.is_fraction() => "float",
        FieldType::Integer(_) | FieldType::Object => "int",
        FieldType::Flag => "bool",
        FieldType::Choice(_) | FieldType::Text { .. } => "String",
        FieldType::List { .. } => "PackedInt64Array",
    }
}

fn read(member: &Member<'_>) -> String {
    let integer = member.integer();
    let number = format!("reader.number({}, {}, {})", integer.bytes, integer.min, integer.max);
    let lengths = member.length_arguments().unwrap_or_default().replace("REST", "_Reader.REST");
    match &member.field.of {
        FieldType::Integer(_) if member.field.per_unit != 1 => format!("{number} / {}.0", member.field.per_unit),
        FieldType::Integer(_) | FieldType::Object => number,
        FieldType::Flag => format!("{number} == 1"),
        FieldType::Choice(names) => format!("reader.choice([{}])", joined(names.iter().map(|name| quoted(name)), ", ")),
        FieldType::Text { .. } => format!("reader.text({lengths})"),
        FieldType::List { .. } => {
            format!("reader.list({}, {}, {}, {lengths})", integer.bytes, integer.min, integer.max)
        }
    }
}
