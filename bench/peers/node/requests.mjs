/** What the servers share: the configuration that `dunlin bench --spawn` writes, and the two HTTP requests that it makes. */

import { readFileSync } from "node:fs";

/** Reads the command line, `node SERVER.mjs -c FILE [-objects N]`, and the configuration. */
export function configuration() {
  const [, , flag, path, ...more] = process.argv;
  if (flag !== "-c" || path === undefined) throw new Error("usage: node SERVER.mjs -c FILE");
  const objects = more[0] === "-objects" ? Number(more[1]) : 0;
  const { http_server: address, http_api: api } = JSON.parse(readFileSync(path, "utf8"));
  return { port: address.port, host: address.address, key: api.key, objects };
}

/** Answers GET /health and POST /api/publish for a server of Node.js. `publish` gets the publication's data. */
export function answering(key, publish) {
  return async (request, response) => {
    if (request.url === "/health") return answer(response, 200);
    if (request.url !== "/api/publish") return answer(response, 404);
    if (request.headers["x-api-key"] !== key) return answer(response, 401);
    let body = "";
    for await (const part of request) body += part;
    publish(JSON.parse(body).data);
    answer(response, 200);
  };
}

function answer(response, status) {
  const body = '{"result":{}}';
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": body.length });
  response.end(body);
}
