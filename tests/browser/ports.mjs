/** Ports of servers that a test starts. */

import { once } from "node:events";
import { createServer } from "node:net";

/** Linux takes ports of outgoing connections from 32768 on. No outgoing connection takes one of these between its choice and its use. */
const [FIRST, COUNT] = [10_000, 22_768];

export async function freePort() {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * COUNT);
    const probe = createServer().listen(port, "127.0.0.1");
    try {
      await once(probe, "listening");
    } catch (error) {
      if (error.code !== "EADDRINUSE") throw error;
      continue;
    }
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}
