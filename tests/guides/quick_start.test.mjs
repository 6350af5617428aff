/** README's quick start, as it is written, in a real browser. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { withGuide } from "./terminals.mjs";

const PLACES = { addresses: ["http://localhost:8000/", "http://localhost:3000/"], page: "http://localhost:3000/" };

test("the quick start ends with a page that shows what curl sent", () =>
  withGuide(process.env.GUIDE_QUICK_START, PLACES, async ({ open, follow }) => {
    const pages = [await open(), await open()];
    for (const page of pages) {
      await page.waitForFunction(() => /^connected as /.test(document.querySelector("#state").textContent));
    }
    const answers = follow().map((answer) => JSON.parse(answer));
    assert.equal(answers.length, 1);
    assert.equal(answers[0].result.offset, 1);
    for (const page of pages) {
      await page.waitForFunction(() => document.querySelector("#messages li")?.textContent === "Hello from curl");
      assert.deepEqual(page.faults, []);
    }
  }));
