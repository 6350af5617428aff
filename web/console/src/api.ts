/** The requests of the page. A refused command is an error with the text of the node. */

import type { ChannelPage, Configuration, LogPart, SignIn, Status } from "./types";

export class Refused extends Error {}

/** The sign-in has ended. */
export class SignedOut extends Refused {}

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
  if (!response.ok) throw new Refused(String(answered?.["refused"] ?? (text.trim() || `status ${response.status}`)));
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
