/** Opens ten more sessions: SDK clients, each with its own socket and price. */

import type { Centrifuge } from "centrifuge";
import { LISTINGS, parseTick, tickerChannel } from "./contract";
import { byId, drawSoon, element, setText } from "./dom";
import { plural, price, shortId } from "./format";
import { joinLobby } from "./lobby";
import type { Sdk } from "./sdk";

const BATCH = 10;
/** A browser allows about 250 sockets, and a page should not overload a small server. */
const TABS_MAX = 30;
/** Interval between two openings, so that each is visible. */
const STAGGER_MS = 70;

export interface TabsEvents {
  /** A session of this page got or lost its id. */
  owned(): void;
  log(message: string): void;
}

export class Tabs {
  private readonly list = byId("tabs", HTMLElement);
  private readonly summary = byId("tabs-summary", HTMLElement);
  private readonly openButton = byId("tabs-open", HTMLButtonElement);
  private readonly closeButton = byId("tabs-close", HTMLButtonElement);
  private readonly open = new Set<Tab>();
  private opened = 0;
  private awaited = 0;

  constructor(
    private readonly sdk: Sdk,
    private readonly events: TabsEvents,
  ) {
    this.openButton.addEventListener("click", () => this.openMore());
    this.closeButton.addEventListener("click", () => this.closeAll());
    this.update();
  }

  owns(client: string): boolean {
    for (const tab of this.open) if (tab.client === client) return true;
    return false;
  }

  private openMore(): void {
    const more = Math.min(BATCH, TABS_MAX - this.open.size - this.awaited);
    this.awaited += more;
    this.events.log(`Opening ${plural(more, "more session", "more sessions")}`);
    for (let index = 0; index < more; index += 1) {
      setTimeout(() => this.openOne(), index * STAGGER_MS);
    }
    this.update();
  }

  private openOne(): void {
    this.awaited -= 1;
    const listing = LISTINGS[this.opened % LISTINGS.length] ?? LISTINGS[0];
    if (listing === undefined) return;
    this.opened += 1;
    const tab = new Tab(this.sdk, this.opened, listing.symbol, {
      changed: () => {
        this.events.owned();
        this.update();
      },
      closed: () => {
        this.open.delete(tab);
        this.events.owned();
        this.update();
      },
    });
    this.open.add(tab);
    this.list.append(tab.root);
    this.update();
  }

  private closeAll(): void {
    this.events.log(`Closing ${plural(this.open.size, "session", "sessions")}`);
    for (const tab of [...this.open]) tab.close();
    this.openButton.focus();
  }

  private update(): void {
    const connected = [...this.open].filter((tab) => tab.client !== null).length;
    const total = this.open.size + this.awaited;
    this.list.dataset["connected"] = String(connected);
    this.openButton.disabled = total >= TABS_MAX;
    this.closeButton.hidden = this.open.size === 0;
    const summary =
      total === 0
        ? "None yet."
        : connected < total
          ? `${connected} of ${total} connected.`
          : `${plural(total, "extra session", "extra sessions")}, each with its own socket.`;
    setText(this.summary, summary);
  }
}

interface TabEvents {
  changed(): void;
  closed(): void;
}

class Tab {
  readonly root: HTMLElement;
  client: string | null = null;
  private readonly centrifuge: Centrifuge;
  private readonly id = element("code", "", "connecting");
  private readonly price = element("span", "price", "\u2013");
  private readonly arrow = element("span", "arrow");
  private lastPrice = 0;

  constructor(
    sdk: Sdk,
    number: number,
    symbol: string,
    private readonly events: TabEvents,
  ) {
    const close = element("button", "tab-close", "\u00d7");
    close.type = "button";
    close.setAttribute("aria-label", `Close session ${number}`);
    close.addEventListener("click", () => this.close());
    this.arrow.setAttribute("aria-hidden", "true");
    this.root = element(
      "li",
      "tab",
      element("div", "tab-bar", element("span", "dot"), this.id, close),
      element("div", "tab-page", element("b", "", symbol), this.price, this.arrow),
    );
    this.centrifuge = sdk.client(null);
    this.connect(sdk, symbol);
  }

  close(): void {
    this.centrifuge.disconnect();
    this.client = null;
    this.root.remove();
    this.events.closed();
  }

  private connect(sdk: Sdk, symbol: string): void {
    this.centrifuge.on("state", ({ newState }) => {
      this.root.dataset["state"] = newState;
    });
    this.centrifuge.on("connected", ({ client }) => {
      this.client = client;
      setText(this.id, shortId(client));
      this.events.changed();
    });
    this.centrifuge.on("connecting", () => {
      this.client = null;
      setText(this.id, "connecting");
      this.events.changed();
    });
    const ticker = this.centrifuge.newSubscription(tickerChannel(symbol));
    ticker.on("publication", ({ data }) => {
      const tick = parseTick(sdk.payload(data), symbol);
      if (tick !== null) drawSoon(this, () => this.show(tick.price));
    });
    ticker.subscribe();
    joinLobby(this.centrifuge);
    this.centrifuge.connect();
  }

  private show(value: number): void {
    setText(this.price, price(value));
    if (value !== this.lastPrice && this.lastPrice !== 0) {
      const move = value > this.lastPrice ? "up" : "down";
      this.root.dataset["move"] = move;
      setText(this.arrow, move === "up" ? "\u25b2" : "\u25bc");
    }
    this.lastPrice = value;
  }
}
