/** The fields of the objects' states, as a room describes them, and their values. */

import { type BitReader, bitsOf } from "./bits.js";
import { malformed } from "./error.js";

/** How a field is shown between two snapshots. */
export type Motion = "step" | "linear" | "angle";

interface Named {
  readonly name: string;
  readonly deltaBits: number;
  readonly perUnit: number;
  readonly motion: Motion;
  readonly optional: boolean;
}

interface Range {
  readonly bytes: number;
  readonly min: number;
  readonly max: number;
}

export type Field = Named &
  (
    | ({ readonly type: "integer" } & Range)
    | { readonly type: "flag" }
    | { readonly type: "choice"; readonly names: readonly string[] }
    | { readonly type: "object" }
    | { readonly type: "text"; readonly countMax: number }
    | ({ readonly type: "list"; readonly countMin: number; readonly countMax: number } & Range)
  );

export interface Kind {
  readonly kind: number;
  readonly name: string;
  readonly fields: readonly Field[];
}

/** A value: a number, `true` or `false`, the name of a choice, the id of an object (0 for none), a text, or a list. */
export type FieldValue = number | boolean | string | readonly number[];

/** The value of each field, by name. */
export type FieldValues = Readonly<Record<string, FieldValue>>;

/** A value as it is in a state: the integer, the index of a choice, or the bytes of a text. */
export type RawValue = number | Uint8Array | readonly number[];

const SCHEMA_BYTES_MAX = 65_536;
const FIELDS_MAX = 62;
const KINDS_MAX = 256;
const LENGTH_MAX = 1_024;
const SHORT_LENGTH_MAX = 255;
const CHOICES_MAX = 256;

export class Schema {
  private readonly byNumber = new Map<number, Kind>();

  constructor(readonly kinds: readonly Kind[]) {
    for (const kind of kinds) this.byNumber.set(kind.kind, kind);
  }

  kind(number: number): Kind | undefined {
    return this.byNumber.get(number);
  }

  /** The fields of a state; null if the kind has none, or if the state does not have the form of its kind. */
  values(kind: number, state: Uint8Array): FieldValues | null {
    const fields = this.kind(kind)?.fields;
    const raws = fields === undefined ? null : splitState(fields, state);
    if (fields === undefined || raws === null) return null;
    return Object.fromEntries(fields.map((field, at) => [field.name, shown(field, raws[at] ?? 0)]));
  }
}

/** Texts are as the game wrote them, also if they begin with a byte order mark. */
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** @throws RoomError of the kind `malformed`. */
export function decodeSchema(bytes: Uint8Array): Schema {
  let document: unknown;
  requireShort(bytes.length);
  try {
    document = JSON.parse(decoder.decode(bytes));
  } catch {
    throw malformed("the schema is not JSON");
  }
  return schemaOf(document);
}

/** @throws RoomError of the kind `malformed`. */
export function schemaFromJson(document: unknown): Schema {
  requireShort(encoder.encode(JSON.stringify(recordOf(document))).length);
  return schemaOf(document);
}

function requireShort(byteCount: number): void {
  if (byteCount > SCHEMA_BYTES_MAX) throw malformed("the schema is longer than 64 KiB");
}

function schemaOf(document: unknown): Schema {
  const kinds = listOf(recordOf(document)["kinds"]).map(kindFromJson);
  const numbers = new Set(kinds.map(({ kind }) => kind));
  if (kinds.length > KINDS_MAX || numbers.size < kinds.length) throw malformed("a kind of the schema occurs twice");
  return new Schema(kinds);
}

type Json = Readonly<Record<string, unknown>>;

function recordOf(value: unknown): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw malformed("a part of the schema is no object");
  return value as Json;
}

function listOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw malformed("a part of the schema is no array");
  return value;
}

function textOf(value: unknown): string {
  if (typeof value !== "string") throw malformed("a name of the schema is no text");
  return value;
}

function flagOf(value: unknown): boolean {
  if (typeof value !== "boolean") throw malformed("an option of the schema is neither true nor false");
  return value;
}

function integerOf(value: unknown, min: number, max: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
    throw malformed(`a number of the schema is not from ${min} to ${max}`);
  }
  return value;
}

function kindFromJson(value: unknown): Kind {
  const json = recordOf(value);
  const fields = listOf(json["fields"]).map(fieldFromJson);
  const names = new Set(fields.map(({ name }) => name));
  if (fields.length === 0 || fields.length > FIELDS_MAX || names.size < fields.length) {
    throw malformed("a kind of the schema has no fields, too many, or two of the same name");
  }
  const firstOptional = fields.findIndex(({ optional }) => optional);
  if (firstOptional >= 0 && !fields.slice(firstOptional).every(mayBeNothing)) {
    throw malformed("a field after an optional one cannot be left out");
  }
  return { kind: integerOf(json["kind"], 0, 0xffff), name: textOf(json["name"]), fields };
}

/** Whether a field may be 0 or empty. */
function mayBeNothing(field: Field): boolean {
  if (field.type === "integer") return field.min <= 0 && field.max >= 0;
  return field.type !== "list" || field.countMin === 0;
}

function rangeFromJson(json: Json): Range {
  const bytes = integerOf(json["bytes"], 1, 4);
  if (bytes === 3) throw malformed("an integer of the schema has 3 bytes");
  const half = 2 ** (bytes * 8 - 1);
  const min = integerOf(json["min"], -half, 2 * half - 1);
  return { bytes, min, max: integerOf(json["max"], min, min < 0 ? half - 1 : 2 * half - 1) };
}

function fieldFromJson(value: unknown): Field {
  const json = recordOf(value);
  const motion = json["motion"] ?? "step";
  if (motion !== "step" && motion !== "linear" && motion !== "angle") throw malformed("a motion of the schema is unknown");
  const named = {
    name: textOf(json["name"]),
    deltaBits: 0,
    perUnit: integerOf(json["per_unit"] ?? 1, 1, 0xffff_ffff),
    motion: motion as Motion,
    optional: flagOf(json["optional"] ?? false),
  };
  // Differences have fewer bits than values, and only integers have them.
  const deltaBits = (most: number) => integerOf(json["delta_bits"] ?? 0, 0, Math.max(most, 0));
  if (json["type"] !== "integer") deltaBits(0);
  const length = (least: number) => integerOf(json["count_max"], Math.max(least, 1), LENGTH_MAX);
  switch (json["type"]) {
    case "integer": {
      const range = rangeFromJson(json);
      return { ...named, type: "integer", ...range, deltaBits: deltaBits(bitsOf(range.max - range.min) - 1) };
    }
    case "flag":
    case "object":
      return { ...named, type: json["type"] };
    case "choice": {
      const names = listOf(json["names"]).map(textOf);
      integerOf(names.length, 1, CHOICES_MAX);
      return { ...named, type: "choice", names };
    }
    case "text":
      return { ...named, type: "text", countMax: length(0) };
    case "list": {
      const countMin = integerOf(json["count_min"], 0, LENGTH_MAX);
      return { ...named, type: "list", ...rangeFromJson(json), countMin, countMax: length(countMin) };
    }
    default:
      throw malformed("a type of the schema is unknown");
  }
}

/** The values of a state's fields; null if it does not have the form of its kind. */
export function splitState(fields: readonly Field[], state: Uint8Array): RawValue[] | null {
  const view = new DataView(state.buffer, state.byteOffset, state.byteLength);
  const raws: RawValue[] = [];
  let at = 0;
  let hasOptional = false;
  let hasValue = false;
  for (const [place, field] of fields.entries()) {
    if (field.optional && !hasOptional && at === state.length) {
      return [...raws, ...fields.slice(place).map(nothing)];
    }
    hasOptional ||= field.optional;
    const isLast = place === fields.length - 1;
    let raw: RawValue | null = null;
    if (field.type === "text" || field.type === "list") {
      const each = field.type === "list" ? field.bytes : 1;
      const least = field.type === "list" ? field.countMin : 0;
      const head = least === field.countMax || isLast ? 0 : field.countMax <= SHORT_LENGTH_MAX ? 1 : 2;
      if (at + head > state.length) return null;
      let count = least;
      if (isLast && least !== field.countMax) count = (state.length - at) / each;
      else if (head === 1) count = view.getUint8(at);
      else if (head === 2) count = view.getUint16(at, true);
      at += head;
      const end = at + count * each;
      if (!Number.isInteger(count) || count < least || count > field.countMax || end > state.length) return null;
      if (field.type === "text") {
        raw = state.slice(at, end);
        if (textIn(raw) === null) return null;
      } else {
        const elements: number[] = [];
        for (; at < end; at += each) elements.push(integerAt(view, at, field));
        if (elements.some((element) => element < field.min || element > field.max)) return null;
        raw = elements;
      }
      at = end;
    } else {
      const range = rangeOf(field);
      if (at + range.bytes > state.length) return null;
      const number = integerAt(view, at, range);
      if (number < range.min || number > range.max) return null;
      raw = number;
      at += range.bytes;
    }
    hasValue ||= hasOptional && !isNothing(raw);
    raws.push(raw);
  }
  return at === state.length && (!hasOptional || hasValue) ? raws : null;
}

/** The state with these values, which are inside their ranges. */
export function joinState(fields: readonly Field[], raws: readonly RawValue[]): Uint8Array {
  const bytes: number[] = [];
  let optionalStart: number | null = null;
  let hasValue = false;
  for (const [place, field] of fields.entries()) {
    const raw = raws[place] ?? 0;
    if (field.optional && optionalStart === null) optionalStart = bytes.length;
    hasValue ||= optionalStart !== null && !isNothing(raw);
    if (typeof raw === "number") push(bytes, raw, rangeOf(field).bytes);
    else {
      const least = field.type === "list" ? field.countMin : 0;
      const most = field.type === "list" || field.type === "text" ? field.countMax : 0;
      if (least !== most && place < fields.length - 1) push(bytes, raw.length, most <= SHORT_LENGTH_MAX ? 1 : 2);
      const each = field.type === "list" ? field.bytes : 1;
      for (const element of raw) push(bytes, element, each);
    }
  }
  if (optionalStart !== null && !hasValue) bytes.length = optionalStart;
  return Uint8Array.from(bytes);
}

/** The values of an object in a JSON session, in the order of its fields. @throws RoomError of the kind `malformed`. */
export function rawsFromJson(fields: readonly Field[], values: Json): RawValue[] {
  return fields.map((field) => {
    const value = values[field.name];
    switch (field.type) {
      case "flag":
        if (typeof value !== "boolean") throw malformed(`${field.name} is neither true nor false`);
        return value ? 1 : 0;
      case "choice":
        return integerOf(field.names.indexOf(value as string), 0, CHOICES_MAX);
      case "text": {
        const bytes = encoder.encode(textOf(value));
        if (bytes.length > field.countMax) throw malformed(`${field.name} is too long`);
        return bytes;
      }
      case "list": {
        const elements = listOf(value);
        integerOf(elements.length, field.countMin, field.countMax);
        return elements.map((element) => integerOf(element, field.min, field.max));
      }
      case "integer":
      case "object": {
        const { min, max } = rangeOf(field);
        return integerOf(value, min, max);
      }
    }
  });
}

/** A changed value. `was` is the value in the base. @throws RoomError of the kind `malformed`. */
export function readRaw(bits: BitReader, field: Field, was: RawValue): RawValue {
  switch (field.type) {
    case "flag":
      return bits.take(1);
    case "object":
      return bits.count();
    case "choice":
      return integerOf(bits.take(bitsOf(field.names.length - 1)), 0, field.names.length - 1);
    case "text": {
      const count = integerOf(bits.take(bitsOf(field.countMax)), 0, field.countMax);
      const bytes = Uint8Array.from({ length: count }, () => bits.take(8));
      if (textIn(bytes) === null) throw malformed(`${field.name} is not UTF-8`);
      return bytes;
    }
    case "list": {
      const count = integerOf(field.countMin + bits.take(bitsOf(field.countMax - field.countMin)), 0, field.countMax);
      const width = bitsOf(field.max - field.min);
      return Array.from({ length: count }, () => integerOf(field.min + bits.take(width), field.min, field.max));
    }
    case "integer": {
      const { min, max, deltaBits, motion } = field;
      if (deltaBits === 0 || !bits.flag() || typeof was !== "number") {
        return integerOf(min + bits.take(bitsOf(max - min)), min, max);
      }
      const to = was + bits.signed(deltaBits);
      const turn = max - min + 1;
      return motion === "angle" ? min + ((((to - min) % turn) + turn) % turn) : integerOf(to, min, max);
    }
  }
}

/** The range of a field that is one number. */
function rangeOf(field: Field): Range {
  switch (field.type) {
    case "integer":
      return field;
    case "flag":
      return { bytes: 1, min: 0, max: 1 };
    case "choice":
      return { bytes: 1, min: 0, max: field.names.length - 1 };
    default:
      return { bytes: 4, min: 0, max: 0xffff_ffff };
  }
}

function integerAt(view: DataView, at: number, { bytes, min }: Range): number {
  if (bytes === 1) return min < 0 ? view.getInt8(at) : view.getUint8(at);
  if (bytes === 2) return min < 0 ? view.getInt16(at, true) : view.getUint16(at, true);
  return min < 0 ? view.getInt32(at, true) : view.getUint32(at, true);
}

function push(bytes: number[], number: number, count: number): void {
  for (let left = count, rest = number; left > 0; left -= 1, rest = Math.floor(rest / 256)) bytes.push(rest & 255);
}

function nothing(field: Field): RawValue {
  return field.type === "text" || field.type === "list" ? [] : 0;
}

function isNothing(raw: RawValue): boolean {
  return typeof raw === "number" ? raw === 0 : raw.length === 0;
}

/** The text in bytes; null if they are not UTF-8. */
function textIn(bytes: Uint8Array): string | null {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

function shown(field: Field, raw: RawValue): FieldValue {
  if (typeof raw !== "number") return field.type === "text" ? (textIn(Uint8Array.from(raw)) ?? "") : Array.from(raw);
  if (field.type === "flag") return raw === 1;
  if (field.type === "choice") return field.names[raw] ?? "";
  return raw / field.perUnit;
}
