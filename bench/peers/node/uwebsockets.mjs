/** uWebSockets.js without a protocol: one topic, to which each connection is subscribed. */

import uws from "@trufflesuite/uws-js-unofficial";
import { configuration } from "./requests.mjs";

const TOPIC = "subscribers";

const { port, host, key } = configuration();
const app = uws.App();
app.ws("/", { open: (socket) => socket.subscribe(TOPIC) });
app.get("/health", (response) => response.end("{}"));
app.post("/api/publish", (response, request) => {
  if (request.getHeader("x-api-key") !== key) return response.writeStatus("401 Unauthorized").end("{}");
  let body = "";
  response.onAborted(() => {});
  response.onData((part, isLast) => {
    body += Buffer.from(part).toString();
    if (!isLast) return;
    const { data } = JSON.parse(body);
    app.publish(TOPIC, JSON.stringify({ channel: TOPIC, data }));
    response.end('{"result":{}}');
  });
});
app.listen(host, port, (socket) => {
  if (!socket) throw new Error(`cannot listen on ${host}:${port}`);
});
