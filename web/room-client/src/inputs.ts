/** The inputs since one join: their numbers, and the inputs that the room has not applied yet. */

import { encodeBase64 } from "./base64.js";
import { Writer } from "./protobuf.js";

export type Encoding = "json" | "protobuf";

export interface PendingInput {
  readonly number: number;
  readonly data: Uint8Array;
  /** The time of sending, on the local clock. */
  readonly sentMs: number;
}

/** The number of unacknowledged inputs that are remembered; the oldest are dropped first. */
export const PENDING_MAX = 1_024;
const NUMBER_MAX = 0xffff_ffff;

export class Inputs {
  private next = 1;
  private waiting: PendingInput[] = [];

  /** The inputs that are not acknowledged yet. */
  get pending(): readonly PendingInput[] {
    return this.waiting;
  }

  /** Assigns a number to an input. */
  add(data: Uint8Array, nowMs: number): PendingInput {
    if (this.next > NUMBER_MAX) throw new RangeError("a stay in a room has at most 2^32 - 1 inputs");
    const input = { number: this.next, data, sentMs: nowMs };
    this.next += 1;
    this.waiting.push(input);
    if (this.waiting.length > PENDING_MAX) this.waiting.shift();
    return input;
  }

  /** Processes an acknowledgement: the room has applied or dropped all inputs up to `ack`. Returns the inputs that were waiting for it. */
  acknowledge(ack: number): readonly PendingInput[] {
    const first = this.waiting.findIndex(({ number }) => number > ack);
    return this.waiting.splice(0, first === -1 ? this.waiting.length : first);
  }

  /** Starts again with number 1 after a join. */
  clear(): void {
    this.next = 1;
    this.waiting = [];
  }
}

/** The data of an input for `publish` or `send`. `room` is for `send` only. */
export function encodeInput(encoding: Encoding, number: number, data: Uint8Array, room = ""): unknown {
  if (encoding === "protobuf") return new Writer().uint32(1, number).blob(2, data).text(3, room).finish();
  return { number, ...(data.length === 0 ? {} : { data: encodeBase64(data) }), ...(room === "" ? {} : { room }) };
}
