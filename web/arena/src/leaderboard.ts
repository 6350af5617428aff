/** The best ten, and how many play. */

import { playerColour } from "./colours";
import { byId, element, setText } from "../../ticker/src/dom";
import { count } from "../../ticker/src/format";
import type { Leaders } from "./news";

export class Leaderboard {
  private readonly list = byId("leaders", HTMLElement);
  private readonly players = byId("players", HTMLElement);

  show({ leaders, players }: Leaders, me: number): void {
    setText(this.players, count(players));
    if (leaders.length === 0) return;
    this.list.replaceChildren(
      ...leaders.map(({ player, name, colour, score }, place) => {
        const dot = element("span", "dot");
        dot.style.color = playerColour(colour);
        const row = element("li", "", element("span", "place", String(place + 1)), dot,
          element("span", "name", name), element("span", "points", count(score)));
        row.dataset["me"] = String(player === me);
        return row;
      }),
    );
  }
}
