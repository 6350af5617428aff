// The server under test: where it is, its HTTP API, and tokens it accepts.
import { createHmac, randomUUID } from 'node:crypto';

export const WS_URL = required('DUNLIN_WS_URL');
const API_URL = required('DUNLIN_API_URL');
const API_KEY = required('DUNLIN_API_KEY');
const HMAC_SECRET = required('DUNLIN_HMAC_SECRET');

/** Calls the HTTP API; throws when the server answers with an error. */
export async function api(method, body) {
  const answer = await fetch(`${API_URL}/${method}`, {
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

/**
 * Unix seconds, `seconds` from now. Tokens live for 2 seconds at least: whole
 * seconds are all a token knows, and 1 could be none by the time it is read.
 */
export const inSeconds = (seconds) => Math.floor(Date.now() / 1000) + seconds;

/** A channel that no other test uses. */
export const channelIn = (namespace) => `${namespace}:${randomUUID()}`;

/** A user that no other test uses. */
export const newUser = () => `user-${randomUUID()}`;

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set (run through tests/sdk/with-server)`);
  return value;
}
