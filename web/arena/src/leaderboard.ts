/** The ten best players, and the number of players. */

import { playerColour } from "./colours";
import { byId, element, setText } from "../../ticker/src/dom";
import { count } from "../../ticker/src/format";
import type { Leaders } from "./news";

export class Leaderboard {
  private readonly list = byId("leaders", HTMLElement);
  private readonly players = byId("players", HTMLElement);

  /** `choose` is called with the player whose name was pressed. */
  constructor(choose: (player: number) => void) {
    this.list.addEventListener("click", ({ target }) => {
      const player = target instanceof HTMLElement ? target.closest<HTMLElement>("button")?.dataset["player"] : undefined;
      if (player !== undefined) choose(Number(player));
    });
  }

  show({ leaders, players }: Leaders, me: number, trail: number): void {
    setText(this.players, count(players));
    if (leaders.length === 0) return;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset["player"] : undefined;
    this.list.replaceChildren(
      ...leaders.map(({ player, name, colour, score }, place) => {
        const dot = element("span", "dot");
        dot.style.color = playerColour(colour);
        const chooser = element("button", "name", name);
        chooser.setAttribute("type", "button");
        chooser.title = "Show this player's trail";
        chooser.dataset["player"] = String(player);
        chooser.setAttribute("aria-pressed", String(player === trail));
        const row = element("li", "", element("span", "place", String(place + 1)), dot,
          chooser, element("span", "points", count(score)));
        row.dataset["me"] = String(player === me);
        return row;
      }),
    );
    // The list is rebuilt every second; the keyboard focus stays on the same player.
    if (focused !== undefined) this.list.querySelector<HTMLElement>(`button[data-player="${focused}"]`)?.focus();
  }
}
