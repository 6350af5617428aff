/** The event log, newest line on top. */

import { byId, element } from "./dom";
import { clock } from "./format";

const LINES_MAX = 80;

export type Tone = "plain" | "good" | "warn" | "bad";

export class Log {
  private readonly list = byId("log", HTMLElement);

  add(message: string, tone: Tone = "plain"): void {
    const line = element("li", "", element("time", "", clock(new Date())), element("span", "", message));
    line.dataset["tone"] = tone;
    this.list.prepend(line);
    while (this.list.childElementCount > LINES_MAX) this.list.lastElementChild?.remove();
  }
}
