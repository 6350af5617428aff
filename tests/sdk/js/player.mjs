// A player of a room: node player.mjs URL CHANNEL. Prints each change of its subscription, and what a snapshot says about the move of
// its room. After each line on its standard input it sends an input, whose number that line is.
import { createInterface } from 'node:readline';

import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';

const [url, channel] = process.argv.slice(2);
const print = (event) => console.log(JSON.stringify(event));
const client = new Centrifuge(url, { websocket: WebSocket });
const subscription = client.newSubscription(channel);
let seen = { tick: 0, ack: 0, avatar: 0, timeUs: 0 };

subscription.on('subscribed', () => print({ state: 'subscribed' }));
subscription.on('subscribing', ({ code }) => print({ state: 'subscribing', code }));
subscription.on('unsubscribed', ({ code }) => print({ state: 'unsubscribed', code }));
subscription.on('publication', ({ data, offset }) => {
  if (offset) return;
  const { tick, ack, avatar, base = 0, moved = false, time_us: timeUs } = data;
  if (base !== 0 && base !== seen.tick) print({ state: 'wrong base' });
  if (tick <= seen.tick || ack < seen.ack) print({ state: 'taken back', tick, ack, seen });
  if (moved) print({ state: 'moved', gapS: (timeUs - seen.timeUs) / 1e6, isSamePlayer: avatar === seen.avatar });
  if (ack > seen.ack) print({ ack });
  seen = { tick, ack, avatar, timeUs };
});
createInterface({ input: process.stdin }).on('line', (number) => {
  client.send({ number: Number(number), room: channel, data: Buffer.from([0, 127, 0]).toString('base64') });
});
subscription.subscribe();
client.connect();
