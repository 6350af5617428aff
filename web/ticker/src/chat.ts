/** The chat: a channel with history, to which all pages publish. */

import type { Centrifuge, Subscription } from "centrifuge";
import { CHAT_CHANNEL, CHAT_SIZE, type ChatMessage, LISTINGS, parseChatMessage } from "./contract";
import { byId, element, setText } from "./dom";
import { clock } from "./format";
import type { Sdk } from "./sdk";

const NOTE = "Messages have history: who comes later, or was away, reads them too.";

export interface ChatEvents {
  /** The server could not recover the messages that were sent while the page was disconnected. */
  missed(): void;
  failed(message: string): void;
}

interface Line extends ChatMessage {
  readonly offset: number;
}

export class Chat {
  private readonly list = byId("chat", HTMLElement);
  private readonly form = byId("chat-form", HTMLFormElement);
  private readonly input = byId("chat-text", HTMLInputElement);
  private readonly button = byId("chat-send", HTMLButtonElement);
  private readonly note = byId("chat-note", HTMLElement);
  private readonly name = randomName();
  private readonly subscription: Subscription;
  private lines: Line[] = [];
  /** A message whose outcome is unknown. It keeps its id when it is sent again, so that pages show it once. */
  private unsent: ChatMessage | null = null;

  constructor(
    client: Centrifuge,
    private readonly sdk: Sdk,
    private readonly events: ChatEvents,
  ) {
    this.subscription = client.newSubscription(CHAT_CHANNEL);
    this.subscription.on("subscribed", ({ wasRecovering, recovered }) => {
      this.button.disabled = false;
      if (wasRecovering && recovered) return;
      if (wasRecovering) this.events.missed();
      void this.load();
    });
    this.subscription.on("subscribing", () => {
      this.button.disabled = true;
    });
    this.subscription.on("publication", ({ data, offset }) => this.add(data, offset));
    this.subscription.on("unsubscribed", ({ code, reason }) => {
      this.button.disabled = true;
      this.events.failed(`unsubscribed: ${code} ${reason}`);
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.send();
    });
    this.subscription.subscribe();
  }

  private async load(): Promise<void> {
    try {
      const { publications } = await this.subscription.history({ limit: CHAT_SIZE, reverse: true });
      for (const { data, offset } of publications) this.insert(data, offset);
      this.show();
    } catch {
      // The connection was lost in the meantime. The next subscription loads the history again, or recovers.
    }
  }

  private add(data: unknown, offset: number | undefined): void {
    if (this.insert(data, offset)) this.show();
  }

  private insert(data: unknown, offset: number | undefined): boolean {
    const message = parseChatMessage(this.sdk.payload(data));
    if (message === null || offset === undefined || this.lines.some(({ id }) => id === message.id)) return false;
    this.lines.push({ ...message, offset });
    this.lines.sort((a, b) => a.offset - b.offset);
    this.lines = this.lines.slice(-CHAT_SIZE);
    return true;
  }

  private show(): void {
    const wasAtEnd = this.isAtEnd();
    this.list.replaceChildren(...this.lines.map((line) => this.row(line)));
    const box = this.list.parentElement;
    if (wasAtEnd && box !== null) box.scrollTop = box.scrollHeight;
  }

  private isAtEnd(): boolean {
    const box = this.list.parentElement;
    return box === null || box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  }

  private row({ name, text, timeMs }: Line): HTMLElement {
    const time = element("time", "", clock(new Date(timeMs)));
    const row = element("li", "", time, element("b", "", name), element("span", "", text));
    row.dataset["own"] = String(name === this.name);
    return row;
  }

  private async send(): Promise<void> {
    const text = this.input.value.trim();
    if (text === "" || this.button.disabled) return;
    const id = this.unsent?.text === text ? this.unsent.id : randomId();
    const message = { id, name: this.name, text, timeMs: Date.now() };
    this.unsent = message;
    this.button.disabled = true;
    try {
      await this.subscription.publish(this.sdk.encoded({ id, name: message.name, text, time_ms: message.timeMs }));
      this.unsent = null;
      this.input.value = "";
      this.showNote(NOTE, false);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String((error as { message?: unknown }).message ?? error);
      this.showNote(`Not sent yet (${reason}). Press Send again: nobody sees it twice.`, true);
    } finally {
      this.button.disabled = this.subscription.state !== "subscribed";
    }
  }

  private showNote(text: string, isBad: boolean): void {
    this.note.dataset["bad"] = String(isBad);
    setText(this.note, text);
  }
}

/** `crypto.randomUUID` exists only on pages that were loaded over `https:` or from localhost. */
function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function randomName(): string {
  const { name } = LISTINGS[Math.floor(Math.random() * LISTINGS.length)] ?? { name: "Dunlin" };
  return `${name} ${Math.floor(Math.random() * 90) + 10}`;
}
