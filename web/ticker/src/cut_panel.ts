/** The switch that cuts the network, and the report of what was recovered. */

import { HISTORY_SIZE, TICKS_PER_SECOND } from "./contract";
import { byId, element, setText } from "./dom";
import { count, milliseconds, plural, seconds } from "./format";
import type { ChannelReturn, Stock } from "./market";
import type { OutageReport } from "./outage";

const REFRESH_MS = 100;
/** How long the history keeps publications. */
const HISTORY_MS = (HISTORY_SIZE / TICKS_PER_SECOND) * 1000;

type Phase = "away" | "returning" | "recovered" | "incomplete";

export class CutPanel {
  private readonly root = byId("cut", HTMLElement);
  private readonly toggle = byId("cut-switch", HTMLButtonElement);
  private readonly title = byId("cut-title", HTMLElement);
  private readonly text = byId("cut-text", HTMLElement);
  private readonly floating = byId("cut-float", HTMLElement);
  private readonly floatingText = byId("cut-float-text", HTMLElement);
  private readonly announcement = byId("announce", HTMLElement);
  private readonly chips = new Map<string, { root: HTMLElement; note: HTMLElement }>();
  private timer: number | undefined;

  constructor(stocks: readonly Stock[], onToggle: () => void) {
    this.toggle.addEventListener("click", onToggle);
    byId("cut-float-restore", HTMLButtonElement).addEventListener("click", () => {
      onToggle();
      this.toggle.focus({ preventScroll: true });
    });
    const list = byId("cut-channels", HTMLElement);
    for (const { listing } of stocks) {
      const note = element("span", "note", "\u00b7");
      const root = element("li", "", element("b", "", listing.symbol), note);
      this.chips.set(listing.symbol, { root, note });
      list.append(root);
    }
  }

  enable(): void {
    this.toggle.disabled = false;
  }

  /** Called when the connection is lost, by the switch or for another reason. */
  away(sinceMs: number, isCut: boolean): void {
    this.phase("away");
    this.toggle.setAttribute("aria-checked", String(isCut));
    this.floating.hidden = !isCut;
    for (const { root, note } of this.chips.values()) {
      root.dataset["state"] = "away";
      setText(note, "\u2026");
    }
    if (isCut) this.announce("Network cut. Prices are frozen.");
    clearInterval(this.timer);
    this.timer = window.setInterval(() => this.count(sinceMs, isCut), REFRESH_MS);
    this.count(sinceMs, isCut);
  }

  returning(): void {
    clearInterval(this.timer);
    this.phase("returning");
    this.toggle.setAttribute("aria-checked", "false");
    this.floating.hidden = true;
    setText(this.title, "Reconnected");
    setText(this.text, "Recovering each channel from its last offset\u2026");
  }

  channelReturned({ symbol, recovered, complete, missing }: ChannelReturn): void {
    const chip = this.chips.get(symbol);
    if (chip === undefined) return;
    const isWhole = complete && missing === 0;
    chip.root.dataset["state"] = isWhole ? "whole" : "refilled";
    setText(chip.note, isWhole ? `+${recovered}` : missing > 0 ? `\u2212${missing}` : "refilled");
  }

  report(report: OutageReport): void {
    clearInterval(this.timer);
    const isWhole = report.missing === 0 && report.incomplete === 0;
    this.phase(isWhole ? "recovered" : "incomplete");
    this.root.dataset["recovered"] = String(report.publications);
    this.root.dataset["channels"] = String(report.channels);
    this.root.dataset["missing"] = String(report.missing);
    this.root.style.setProperty("--away", "0");
    setText(this.title, isWhole ? wholeTitle(report) : incompleteTitle(report));
    setText(this.text, isWhole ? wholeText(report) : incompleteText(report));
    this.announce(`${this.title.textContent} ${this.text.textContent}`);
  }

  private count(sinceMs: number, isCut: boolean): void {
    const awayMs = performance.now() - sinceMs;
    const missed = Math.floor((awayMs / 1000) * TICKS_PER_SECOND) * this.chips.size;
    const isLate = awayMs > HISTORY_MS;
    this.root.dataset["late"] = String(isLate);
    this.root.style.setProperty("--away", Math.min(1, awayMs / HISTORY_MS).toFixed(3));
    setText(this.title, `${isCut ? "Cut" : "Connection lost"} for ${seconds(awayMs)}`);
    setText(
      this.text,
      isLate
        ? `About ${count(missed)} publications missed, more than the history of ` +
            `${seconds(HISTORY_MS)} keeps. The page will show what could not be recovered.`
        : `About ${count(missed)} publications missed so far. The server keeps them. ` +
            (isCut ? "Switch the network back on." : "The page reconnects by itself."),
    );
    setText(this.floatingText, `Network cut for ${seconds(awayMs)}`);
  }

  private phase(phase: Phase): void {
    this.root.dataset["phase"] = phase;
  }

  private announce(text: string): void {
    setText(this.announcement, text);
  }
}

function wholeTitle({ publications }: OutageReport): string {
  return `Recovered ${count(publications)}, missed 0`;
}

function wholeText({ channels, recoveryMs, awayMs }: OutageReport): string {
  return (
    `Publications of ${plural(channels, "channel", "channels")}: the page checked every number. ` +
    `Offline for ${seconds(awayMs)}; recovery took ` +
    `${milliseconds(Math.max(1, Math.round(recoveryMs)))}.`
  );
}

function incompleteTitle({ missing, restarted }: OutageReport): string {
  if (restarted) return "The server restarted";
  return missing > 0
    ? `${plural(missing, "publication is", "publications are")} missing`
    : "Refilled from history";
}

function incompleteText({ missing, incomplete, publications, restarted }: OutageReport): string {
  if (restarted) return "Its channels have new epochs, and prices continue from there.";
  const channels = plural(incomplete, "channel", "channels");
  const recovered = publications > 0 ? ` ${count(publications)} publications were recovered on the others.` : "";
  return missing > 0
    ? `Offline for longer than the history: ${channels} continued from the oldest publication that it keeps.${recovered}`
    : `${channels} could not be recovered, but the history was complete.${recovered}`;
}
