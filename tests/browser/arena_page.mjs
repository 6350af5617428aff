/** The arena page for tests: reads what it shows, and performs a visitor's actions. */

import { DEADLINE_MS } from "./chromium.mjs";

export class ArenaPage {
  constructor({ page, faults, close }) {
    Object.assign(this, { page, faults, close });
  }

  /** The state that the page reports for tests. */
  stage() {
    return this.page.evaluate(() => {
      const { tick, avatar, ack, pending, x, y, confirmedX, confirmedY, joins, resumed, others = "" } = document.querySelector("#stage").dataset;
      return {
        tick: Number(tick), avatar: Number(avatar), ack: Number(ack), pending: Number(pending),
        x: Number(x), y: Number(y), confirmedX: Number(confirmedX), confirmedY: Number(confirmedY), joins: Number(joins), resumed: resumed === "true",
        others: others.split(" ").filter(Boolean).map((other) => other.split(":").map(Number)).map(([id, x, y]) => ({ id, x, y })),
      };
    });
  }

  /** Waits until `condition`, which runs in the page, returns a truthy value. */
  until(condition, argument) {
    return this.page.waitForFunction(condition, argument, { timeout: DEADLINE_MS, polling: 50 });
  }

  /** Waits until the page is in the room and shows the player. */
  async untilJoined() {
    await this.until(() => {
      const { state, avatar } = document.querySelector("#stage").dataset;
      return state === "joined" && Number(avatar) > 0;
    });
    return this.stage();
  }

  untilState(state) {
    return this.until((state) => document.querySelector("#stage").dataset.state === state, state);
  }

  /** Waits until all inputs are acknowledged and the shown position of the player equals the server's. */
  async untilSettled() {
    await this.until(() => {
      const { pending, x, y, confirmedX, confirmedY } = document.querySelector("#stage").dataset;
      return pending === "0" && Math.abs(x - confirmedX) < 0.5 && Math.abs(y - confirmedY) < 0.5;
    });
    return this.stage();
  }

  /** The key for walking away from the nearer edge of a map with sides of `units`, and its direction. */
  awayFromEdge({ x }, units = 4_000) {
    return x < units ? ["ArrowRight", 1] : ["ArrowLeft", -1];
  }

  /** The text of a figure. */
  figure(name) {
    return this.page.textContent(`[data-stat="${name}"]`);
  }
}
