/** The tag pages for tests: read what they show, and perform a visitor's actions. */

import { DEADLINE_MS } from "./chromium.mjs";

export class TagPage {
  constructor({ page, faults, close }) {
    Object.assign(this, { page, faults, close });
  }

  /** Waits until `condition`, which runs in the page, returns a truthy value. */
  until(condition, argument) {
    return this.page.waitForFunction(condition, argument, { timeout: DEADLINE_MS, polling: 50 });
  }

  /** The state that the page of the game reports after each drawn frame. */
  stage() {
    return this.page.evaluate(() => {
      const { room, tick, avatar, resumed, x, y, confirmedX, confirmedY, ack, tagged, runners, others = "" } = document.querySelector("#stage").dataset;
      return {
        room, tick: Number(tick), avatar: Number(avatar), resumed: resumed === "true", x: Number(x), y: Number(y),
        confirmedX: Number(confirmedX), confirmedY: Number(confirmedY), ack: Number(ack), tagged: Number(tagged), runners: Number(runners),
        others: others.split(" ").filter(Boolean).map((other) => other.split(":").map(Number)).map(([id, x, y, condition]) => ({ id, x, y, condition })),
      };
    });
  }

  /** Waits until the page is in the room and shows its runner. */
  async untilJoined() {
    await this.until(() => {
      const { state, avatar, tick } = document.querySelector("#stage")?.dataset ?? {};
      return state === "joined" && Number(avatar) > 0 && Number(tick) > 0;
    });
    return this.stage();
  }

  untilState(state) {
    return this.until((state) => document.querySelector("#stage").dataset.state === state, state);
  }

  /** Runs with a key until the server has confirmed the way. */
  async run(key, axis, sign, units) {
    const name = axis === "x" ? "confirmedX" : "confirmedY";
    const start = (await this.stage())[name];
    await this.page.focus("#field");
    await this.page.keyboard.down(key);
    await this.until(([name, start, sign, units]) => (document.querySelector("#stage").dataset[name] - start) * sign > units, [name, start, sign, units]);
    await this.page.keyboard.up(key);
  }

  /** Waits until the lobby's page lists a room with at least this number of players. */
  untilListed(room, players) {
    return this.until(([room, players]) => {
      const row = document.querySelector(`#rooms [data-room="${room}"]`);
      return row !== null && Number(row.dataset.players) >= players;
    }, [room, players]);
  }

  /** In the lobby: gets a place by matchmaking. Returns the state of the game's page. */
  async play() {
    await this.until(() => document.querySelector("#play")?.disabled === false);
    await this.page.click("#play");
    return this.untilJoined();
  }
}
