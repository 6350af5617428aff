/** The part of the map that the canvas shows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Camera } from "../dist/test/camera.mjs";

const BEYOND_PX = 90;
const grid = (units) => ({
  widthUnits: units, heightUnits: units, shape: { nearCells: 1, farCells: 1, cellUnits: units / 8, columns: 8, rows: 8 },
});

function cameraAt(to, { width = 390, height = 780, units = 8_000, whole = false } = {}) {
  const camera = new Camera();
  Object.assign(camera, { width, height });
  camera.follow(to, grid(units), whole, 16);
  return camera;
}

const close = (actual, expected) => assert.ok(Math.abs(actual - expected) < 0.001, `${actual} is not ${expected}`);

test("a place in the middle of the map is in the middle of the canvas", () => {
  const [x, y] = cameraAt({ x: 4_000, y: 3_000 }).toScreen(4_000, 3_000);
  close(x, 195);
  close(y, 390);
});

test("at an edge, little of the canvas is beyond the map", () => {
  for (const [to, corner, expected] of [
    [{ x: 0, y: 0 }, [0, 0], [BEYOND_PX, BEYOND_PX]],
    [{ x: 8_000, y: 8_000 }, [8_000, 8_000], [390 - BEYOND_PX, 400 - BEYOND_PX]],
    [{ x: 10, y: 7_990 }, [0, 8_000], [BEYOND_PX, 400 - BEYOND_PX]],
  ]) {
    for (const whole of [false, true]) {
      const [x, y] = cameraAt(to, { whole, height: 400 }).toScreen(...corner);
      close(x, expected[0]);
      close(y, expected[1]);
    }
  }
});

test("a map that is smaller than the canvas is in its middle", () => {
  const camera = cameraAt({ x: 0, y: 500 }, { width: 1_200, height: 900, units: 600 });
  const [left, top] = camera.toScreen(0, 0);
  const [right, bottom] = camera.toScreen(600, 600);
  close(left + right, 1_200);
  close(top + bottom, 900);
});

test("a place on the canvas is found on the map", () => {
  const camera = cameraAt({ x: 0, y: 0 });
  const { x, y } = camera.toMap(...camera.toScreen(123, 456));
  close(x, 123);
  close(y, 456);
});
