//! C, as a header whose functions are `static`: it can be included anywhere, and in C++.

use std::fmt::Write as _;

use dunlin_rooms::{FieldType, Integer, Motion};

use crate::{
    Class, Member, Source,
    names::{Names, screaming, snake},
};

pub(crate) const NAMES: Names = Names {
    game: snake,
    kind: snake,
    field: snake,
    has_choices: true,
    reserved: &[
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "char16_t",
        "char32_t",
        "char8_t",
        "class",
        "co_await",
        "co_return",
        "co_yield",
        "compl",
        "concept",
        "const",
        "const_cast",
        "consteval",
        "constexpr",
        "constinit",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "typeof",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
    ],
    reserved_kinds: &["angle", "count", "has", "is_right", "linear", "modulo", "number", "optional", "reader", "text"],
    second_member: length_of,
    declared: |kind| {
        vec![kind.to_owned(), format!("{kind}_read"), format!("{kind}_between"), format!("{}_KIND", screaming(kind))]
    },
    own_type: |_, _| None,
};

/// Reads the bytes of a state as `FieldReader` of `dunlin-rooms` does. `GAME` is replaced by the game's prefix.
const READER: &str = r"
typedef struct {
    const unsigned char *state;
    size_t length, at;
    int is_wrong, is_cut, has_optional, has_value;
} GAME_reader;

static inline int GAME_has(GAME_reader *reader, size_t bytes) {
    if (reader->length - reader->at < bytes) reader->is_wrong = 1;
    return !reader->is_wrong;
}

/* Before the first optional field: all of them are left out if the state ends here. */
static inline void GAME_optional(GAME_reader *reader) {
    reader->is_cut = reader->at == reader->length;
    reader->has_optional = !reader->is_cut;
}

static inline int64_t GAME_number(GAME_reader *reader, int bytes, int64_t min, int64_t max) {
    uint32_t bits = 0;
    int64_t value;
    int place;
    if (reader->is_cut || !GAME_has(reader, (size_t)bytes)) return 0;
    for (place = 0; place < bytes; place += 1) bits |= (uint32_t)reader->state[reader->at + (size_t)place] << 8 * place;
    reader->at += (size_t)bytes;
    value = (int64_t)bits;
    if (min < 0 && (bits >> (8 * bytes - 1) & 1) == 1) value -= (int64_t)1 << 8 * bytes;
    if (value < min || value > max) reader->is_wrong = 1;
    if (reader->has_optional && value != 0) reader->has_value = 1;
    return reader->is_wrong ? 0 : value;
}

/* `length_bytes` is -1 if the elements take the rest of the state. */
static inline size_t GAME_count(GAME_reader *reader, size_t min, size_t max, int length_bytes, size_t bytes_each) {
    size_t count = min;
    if (reader->is_cut || reader->is_wrong) return 0;
    if (length_bytes < 0) {
        count = (reader->length - reader->at) / bytes_each;
        if ((reader->length - reader->at) % bytes_each != 0) reader->is_wrong = 1;
    } else if (length_bytes > 0) {
        if (!GAME_has(reader, (size_t)length_bytes)) return 0;
        count = reader->state[reader->at];
        if (length_bytes == 2) count |= (size_t)reader->state[reader->at + 1] << 8;
        reader->at += (size_t)length_bytes;
    }
    if (count < min || count > max) reader->is_wrong = 1;
    if (reader->is_wrong || !GAME_has(reader, count * bytes_each)) return 0;
    if (reader->has_optional && count > 0) reader->has_value = 1;
    return count;
}

static inline int GAME_is_utf8(const unsigned char *text, size_t count) {
    size_t at = 0;
    while (at < count) {
        unsigned char first = text[at];
        size_t more = first < 0x80 ? 0 : first < 0xc2 ? 4 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : 4;
        unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (more == 4 || count - at <= more) return 0;
        for (at += 1; more > 0; more -= 1, at += 1) {
            if (text[at] < least || text[at] > most) return 0;
            least = 0x80;
            most = 0xbf;
        }
    }
    return 1;
}

static inline size_t GAME_text(GAME_reader *reader, size_t max, int length_bytes, char *text) {
    size_t count = GAME_count(reader, 0, max, length_bytes, 1);
    if (count > 0) {
        memcpy(text, reader->state + reader->at, count);
        if (!GAME_is_utf8(reader->state + reader->at, count)) reader->is_wrong = 1;
    }
    reader->at += count;
    text[count] = 0;
    return count;
}

static inline int GAME_is_right(const GAME_reader *reader) {
    return !reader->is_wrong && reader->at == reader->length && (!reader->has_optional || reader->has_value);
}
";

const MOTIONS: &str = r"
static inline double GAME_linear(double from, double to, double share) {
    return from + (to - from) * share;
}

static inline double GAME_modulo(double value, double turn) {
    double rest = fmod(value, turn);
    return rest < 0 ? rest + turn : rest;
}

/* The shorter way round; `turn` is the whole way. */
static inline double GAME_angle(double from, double to, double share, double min, double turn) {
    double way = GAME_modulo(to - from, turn);
    return min + GAME_modulo(from + (way > turn / 2 ? way - turn : way) * share - min, turn);
}
";

pub(crate) fn write(source: &Source<'_>) -> String {
    let game = &source.game;
    let guard = format!("{}_STATES_H", screaming(game));
    let mut out = format!("/* {} */\n\n#ifndef {guard}\n#define {guard}\n\n", source.about);
    let has_motion = source.classes.iter().any(Class::has_motion);
    let math = if has_motion { "#include <math.h>\n" } else { "" };
    let _ = write!(out, "{math}#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n");
    out.push_str(&READER.replace("GAME", game));
    if has_motion {
        out.push_str(&MOTIONS.replace("GAME", game));
    }
    for class in &source.classes {
        write_class(game, class, &mut out);
    }
    let _ = writeln!(out, "\n#endif");
    out
}

fn write_class(game: &str, class: &Class<'_>, out: &mut String) {
    let name = format!("{game}_{}", class.name);
    let _ = writeln!(out, "\n#define {}_KIND {}", screaming(&name), class.kind.number);
    for member in &class.members {
        write_choices(&name, member, out);
    }
    let _ = writeln!(out, "\ntypedef struct {{");
    for member in &class.members {
        let remark = member.remark();
        for line in declarations(member) {
            let _ = writeln!(out, "    {line}");
        }
        if !remark.is_empty() {
            out.truncate(out.len() - 1);
            let _ = writeln!(out, " /* {remark} */");
        }
    }
    let _ = writeln!(out, "}} {name};\n\n/* 1, or 0 if the state does not have the form of this kind. */");
    let _ = writeln!(out, "static inline int {name}_read(const unsigned char *state, size_t length, {name} *read) {{");
    let _ = writeln!(out, "    {game}_reader reader;");
    if class.members.iter().any(|member| matches!(member.field.of, FieldType::List { .. })) {
        let _ = writeln!(out, "    size_t place;");
    }
    let _ = writeln!(
        out,
        "    memset(&reader, 0, sizeof reader);\n    memset(read, 0, sizeof *read);\n    reader.state = state;\n    \
         reader.length = length;"
    );
    for member in &class.members {
        if member.is_first_optional {
            let _ = writeln!(out, "    {game}_optional(&reader);");
        }
        write_read(game, member, out);
    }
    let _ = writeln!(out, "    return {game}_is_right(&reader);\n}}");
    if class.has_motion() {
        write_between(game, &name, class, out);
    }
}

fn write_choices(kind: &str, member: &Member<'_>, out: &mut String) {
    let FieldType::Choice(names) = &member.field.of else { return };
    let prefix = format!("{}_{}", screaming(kind), screaming(&member.name));
    let _ = writeln!(out);
    for (index, name) in names.iter().enumerate() {
        let _ = writeln!(out, "#define {prefix}_{} {index}", screaming(name));
    }
}

/// The member with the length of a text or a list.
fn length_of(member: &Member<'_>) -> Option<String> {
    match member.field.of {
        FieldType::Text { .. } => Some(format!("{}_bytes", member.name)),
        FieldType::List { .. } => Some(format!("{}_count", member.name)),
        _ => None,
    }
}

fn declarations(member: &Member<'_>) -> Vec<String> {
    let name = &member.name;
    let integer = integer_type(member.integer());
    match &member.field.of {
        FieldType::Integer(_) if member.is_fraction() => vec![format!("double {name};")],
        FieldType::Integer(_) | FieldType::Flag | FieldType::Choice(_) | FieldType::Object => {
            vec![format!("{integer} {name};")]
        }
        FieldType::Text { bytes_max } => {
            vec![format!("size_t {name}_bytes;"), format!("char {name}[{}];", u32::from(*bytes_max) + 1)]
        }
        FieldType::List { count_max, .. } => {
            vec![format!("size_t {name}_count;"), format!("{integer} {name}[{count_max}];")]
        }
    }
}

fn integer_type(integer: Integer) -> String {
    let sign = if integer.min < 0 { "" } else { "u" };
    format!("{sign}int{}_t", u32::from(integer.bytes) * 8)
}

fn write_read(game: &str, member: &Member<'_>, out: &mut String) {
    let name = &member.name;
    let integer = member.integer();
    let to = integer_type(integer);
    let number =
        format!("{game}_number(&reader, {}, {}, {})", integer.bytes, constant(integer.min), constant(integer.max));
    let lengths = member.length_arguments().unwrap_or_default().replace("REST", "-1");
    let _ = match &member.field.of {
        FieldType::Integer(_) if member.field.per_unit != 1 => {
            writeln!(out, "    read->{name} = (double){number} / {}.0;", member.field.per_unit)
        }
        FieldType::Integer(_) if member.is_fraction() => writeln!(out, "    read->{name} = (double){number};"),
        FieldType::Integer(_) | FieldType::Flag | FieldType::Choice(_) | FieldType::Object => {
            writeln!(out, "    read->{name} = ({to}){number};")
        }
        FieldType::Text { .. } => {
            let lengths = lengths.trim_start_matches("0, ");
            writeln!(out, "    read->{name}_bytes = {game}_text(&reader, {lengths}, read->{name});")
        }
        FieldType::List { .. } => {
            let _ = writeln!(out, "    read->{name}_count = {game}_count(&reader, {lengths}, {});", integer.bytes);
            let _ = writeln!(out, "    for (place = 0; place < read->{name}_count; place += 1) {{");
            writeln!(out, "        read->{name}[place] = ({to}){number};\n    }}")
        }
    };
}

fn constant(number: i64) -> String {
    format!("INT64_C({number})")
}

fn write_between(game: &str, name: &str, class: &Class<'_>, out: &mut String) {
    let _ = writeln!(out, "\n/* What to show between two states: `share` is 0 at the first, and 1 at the second. */");
    let _ = writeln!(
        out,
        "static inline {name} {name}_between(const {name} *from, const {name} *to, double share) {{\n    {name} shown = share < 1 ? \
         *from : *to;"
    );
    for member in &class.members {
        let field = &member.name;
        let _ = match member.field.motion {
            Motion::Step => Ok(()),
            Motion::Linear => {
                writeln!(out, "    shown.{field} = {game}_linear(from->{field}, to->{field}, share);")
            }
            Motion::Angle => {
                let (min, turn) = (member.min(), member.turn());
                writeln!(out, "    shown.{field} = {game}_angle(from->{field}, to->{field}, share, {min}, {turn});")
            }
        };
    }
    let _ = writeln!(out, "    return shown;\n}}");
}
