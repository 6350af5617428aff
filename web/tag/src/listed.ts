/** What a listing says of a room: its players, and the round that the game's metadata names. */

import { fieldsOf, number, text } from "./events";

export interface Listed {
  readonly players: number;
  readonly maxPlayers: number;
  /** The round for people; empty if the metadata is not that of the game. */
  readonly round: string;
}

/** A publication of the lobby's channel: a room, and what is listed of it. A room that is closed, locked or unlisted is not. */
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
