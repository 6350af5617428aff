/** Stores the seat token of a room in the tab, so that a reload of the page returns to the same player. */

import type { Room } from "@dunlin/room-client";

const keyOf = (channel: string): string => `dunlin.seat.${channel}`;

export function storedSeat(channel: string): string | null {
  try {
    return sessionStorage.getItem(keyOf(channel));
  } catch {
    return null;
  }
}

/** Stores each token that the room issues. */
export function keepSeat(room: Room): void {
  room.on("joined", () => {
    try {
      if (room.seatToken !== null) sessionStorage.setItem(keyOf(room.channel), room.seatToken);
    } catch {
      // Without storage, a reload is a new player.
    }
  });
}

export function forgetSeat(channel: string): void {
  try {
    sessionStorage.removeItem(keyOf(channel));
  } catch {
    // Nothing was stored.
  }
}
