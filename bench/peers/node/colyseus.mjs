/** Colyseus: one room whose state is the newest publication. Each publication is one change of state, sent at once. */

import { createServer } from "node:http";
import { matchMaker, Room, Server } from "@colyseus/core";
import { schema, t } from "@colyseus/schema";
import { WebSocketTransport } from "@colyseus/ws-transport";
import { answering, configuration } from "./requests.mjs";

const ROOM = "subscribers";

const State = schema({ publication: t.string() }, "State");

class SubscribersRoom extends Room {
  onCreate() {
    this.state = new State();
    this.autoDispose = false;
    // A change is sent when it is published, not at the next interval of 50 ms.
    this.patchRate = null;
  }

  publish(data) {
    this.state.publication = data;
    this.broadcastPatch();
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

const { port, host, key } = configuration();
const server = createServer();
const requests = answering(key, (data) => matchMaker.getLocalRoomById(listing.roomId).publish(data));
const colyseus = new Server({
  transport: new SeatingTransport({ server }),
  greet: false,
  express: (app) => app.use(requests),
});
colyseus.define(ROOM, SubscribersRoom);
await colyseus.listen(port, host);
const listing = await matchMaker.createRoom(ROOM, {});
