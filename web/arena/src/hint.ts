/** Instructions on the first visit, until the player has dug or closed them. */

import { byId } from "../../ticker/src/dom";

const SEEN_KEY = "dunlin.arena.hint";

export class Hint {
  private readonly element = byId("hint", HTMLElement);

  constructor() {
    this.element.hidden = wasSeen();
    byId("hint-close", HTMLButtonElement).addEventListener("click", () => this.close());
  }

  close(): void {
    if (this.element.hidden) return;
    this.element.hidden = true;
    try {
      localStorage.setItem(SEEN_KEY, "seen");
    } catch {
      // Without storage the hint is shown on each visit.
    }
  }
}

function wasSeen(): boolean {
  try {
    return localStorage.getItem(SEEN_KEY) !== null;
  } catch {
    return false;
  }
}
