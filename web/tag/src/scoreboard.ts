/** The ten best runners, and the round. */

import { playerColour } from "../../arena/src/colours";
import { byId, element, setText } from "../../ticker/src/dom";
import { count } from "../../ticker/src/format";
import type { Scores } from "./events";

export class Scoreboard {
  private readonly list = byId("leaders", HTMLElement);

  show({ leaders, runners, round, scoreLimit }: Scores, me: number): void {
    setText(byId("runners", HTMLElement), count(runners));
    setText(byId("round", HTMLElement), `Round ${count(round)}, first to ${count(scoreLimit)}`);
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
