/** The part of Protobuf's wire format that rooms use. A reader never reads past its end, and never takes more steps than
 * there are bytes. */

import { malformed } from "./error.js";

export const VARINT = 0;
export const FIXED64 = 1;
export const LENGTH = 2;
export const FIXED32 = 5;

const UINT32_MAX = 0xffff_ffff;
const UINT64_MAX = 2 ** 64;
const VARINT_BYTES_MAX = 10;
const NUMBERS_PER_UINT32 = 0x1_0000_0000;
/** The high half of the largest whole number that a double holds exactly. */
const HIGH_HALF_MAX = 0x1f_ffff;

export class Reader {
  private at: number;
  private readonly end: number;
  private readonly view: DataView;

  constructor(private readonly bytes: Uint8Array, from = 0, to = bytes.length) {
    this.at = from;
    this.end = to;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get done(): boolean {
    return this.at >= this.end;
  }

  /** The next field's number and wire type, as one number: `field << 3 | type`. */
  tag(): number {
    const tag = this.uint32();
    if (tag >>> 3 === 0) throw malformed("a field has the number 0");
    return tag;
  }

  /** A varint of at most 32 bits. */
  uint32(): number {
    return this.varint(UINT32_MAX);
  }

  /** A signed varint of at most 64 bits. Beyond 2^53, a double holds it only approximately, as in JSON. */
  whole(): number {
    const from = this.at;
    const value = this.varint(UINT64_MAX);
    if (value <= Number.MAX_SAFE_INTEGER) return value;
    const groups = this.bytes.subarray(from, this.at);
    return Number(BigInt.asIntN(64, groups.reduceRight((sum, group) => (sum << 7n) | BigInt(group & 0x7f), 0n)));
  }

  bool(): boolean {
    return this.uint32() !== 0;
  }

  fixed32(): number {
    const from = this.take(4);
    return this.view.getUint32(from, true);
  }

  /** A number of 64 bits that a double holds exactly. */
  fixed64(): number {
    const from = this.take(8);
    const high = this.view.getUint32(from + 4, true);
    if (high > HIGH_HALF_MAX) throw malformed("a number is over 2^53");
    return high * NUMBERS_PER_UINT32 + this.view.getUint32(from, true);
  }

  /** A copy, so that keeping it does not keep the whole snapshot in memory. */
  blob(): Uint8Array {
    const length = this.uint32();
    const from = this.take(length);
    return this.bytes.slice(from, from + length);
  }

  text(): string {
    try {
      return utf8.decode(this.blob());
    } catch {
      throw malformed("a text is not UTF-8");
    }
  }

  /** A reader of the message, or of the packed numbers, that comes next. */
  inner(): Reader {
    const length = this.uint32();
    const from = this.take(length);
    return new Reader(this.bytes, from, from + length);
  }

  /** Skips the value of an unknown field. */
  skip(type: number): void {
    if (type === VARINT) this.skipVarint();
    else if (type === FIXED64) this.take(8);
    else if (type === LENGTH) this.take(this.uint32());
    else if (type === FIXED32) this.take(4);
    else throw malformed("a field has an unknown wire type");
  }

  private varint(max: number): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < VARINT_BYTES_MAX; count += 1) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (value > max) throw malformed(`a number is over ${max}`);
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw malformed("a varint does not end");
  }

  private skipVarint(): void {
    for (let count = 0; count < VARINT_BYTES_MAX; count += 1) if (this.byte() < 0x80) return;
    throw malformed("a varint does not end");
  }

  private byte(): number {
    return this.bytes[this.take(1)] ?? 0;
  }

  private take(length: number): number {
    const from = this.at;
    if (length > this.end - from) throw malformed("it ends within a value");
    this.at = from + length;
    return from;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** Writes fields. Fields with their default value are omitted, as in proto3. */
export class Writer {
  private bytes = new Uint8Array(64);
  private length = 0;

  finish(): Uint8Array<ArrayBuffer> {
    return this.bytes.slice(0, this.length);
  }

  uint32(field: number, value: number): this {
    if (value === 0) return this;
    this.varint((field << 3) | VARINT);
    this.varint(value);
    return this;
  }

  /** A number that a double holds exactly; a negative one takes ten bytes. */
  whole(field: number, value: number): this {
    if (value >= 0) return this.uint32(field, value);
    this.varint((field << 3) | VARINT);
    let rest = BigInt.asUintN(64, BigInt(value));
    this.room(VARINT_BYTES_MAX);
    for (; rest > 0x7fn; rest >>= 7n) this.bytes[this.length++] = Number(rest & 0x7fn) | 0x80;
    this.bytes[this.length++] = Number(rest);
    return this;
  }

  bool(field: number, value: boolean): this {
    return this.uint32(field, value ? 1 : 0);
  }

  /** Also writes 0, for repeated and packed fields. */
  fixed32(field: number, value: number): this {
    this.varint((field << 3) | FIXED32);
    this.little(value, 4);
    return this;
  }

  fixed64(field: number, value: number): this {
    this.varint((field << 3) | FIXED64);
    this.little(value, 8);
    return this;
  }

  blob(field: number, value: Uint8Array): this {
    return value.length === 0 ? this : this.message(field, value);
  }

  text(field: number, value: string): this {
    return this.blob(field, encoder.encode(value));
  }

  /** Also writes an empty message, because its presence is significant. */
  message(field: number, value: Uint8Array): this {
    this.varint((field << 3) | LENGTH);
    return this.framed(value);
  }

  /** A length and the bytes, as for consecutive messages in a frame. */
  framed(value: Uint8Array): this {
    this.varint(value.length);
    this.room(value.length);
    this.bytes.set(value, this.length);
    this.length += value.length;
    return this;
  }

  packed(field: number, values: readonly number[]): this {
    if (values.length === 0) return this;
    const inner = new Writer();
    for (const value of values) inner.varint(value);
    return this.message(field, inner.finish());
  }

  private varint(value: number): void {
    this.room(VARINT_BYTES_MAX);
    let rest = value;
    while (rest > 0x7f) {
      this.bytes[this.length] = (rest % 128) | 0x80;
      this.length += 1;
      rest = Math.floor(rest / 128);
    }
    this.bytes[this.length] = rest;
    this.length += 1;
  }

  private little(value: number, size: number): void {
    this.room(size);
    let rest = value;
    for (let count = 0; count < size; count += 1) {
      this.bytes[this.length] = rest % 256;
      this.length += 1;
      rest = Math.floor(rest / 256);
    }
  }

  private room(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const larger = new Uint8Array(Math.max(this.bytes.length * 2, this.length + more));
    larger.set(this.bytes);
    this.bytes = larger;
  }
}
