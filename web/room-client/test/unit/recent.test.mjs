// The quantile of the last values.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Recent } from '../../dist/recent.js';
import { randomFrom } from '../support/snapshots.mjs';

test('the quantile is that of the last values, as if they were sorted', () => {
  const random = randomFrom(3);
  for (const capacity of [1, 2, 7, 30]) {
    const recent = new Recent(capacity);
    for (let round = 0; round < 2; round += 1) {
      assert.equal(recent.covering(0.97), 0, 'there is none');
      const values = [];
      for (let count = 0; count < 200; count += 1) {
        // Some are equal, some are negative.
        values.push((random() % 20) - 5);
        recent.push(values.at(-1));
        const sorted = values.slice(-capacity).sort((a, b) => a - b);
        for (const share of [0, 0.5, 0.97, 1]) {
          const expected = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
          assert.equal(recent.covering(share), expected, `${capacity}, after ${values}`);
        }
      }
      recent.clear();
    }
  }
});
