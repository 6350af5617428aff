/** The points of the player, in words. */

import { byId, setText } from "../../ticker/src/dom";

export function showScore(points: number): void {
  setText(byId("score", HTMLElement), String(points));
  setText(byId("score-noun", HTMLElement), points === 1 ? "point" : "points");
}
