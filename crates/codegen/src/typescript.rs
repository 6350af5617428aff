//! TypeScript.

use std::fmt::Write as _;

use dunlin_rooms::{Field, FieldType, Motion};

use crate::{
    Class, Member, Source,
    names::{Names, camel, joined, pascal, screaming, unchanged},
};

/// Fields keep the names of the schema, which `Replica.fields` has as well.
pub(crate) const NAMES: Names = Names {
    game: unchanged,
    kind: pascal,
    field: unchanged,
    has_choices: false,
    reserved: &[],
    reserved_kinds: &["DataView", "Reader", "Uint8Array"],
    second_member: |_| None,
    declared: |kind| {
        let between = format!("{}Between", camel(kind));
        vec![kind.to_owned(), format!("read{kind}"), between, format!("{}_KIND", screaming(kind))]
    },
    own_type: |_, _| None,
};

/// Reads the bytes of a state as `FieldReader` of `dunlin-rooms` does.
const READER: &str = r#"
const REST = -1;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

class Reader {
  private at = 0;
  private isWrong = false;
  private isCut = false;
  private hasOptional = false;
  private hasValue = false;
  private readonly view: DataView;

  constructor(state: Uint8Array) {
    this.view = new DataView(state.buffer, state.byteOffset, state.byteLength);
  }

  /** Before the first optional field: all of them are left out if the state ends here. */
  optional(): void {
    this.isCut = this.at === this.view.byteLength;
    this.hasOptional = !this.isCut;
  }

  number(bytes: number, min: number, max: number): number {
    if (this.isCut || !this.has(bytes)) return 0;
    const at = this.at;
    this.at += bytes;
    let value: number;
    if (bytes === 1) value = min < 0 ? this.view.getInt8(at) : this.view.getUint8(at);
    else if (bytes === 2) value = min < 0 ? this.view.getInt16(at, true) : this.view.getUint16(at, true);
    else value = min < 0 ? this.view.getInt32(at, true) : this.view.getUint32(at, true);
    this.isWrong ||= value < min || value > max;
    this.hasValue ||= this.hasOptional && value !== 0;
    return value;
  }

  text(min: number, max: number, lengthBytes: number): string {
    const count = this.count(min, max, lengthBytes, 1);
    const bytes = new Uint8Array(this.view.buffer, this.view.byteOffset + this.at, count);
    this.at += count;
    try {
      return decoder.decode(bytes);
    } catch {
      this.isWrong = true;
      return "";
    }
  }

  list(bytes: number, least: number, most: number, min: number, max: number, lengthBytes: number): number[] {
    const count = this.count(min, max, lengthBytes, bytes);
    return Array.from({ length: count }, () => this.number(bytes, least, most));
  }

  /** Whether the state has the form of its kind. */
  get isRight(): boolean {
    return !this.isWrong && this.at === this.view.byteLength && (!this.hasOptional || this.hasValue);
  }

  private count(min: number, max: number, lengthBytes: number, bytesEach: number): number {
    if (this.isCut) return 0;
    let count = min;
    if (lengthBytes === REST) count = (this.view.byteLength - this.at) / bytesEach;
    else if (lengthBytes > 0 && this.has(lengthBytes)) {
      count = lengthBytes === 1 ? this.view.getUint8(this.at) : this.view.getUint16(this.at, true);
      this.at += lengthBytes;
    }
    this.isWrong ||= !Number.isInteger(count) || count < min || count > max || !this.has(count * bytesEach);
    if (this.isWrong) return 0;
    this.hasValue ||= this.hasOptional && count > 0;
    return count;
  }

  private has(bytes: number): boolean {
    this.isWrong ||= this.at + bytes > this.view.byteLength;
    return !this.isWrong;
  }
}
"#;

const LINEAR: &str = r"
function linear(from: number, to: number, share: number): number {
  return from + (to - from) * share;
}
";

const ANGLE: &str = r"
/** The shorter way round; `turn` is the whole way. */
function angle(from: number, to: number, share: number, min: number, turn: number): number {
  const way = (((to - from) % turn) + turn) % turn;
  const value = from + (way > turn / 2 ? way - turn : way) * share;
  return min + ((((value - min) % turn) + turn) % turn);
}
";

pub(crate) fn write(source: &Source<'_>) -> String {
    let mut out = format!("// {}\n\n", source.about);
    let _ = writeln!(
        out,
        "/** What this file was written from. A room with another schema may have states that it does not read. */"
    );
    let _ = writeln!(out, "export const SCHEMA = {};", quoted(source.document));
    for class in &source.classes {
        write_class(class, &mut out);
    }
    out.push_str(READER);
    // Compilers refuse functions that nothing calls.
    for (motion, function) in [(Motion::Linear, LINEAR), (Motion::Angle, ANGLE)] {
        if source.has(motion) {
            out.push_str(function);
        }
    }
    out
}

fn write_class(class: &Class<'_>, out: &mut String) {
    let (name, number) = (&class.name, class.kind.number);
    let _ = writeln!(out, "\nexport const {}_KIND = {number};", screaming(name));
    let _ = writeln!(out, "\nexport interface {name} {{");
    for member in &class.members {
        let remark = member.remark();
        if !remark.is_empty() {
            let _ = writeln!(out, "  /** {}{}. */", remark[..1].to_ascii_uppercase(), &remark[1..]);
        }
        let _ = writeln!(out, "  readonly {}: {};", member.name, type_of(member.field));
    }
    let _ = writeln!(out, "}}\n\n/** Null if the state does not have the form of this kind. */");
    let _ = writeln!(out, "export function read{name}(state: Uint8Array): {name} | null {{");
    let _ = writeln!(out, "  const reader = new Reader(state);");
    for member in &class.members {
        if member.is_first_optional {
            let _ = writeln!(out, "  reader.optional();");
        }
        let _ = writeln!(out, "  const {}_ = {};", member.name, read(member));
    }
    let _ = writeln!(out, "  if (!reader.isRight) return null;\n  return {{");
    for member in &class.members {
        let _ = writeln!(out, "    {0}: {0}_,", member.name);
    }
    let _ = writeln!(out, "  }};\n}}");
    if class.has_motion() {
        write_between(class, out);
    }
}

fn write_between(class: &Class<'_>, out: &mut String) {
    let name = &class.name;
    let _ = writeln!(out, "\n/** What to show between two states: `share` is 0 at the first, and 1 at the second. */");
    let _ = writeln!(out, "export function {}Between(from: {name}, to: {name}, share: number): {name} {{", camel(name));
    let _ = writeln!(out, "  return {{\n    ...(share < 1 ? from : to),");
    for member in &class.members {
        let field = &member.name;
        let _ = match member.field.motion {
            Motion::Step => Ok(()),
            Motion::Linear => writeln!(out, "    {field}: linear(from.{field}, to.{field}, share),"),
            Motion::Angle => {
                let (min, turn) = (member.min(), member.turn());
                writeln!(out, "    {field}: angle(from.{field}, to.{field}, share, {min}, {turn}),")
            }
        };
    }
    let _ = writeln!(out, "  }};\n}}");
}

fn type_of(field: &Field) -> String {
    match &field.of {
        FieldType::Integer(_) | FieldType::Object => "number".to_owned(),
        FieldType::Flag => "boolean".to_owned(),
        FieldType::Choice(names) => joined(names.iter().map(|name| quoted(name)), " | "),
        FieldType::Text { .. } => "string".to_owned(),
        FieldType::List { .. } => "readonly number[]".to_owned(),
    }
}

fn read(member: &Member<'_>) -> String {
    let integer = member.integer();
    let number = format!("reader.number({}, {}, {})", integer.bytes, integer.min, integer.max);
    let lengths = member.length_arguments().unwrap_or_default();
    match &member.field.of {
        FieldType::Integer(_) if member.field.per_unit != 1 => format!("{number} / {}", member.field.per_unit),
        FieldType::Integer(_) | FieldType::Object => number,
        FieldType::Flag => format!("{number} === 1"),
        FieldType::Choice(names) => {
            let all = joined(names.iter().map(|name| quoted(name)), ", ");
            format!("([{all}] as const)[{number}] ?? {}", quoted(names.first().map_or("", |name| name)))
        }
        FieldType::Text { .. } => format!("reader.text({lengths})"),
        FieldType::List { .. } => {
            format!("reader.list({}, {}, {}, {lengths})", integer.bytes, integer.min, integer.max)
        }
    }
}

/// A string literal, which TypeScript and Python read alike.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            // Line separators end a string in TypeScript.
            _ if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}
