/** The direction of a shot: to the mouse, or without a mouse to the nearest runner. */

import type { Place, Replica } from "@dunlin/room-client";
import { RANGE_UNITS, RUNNER, runnerOf } from "./rules";

/** The direction in radians. `mouse` is a position on the map; `ahead` applies if no runner is in range. */
export function aim(replica: Replica, me: Place, mouse: Place | null, placeOf: (id: number) => Place | null, ahead: number): number {
  const to = mouse ?? nearestRunner(replica, me, placeOf);
  return to === null ? ahead : Math.atan2(to.y - me.y, to.x - me.x);
}

function nearestRunner(replica: Replica, me: Place, placeOf: (id: number) => Place | null): Place | null {
  let nearest: Place | null = null;
  let least = RANGE_UNITS;
  for (const seen of replica.objects()) {
    if (seen.kind !== RUNNER || seen.id === replica.avatar || runnerOf(seen).condition !== "Running") continue;
    const place = placeOf(seen.id) ?? seen;
    const distance = Math.hypot(place.x - me.x, place.y - me.y);
    if (distance < least) [nearest, least] = [place, distance];
  }
  return nearest;
}
