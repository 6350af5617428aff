// SDK clients in both encodings, created and closed for one test.
import { describe, test } from 'node:test';
import { Centrifuge as JsonCentrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import WebSocket from 'ws';
import { Events } from './events.mjs';
import { Proxy } from './proxy.mjs';
import { WS_URL } from './server.mjs';

const CLIENT_EVENTS = [
  'connecting', 'connected', 'disconnected', 'error', 'message',
  'subscribed', 'subscribing', 'unsubscribed', 'publication', 'join', 'leave',
];
const SUBSCRIPTION_EVENTS = [
  'subscribing', 'subscribed', 'unsubscribed', 'publication', 'join', 'leave', 'error',
];

/** The representation of a value in each encoding. */
export const ENCODINGS = [
  {
    name: 'json',
    Centrifuge: JsonCentrifuge,
    encode: (value) => value,
    decode: (data) => data,
  },
  {
    name: 'protobuf',
    Centrifuge: ProtobufCentrifuge,
    encode: (value) => new TextEncoder().encode(JSON.stringify(value)),
    decode: (data) => JSON.parse(new TextDecoder().decode(data)),
  },
];

/** Declares `scenarios(scenario)` once for each encoding. */
export function inBothEncodings(title, scenarios) {
  for (const encoding of ENCODINGS) {
    describe(`${title}, ${encoding.name}`, { concurrency: 8 }, () => {
      scenarios((name, body, options = {}) =>
        test(name, options, async () => {
          const bench = new Bench(encoding);
          try {
            await body(bench);
          } finally {
            await bench.clear();
          }
        }), encoding);
    });
  }
}

/** The clients of one test, which are all closed afterwards. */
class Bench {
  #clients = [];
  #proxies = [];

  constructor(encoding) {
    this.encode = encoding.encode;
    this.decode = encoding.decode;
    this.encoding = encoding;
  }

  /** A client with its events; not connected yet. */
  client(options = {}, url = WS_URL) {
    const client = new this.encoding.Centrifuge(url, {
      websocket: WebSocket,
      minReconnectDelay: 20,
      maxReconnectDelay: 200,
      ...options,
    });
    this.#clients.push(client);
    return { client, events: new Events(client, CLIENT_EVENTS) };
  }

  /** A client that is connected, with the context of its `connected` event. */
  async connected(options, url) {
    const made = this.client(options, url);
    made.client.connect();
    made.context = await made.events.next('connected');
    return made;
  }

  /** Creates a subscription, and calls `subscribe`. Returns it with its events. */
  subscription(client, channel, options = {}) {
    const sub = client.newSubscription(channel, { minResubscribeDelay: 20, maxResubscribeDelay: 200, ...options });
    const events = new Events(sub, SUBSCRIPTION_EVENTS);
    sub.subscribe();
    return { sub, events };
  }

  /** A subscription that is subscribed, with the context of its `subscribed` event. */
  async subscribed(client, channel, options) {
    const made = this.subscription(client, channel, options);
    made.context = await made.events.next('subscribed');
    return made;
  }

  async proxy() {
    const proxy = await Proxy.start();
    this.#proxies.push(proxy);
    return proxy;
  }

  async clear() {
    for (const client of this.#clients) client.disconnect();
    for (const proxy of this.#proxies) await proxy.stop();
  }
}
