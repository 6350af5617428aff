/** Another player: the room client in Node, which walks to positions that a test chooses. */

import { Player, walk } from "../../web/room-client/test/e2e/player.mjs";

/** From one corner of the map to the other. */
const WALK_MS = 120_000;
const NEAR_UNITS = 300;

export class Walker {
  #player;

  static async join(endpoint) {
    const walker = new Walker();
    walker.#player = new Player("protobuf", "arena:hunt", { data: { name: "Walker" } }, endpoint);
    await walker.#player.join();
    return walker;
  }

  get id() {
    return this.#player.room.replica.avatar;
  }

  /** Walks until it is near a position, then stops. */
  async walkTo({ x, y }) {
    let sent = "";
    const isThere = () => {
      const { avatar } = this.#player;
      const way = { x: x - avatar.x, y: y - avatar.y };
      const length = Math.hypot(way.x, way.y);
      const [dx, dy] = length < NEAR_UNITS ? [0, 0] : [Math.round((way.x / length) * 126), Math.round((way.y / length) * 126)];
      // Only if the direction has changed noticeably, because each change is an input.
      const direction = `${Math.round(dx / 12)} ${Math.round(dy / 12)}`;
      if (direction !== sent) this.walk(dx, dy);
      sent = direction;
      return length < NEAR_UNITS;
    };
    await this.#player.until("the walker is there", isThere, WALK_MS);
  }

  /** Walks on in a direction, -127 to 127. */
  walk(dx, dy) {
    this.#player.room.send(walk(dx, dy));
  }

  leave() {
    this.#player.stop();
  }
}
