/** The events of the hunt and the publications of the leaderboard's channel. Messages with another format are ignored. */

export interface Clue {
  readonly x: number;
  readonly y: number;
  readonly treasure: number;
  readonly shares: number;
  readonly value: number;
  /** The tick in which it disappears. */
  readonly until: number;
}

export type News =
  | { readonly kind: "welcome"; readonly name: string; readonly clue: Clue | null }
  | { readonly kind: "joined"; readonly name: string }
  | { readonly kind: "left"; readonly name: string }
  | { readonly kind: "found"; readonly player: number; readonly name: string; readonly value: number; readonly x: number; readonly y: number }
  | { readonly kind: "clue"; readonly clue: Clue }
  | { readonly kind: "clue_over"; readonly treasure: number; readonly found: boolean };

export interface Leader {
  readonly player: number;
  readonly name: string;
  readonly colour: number;
  readonly score: number;
}

export interface Leaders {
  readonly leaders: readonly Leader[];
  readonly players: number;
  /** The number of objects in the whole world; `null` if the message does not contain it. */
  readonly objects: number | null;
}

type Fields = Readonly<Record<string, unknown>>;

export function newsOf(event: unknown): News | null {
  const fields = fieldsOf(event);
  const { welcome, joined, left, found, clue, clue_over: over } = fields;
  if (welcome !== undefined) {
    const inside = fieldsOf(welcome);
    return { kind: "welcome", name: text(inside["name"]), clue: clueOf(inside["clue"]) };
  }
  if (joined !== undefined) return { kind: "joined", name: text(fieldsOf(joined)["name"]) };
  if (left !== undefined) return { kind: "left", name: text(fieldsOf(left)["name"]) };
  if (found !== undefined) {
    const { player, name, value, x, y } = fieldsOf(found);
    return { kind: "found", player: number(player), name: text(name), value: number(value), x: number(x), y: number(y) };
  }
  const dropped = clueOf(clue);
  if (dropped !== null) return { kind: "clue", clue: dropped };
  if (over === undefined) return null;
  const { treasure, found: wasFound } = fieldsOf(over);
  return { kind: "clue_over", treasure: number(treasure), found: wasFound === true };
}

export function leadersOf(data: unknown): Leaders | null {
  const { leaders, players, objects } = fieldsOf(data);
  if (!Array.isArray(leaders)) return null;
  return {
    players: number(players),
    objects: objects === undefined ? null : number(objects),
    leaders: leaders.map(fieldsOf).map(({ player, name, colour, score }) => ({
      player: number(player), name: text(name), colour: number(colour), score: number(score),
    })),
  };
}

function clueOf(value: unknown): Clue | null {
  if (typeof value !== "object" || value === null) return null;
  const { x, y, treasure, shares, value: worth, until } = fieldsOf(value);
  return {
    x: number(x), y: number(y), treasure: number(treasure), shares: number(shares), value: number(worth), until: number(until),
  };
}

const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
