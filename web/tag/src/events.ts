/** The events of the game. Events with another format are ignored. */

export interface Leader {
  readonly player: number;
  readonly name: string;
  readonly colour: number;
  readonly score: number;
}

export interface Scores {
  readonly round: number;
  readonly scoreLimit: number;
  readonly runners: number;
  readonly leaders: readonly Leader[];
}

export type TagEvent =
  | { readonly kind: "welcome"; readonly name: string; readonly round: number; readonly scoreLimit: number }
  | { readonly kind: "tagged"; readonly by: number; readonly byName: string; readonly player: number; readonly name: string; readonly x: number; readonly y: number }
  | { readonly kind: "scores"; readonly scores: Scores }
  | { readonly kind: "round_over"; readonly round: number; readonly winner: number; readonly name: string }
  | { readonly kind: "round_started"; readonly round: number; readonly scoreLimit: number }
  | { readonly kind: "result"; readonly round: number; readonly message: string; readonly error: string };

type Fields = Readonly<Record<string, unknown>>;

export function tagEventOf(event: unknown): TagEvent | null {
  const [[kind, value] = ["", null]] = Object.entries(fieldsOf(event));
  const fields = fieldsOf(value);
  const round = number(fields["round"]);
  const scoreLimit = number(fields["score_limit"]);
  switch (kind) {
    case "welcome":
      return { kind, name: text(fields["name"]), round, scoreLimit };
    case "tagged": {
      const { by, by_name: byName, player, name, x, y } = fields;
      return { kind, by: number(by), byName: text(byName), player: number(player), name: text(name), x: number(x), y: number(y) };
    }
    case "scores": {
      const { leaders, runners } = fields;
      return { kind, scores: { round, scoreLimit, runners: number(runners), leaders: Array.isArray(leaders) ? leaders.map(leaderOf) : [] } };
    }
    case "round_over":
      return { kind, round, winner: number(fields["winner"]), name: text(fields["name"]) };
    case "round_started":
      return { kind, round, scoreLimit };
    case "result":
      return { kind, round, message: text(fields["message"]), error: text(fields["error"]) };
    default:
      return null;
  }
}

function leaderOf(value: unknown): Leader {
  const { player, name, colour, score } = fieldsOf(value);
  return { player: number(player), name: text(name), colour: number(colour), score: number(score) };
}

export const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
export const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
export const text = (value: unknown): string => (typeof value === "string" ? value : "");
