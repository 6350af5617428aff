/**
 * The Protobuf messages of the client protocol. One table has the fields that this page writes and shows; it skips others.
 * A decoded message looks as its JSON twin does.
 */

/** @typedef {"number" | "bool" | "text" | "payload"} Scalar A payload is JSON as bytes. */
/** @typedef {{ map: Kind }} MapOf */
/** @typedef {{ list: Kind }} ListOf */
/** @typedef {{ fields: Readonly<Record<number, Field>> }} Message */
/** @typedef {Scalar | Message | MapOf | ListOf} Kind */
/** @typedef {readonly [name: string, kind: Kind]} Field */
/** @typedef {Record<string, unknown>} Fields */

const VARINT = 0;
const LENGTH = 2;

/** A number of seven bits more has more than 53, which no number of JavaScript holds. */
const SHIFT_MAX = 49;

/** @type {(fields: Readonly<Record<number, Field>>) => Message} */
const message = (fields) => ({ fields });

const CLIENT_INFO = message({ 1: ["user", "text"], 2: ["client", "text"], 3: ["conn_info", "payload"], 4: ["chan_info", "payload"] });
const PUBLICATION = message({
  4: ["data", "payload"], 5: ["info", CLIENT_INFO], 6: ["offset", "number"], 7: ["tags", { map: "text" }], 8: ["delta", "bool"],
  9: ["time", "number"], 10: ["channel", "text"], 11: ["key", "text"], 12: ["removed", "bool"], 14: ["epoch", "text"],
  15: ["prev_data", "payload"], 16: ["version", "number"],
});
const PUBLICATIONS = { list: PUBLICATION };
const SUBSCRIBE_REQUEST = message({
  1: ["channel", "text"], 2: ["token", "text"], 3: ["recover", "bool"], 6: ["epoch", "text"], 7: ["offset", "number"],
  8: ["data", "payload"], 9: ["positioned", "bool"], 10: ["recoverable", "bool"], 11: ["join_leave", "bool"], 12: ["delta", "text"],
});
const SUBSCRIBE_RESULT = message({
  1: ["expires", "bool"], 2: ["ttl", "number"], 3: ["recoverable", "bool"], 6: ["epoch", "text"], 7: ["publications", PUBLICATIONS],
  8: ["recovered", "bool"], 9: ["offset", "number"], 10: ["positioned", "bool"], 11: ["data", "payload"],
  12: ["was_recovering", "bool"], 13: ["delta", "bool"], 14: ["id", "number"],
});
const CHANNEL = message({ 1: ["channel", "text"] });
const MEMBER = message({ 1: ["info", CLIENT_INFO] });
const EMPTY = message({});

const COMMAND = message({
  1: ["id", "number"],
  4: ["connect", message({
    1: ["token", "text"], 2: ["data", "payload"], 3: ["subs", { map: SUBSCRIBE_REQUEST }], 4: ["name", "text"], 5: ["version", "text"],
  })],
  5: ["subscribe", SUBSCRIBE_REQUEST],
  6: ["unsubscribe", CHANNEL],
  7: ["publish", message({ 1: ["channel", "text"], 2: ["data", "payload"] })],
  8: ["presence", CHANNEL],
  9: ["presence_stats", CHANNEL],
  10: ["history", message({
    1: ["channel", "text"], 7: ["limit", "number"], 8: ["since", message({ 1: ["offset", "number"], 2: ["epoch", "text"] })],
    9: ["reverse", "bool"],
  })],
  11: ["ping", EMPTY],
});

const PUSH = message({
  1: ["id", "number"], 2: ["channel", "text"], 4: ["pub", PUBLICATION], 5: ["join", MEMBER], 6: ["leave", MEMBER],
  7: ["unsubscribe", message({ 2: ["code", "number"], 3: ["reason", "text"] })],
  8: ["message", message({ 1: ["data", "payload"] })],
  9: ["subscribe", message({
    1: ["recoverable", "bool"], 4: ["epoch", "text"], 5: ["offset", "number"], 6: ["positioned", "bool"], 7: ["data", "payload"],
  })],
  11: ["disconnect", message({ 1: ["code", "number"], 2: ["reason", "text"], 3: ["reconnect", "bool"] })],
  12: ["refresh", message({ 1: ["expires", "bool"], 2: ["ttl", "number"] })],
});
const REPLY = message({
  1: ["id", "number"],
  2: ["error", message({ 1: ["code", "number"], 2: ["message", "text"], 3: ["temporary", "bool"] })],
  4: ["push", PUSH],
  5: ["connect", message({
    1: ["client", "text"], 2: ["version", "text"], 3: ["expires", "bool"], 4: ["ttl", "number"], 5: ["data", "payload"],
    6: ["subs", { map: SUBSCRIBE_RESULT }], 7: ["ping", "number"], 8: ["pong", "bool"], 9: ["session", "text"], 10: ["node", "text"],
    11: ["time", "number"],
  })],
  6: ["subscribe", SUBSCRIBE_RESULT],
  7: ["unsubscribe", EMPTY],
  8: ["publish", EMPTY],
  9: ["presence", message({ 1: ["presence", { map: CLIENT_INFO }] })],
  10: ["presence_stats", message({ 1: ["num_clients", "number"], 2: ["num_users", "number"] })],
  11: ["history", message({ 1: ["publications", PUBLICATIONS], 2: ["epoch", "text"], 3: ["offset", "number"] })],
  12: ["ping", EMPTY],
  13: ["rpc", message({ 1: ["data", "payload"] })],
  14: ["refresh", message({ 1: ["client", "text"], 2: ["version", "text"], 3: ["expires", "bool"], 4: ["ttl", "number"] })],
  15: ["sub_refresh", message({ 1: ["expires", "bool"], 2: ["ttl", "number"] })],
});

/** @type {(kind: Kind) => kind is Message} */
const isMessage = (kind) => typeof kind === "object" && "fields" in kind;
/** @type {(kind: Kind) => kind is MapOf} */
const isMap = (kind) => typeof kind === "object" && "map" in kind;
/** @type {(kind: Kind) => kind is ListOf} */
const isList = (kind) => typeof kind === "object" && "list" in kind;

/** @type {(kind: Kind) => Message} */
const entryOf = (kind) => message({ 1: ["key", "text"], 2: ["value", kind] });

/**
 * A command as a frame: its length, then its message.
 * @param {Fields} command
 */
export function encodeCommand(command) {
  const bytes = encode(COMMAND, command);
  return Uint8Array.from([...varint(bytes.length), ...bytes]);
}

/**
 * The replies of a frame.
 * @param {Uint8Array} frame
 * @throws {Error} for bytes that are no replies
 */
export function decodeReplies(frame) {
  return decodeFrame(frame, REPLY);
}

/**
 * The commands of a frame that this page has sent.
 * @param {Uint8Array} frame
 */
export function decodeCommands(frame) {
  return decodeFrame(frame, COMMAND);
}

/**
 * @param {Uint8Array} frame
 * @param {Message} kind
 */
function decodeFrame(frame, kind) {
  const reader = new Reader(frame);
  /** @type {Fields[]} */
  const messages = [];
  while (!reader.isDone) messages.push(decode(kind, reader.part()));
  return messages;
}

/**
 * @param {Message} kind
 * @param {Fields} fields
 * @returns {number[]}
 */
function encode(kind, fields) {
  return Object.entries(kind.fields).flatMap(([number, [name, of]]) => {
    const value = fields[name];
    if (value === undefined) return [];
    if (isList(of)) return /** @type {unknown[]} */ (value).flatMap((one) => encodeField(Number(number), of.list, one));
    if (isMap(of)) {
      const entries = Object.entries(/** @type {Fields} */ (value));
      return entries.flatMap(([key, one]) => encodeField(Number(number), entryOf(of.map), { key, value: one }));
    }
    return encodeField(Number(number), of, value);
  });
}

/**
 * @param {number} number
 * @param {Kind} kind
 * @param {unknown} value
 */
function encodeField(number, kind, value) {
  if (kind === "number" || kind === "bool") return [...varint(number * 8 + VARINT), ...varint(Number(value))];
  const bytes = isMessage(kind) ? encode(kind, /** @type {Fields} */ (value)) : [...new TextEncoder().encode(textOf(kind, value))];
  return [...varint(number * 8 + LENGTH), ...varint(bytes.length), ...bytes];
}

/**
 * @param {Kind} kind
 * @param {unknown} value
 */
const textOf = (kind, value) => (kind === "payload" ? JSON.stringify(value) : String(value));

/**
 * @param {number} number
 * @returns {number[]}
 */
function varint(number) {
  // Not with `>>>`, which keeps 32 bits.
  return number < 0x80 ? [number] : [(number % 0x80) + 0x80, ...varint(Math.floor(number / 0x80))];
}

/**
 * @param {Message} kind
 * @param {Reader} reader
 * @returns {Fields}
 */
function decode(kind, reader) {
  /** @type {Fields} */
  const fields = {};
  while (!reader.isDone) {
    const tag = reader.varint();
    const field = kind.fields[Math.floor(tag / 8)];
    if (field === undefined) {
      reader.skip(tag % 8);
      continue;
    }
    const [name, of] = field;
    if (isList(of)) {
      fields[name] ??= [];
      /** @type {unknown[]} */ (fields[name]).push(decodeField(of.list, reader));
    } else if (isMap(of)) {
      fields[name] ??= {};
      const { key = "", value = of.map === "text" ? "" : {} } = decode(entryOf(of.map), reader.part());
      // A name from outside must not reach a prototype.
      Object.defineProperty(fields[name], String(key), { value, enumerable: true, configurable: true, writable: true });
    } else fields[name] = decodeField(of, reader);
  }
  return fields;
}

/**
 * @param {Kind} kind
 * @param {Reader} reader
 */
function decodeField(kind, reader) {
  if (kind === "number") return reader.varint();
  if (kind === "bool") return reader.varint() !== 0;
  const part = reader.part();
  if (isMessage(kind)) return decode(kind, part);
  return kind === "payload" ? payloadOf(part.rest) : new TextDecoder().decode(part.rest);
}

/**
 * The value of a payload, or its bytes if it is no JSON.
 * @param {Uint8Array} bytes
 * @returns {unknown}
 */
function payloadOf(bytes) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return { "not JSON, in hex": hexOf(bytes) };
  }
}

/** @param {Uint8Array} bytes */
export const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

class Reader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.position = 0;
  }

  get isDone() {
    return this.position === this.bytes.length;
  }

  get rest() {
    return this.bytes.subarray(this.position);
  }

  varint() {
    let number = 0;
    for (let shift = 0; shift <= SHIFT_MAX; shift += 7) {
      const byte = this.bytes[this.position];
      if (byte === undefined) throw new Error("the frame ends too early");
      this.position += 1;
      number += (byte % 0x80) * 2 ** shift;
      if (byte < 0x80) return number;
    }
    throw new Error("a number is larger than 53 bits");
  }

  /** The bytes of a field with a length. */
  part() {
    const end = this.varint() + this.position;
    if (end > this.bytes.length) throw new Error("the frame ends too early");
    const part = new Reader(this.bytes.subarray(this.position, end));
    this.position = end;
    return part;
  }

  /** @param {number} wireType */
  skip(wireType) {
    if (wireType === VARINT) this.varint();
    else if (wireType === LENGTH) this.part();
    else throw new Error(`wire type ${wireType} is not of this protocol`);
  }
}
