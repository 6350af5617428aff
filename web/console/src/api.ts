/** The requests of the page. A refused command is an error with the text of the node. */

import type { ChannelPage, Configuration, LogPart, Recordings, ReplayFrame, ReplayIndex, SignIn, Status } from "./types";

export class Refused extends Error {}

/** The sign-in has ended. */
export class SignedOut extends Refused {}

/** What was asked for is not there. */
export class NotThere extends Refused {}

/** The node did not answer. */
export class NoAnswer extends Refused {}

/** The field that no page of another site can set. */
const FROM_PAGE = { "x-dunlin-console": "1" };
/** How long a request may take. */
const TIMEOUT_MS = 15_000;
/** How long a game may take for the ticks of an answer. */
const TICKS_TIMEOUT_MS = 60_000;

async function ask(path: string, body?: unknown, timeout_ms = TIMEOUT_MS): Promise<unknown> {
  const init: RequestInit = { headers: FROM_PAGE, cache: "no-store", signal: AbortSignal.timeout(timeout_ms) };
  if (body !== undefined) {
    init.method = "POST";
    init.body = JSON.stringify(body);
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(`data/${path}`, init);
    text = await response.text();
  } catch {
    throw new NoAnswer("the node does not answer");
  }
  if (response.status === 401) throw new SignedOut("the sign-in has ended");
  const answered = text.startsWith("{") ? (JSON.parse(text) as Record<string, unknown>) : null;
  if (!response.ok) {
    const why = String(answered?.["refused"] ?? (text.trim() || `status ${response.status}`));
    throw response.status === 404 ? new NotThere(why) : new Refused(why);
  }
  return answered;
}

/** A method of the server API. */
export async function command<T>(method: string, params: unknown): Promise<T> {
  return resultOf(await ask(`api/${method}`, params));
}

export async function status(): Promise<Status> {
  return resultOf(await ask("status"));
}

export async function channels(find: string, largest: boolean, cursor: string): Promise<ChannelPage> {
  return resultOf(await ask("channels", { find, largest, cursor }));
}

export async function configuration(): Promise<Configuration> {
  return (await ask("configuration")) as Configuration;
}

export async function log(run: string, since: number): Promise<LogPart> {
  return (await ask(`log?since=${since}&run=${encodeURIComponent(run)}`)) as LogPart;
}

/** Recordings of rooms on this node. */
export async function recordings(find: string, channel: string): Promise<Recordings> {
  return (await ask("recordings", { find, channel })) as Recordings;
}

/** Opens a recording; the id of its replay. */
export async function openReplay(file: string): Promise<string> {
  return ((await ask("replay", { file })) as { replay: string }).replay;
}

/** The index of a replay, or how far it is. */
export async function replayIndex(id: string): Promise<ReplayIndex | { tick: number }> {
  return (await ask(`replay?id=${id}`)) as ReplayIndex | { tick: number };
}

export async function replayTicks(id: string, from: number, count: number): Promise<ReplayFrame[]> {
  const path = `replay_ticks?id=${id}&from=${from}&count=${count}`;
  return ((await ask(path, undefined, TICKS_TIMEOUT_MS)) as { frames: ReplayFrame[] }).frames;
}

/** Also while the page is being left. */
export function closeReplay(id: string): void {
  const init = { method: "POST", headers: FROM_PAGE, body: JSON.stringify({ id }), keepalive: true };
  // Otherwise it ends after a minute.
  fetch("data/replay_close", init).catch(() => {});
}

/** Who has signed in. */
export async function whoAmI(): Promise<SignIn> {
  return (await ask("sign_in")) as SignIn;
}

export async function signIn(password: string): Promise<SignIn> {
  return (await ask("sign_in", { password })) as SignIn;
}

export async function signOut(): Promise<void> {
  await ask("sign_out", {});
}

function resultOf<T>(answered: unknown): T {
  const { result, error } = answered as { result?: T; error?: { message: string } };
  if (error) throw new Refused(error.message);
  return result as T;
}
