/** The list of frames: direction, time, size, what is in it, and its bytes. */

import { commandsOf, repliesOf, sizeOf } from "./codec.js";
import { clock, element, putFirst } from "../../page/dom.js";

/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./codec.js").Message} Message */

const FRAMES_MAX = 300;
const BYTES_PER_LINE = 16;

export class FrameList {
  #count = 0;
  #bytes = 0;

  /**
   * @param {HTMLElement} list
   * @param {HTMLElement} total
   */
  constructor(list, total) {
    this.list = list;
    this.total = total;
  }

  /**
   * @param {"out" | "in"} direction
   * @param {Frame} frame
   */
  add(direction, frame) {
    const messages = messagesOf(direction, frame);
    const size = sizeOf(frame);
    const summary = element(
      "summary", "",
      element("span", "way", direction === "out" ? "↑" : "↓"),
      element("span", "unseen", direction === "out" ? "sent" : "received"),
      element("time", "", clock()),
      element("span", "what", messages.map((message) => summaryOf(direction, message)).join(", ")),
      element("span", "size", `${size} B`),
    );
    const details = element("details", "", summary);
    // Many frames are never opened.
    details.addEventListener("toggle", () => details.append(...contentOf(messages, frame)), { once: true });
    const entry = element("li", "", details);
    Object.assign(entry.dataset, { direction, size, encoding: "text" in frame ? "json" : "protobuf" });
    putFirst(this.list, entry, FRAMES_MAX);
    this.#count += 1;
    this.#bytes += size;
    this.#showTotal();
  }

  clear() {
    this.list.replaceChildren();
    this.#count = 0;
    this.#bytes = 0;
    this.#showTotal();
  }

  #showTotal() {
    this.total.textContent = this.#count === 1 ? `1 frame, ${this.#bytes} B` : `${this.#count} frames, ${this.#bytes} B`;
  }
}

/**
 * @param {"out" | "in"} direction
 * @param {Frame} frame
 * @returns {Message[]}
 */
function messagesOf(direction, frame) {
  try {
    return direction === "out" ? commandsOf(frame) : repliesOf(frame);
  } catch (error) {
    return [{ "cannot be decoded": String(error) }];
  }
}

/**
 * What a message is, in some words.
 * @param {"out" | "in"} direction
 * @param {Message} message
 */
export function summaryOf(direction, message) {
  const { id, error, push, ...rest } = message;
  const [name = "", fields = {}] = Object.entries(push ?? rest).find(([key]) => !["id", "channel"].includes(key)) ?? [];
  if (id === undefined && push === undefined && name === "") return direction === "out" ? "pong" : "ping";
  if (push !== undefined) return ["push", name, push.channel].filter(Boolean).join(" ");
  const text = error ? `error ${error.code} ${error.message}` : [name, fields?.channel].filter(Boolean).join(" ");
  return direction === "out" ? `${id} ${text}` : `reply ${id} ${text}`;
}

/**
 * @param {Message[]} messages
 * @param {Frame} frame
 */
function contentOf(messages, frame) {
  const pretty = messages.map((message) => JSON.stringify(message, null, 2)).join("\n");
  const raw = "text" in frame ? frame.text : hexDump(frame.bytes);
  return [
    element("h3", "", "Decoded"),
    element("pre", "decoded", pretty),
    element("h3", "", "text" in frame ? "Text, as on the wire" : "Bytes, as on the wire"),
    element("pre", "text" in frame ? "raw" : "raw hex", raw),
  ];
}

/**
 * Lines of sixteen bytes: position, hex, ASCII.
 * @param {Uint8Array} bytes
 */
export function hexDump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += BYTES_PER_LINE) {
    const part = [...bytes.subarray(start, start + BYTES_PER_LINE)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${start.toString(16).padStart(4, "0")}  ${hex.padEnd(BYTES_PER_LINE * 3 - 1)}  ${text}`);
  }
  return lines.join("\n");
}
