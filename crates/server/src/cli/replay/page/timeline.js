/** The marks on the timeline, and the text of a tick. */

/** @typedef {{tick: number, what: string, player: number | null}} Mark */

/** @type {Record<string, string>} */
const COLOURS = { join: "--good", back: "--good", leave: "--muted", away: "--signal", kick: "--bad", refused: "--bad", message: "--tide", behind: "--signal" };

/**
 * Draws a line for each mark.
 * @param {HTMLCanvasElement} canvas
 * @param {readonly Mark[]} marks
 * @param {number} ticks
 */
export function drawMarks(canvas, marks, ticks) {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const { width, height } = fit(canvas, context);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  for (const { tick, what } of marks) {
    context.fillStyle = style.getPropertyValue(COLOURS[what] ?? "--muted");
    context.fillRect(((tick - 1) / Math.max(1, ticks - 1)) * (width - 2), 0, 2, height);
  }
}

/**
 * Gives a canvas the pixels of the screen. Its drawing has units of the page.
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2D} context
 */
export function fit(canvas, context) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = Math.min(devicePixelRatio, 2);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return { width, height };
}

/**
 * The time of a tick, such as 1:05.2.
 * @param {number} tick
 * @param {number} ticksPerSecond
 */
export function timeOf(tick, ticksPerSecond) {
  const tenths = Math.floor((tick / ticksPerSecond) * 10);
  const seconds = Math.floor(tenths / 10) % 60;
  return `${Math.floor(tenths / 600)}:${String(seconds).padStart(2, "0")}.${tenths % 10}`;
}

/** @type {Record<string, string>} */
const WORDS = { join: "joins", leave: "leaves", away: "loses its connection", back: "is back", kick: "is kicked", behind: "is not sent ticks" };

/**
 * A mark in words.
 * @param {Mark} mark
 */
export function markWords({ what, player }) {
  if (what === "refused") return "a join is refused";
  return what === "message" ? "a message of the backend" : `player ${player ?? "?"} ${WORDS[what] ?? what}`;
}

/**
 * A step in words.
 * @param {Record<string, unknown>} step
 */
export function wordsOf(step) {
  const { step: what, tick: _, player, data, ...rest } = step;
  const who = player === undefined ? "" : `player ${String(player)} `;
  const bytes = typeof data === "string" && data !== "" ? ` ${data}` : "";
  switch (what) {
    case "input":
      return `${who}sends input ${String(rest["number"])}:${bytes}`;
    case "join": {
      const { user } = /** @type {{user: string}} */ (rest["visitor"]);
      const refused = /** @type {{code: number, message: string} | undefined} */ (rest["refused"]);
      const name = user === "" ? "a guest" : JSON.stringify(user);
      return refused === undefined ? `${name} joins as player ${String(player)}` : `${name} is refused: ${refused.code} ${refused.message}`;
    }
    case "leave":
      return `${who}leaves`;
    case "away":
      return `${who}has lost its connection`;
    case "back":
      return `${who}is back`;
    case "kick":
      return `${who}is kicked: ${String(rest["reason"])}`;
    default:
      return `${String(what)} ${JSON.stringify(step)}`;
  }
}
