/** The content of a room's listing: its players, and the round in the game's metadata. */

import { fieldsOf, number, text } from "./events";

export interface Listed {
  readonly players: number;
  readonly maxPlayers: number;
  /** The round as text; empty if the metadata is not from the game. */
  readonly round: string;
}

/** A publication of the lobby's channel: a room, and its listing. A room that is closed, locked or unlisted has none. */
export function listingOf(data: unknown): { readonly room: string; readonly listed: Listed | null } | null {
  const { room, players, max_players: maxPlayers, metadata, closed } = fieldsOf(data);
  const name = text(room);
  if (name === "") return null;
  return { room: name, listed: closed === true ? null : { players: number(players), maxPlayers: number(maxPlayers), round: roundOf(metadata) } };
}

export const hasPlace = ({ players, maxPlayers }: Listed): boolean => players < maxPlayers;

function roundOf(metadata: unknown): string {
  const { round, phase } = fieldsOf(metadata);
  if (number(round) < 1) return "";
  switch (phase) {
    case "playing":
      return `round ${number(round)}`;
    case "over":
      return `round ${number(round)} is over`;
    case "last":
      return number(round) === 1 ? "the only round" : "the last round";
    default:
      return "";
  }
}
