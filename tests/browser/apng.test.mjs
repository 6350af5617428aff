/** Animated pictures contain the frames that they were made of. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32, deflateSync, inflateSync } from "node:zlib";
import { chunks, decodePng, encodeApng } from "./apng.mjs";

const [WIDTH, HEIGHT] = [5, 4];
const SIGNATURE = "\x89PNG\r\n\x1a\n";

test("an animation shows the frames that it was made of", () => {
  const first = Uint32Array.from({ length: WIDTH * HEIGHT }, (_, at) => at * 0x0a0b0c);
  const second = first.with(7, 0xff0000).with(13, 0x00ff00);
  const frames = [first, second, second, first].map((pixels, at) => ({ pixels, ms: 100 + at }));
  assert.deepEqual(shown(encodeApng(WIDTH, HEIGHT, frames)), frames);
});

test("colours beyond the palette become near ones", () => {
  const pixels = Uint32Array.from({ length: 40_000 }, (_, at) => (at % 200) * 0x010000 + Math.floor(at / 200) * 0x0100);
  const [frame] = shown(encodeApng(200, 200, [{ pixels, ms: 100 }]), 200);
  const channel = (pixel, shift) => (pixel >> shift) & 255;
  const distances = pixels.map((pixel, at) => Math.max(...[16, 8, 0].map((shift) => Math.abs(channel(pixel, shift) - channel(frame.pixels[at], shift)))));
  assert.ok(Math.max(...distances) < 64, `a channel differs by ${Math.max(...distances)}`);
});

test("each filter of a PNG is undone", () => {
  const rows = [[10, 20, 30, 40, 50, 60], [11, 22, 33, 44, 55, 66], [1, 2, 3, 250, 251, 252], [90, 80, 70, 60, 50, 40], [5, 6, 7, 8, 9, 10]];
  const pixels = rows.flatMap((row) => [0, 3].map((at) => (row[at] << 16) | (row[at + 1] << 8) | row[at + 2]));
  const header = Buffer.from([0, 0, 0, 2, 0, 0, 0, rows.length, 8, 2, 0, 0, 0]);
  const filtered = rows.map((row, number) => [number, ...row.map((value, at) => (value - predicted(rows, number, at)) & 255)]);
  const png = Buffer.concat([Buffer.from(SIGNATURE, "latin1"), chunk("IHDR", header), chunk("IDAT", deflateSync(Buffer.from(filtered.flat()))), chunk("IEND", Buffer.alloc(0))]);
  assert.deepEqual([...decodePng(png).pixels], pixels);
});

/** What filter number `number` predicts for a byte of the row of this number (PNG specification, section 9.2). */
function predicted(rows, number, at) {
  const [left, up, corner] = [rows[number][at - 3], rows[number - 1]?.[at], rows[number - 1]?.[at - 3]].map((value) => value ?? 0);
  const estimate = left + up - corner;
  const paeth = [left, up, corner].reduce((best, next) => (Math.abs(estimate - next) < Math.abs(estimate - best) ? next : best));
  return [0, left, up, Math.floor((left + up) / 2), paeth][number];
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** What a reader sees of an animation: each frame is painted over the one before it. */
function shown(animation, width = WIDTH) {
  const [frames, parts] = [[], [...chunks(animation)]];
  const palette = parts.find(({ type }) => type === "PLTE").data;
  let [canvas, control] = [new Uint32Array(0), null];
  for (const { type, data } of parts) {
    if (type === "IHDR") canvas = new Uint32Array(data.readUInt32BE(0) * data.readUInt32BE(4));
    if (type === "fcTL") control = data;
    if (type !== "IDAT" && type !== "fdAT") continue;
    const [areaWidth, areaHeight, left, top] = [4, 8, 12, 16].map((at) => control.readUInt32BE(at));
    const rows = inflateSync(type === "IDAT" ? data : data.subarray(4));
    for (let at = 0; at < areaWidth * areaHeight; at += 1) {
      const [row, column] = [Math.floor(at / areaWidth), at % areaWidth];
      const index = rows[row * (areaWidth + 1) + 1 + column];
      if (index > 0) canvas[(top + row) * width + left + column] = palette.readUIntBE(3 * index, 3);
    }
    frames.push({ pixels: canvas.slice(), ms: control.readUInt16BE(20) });
  }
  return frames;
}
