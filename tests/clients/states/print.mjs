// Prints what is read from each line of the standard input, as write_sources.rs does.
import { readFileSync } from 'node:fs';
import * as states from './states.js';

const hex = (text) => Buffer.from(text, 'utf8').toString('hex');

const shown = {
  1: [states.readWalker, (one) =>
    `heading=${one.heading.toFixed(1)} score=${one.score.toFixed(1)} is_on=${Number(one.is_on)} light=${one.light} `
    + `target=${one.target} wide=${one.wide} deep=${one.deep} name=${hex(one.name)}`],
  2: [states.readBag, (one) => `label=${hex(one.label)} pair=${one.pair} amount=${one.amount} items=${one.items}`],
  300: [states.readLog, (one) => `numbers=${one.numbers} long=${one.long} class=${one.class}`],
};

// In the middle of a larger buffer, as snapshots have states.
function bytesOf(word) {
  return new Uint8Array(Buffer.from(word === 'empty' ? 'eeee' : `ee${word}ee`, 'hex')).subarray(1, -1);
}

function print(line) {
  const [kind, ...rest] = line.split(' ');
  if (kind === 'between') {
    const [from, to] = rest.map((word) => states.readWalker(bytesOf(word)));
    const one = states.walkerBetween(from, to, Number(rest[2]));
    return `${line} heading=${one.heading.toFixed(2)} score=${one.score.toFixed(2)} light=${one.light}`;
  }
  const [read, show] = shown[kind];
  const one = read(bytesOf(rest[0]));
  return `${line} ${one === null ? '-' : show(one)}`;
}

const lines = readFileSync(0, 'utf8').trimEnd().split('\n');
process.stdout.write(`${lines.map(print).join('\n')}\n`);
