/** What all views have. */

import type { History } from "./history";
import type { Missing, SignIn } from "./types";
import { Refused, SignedOut } from "./api";
import { el, fill, setText } from "./dom";

/** What a view may use. */
export interface Context {
  history: History;
  signIn: SignIn;
  /** The node whose page this is, if it has answered. */
  ownName(): string;
  /** The sign-in has ended. */
  signedOut(): void;
}

export interface View {
  title: string;
  element: HTMLElement;
  /** The history has a new point. */
  onStatus?(): void;
  stop?(): void;
}

/** Asks again and again while the view is open, one question at a time. */
export class Repeated<T> {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private generation = 0;

  constructor(
    private readonly context: Context,
    private readonly notice: HTMLElement,
    private readonly interval_ms: number,
    private readonly ask: () => Promise<T>,
    private readonly show: (answer: T) => void,
  ) {}

  /** Asks now. An answer to an earlier question is not shown. */
  now(): void {
    clearTimeout(this.timer);
    const generation = ++this.generation;
    void this.once(generation);
  }

  stop(): void {
    this.generation += 1;
    clearTimeout(this.timer);
  }

  private async once(generation: number): Promise<void> {
    try {
      const answer = await this.ask();
      if (generation !== this.generation) return;
      fill(this.notice);
      this.show(answer);
    } catch (error) {
      if (generation !== this.generation) return;
      if (error instanceof SignedOut) return this.context.signedOut();
      if (!(error instanceof Refused)) throw error;
      fill(this.notice, error.message);
    }
    this.timer = setTimeout(() => this.now(), this.interval_ms);
  }
}

/** What a form has been submitted with. Repeated questions ask for it, and not for what is being typed. */
export class Submitted<T> {
  value: T;

  constructor(private readonly read: () => T) {
    this.value = read();
  }

  /** Takes what is in the form. */
  take(): void {
    this.value = this.read();
  }
}

/** A place for what went wrong. */
export function noticePlace(): HTMLElement {
  return el("p", { class: "notice", role: "status" });
}

/** Which nodes and shards did not answer. */
export function showMissing(place: HTMLElement, missing: Missing[] | undefined): void {
  const texts = (missing ?? []).map(({ node, why }) => (node ? `${node} (${why})` : why));
  setText(place, texts.length > 0 ? `Missing here: ${texts.join(", ")}.` : "");
}

export function isOperator(context: Context): boolean {
  return context.signIn.role === "operator";
}

/** The address of a view. Each part is one step. */
export function hash(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function link(text: string, ...parts: string[]): HTMLAnchorElement {
  return el("a", { href: hash(...parts) }, text);
}

/** The beginning of a client's id, as a link to its session, which has all of it. */
export function clientLink(client: string): HTMLAnchorElement {
  return link(client.length > SHORT_ID ? `${client.slice(0, SHORT_ID)}…` : client, "sessions", "client", client);
}

const SHORT_ID = 8;

/** Anonymous users have an empty id. */
export function userText(user: string): string {
  return user === "" ? "(anonymous)" : user;
}

export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}
