/** The "who is here" panel: the count, the flock, joins and leaves. */

import { byId, drawSoon, element, setText } from "./dom";
import { Flock, type Kind } from "./flock";
import { clock, count, shortId } from "./format";

const FEED_MAX = 5;

export class Crowd {
  private readonly number = byId("here-count", HTMLElement);
  private readonly noun = byId("here-noun", HTMLElement);
  private readonly feed = byId("here-feed", HTMLElement);
  private readonly flock = new Flock(byId("flock", HTMLCanvasElement));
  private present: ReadonlySet<string> = new Set();

  constructor(private readonly kindOf: (client: string) => Kind) {}

  show(present: ReadonlySet<string>): void {
    this.present = present;
    this.refresh();
  }

  /** Redraws, also if only the owners of the sessions have changed. */
  refresh(): void {
    drawSoon(this, () => {
      setText(this.number, count(this.present.size));
      setText(this.noun, this.present.size === 1 ? "session is here" : "sessions are here");
      this.number.dataset["count"] = String(this.present.size);
      this.flock.show(this.present, this.kindOf);
    });
  }

  still(stilled: boolean): void {
    this.flock.still(stilled);
  }

  moved(client: string, how: "joined" | "left"): void {
    const kind = this.kindOf(client);
    const line = element(
      "li",
      "",
      element("span", "dot"),
      element("code", "", shortId(client)),
      ` ${how}`,
      element("span", "whose", kind === "you" ? "you" : kind === "yours" ? "yours" : ""),
      element("time", "", clock(new Date())),
    );
    line.dataset["how"] = how;
    this.feed.prepend(line);
    while (this.feed.childElementCount > FEED_MAX) this.feed.lastElementChild?.remove();
  }
}
