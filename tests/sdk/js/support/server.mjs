// The server under test: its addresses, its HTTP API, and tokens that it accepts.
import { createHmac, randomUUID } from 'node:crypto';
import { DEADLINE_MS } from './events.mjs';
import { recordPosition } from './offsets.mjs';

export const WS_URL = required('DUNLIN_WS_URL');
const API_URL = required('DUNLIN_API_URL');
const API_KEY = required('DUNLIN_API_KEY');
const HMAC_SECRET = required('DUNLIN_HMAC_SECRET');

/** A second server, which sends requests about clients without a token to a backend (see answers). */
export const HOOKS_WS_URL = required('HOOKS_WS_URL');
const HOOKS_API_URL = required('HOOKS_API_URL');
const BACKEND_URL = required('HOOKS_BACKEND_URL');

/** Calls the HTTP API; throws when the server answers with an error. */
export async function api(method, body) {
  const result = await call(API_URL, method, body);
  if (method === 'publish') recordPosition(body.channel, result);
  if (method === 'broadcast') result.responses.forEach((one, index) => recordPosition(body.channels[index], one.result));
  return result;
}

/** Calls the HTTP API of the server with a backend. */
export const hooksApi = (method, body) => call(HOOKS_API_URL, method, body);

/** Defines the backend's responses of this kind about a channel, user or method; the last one is repeated. */
export const answers = (kind, about, ...all) => backend('answers', { kind, about, answers: all });

/** Waits until the backend has received `count` requests, and returns all of them as `{ question, headers }`. */
export async function asked(kind, about, count = 1) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const all = await backend('asked', { kind, about });
    if (all.length >= count) return all;
    if (Date.now() > deadline) throw new Error(`asked ${all.length} times of ${count}: ${kind} ${about}`);
    await new Promise((resolve) => setTimeout(resolve, 20)); // between two checks
  }
}

async function backend(what, body) {
  const answer = await fetch(`${BACKEND_URL}/${what}`, { method: 'POST', body: JSON.stringify(body) });
  if (answer.status !== 200) throw new Error(`the backend: HTTP ${answer.status}`);
  return answer.json();
}

async function call(url, method, body) {
  const answer = await fetch(`${url}/${method}`, {
    method: 'POST',
    headers: { 'X-API-Key': API_KEY, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (answer.status !== 200) throw new Error(`${method}: HTTP ${answer.status}`);
  const { error, result } = await answer.json();
  if (error) throw new Error(`${method}: ${error.code} ${error.message}`);
  return result;
}

/** A JWT (HS256) with these claims, signed with the server's secret or another. */
export function token(claims, secret = HMAC_SECRET) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  const signature = createHmac('sha256', secret).update(signed).digest('base64url');
  return `${signed}.${signature}`;
}

/** Unix time in seconds, `seconds` from now, with a fraction, so that a token lives as long as the test says. */
export const inSeconds = (seconds) => Date.now() / 1000 + seconds;

/** A channel that no other test uses. */
export const channelIn = (namespace) => `${namespace}:${randomUUID()}`;

/** A user that no other test uses. */
export const newUser = () => `user-${randomUUID()}`;

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set (run through tests/sdk/with-server)`);
  return value;
}
