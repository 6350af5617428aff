/** Heading and stride of players, derived from the shown movement, so that they always match it. */

import type { Place } from "@dunlin/room-client";

export interface Walk extends Place {
  readonly heading: number;
  readonly stride: number;
}

export class Walks {
  private readonly walks = new Map<number, Walk>();

  /** Called with the shown position of a player. */
  moved(id: number, place: Place): Walk {
    const walk = this.walks.get(id) ?? { ...place, heading: (id * 2.4) % (Math.PI * 2), stride: 0 };
    const way = { x: place.x - walk.x, y: place.y - walk.y };
    const length = Math.hypot(way.x, way.y);
    let { heading, stride } = walk;
    if (length > 1.5 && length < 256) {
      const turn = Math.atan2(way.y, way.x) - heading;
      heading += Math.atan2(Math.sin(turn), Math.cos(turn)) * 0.35;
      stride += length;
    }
    const moved = { ...place, heading, stride };
    this.walks.set(id, length > 1.5 ? moved : walk);
    return moved;
  }

  forget(id: number): void {
    this.walks.delete(id);
  }

  clear(): void {
    this.walks.clear();
  }
}
