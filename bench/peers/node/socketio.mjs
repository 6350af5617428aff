/** Socket.IO with its adapter in memory: one room, which each connection joins. */

import { createServer } from "node:http";
import { Server } from "socket.io";
import { answering, configuration } from "./requests.mjs";

const ROOM = "subscribers";

const { port, host, key } = configuration();
const server = createServer(answering(key, (data) => io.to(ROOM).emit("publication", data)));
const io = new Server(server, { serveClient: false, transports: ["websocket"] });
io.on("connection", (socket) => socket.join(ROOM));
server.listen(port, host);
