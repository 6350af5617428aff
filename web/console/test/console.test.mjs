/** What the console computes before it shows it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { bytes, duration, ms, rate } from "../dist/test/format.mjs";
import { History, quantile } from "../dist/test/history.mjs";
import { LogLines } from "../dist/test/log_lines.mjs";
import { visible } from "../dist/test/text.mjs";

const BOUNDS = [100, 1000];

/** A node's state with these counters. */
function node(uid, { time_ms, publications = 0, buckets = [0, 0, 0], shards = [0] }) {
  return {
    uid,
    name: uid,
    time_ms,
    sessions: { open: 10 },
    traffic: { publications, deliveries: 2 * publications, written_bytes: 0 },
    publish_to_socket: { bounds_us: BOUNDS, buckets },
    shards: shards.map((busy_percent, shard) => ({ shard, busy_percent })),
  };
}

describe("quantiles of a histogram", () => {
  const at = (buckets, share) => quantile({ bounds_us: BOUNDS, buckets }, share);

  test("are spread evenly within a bucket", () => {
    assert.equal(at([10, 0, 0], 0.5), 0.05);
    assert.equal(at([10, 10, 0], 0.5), 0.1);
    assert.equal(at([10, 10, 0], 0.75), 0.55);
  });

  test("beyond the last bound are that bound, and of nothing there is none", () => {
    assert.equal(at([0, 0, 5], 0.99), 1);
    assert.equal(at([0, 0, 0], 0.99), null);
  });
});

describe("the history", () => {
  test("has rates between two states, over all nodes", () => {
    const history = new History();
    history.push({ nodes: [node("a", { time_ms: 1000 }), node("b", { time_ms: 1000 })], missing: [] });
    assert.deepEqual([history.points[0].publications, history.points[0].sessions], [null, 20]);
    history.push({ nodes: [node("a", { time_ms: 3000, publications: 100 }), node("b", { time_ms: 2000, publications: 7 })], missing: [] });
    assert.deepEqual([history.points[1].publications, history.points[1].deliveries], [57, 114]);
    assert.equal(history.rates.get("b").publications, 7);
  });

  test("has quantiles of what was added since the last state", () => {
    const history = new History();
    history.push({ nodes: [node("a", { time_ms: 1000, buckets: [1000, 0, 0] })], missing: [] });
    history.push({ nodes: [node("a", { time_ms: 2000, buckets: [1000, 10, 0] })], missing: [] });
    assert.equal(history.points[0].p50_ms, null);
    assert.equal(history.points[1].p50_ms, 0.55);
  });

  test("has no rate of a node that was started anew", () => {
    const history = new History();
    history.push({ nodes: [node("a", { time_ms: 1000, publications: 100 })], missing: [] });
    history.push({ nodes: [node("a2", { time_ms: 2000, publications: 1 })], missing: [] });
    assert.equal(history.points[1].publications, null);
  });

  test("keeps the load of each shard beside the points, and is bounded", () => {
    const history = new History();
    const push = (second, shards) => history.push({ nodes: [node("a", { time_ms: second * 1000, shards })], missing: [] });
    push(1, [5]);
    push(2, [6, 7]);
    push(3, [8]);
    assert.deepEqual([...history.shards], [["shard 0", [5, 6, 8]], ["shard 1", [null, 7, null]]]);
    for (let second = 4; second <= 400; second += 1) push(second, [second]);
    assert.equal(history.points.length, 300);
    assert.equal(history.shards.get("shard 0").length, 300);
    assert.equal(history.shards.get("shard 0").at(-1), 400);
  });
});

describe("the lines of the log", () => {
  const part = (run, next, ...lines) => ({ run, next, lines, missed: 0 });
  const texts = (known) => known.lines.map(({ text }) => text);

  test("of a node that was started anew follow those of before, from the first one on", () => {
    const known = new LogLines();
    assert.deepEqual([known.run, known.next], ["", 0]);
    known.take(part("a", 2, "one", "two"));
    assert.deepEqual([known.run, known.next], ["a", 2]);
    known.take(part("b", 3, "b0", "b1", "b2"));
    assert.deepEqual(texts(known).slice(0, 2), ["one", "two"]);
    assert.deepEqual(texts(known).slice(3), ["b0", "b1", "b2"]);
    assert.deepEqual([known.run, known.next], ["b", 3]);
  });

  test("are not shown twice if two nodes answer in turn", () => {
    const known = new LogLines();
    known.take(part("a", 2, "a0", "a1"));
    known.take(part("b", 1, "b0"));
    // A node that does not know the run of the question sends all that it has.
    known.take(part("a", 3, "a0", "a1", "a2"));
    known.take(part("b", 1, "b0"));
    assert.deepEqual(texts(known).filter((text) => !text.startsWith("—")), ["a0", "a1", "b0", "a2"]);
  });

  test("that were not kept long enough are counted, and those of the page are bounded", () => {
    const known = new LogLines();
    assert.equal(known.take(part("a", 500, "x")), 0, "those before the page was opened");
    assert.equal(known.take(part("a", 503, "y")), 2);
    assert.equal(known.take(part("a", 3003, ...Array(2500).fill("z"))), 0);
    assert.equal(known.lines.length, 2000);
  });
});

test("characters that are not seen are written as escapes", () => {
  assert.equal(visible("ada‮eve​\r\n\tж😀"), "ada\\u{202e}eve\\u{200b}\\u{d}\n\tж😀");
  assert.equal(visible(`<b>"&amp;`), `<b>"&amp;`);
});

test("numbers have at most three digits and a unit", () => {
  assert.deepEqual([bytes(999), bytes(1234), bytes(5.6e9)], ["999 B", "1.23 kB", "5.60 GB"]);
  assert.deepEqual([ms(0), ms(0.456), ms(1234), ms(125_000)], ["0 ms", "0.46 ms", "1.23 s", "2 min 5 s"]);
  assert.deepEqual([duration(0), duration(59.9), duration(3600), duration(90_061)], ["0 s", "59 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([rate(0), rate(1.5), rate(12_345.6)], ["0", "1.50", "12,346"]);
});
