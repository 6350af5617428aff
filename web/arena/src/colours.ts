/** The colours of the canvas in the light and in the dark scheme. */

export interface Colours {
  readonly water: string;
  readonly sand: string;
  readonly sandDark: string;
  readonly tuft: string;
  readonly line: string;
  readonly lineText: string;
  readonly fog: string;
  readonly near: string;
  readonly far: string;
  readonly ink: string;
  readonly plate: string;
  readonly shadow: string;
  readonly leaf: readonly [string, string];
  readonly stone: readonly [string, string];
  readonly wood: readonly [string, string];
  readonly gold: string;
  readonly me: string;
}

const DAY: Colours = {
  water: "#9cc3cb", sand: "#ece5d2", sandDark: "#e2d9c1", tuft: "#b9bd94", line: "rgb(19 34 42 / 13%)",
  lineText: "rgb(19 34 42 / 38%)", fog: "rgb(86 105 112 / 46%)", near: "#0b6b7a", far: "rgb(11 107 122 / 45%)", ink: "#13222a",
  plate: "rgb(255 255 255 / 84%)", shadow: "rgb(40 34 16 / 18%)", leaf: ["#5f8a5c", "#79a56f"], stone: ["#8f979a", "#b1b8b9"],
  wood: ["#7a4f2a", "#a8713f"], gold: "#c77700", me: "#0b6b7a",
};

const NIGHT: Colours = {
  water: "#0c2026", sand: "#1c2a2d", sandDark: "#172326", tuft: "#33474a", line: "rgb(230 239 241 / 11%)",
  lineText: "rgb(230 239 241 / 34%)", fog: "rgb(4 9 12 / 58%)", near: "#4fc0cf", far: "rgb(79 192 207 / 45%)", ink: "#e6eff1",
  plate: "rgb(11 20 24 / 80%)", shadow: "rgb(0 0 0 / 34%)", leaf: ["#2e5a47", "#3f7560"], stone: ["#4c5a5f", "#66757a"],
  wood: ["#6b4729", "#946741"], gold: "#f2b84b", me: "#4fc0cf",
};

const night = matchMedia("(prefers-color-scheme: dark)");

export const colours = (): Colours => (night.matches ? NIGHT : DAY);

/** The twelve colours that a player can have. */
const PLAYERS = [
  "#0b6b7a", "#c2452f", "#c98a12", "#3d7f3b", "#5a54b8", "#b03a78", "#2f78c4", "#7d5a3c", "#1f9a86", "#8d3fb0", "#d46a2c", "#56707d",
] as const;

export const playerColour = (index: number): string => PLAYERS[index % PLAYERS.length] ?? PLAYERS[0];
