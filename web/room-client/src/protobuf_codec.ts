/**
 * A table-driven Protobuf codec of the client protocol, with a tenth of the code of the SDK's own Protobuf build. It
 * has the methods that the SDK calls on its codec, and all fields of the server's messages that the SDK reads.
 */

import { malformed } from "./error.js";
import { LENGTH, Reader, VARINT, Writer } from "./protobuf.js";

type Scalar = "number" | "bool" | "text" | "bytes";
type Kind = Scalar | Message | { readonly map: "text" | Message };
type Field = readonly [name: string, kind: Kind | (() => Message), repeated?: true];
interface Message {
  readonly [number: number]: Field;
}
type Fields = Record<string, unknown>;

const FILTER: Message = {
  1: ["op", "text"], 2: ["key", "text"], 3: ["cmp", "text"], 4: ["val", "text"], 5: ["vals", "text", true],
  6: ["nodes", () => FILTER, true],
};
const CLIENT_INFO: Message = { 1: ["user", "text"], 2: ["client", "text"], 3: ["conn_info", "bytes"], 4: ["chan_info", "bytes"] };
const PUBLICATION: Message = {
  4: ["data", "bytes"], 5: ["info", CLIENT_INFO], 6: ["offset", "number"], 7: ["tags", { map: "text" }], 8: ["delta", "bool"],
  9: ["time", "number"], 10: ["channel", "text"], 11: ["key", "text"], 12: ["removed", "bool"], 14: ["epoch", "text"],
  15: ["prev_data", "bytes"], 16: ["version", "number"],
};
const SUBSCRIBE_REQUEST: Message = {
  1: ["channel", "text"], 2: ["token", "text"], 3: ["recover", "bool"], 6: ["epoch", "text"], 7: ["offset", "number"], 8: ["data", "bytes"],
  9: ["positioned", "bool"], 10: ["recoverable", "bool"], 11: ["join_leave", "bool"], 12: ["delta", "text"], 13: ["tf", FILTER],
  14: ["flag", "number"], 15: ["type", "number"], 16: ["phase", "number"], 17: ["cursor", "text"], 18: ["limit", "number"], 19: ["asc", "bool"],
};
const SUBSCRIBE_RESULT: Message = {
  1: ["expires", "bool"], 2: ["ttl", "number"], 3: ["recoverable", "bool"], 6: ["epoch", "text"], 7: ["publications", PUBLICATION, true],
  8: ["recovered", "bool"], 9: ["offset", "number"], 10: ["positioned", "bool"], 11: ["data", "bytes"], 12: ["was_recovering", "bool"],
  13: ["delta", "bool"], 14: ["id", "number"], 15: ["type", "number"], 16: ["phase", "number"], 17: ["cursor", "text"],
  18: ["state", PUBLICATION, true], 19: ["publish_debounce", "number"],
};
const EXPIRY: Message = { 1: ["expires", "bool"], 2: ["ttl", "number"] };
const POSITION: Message = { 1: ["offset", "number"], 2: ["epoch", "text"] };
const REFRESH_RESULT: Message = { 1: ["client", "text"], 2: ["version", "text"], 3: ["expires", "bool"], 4: ["ttl", "number"] };
const CHANNEL: Message = { 1: ["channel", "text"] };
const DATA: Message = { 1: ["data", "bytes"] };

const COMMAND: Message = {
  1: ["id", "number"],
  4: ["connect", {
    1: ["token", "text"], 2: ["data", "bytes"], 3: ["subs", { map: SUBSCRIBE_REQUEST }], 4: ["name", "text"], 5: ["version", "text"],
    6: ["headers", { map: "text" }], 7: ["flag", "number"],
  }],
  5: ["subscribe", SUBSCRIBE_REQUEST],
  6: ["unsubscribe", CHANNEL],
  7: ["publish", { 1: ["channel", "text"], 2: ["data", "bytes"], 3: ["type", "number"], 4: ["key", "text"], 5: ["removed", "bool"] }],
  8: ["presence", CHANNEL],
  9: ["presence_stats", CHANNEL],
  10: ["history", { 1: ["channel", "text"], 7: ["limit", "number"], 8: ["since", POSITION], 9: ["reverse", "bool"] }],
  11: ["ping", {}],
  12: ["send", DATA],
  13: ["rpc", { 1: ["data", "bytes"], 2: ["method", "text"] }],
  14: ["refresh", { 1: ["token", "text"] }],
  15: ["sub_refresh", {
    1: ["channel", "text"], 2: ["token", "text"], 3: ["type", "number"],
    4: ["track", { 1: ["signature", "text"], 2: ["items", { 1: ["key", "text"], 2: ["version", "number"] }, true] }, true], 5: ["untrack", "text", true],
  }],
};

const MEMBER: Message = { 1: ["info", CLIENT_INFO] };
const PUSH: Message = {
  1: ["id", "number"], 2: ["channel", "text"], 4: ["pub", PUBLICATION], 5: ["join", MEMBER], 6: ["leave", MEMBER],
  7: ["unsubscribe", { 2: ["code", "number"], 3: ["reason", "text"] }],
  8: ["message", DATA],
  9: ["subscribe", { 1: ["recoverable", "bool"], 4: ["epoch", "text"], 5: ["offset", "number"], 6: ["positioned", "bool"], 7: ["data", "bytes"] }],
  11: ["disconnect", { 1: ["code", "number"], 2: ["reason", "text"], 3: ["reconnect", "bool"] }],
  12: ["refresh", EXPIRY],
};
const REPLY: Message = {
  1: ["id", "number"],
  2: ["error", { 1: ["code", "number"], 2: ["message", "text"], 3: ["temporary", "bool"] }],
  4: ["push", PUSH],
  5: ["connect", {
    1: ["client", "text"], 2: ["version", "text"], 3: ["expires", "bool"], 4: ["ttl", "number"], 5: ["data", "bytes"],
    6: ["subs", { map: SUBSCRIBE_RESULT }], 7: ["ping", "number"], 8: ["pong", "bool"], 9: ["session", "text"], 10: ["node", "text"],
    11: ["time", "number"],
  }],
  6: ["subscribe", SUBSCRIBE_RESULT],
  7: ["unsubscribe", {}],
  8: ["publish", {}],
  9: ["presence", { 1: ["presence", { map: CLIENT_INFO }] }],
  10: ["presence_stats", { 1: ["num_clients", "number"], 2: ["num_users", "number"] }],
  11: ["history", { 1: ["publications", PUBLICATION, true], 2: ["epoch", "text"], 3: ["offset", "number"] }],
  12: ["ping", {}],
  13: ["rpc", DATA],
  14: ["refresh", REFRESH_RESULT],
  15: ["sub_refresh", { ...EXPIRY, 3: ["items", PUBLICATION, true] }],
};

/** The form of a publication's data in a subscription with deltas. */
interface AppliedDelta {
  readonly newData: Uint8Array;
  readonly newPrevValue: Uint8Array;
  readonly isDelta: false;
  readonly wireBytes: number;
  readonly fullBytes: number;
}

/** The codec of `ProtobufCentrifuge`. */
export class ProtobufCodec {
  name(): "protobuf" {
    return "protobuf";
  }

  encodeCommands(commands: readonly object[]): Uint8Array<ArrayBuffer> {
    const frame = new Writer();
    for (const command of commands) frame.framed(encode(COMMAND, command as Fields));
    return frame.finish();
  }

  decodeReplies(data: ArrayBuffer | Uint8Array): object[] {
    const frame = new Reader(data instanceof Uint8Array ? data : new Uint8Array(data));
    const replies: object[] = [];
    while (!frame.done) replies.push(decode(frame.inner(), REPLY));
    return replies;
  }

  /** @throws RoomError for a delta: `centrifuge/build/protobuf` can apply them. */
  applyDeltaIfNeeded({ data, delta }: { data: Uint8Array; delta?: boolean }): AppliedDelta {
    if (delta === true) throw malformed("a delta, which this build of the SDK cannot apply");
    return { newData: data, newPrevValue: data, isDelta: false, wireBytes: data.length, fullBytes: data.length };
  }
}

const kindOf = (kind: Field[1]): Kind => (typeof kind === "function" ? kind() : kind);

const WIRE_TYPES: Readonly<Record<Scalar, number>> = { number: VARINT, bool: VARINT, text: LENGTH, bytes: LENGTH };

function decode(reader: Reader, message: Message): Fields {
  const fields: Fields = message === PUBLICATION || message === DATA ? { data: new Uint8Array(0) } : {};
  // As in the SDK's own codec, empty lists and maps are present.
  for (const [name, kind, repeated] of Object.values(message) as Field[]) {
    if (repeated) fields[name] = [];
    else if (typeof kind === "object" && "map" in kind) fields[name] = {};
  }
  while (!reader.done) {
    const tag = reader.tag();
    const field = message[tag >>> 3];
    if (field === undefined) {
      reader.skip(tag & 7);
      continue;
    }
    const [name, lazy, repeated] = field;
    const kind = kindOf(lazy);
    if ((tag & 7) !== (typeof kind === "string" ? WIRE_TYPES[kind] : LENGTH)) throw malformed(`${name} has the wrong type`);
    if (isMap(kind)) {
      const { key = "", value } = decode(reader.inner(), { 1: ["key", "text"], 2: ["value", kind.map] });
      // A name from outside must not access a prototype.
      Object.defineProperty(fields[name], String(key), { value: value ?? (kind.map === "text" ? "" : {}), enumerable: true, configurable: true, writable: true });
    } else if (repeated) (fields[name] as unknown[]).push(decodeValue(reader, kind));
    else fields[name] = decodeValue(reader, kind);
  }
  return fields;
}

function decodeValue(reader: Reader, kind: Scalar | Message): unknown {
  if (kind === "number") return reader.whole();
  if (kind === "bool") return reader.bool();
  if (kind === "text") return reader.text();
  return kind === "bytes" ? reader.blob() : decode(reader.inner(), kind);
}

function isMap(kind: Kind): kind is { readonly map: "text" | Message } {
  return typeof kind !== "string" && "map" in kind;
}

function encode(message: Message, fields: Fields): Uint8Array {
  const writer = new Writer();
  for (const [number, [name, lazy, repeated]] of Object.entries(message) as [string, Field][]) {
    const kind = kindOf(lazy);
    const value = fields[name];
    if (value === undefined || value === null) continue;
    if (isMap(kind)) {
      for (const [key, one] of Object.entries(value)) {
        writer.message(Number(number), encode({ 1: ["key", "text"], 2: ["value", kind.map] }, { key, value: one }));
      }
    } else for (const one of repeated ? (value as unknown[]) : [value]) encodeValue(writer, Number(number), kind, one, repeated === true);
  }
  return writer.finish();
}

function encodeValue(writer: Writer, number: number, kind: Scalar | Message, value: unknown, isItem: boolean): void {
  if (kind === "number") writer.whole(number, value as number);
  else if (kind === "bool") writer.bool(number, value as boolean);
  else if (kind === "bytes") writer.blob(number, value as Uint8Array);
  else if (kind !== "text") writer.message(number, encode(kind, value as Fields));
  else if (isItem) writer.message(number, new TextEncoder().encode(value as string));
  else writer.text(number, value as string);
}
