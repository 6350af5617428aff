// Written by `dunlin schema tag --lang ts`. Do not edit.

/** What this file was written from. A room with another schema may have states that it does not read. */
export const SCHEMA = "{\"kinds\":[{\"kind\":1,\"name\":\"Runner\",\"fields\":[{\"name\":\"colour\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":11},{\"name\":\"vx\",\"type\":\"integer\",\"bytes\":1,\"min\":-127,\"max\":127},{\"name\":\"vy\",\"type\":\"integer\",\"bytes\":1,\"min\":-127,\"max\":127},{\"name\":\"condition\",\"type\":\"choice\",\"names\":[\"Running\",\"Tagged\",\"Safe\",\"Away\"]}]},{\"kind\":2,\"name\":\"Label\",\"fields\":[{\"name\":\"runner\",\"type\":\"object\"},{\"name\":\"score\",\"type\":\"integer\",\"bytes\":4,\"min\":0,\"max\":4294967295},{\"name\":\"name\",\"type\":\"text\",\"count_max\":96}]},{\"kind\":3,\"name\":\"Projectile\",\"fields\":[{\"name\":\"colour\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":11},{\"name\":\"angle\",\"type\":\"integer\",\"bytes\":2,\"min\":0,\"max\":65535,\"motion\":\"angle\"},{\"name\":\"owner\",\"type\":\"object\"}]}]}";

export const RUNNER_KIND = 1;

export interface Runner {
  /** 0 to 11. */
  readonly colour: number;
  /** -127 to 127. */
  readonly vx: number;
  /** -127 to 127. */
  readonly vy: number;
  readonly condition: "Running" | "Tagged" | "Safe" | "Away";
}

/** Null if the state does not have the form of this kind. */
export function readRunner(state: Uint8Array): Runner | null {
  const reader = new Reader(state);
  const colour_ = reader.number(1, 0, 11);
  const vx_ = reader.number(1, -127, 127);
  const vy_ = reader.number(1, -127, 127);
  const condition_ = (["Running", "Tagged", "Safe", "Away"] as const)[reader.number(1, 0, 3)] ?? "Running";
  if (!reader.isRight) return null;
  return {
    colour: colour_,
    vx: vx_,
    vy: vy_,
    condition: condition_,
  };
}

export const LABEL_KIND = 2;

export interface Label {
  /** The id of an object; 0: none. */
  readonly runner: number;
  /** 0 to 4294967295. */
  readonly score: number;
  /** At most 96 bytes. */
  readonly name: string;
}

/** Null if the state does not have the form of this kind. */
export function readLabel(state: Uint8Array): Label | null {
  const reader = new Reader(state);
  const runner_ = reader.number(4, 0, 4294967295);
  const score_ = reader.number(4, 0, 4294967295);
  const name_ = reader.text(0, 96, REST);
  if (!reader.isRight) return null;
  return {
    runner: runner_,
    score: score_,
    name: name_,
  };
}

export const PROJECTILE_KIND = 3;

export interface Projectile {
  /** 0 to 11. */
  readonly colour: number;
  /** 0 to 65535, turns the shorter way. */
  readonly angle: number;
  /** The id of an object; 0: none. */
  readonly owner: number;
}

/** Null if the state does not have the form of this kind. */
export function readProjectile(state: Uint8Array): Projectile | null {
  const reader = new Reader(state);
  const colour_ = reader.number(1, 0, 11);
  const angle_ = reader.number(2, 0, 65535);
  const owner_ = reader.number(4, 0, 4294967295);
  if (!reader.isRight) return null;
  return {
    colour: colour_,
    angle: angle_,
    owner: owner_,
  };
}

/** What to show between two states: `share` is 0 at the first, and 1 at the second. */
export function projectileBetween(from: Projectile, to: Projectile, share: number): Projectile {
  return {
    ...(share < 1 ? from : to),
    angle: angle(from.angle, to.angle, share, 0.0, 65536.0),
  };
}

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

/** The shorter way round; `turn` is the whole way. */
function angle(from: number, to: number, share: number, min: number, turn: number): number {
  const way = (((to - from) % turn) + turn) % turn;
  const value = from + (way > turn / 2 ? way - turn : way) * share;
  return min + ((((value - min) % turn) + turn) % turn);
}
