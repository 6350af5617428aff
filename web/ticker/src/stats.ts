/** The figures of the page's own connection, once per second. */

import { byId, setText } from "./dom";
import { bytes, count, milliseconds } from "./format";
import type { Market } from "./market";
import type { Network } from "./network";

const INTERVAL_MS = 1000;
/** At a larger difference, the clocks of server and page are not synchronized, and the age is meaningless. */
const AGE_MAX_MS = 60_000;

export class Stats {
  private readonly cells = new Map<string, HTMLElement>();
  private lastMs = performance.now();
  private lastPublications = 0;
  private lastMessages = 0;
  private lastBytes = 0;

  constructor(
    private readonly network: Network,
    private readonly market: Market,
  ) {
    for (const cell of byId("stats", HTMLElement).querySelectorAll<HTMLElement>("[data-stat]")) {
      this.cells.set(cell.dataset["stat"] ?? "", cell);
    }
    setInterval(() => this.show(), INTERVAL_MS);
  }

  /** Writes the figures that must be right at once, such as after a recovery. */
  showChecks(): void {
    const { market } = this;
    this.set("checked", count(market.total("checked")));
    this.set("missing", count(market.total("missing")));
    this.set("duplicates", count(market.total("duplicates")));
    this.set("skipped", count(market.skippedTags));
    const missing = this.cells.get("missing");
    if (missing !== undefined) missing.dataset["bad"] = String(market.total("missing") > 0);
  }

  private show(): void {
    const { network, market } = this;
    const nowMs = performance.now();
    const seconds = (nowMs - this.lastMs) / 1000;
    const publications = (market.publications - this.lastPublications) / seconds;
    const messages = (network.messagesIn - this.lastMessages) / seconds;
    const byteRate = (network.bytesIn - this.lastBytes) / seconds;
    this.lastMs = nowMs;
    this.lastPublications = market.publications;
    this.lastMessages = network.messagesIn;
    this.lastBytes = network.bytesIn;

    const ages = market.takeAgesMs();
    if (document.hidden) return;
    this.set("publications", count(publications));
    this.set("messages", count(messages));
    this.set("bytes", bytes(byteRate));
    this.set("size", publications > 0 ? bytes(byteRate / publications) : "\u2013");
    this.set("age", ageText(ages));
    this.showChecks();
  }

  private set(name: string, text: string): void {
    const cell = this.cells.get(name);
    if (cell !== undefined) setText(cell, text);
  }
}

function ageText(ages: number[]): string {
  if (ages.length === 0) return "\u2013";
  const median = ages.sort((a, b) => a - b)[Math.floor(ages.length / 2)] ?? 0;
  if (median < -5 || median > AGE_MAX_MS) return "clocks differ";
  return milliseconds(Math.max(0, Math.round(median)));
}
