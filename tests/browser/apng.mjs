/**
 * Reads PNGs and writes animated ones (APNG): all frames share one palette, and each frame contains only the pixels that changed.
 * PNG specification, third edition: sections 5, 7.3 (filters), 11.3.6 (animation).
 */

import { crc32, deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** The palette has 256 entries; the first one is transparent, and stands for a pixel that has not changed. */
const UNCHANGED = 0;
const COLOURS_MAX = 255;
/** Where the channels of a pixel are: red, green, blue. */
const SHIFTS = [16, 8, 0];

const COLOUR_RGB = 2;
const COLOUR_PALETTE = 3;
const COLOUR_RGBA = 6;

/** Decodes a picture with 8 bits per channel, as browsers take it. Returns one number per pixel: 0xRRGGBB. */
export function decodePng(bytes) {
  const parts = [...chunks(bytes)];
  const header = parts.find(({ type }) => type === "IHDR").data;
  const [width, height, depth, colour] = [header.readUInt32BE(0), header.readUInt32BE(4), header[8], header[9]];
  const channels = { [COLOUR_RGB]: 3, [COLOUR_RGBA]: 4 }[colour];
  if (depth !== 8 || channels === undefined || header[12] !== 0) throw new Error("not a PNG as browsers take it");
  const rows = unfilter(inflateSync(Buffer.concat(parts.filter(({ type }) => type === "IDAT").map(({ data }) => data))), width * channels, height, channels);
  const pixels = new Uint32Array(width * height);
  for (let at = 0; at < pixels.length; at += 1) pixels[at] = rows.readUIntBE(at * channels, 3);
  return { width, height, pixels };
}

export function* chunks(bytes) {
  for (let at = SIGNATURE.length; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    yield { type: bytes.toString("latin1", at + 4, at + 8), data: bytes.subarray(at + 8, at + 8 + length) };
    at += 12 + length;
  }
}

function unfilter(filtered, stride, height, channels) {
  const rows = Buffer.alloc(stride * height);
  for (let row = 0; row < height; row += 1) {
    const filter = filtered[row * (stride + 1)];
    for (let column = 0; column < stride; column += 1) {
      const at = row * stride + column;
      const left = column >= channels ? rows[at - channels] : 0;
      const up = row > 0 ? rows[at - stride] : 0;
      const corner = row > 0 && column >= channels ? rows[at - stride - channels] : 0;
      const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
      rows[at] = filtered[row * (stride + 1) + 1 + column] + predicted;
    }
  }
  return rows;
}

function paeth(left, up, corner) {
  const [byLeft, byUp, byCorner] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
  if (byLeft <= byUp && byLeft <= byCorner) return left;
  return byUp <= byCorner ? up : corner;
}

/** Encodes frames of one size, `{ pixels, ms }` each, as an animation that starts again and again. */
export function encodeApng(width, height, frames) {
  const palette = paletteOf(frames);
  const indexed = frames.map(({ pixels, ms }) => ({ ms, indices: pixels.map((pixel) => palette.index(pixel)) }));
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, COLOUR_PALETTE], 8);
  const animation = Buffer.alloc(8);
  animation.writeUInt32BE(frames.length, 0);
  const parts = [chunk("IHDR", header), chunk("acTL", animation), chunk("PLTE", palette.bytes), chunk("tRNS", Buffer.from([0]))];
  let [sequence, before] = [0, null];
  for (const { ms, indices } of indexed) {
    const area = changedArea(width, height, before, indices);
    parts.push(chunk("fcTL", frameControl(sequence, area, ms)));
    sequence += 1;
    const data = deflateSync(pixelsOf(width, area, before, indices), { level: 9 });
    if (before === null) {
      parts.push(chunk("IDAT", data));
    } else {
      parts.push(chunk("fdAT", Buffer.concat([number(sequence), data])));
      sequence += 1;
    }
    before = indices;
  }
  return Buffer.concat([SIGNATURE, ...parts, chunk("IEND", Buffer.alloc(0))]);
}

/** At most 255 colours for all frames. Every other colour becomes the nearest of them. */
function paletteOf(frames) {
  const counts = new Map();
  for (const { pixels } of frames) for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const boxes = [boxOf([...counts])];
  while (boxes.length < COLOURS_MAX) {
    const widest = boxes.reduce((best, next) => (next.priority > best.priority ? next : best));
    if (widest.priority === 0) break;
    boxes.splice(boxes.indexOf(widest), 1, ...halves(widest));
  }
  const colours = boxes.map(({ entries }) => entries.reduce((best, next) => (next[1] > best[1] ? next : best))[0]);
  const known = new Map();
  return {
    bytes: Buffer.concat([Buffer.alloc(3), ...colours.map((colour) => Buffer.from(SHIFTS.map((shift) => channel(colour, shift))))]),
    index(pixel) {
      let index = known.get(pixel);
      if (index === undefined) known.set(pixel, (index = UNCHANGED + 1 + nearest(colours, pixel)));
      return index;
    },
  };
}

const channel = (pixel, shift) => (pixel >> shift) & 255;

/** Colours with their numbers of pixels, the channel in which they differ most, and how much is gained if they are parted. */
function boxOf(entries) {
  const range = (shift) => {
    const values = entries.map(([colour]) => channel(colour, shift));
    return values.reduce((most, value) => Math.max(most, value), 0) - values.reduce((least, value) => Math.min(least, value), 255);
  };
  const shift = SHIFTS.reduce((best, next) => (range(next) > range(best) ? next : best));
  const count = entries.reduce((sum, [, pixels]) => sum + pixels, 0);
  // Rare colours count as well: a line in red is small, and a reader looks at it.
  return { entries, shift, count, priority: range(shift) * Math.sqrt(count) };
}

/** Parts a box so that each half has about the same number of pixels. */
function halves({ entries, shift, count }) {
  const sorted = entries.toSorted(([one], [other]) => channel(one, shift) - channel(other, shift));
  let [at, before] = [0, 0];
  do before += sorted[at++][1];
  while (before < count / 2 && at < sorted.length - 1);
  return [boxOf(sorted.slice(0, at)), boxOf(sorted.slice(at))];
}

function nearest(colours, pixel) {
  let [best, least] = [0, Infinity];
  colours.forEach((colour, at) => {
    const distance = SHIFTS.reduce((sum, shift) => sum + (channel(colour, shift) - channel(pixel, shift)) ** 2, 0);
    if (distance < least) [best, least] = [at, distance];
  });
  return best;
}

/** The smallest rectangle with all pixels that differ; one pixel if none does. */
function changedArea(width, height, before, now) {
  if (before === null) return { left: 0, top: 0, width, height };
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let at = 0; at < now.length; at += 1) {
    if (before[at] === now[at]) continue;
    const [x, y] = [at % width, Math.floor(at / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  }
  return right === 0 ? { left: 0, top: 0, width: 1, height: 1 } : { left, top, width: right - left, height: bottom - top };
}

/** Rows without a filter. A pixel that has not changed is transparent. */
function pixelsOf(width, area, before, now) {
  const rows = Buffer.alloc((area.width + 1) * area.height);
  for (let row = 0; row < area.height; row += 1) {
    for (let column = 0; column < area.width; column += 1) {
      const at = (area.top + row) * width + area.left + column;
      rows[row * (area.width + 1) + 1 + column] = before !== null && before[at] === now[at] ? UNCHANGED : now[at];
    }
  }
  return rows;
}

/** A frame that stays, and over which the next one is painted. */
function frameControl(sequence, area, ms) {
  const control = Buffer.alloc(26);
  [sequence, area.width, area.height, area.left, area.top].forEach((value, at) => control.writeUInt32BE(value, 4 * at));
  control.writeUInt16BE(ms, 20);
  control.writeUInt16BE(1000, 22);
  control[25] = sequence === 0 ? 0 : 1;
  return control;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  return Buffer.concat([number(data.length), body, number(crc32(body))]);
}

function number(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
