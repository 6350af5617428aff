/** Announces a new clue and points to it. */

import type { Place } from "@dunlin/room-client";
import { byId, setText } from "../../ticker/src/dom";
import { count, plural } from "../../ticker/src/format";
import { DIG_REACH_UNITS, UNITS_PER_PACE } from "./hunt";
import type { Clue } from "./news";

const QUARTERS = ["east", "south-east", "south", "south-west", "west", "north-west", "north", "north-east"] as const;

export class ClueBanner {
  private readonly box = byId("clue", HTMLElement);
  private readonly arrow = byId("clue-arrow", HTMLElement);
  private readonly title = byId("clue-title", HTMLElement);
  private readonly text = byId("clue-text", HTMLElement);

  /** Shows that `leftS` seconds are left. */
  show(clue: Clue | null, from: Place, leftS: number): void {
    this.box.hidden = clue === null;
    if (clue === null) return;
    const way = { x: clue.x - from.x, y: clue.y - from.y };
    const distance = Math.hypot(way.x, way.y);
    const angle = Math.atan2(way.y, way.x);
    this.arrow.style.transform = `rotate(${(angle + Math.PI / 2).toFixed(3)}rad)`;
    const isHere = distance <= DIG_REACH_UNITS;
    setText(this.title, isHere ? "The clue is here: dig!" : "A clue has dropped");
    const quarter = QUARTERS[(Math.round((angle / Math.PI) * 4) + 8) % 8] ?? "";
    const paces = `${plural(Math.round(distance / UNITS_PER_PACE), "pace", "paces")} ${quarter}`;
    const worth = `${clue.shares} \u00d7 ${plural(clue.value, "point", "points")}`;
    setText(this.text, `${isHere ? "" : `${paces} \u00b7 `}${worth} \u00b7 ${count(Math.max(0, leftS))} s`);
  }
}
