/** The two encodings of the client protocol: frames to messages and back. */

import { decodeCommands, decodeReplies, encodeCommand } from "./protobuf.js";

/** @typedef {"json" | "protobuf"} Encoding */
/** @typedef {Record<string, any>} Message A command or a reply; the fields are those of the protocol. */
/** @typedef {{ text: string } | { bytes: Uint8Array<ArrayBuffer> }} Frame As it is on the wire. */

/** What a WebSocket asks for. The server's default is JSON. */
export const SUBPROTOCOLS = { json: [], protobuf: ["centrifuge-protobuf"] };

/**
 * @param {Encoding} encoding
 * @param {Message} command
 * @returns {Frame}
 */
export function encode(encoding, command) {
  return encoding === "json" ? { text: JSON.stringify(command) } : { bytes: encodeCommand(command) };
}

/**
 * The frame of a message of a WebSocket.
 * @param {string | ArrayBuffer} data
 * @returns {Frame}
 */
export const frameOf = (data) => (typeof data === "string" ? { text: data } : { bytes: new Uint8Array(data) });

/**
 * The replies of a frame from the server.
 * @param {Frame} frame
 * @returns {Message[]}
 * @throws {Error} for a frame that has none
 */
export const repliesOf = (frame) => ("text" in frame ? jsonOf(frame.text) : decodeReplies(frame.bytes));

/**
 * The commands of a frame to the server.
 * @param {Frame} frame
 * @returns {Message[]}
 */
export const commandsOf = (frame) => ("text" in frame ? jsonOf(frame.text) : decodeCommands(frame.bytes));

/**
 * One message per line.
 * @param {string} text
 * @returns {Message[]}
 */
const jsonOf = (text) => text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));

/**
 * Its length on the wire, without the header of the WebSocket.
 * @param {Frame} frame
 */
export const sizeOf = (frame) => ("text" in frame ? new TextEncoder().encode(frame.text).length : frame.bytes.length);
