// The JavaScript half of the socket for Unity's WebGL player, in Node, on a real server: socket.mjs ADDRESS
// Unity's Emscripten gives the file its memory and UTF8ToString, and hands it the numbers that WebGLRoomSocket.cs calls with.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { WebSocket, WebSocketServer } from '../../../web/room-client/node_modules/ws/wrapper.mjs';

const WAIT_MS = 20_000;
const source = readFileSync(new URL('../../../clients/csharp/unity/DunlinSocket.jslib', import.meta.url), 'utf8');
const HEAPU8 = new Uint8Array(1 << 21);
const strings = (at) => new TextDecoder().decode(HEAPU8.subarray(at, HEAPU8.indexOf(0, at)));
const shim = 'var dunlinSockets, library; const LibraryManager = {}; function mergeInto(_, given) { library = given; dunlinSockets = given.$dunlinSockets; }';
const library = new Function('HEAPU8', 'UTF8ToString', 'WebSocket', `${shim}\n${source}\nreturn library;`)(HEAPU8, strings, WebSocket);

for (const name of Object.keys(library).filter((name) => name.startsWith('DunlinSocket') && !name.endsWith('__deps'))) {
  assert.deepEqual(library[`${name}__deps`], ['$dunlinSockets'], `${name} needs the sockets`);
}

function open(url, subprotocol) {
  HEAPU8.set(new TextEncoder().encode(`${url}\0${subprotocol}\0`), 64);
  return library.DunlinSocketOpen(64, 64 + url.length + 1);
}

function send(id, data, isText) {
  HEAPU8.set(data, 4096);
  library.DunlinSocketSend(id, 4096, data.length, isText ? 1 : 0);
  HEAPU8.fill(0, 4096, 4096 + data.length);
}

/** As `TryReceive` does; null if there is nothing. */
function take(id) {
  const kind = library.DunlinSocketNext(id);
  if (kind === 0) return null;
  const bytes = library.DunlinSocketBytes(id);
  const code = library.DunlinSocketTake(id, 4096);
  return { kind: ['', 'opened', 'data', 'closed'][kind], data: HEAPU8.slice(4096, 4096 + bytes), code };
}

async function next(id) {
  for (const start = Date.now(); Date.now() - start < WAIT_MS; ) {
    const message = take(id);
    if (message !== null) return message;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error('no message');
}

const text = (message) => new TextDecoder().decode(message.data);

async function encodings(address) {
  const json = open(address, 'centrifuge-json');
  assert.equal((await next(json)).kind, 'opened');
  send(json, new TextEncoder().encode('{"id":1,"connect":{"name":"ü"}}'), true);
  assert.ok(JSON.parse(text(await next(json))).connect.client, 'a reply in JSON');
  const protobuf = open(address, 'centrifuge-protobuf');
  assert.equal((await next(protobuf)).kind, 'opened');
  send(protobuf, Uint8Array.of(4, 8, 1, 34, 0), false);
  const reply = (await next(protobuf)).data;
  assert.deepEqual([reply[0], ...reply.slice(1, 4)], [reply.length - 1, 8, 1, 42], 'a reply in Protobuf');
  // The server ends a connection with a malformed command, and says why.
  send(protobuf, Uint8Array.of(1, 255), false);
  const end = await next(protobuf);
  assert.deepEqual([end.kind, end.code, text(end).length > 0], ['closed', 3501, true]);
  assert.equal(take(protobuf), null, 'the end is the last');
  library.DunlinSocketClose(protobuf);
  library.DunlinSocketClose(json);
  send(json, Uint8Array.of(0), false);
  assert.equal(take(json), null, 'nothing of a socket that is closed');
  library.DunlinSocketClose(json);
}

async function failures() {
  const closed = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => closed.once('listening', resolve));
  const { port } = closed.address();
  await new Promise((resolve) => closed.close(resolve));
  for (const address of [`ws://127.0.0.1:${port}/`, 'no address']) {
    const refused = await next(open(address, 'centrifuge-json'));
    assert.deepEqual([refused.kind, refused.code], ['closed', 1006], address);
  }
}

/** As many bytes as allowed, and one more. */
async function limits() {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  await new Promise((resolve) => server.once('listening', resolve));
  const address = `ws://127.0.0.1:${server.address().port}/`;
  const sockets = library.$dunlinSockets;
  sockets.receivedBytesMax = 1000;
  for (const [sizes, expected] of [[[600, 400], ['data', 'data']], [[600, 401], ['data', 'closed']]]) {
    server.once('connection', (socket) => sizes.forEach((size) => socket.send(new Uint8Array(size))));
    const id = open(address, 'x');
    assert.equal((await next(id)).kind, 'opened');
    // Nothing is taken until all has arrived.
    for (const start = Date.now(); sockets.byId[id].messages.length < 2 && Date.now() - start < WAIT_MS; ) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([(await next(id)).kind, (await next(id)).kind], expected, `${sizes} bytes`);
    library.DunlinSocketClose(id);
  }
  for (const size of [1 << 20, (1 << 20) + 1]) {
    const id = open(address, 'x');
    assert.equal((await next(id)).kind, 'opened');
    send(id, new Uint8Array(size), false);
    assert.equal(library.DunlinSocketNext(id), size > 1 << 20 ? 3 : 0, `${size} unsent bytes`);
    library.DunlinSocketClose(id);
  }
  server.close();
  for (const client of server.clients) client.terminate();
}

await encodings(process.argv[2]);
await failures();
await limits();
assert.equal(Object.keys(library.$dunlinSockets.byId).length, 2, 'sockets that are closed are forgotten');
console.log('WebGL socket: 3 passed, 0 failed');
