// Players of a test: the room client over the official SDK, in both encodings and from the bundle, with waits for
// conditions.
import { Centrifuge as JsonCentrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import WebSocket from 'ws';
import { Room, SocketMeter } from '../../dist/index.js';
import * as bundle from '../../dist/room-client.min.js';

export const DEADLINE_MS = 30_000;
export const URL_OF_SERVER = process.env.DUNLIN_WS_URL;

export const walk = (dx, dy) => Uint8Array.of(0, dx & 255, dy & 255);

const BUILDS = {
  json: [JsonCentrifuge, 'json', Room],
  protobuf: [ProtobufCentrifuge, 'protobuf', Room],
  bundle: [bundle.Centrifuge, 'protobuf', bundle.Room],
};

export class Player {
  events = [];
  left = [];
  errors = [];
  #client;

  constructor(build, channel, options = {}, url = URL_OF_SERVER, clientOptions = {}) {
    const [Centrifuge, encoding, RoomOfBuild] = BUILDS[build];
    const meter = new SocketMeter();
    this.#client = new Centrifuge(url, { websocket: meter.socketClass(WebSocket), minReconnectDelay: 20, maxReconnectDelay: 200, ...clientOptions });
    this.room = new RoomOfBuild(this.#client, channel, { encoding, meter, ...options });
    this.room.on('event', (event) => this.events.push(event));
    this.room.on('left', (left) => this.left.push(left));
    this.room.on('error', (error) => this.errors.push(error));
    this.#client.connect();
  }

  /** The server's state of the player's own object. */
  get avatar() {
    return this.room.replica.object(this.room.replica.avatar);
  }

  join() {
    this.room.join();
    return this.until('the own object is seen', () => this.avatar !== undefined);
  }

  /** Waits until `condition` returns a value. Checks it after every event. */
  until(what, condition, deadlineMs = DEADLINE_MS) {
    return new Promise((resolve, reject) => {
      const stops = ['snapshot', 'event', 'joined', 'left', 'error'].map((name) => this.room.on(name, look));
      const timer = setTimeout(() => {
        finish();
        const { tick, ack, size } = this.room.replica;
        reject(new Error(`not within ${deadlineMs} ms: ${what}; tick ${tick}, ack ${ack}, ${size} objects, ${this.errors.join('; ')}`));
      }, deadlineMs);
      const finish = () => {
        clearTimeout(timer);
        for (const stop of stops) stop();
      };
      look();
      function look() {
        const found = condition();
        if (!found) return;
        // Listeners that are registered during this event must be called, too, so the rest runs after it.
        queueMicrotask(() => {
          finish();
          resolve(found);
        });
      }
    });
  }

  stop() {
    this.#client.disconnect();
  }
}
