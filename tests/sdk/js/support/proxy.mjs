// A TCP proxy in front of the server. Its connections can be cut and paused, and the server's bytes can be altered.
import { connect, createServer } from 'node:net';

export class Proxy {
  #server;
  #upstream;
  #pairs = new Set();
  #open = true;
  #held = false;
  #pings = 0;
  #onPing = null;
  #alteration = null;

  /** A proxy in front of the server with this WebSocket address. */
  static async start(upstream = process.env.DUNLIN_WS_URL) {
    const proxy = new Proxy();
    proxy.#upstream = new URL(upstream);
    proxy.#server = createServer((client) => proxy.#accept(client));
    await new Promise((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  /** The server's WebSocket address, through this proxy. */
  get url() {
    const url = new URL(this.#upstream);
    url.port = this.#server.address().port;
    return url.href;
  }

  /** Cuts every connection and refuses new ones until `restore`. */
  cut() {
    this.#open = false;
    for (const { client, upstream } of this.#pairs) {
      client.destroy();
      upstream.destroy();
    }
  }

  /** Cuts every client off without closing its connection to the server, as a vanished network does. New ones are accepted. */
  abandon() {
    for (const pair of this.#pairs) {
      pair.isAbandoned = true;
      pair.client.destroy();
    }
  }

  restore() {
    this.#open = true;
  }

  /** Keeps connections open but forwards nothing from the server until `release`. */
  hold() {
    this.#held = true;
    for (const { upstream } of this.#pairs) upstream.pause();
  }

  release() {
    this.#held = false;
    for (const { upstream } of this.#pairs) upstream.resume();
  }

  /** Alters, once, the first bytes of the server that match `pattern`, each byte a character. The replacement is as long as the match. */
  alter(pattern, replacement) {
    this.#alteration = { pattern, replacement };
  }

  /** Resolves when `count` server pings have passed since the proxy started. */
  async pings(count) {
    while (this.#pings < count) await new Promise((resolve) => (this.#onPing = resolve));
  }

  async stop() {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client) {
    client.on('error', () => {});
    if (!this.#open) {
      client.destroy();
      return;
    }
    const upstream = connect(Number(this.#upstream.port), '127.0.0.1');
    const pair = { client, upstream, isAbandoned: false };
    this.#pairs.add(pair);
    const end = () => {
      if (pair.isAbandoned && this.#open && !upstream.destroyed) return;
      this.#pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      socket.on('error', end);
      socket.on('close', end);
    }
    client.on('data', (bytes) => upstream.write(bytes));
    upstream.on('data', (bytes) => {
      if (isPing(bytes)) {
        this.#pings += 1;
        this.#onPing?.();
      }
      if (!pair.isAbandoned) client.write(this.#altered(bytes));
    });
    if (this.#held) upstream.pause();
  }

  #altered(bytes) {
    if (this.#alteration === null) return bytes;
    const text = bytes.toString('latin1');
    const altered = text.replace(this.#alteration.pattern, this.#alteration.replacement);
    if (altered !== text) this.#alteration = null;
    return Buffer.from(altered, 'latin1');
  }
}

// A server ping on an otherwise silent connection is one WebSocket frame: the
// text `{}` in JSON, the single byte 0 (an empty message's length) in Protobuf.
function isPing(bytes) {
  return bytes.equals(Buffer.from([0x81, 2, 0x7b, 0x7d])) || bytes.equals(Buffer.from([0x82, 1, 0]));
}
