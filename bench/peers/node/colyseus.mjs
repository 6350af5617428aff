/**
 * Colyseus: one room whose state is the newest publication. Each publication is one change of state, sent at once. With
 * `-objects N`, the state also has N objects, and a publication is a tick in which all of them move and turn, as in the
 * world of `dunlin bench room everyone --typed`.
 */

import { createServer } from "node:http";
import { matchMaker, Room, Server } from "@colyseus/core";
import { schema, t } from "@colyseus/schema";
import { WebSocketTransport } from "@colyseus/ws-transport";
import { answering, configuration } from "./requests.mjs";

const ROOM = "subscribers";

/** Side of the map, in units. */
const SIDE = 4096;
/** Maximum step of an object per tick in each direction, in units. */
const STEP_MAX = 8;

/** What 12 bits of a position and 8 of a heading take: fields have 8, 16 or 32 bits. */
const Mover = schema(
  {
    x: t.quantized({ min: 0, max: 65_535, bits: 16 }),
    y: t.quantized({ min: 0, max: 65_535, bits: 16 }),
    heading: t.quantized({ min: 0, max: 256, bits: 8, mode: "wrap" }),
  },
  "Mover",
);

const State = schema({ publication: t.string(), movers: t.array(Mover) }, "State");

/** A random step that is not 0. */
function randomStep() {
  return (Math.random() < 0.5 ? -1 : 1) * (1 + Math.floor(Math.random() * STEP_MAX));
}

class SubscribersRoom extends Room {
  onCreate({ objects }) {
    this.state = new State();
    this.autoDispose = false;
    this.steps = [];
    this.tick = 0;
    for (let index = 0; index < objects; index++) {
      const [x, y] = [0, 0].map(() => Math.floor(Math.random() * SIDE));
      this.state.movers.push(new Mover({ x, y, heading: 0 }));
      this.steps.push([randomStep(), randomStep()]);
    }
    // A change is sent when it is published, not at the next interval of 50 ms.
    this.patchRate = null;
  }

  publish(data) {
    this.tick += 1;
    this.steps.forEach((steps, index) => this.advance(this.state.movers[index], steps, index));
    this.state.publication = data;
    this.broadcastPatch();
  }

  advance(mover, steps, index) {
    ["x", "y"].forEach((axis, of) => {
      const to = mover[axis] + steps[of];
      // An object reverses at the edges.
      if (to < 0 || to >= SIDE) steps[of] = -steps[of];
      mover[axis] += steps[of];
    });
    mover.heading = (this.tick * 0x0d + index * 0xb9) & 0xff;
  }
}

/** Clients of the load generator have no seat yet: it reserves one when they connect, as an HTTP request would have done before. */
class SeatingTransport extends WebSocketTransport {
  async onConnection(socket, request) {
    const { roomId, processId, sessionId } = await matchMaker.joinById(listing.roomId);
    request.url = `/${processId}/${roomId}?sessionId=${sessionId}`;
    return super.onConnection(socket, request);
  }
}

const { port, host, key, objects } = configuration();
const server = createServer();
const requests = answering(key, (data) => matchMaker.getLocalRoomById(listing.roomId).publish(data));
const colyseus = new Server({
  transport: new SeatingTransport({ server }),
  greet: false,
  express: (app) => app.use(requests),
});
colyseus.define(ROOM, SubscribersRoom);
await colyseus.listen(port, host);
const listing = await matchMaker.createRoom(ROOM, { objects });
