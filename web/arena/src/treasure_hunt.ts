// Written by `dunlin schema treasure_hunt --lang ts`. Do not edit.

/** What this file was written from. A room with another schema may have states that it does not read. */
export const SCHEMA = "{\"kinds\":[{\"kind\":1,\"name\":\"Player\",\"fields\":[{\"name\":\"colour\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":11},{\"name\":\"vx\",\"type\":\"integer\",\"bytes\":1,\"min\":-127,\"max\":127},{\"name\":\"vy\",\"type\":\"integer\",\"bytes\":1,\"min\":-127,\"max\":127},{\"name\":\"activity\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":9}]},{\"kind\":2,\"name\":\"NameTag\",\"fields\":[{\"name\":\"player\",\"type\":\"object\"},{\"name\":\"score\",\"type\":\"integer\",\"bytes\":4,\"min\":0,\"max\":4294967295},{\"name\":\"name\",\"type\":\"text\",\"count_max\":96}]},{\"kind\":3,\"name\":\"Chest\",\"fields\":[{\"name\":\"is_open\",\"type\":\"flag\"},{\"name\":\"value\",\"type\":\"integer\",\"bytes\":2,\"min\":0,\"max\":65535,\"optional\":true},{\"name\":\"finder\",\"type\":\"object\",\"optional\":true}]},{\"kind\":4,\"name\":\"Tree\",\"fields\":[{\"name\":\"size\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":3}]},{\"kind\":5,\"name\":\"Rock\",\"fields\":[{\"name\":\"size\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":3}]},{\"kind\":6,\"name\":\"ClueMarker\",\"fields\":[{\"name\":\"shares\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":255},{\"name\":\"value\",\"type\":\"integer\",\"bytes\":2,\"min\":0,\"max\":65535},{\"name\":\"until\",\"type\":\"integer\",\"bytes\":4,\"min\":0,\"max\":4294967295}]},{\"kind\":7,\"name\":\"Purse\",\"fields\":[{\"name\":\"score\",\"type\":\"integer\",\"bytes\":4,\"min\":0,\"max\":4294967295},{\"name\":\"chests\",\"type\":\"integer\",\"bytes\":2,\"min\":0,\"max\":65535},{\"name\":\"energy\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":100}]}]}";

export const PLAYER_KIND = 1;

export interface Player {
  /** 0 to 11. */
  readonly colour: number;
  /** -127 to 127. */
  readonly vx: number;
  /** -127 to 127. */
  readonly vy: number;
  /** 0 to 9. */
  readonly activity: number;
}

/** Null if the state does not have the form of this kind. */
export function readPlayer(state: Uint8Array): Player | null {
  const reader = new Reader(state);
  const colour_ = reader.number(1, 0, 11);
  const vx_ = reader.number(1, -127, 127);
  const vy_ = reader.number(1, -127, 127);
  const activity_ = reader.number(1, 0, 9);
  if (!reader.isRight) return null;
  return {
    colour: colour_,
    vx: vx_,
    vy: vy_,
    activity: activity_,
  };
}

export const NAME_TAG_KIND = 2;

export interface NameTag {
  /** The id of an object; 0: none. */
  readonly player: number;
  /** 0 to 4294967295. */
  readonly score: number;
  /** At most 96 bytes. */
  readonly name: string;
}

/** Null if the state does not have the form of this kind. */
export function readNameTag(state: Uint8Array): NameTag | null {
  const reader = new Reader(state);
  const player_ = reader.number(4, 0, 4294967295);
  const score_ = reader.number(4, 0, 4294967295);
  const name_ = reader.text(0, 96, REST);
  if (!reader.isRight) return null;
  return {
    player: player_,
    score: score_,
    name: name_,
  };
}

export const CHEST_KIND = 3;

export interface Chest {
  readonly is_open: boolean;
  /** 0 to 65535. */
  readonly value: number;
  /** The id of an object; 0: none. */
  readonly finder: number;
}

/** Null if the state does not have the form of this kind. */
export function readChest(state: Uint8Array): Chest | null {
  const reader = new Reader(state);
  const is_open_ = reader.number(1, 0, 1) === 1;
  reader.optional();
  const value_ = reader.number(2, 0, 65535);
  const finder_ = reader.number(4, 0, 4294967295);
  if (!reader.isRight) return null;
  return {
    is_open: is_open_,
    value: value_,
    finder: finder_,
  };
}

export const TREE_KIND = 4;

export interface Tree {
  /** 0 to 3. */
  readonly size: number;
}

/** Null if the state does not have the form of this kind. */
export function readTree(state: Uint8Array): Tree | null {
  const reader = new Reader(state);
  const size_ = reader.number(1, 0, 3);
  if (!reader.isRight) return null;
  return {
    size: size_,
  };
}

export const ROCK_KIND = 5;

export interface Rock {
  /** 0 to 3. */
  readonly size: number;
}

/** Null if the state does not have the form of this kind. */
export function readRock(state: Uint8Array): Rock | null {
  const reader = new Reader(state);
  const size_ = reader.number(1, 0, 3);
  if (!reader.isRight) return null;
  return {
    size: size_,
  };
}

export const CLUE_MARKER_KIND = 6;

export interface ClueMarker {
  /** 0 to 255. */
  readonly shares: number;
  /** 0 to 65535. */
  readonly value: number;
  /** 0 to 4294967295. */
  readonly until: number;
}

/** Null if the state does not have the form of this kind. */
export function readClueMarker(state: Uint8Array): ClueMarker | null {
  const reader = new Reader(state);
  const shares_ = reader.number(1, 0, 255);
  const value_ = reader.number(2, 0, 65535);
  const until_ = reader.number(4, 0, 4294967295);
  if (!reader.isRight) return null;
  return {
    shares: shares_,
    value: value_,
    until: until_,
  };
}

export const PURSE_KIND = 7;

export interface Purse {
  /** 0 to 4294967295. */
  readonly score: number;
  /** 0 to 65535. */
  readonly chests: number;
  /** 0 to 100. */
  readonly energy: number;
}

/** Null if the state does not have the form of this kind. */
export function readPurse(state: Uint8Array): Purse | null {
  const reader = new Reader(state);
  const score_ = reader.number(4, 0, 4294967295);
  const chests_ = reader.number(2, 0, 65535);
  const energy_ = reader.number(1, 0, 100);
  if (!reader.isRight) return null;
  return {
    score: score_,
    chests: chests_,
    energy: energy_,
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
