/** The requests of the page. A refused command is an error with the text of the node. */

import type { ChannelPage, Configuration, LogPart, Recordings, ReplayFrame, ReplayIndex, ReplayProgress, SignIn, Status } from "./types";

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

async function ask(path: string, body?: unknown): Promise<unknown> {
  const init: RequestInit = { headers: FROM_PAGE, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) };
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

/** Recordings of rooms on all nodes. */
export async function recordings(find: string, channel: string): Promise<Recordings> {
  return (await ask("recordings", { find, channel })) as Recordings;
}

/** Opens a recording of the node with this id or name, or of this one; the id of its replay. */
export async function openReplay(file: string, node: string): Promise<string> {
  return ((await ask("replay", { file, node })) as { replay: string }).replay;
}

/** The index of a replay, or how far it is. */
export async function replayIndex(id: string): Promise<ReplayIndex | ReplayProgress> {
  return (await ask(`replay?id=${id}`)) as ReplayIndex | ReplayProgress;
}

/** Ticks of a replay, or the tick that the node has reached on the way: then it is to be asked again. */
export async function replayTicks(id: string, from: number, count: number): Promise<ReplayFrame[] | number> {
  const answered = (await ask(`replay_ticks?id=${id}&from=${from}&count=${count}`)) as { frames: ReplayFrame[] } | { tick: number };
  return "frames" in answered ? answered.frames : answered.tick;
}

/** Keeps a replay open. */
export async function touchReplay(id: string): Promise<void> {
  await ask(`replay_touch?id=${id}`);
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
