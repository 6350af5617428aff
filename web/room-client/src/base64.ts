/** Base64 with padding (RFC 4648, section 4), as bytes are written in JSON. */

import { malformed } from "./error.js";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const NO_DIGIT = 255;
const DIGITS = new Uint8Array(128).fill(NO_DIGIT);
for (let digit = 0; digit < ALPHABET.length; digit += 1) DIGITS[ALPHABET.charCodeAt(digit)] = digit;

export function encodeBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 3) {
    const left = bytes.length - at;
    const triple = ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
    text += ALPHABET.charAt(triple >> 18) + ALPHABET.charAt((triple >> 12) & 63);
    text += left > 1 ? ALPHABET.charAt((triple >> 6) & 63) : "=";
    text += left > 2 ? ALPHABET.charAt(triple & 63) : "=";
  }
  return text;
}

/** @throws RoomError when the text is not base64 with padding, or has bits set that belong to no byte. */
export function decodeBase64(text: string): Uint8Array {
  if (text.length % 4 !== 0) throw malformed("base64 without its padding");
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const digits = text.length - padding;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  let bits = 0;
  let held = 0;
  let to = 0;
  for (let at = 0; at < digits; at += 1) {
    const digit = DIGITS[text.charCodeAt(at)] ?? NO_DIGIT;
    if (digit === NO_DIGIT) throw malformed("a character that is not of base64");
    held = ((held << 6) | digit) & 0xffffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[to] = (held >> bits) & 255;
    to += 1;
  }
  if ((held & ((1 << bits) - 1)) !== 0) throw malformed("base64 with bits to spare");
  return bytes;
}
