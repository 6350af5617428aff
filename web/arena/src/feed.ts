/** Events near the player, the newest first. */

import { byId, element } from "../../ticker/src/dom";

const LINES_MAX = 60;

export class Feed {
  private readonly list = byId("log", HTMLElement);

  /** `who` is emphasized. */
  add(who: string, what: string): void {
    this.list.prepend(element("li", "", ...(who === "" ? [] : [element("b", "", who)]), ` ${what}`));
    while (this.list.childElementCount > LINES_MAX) this.list.lastElementChild?.remove();
  }
}
