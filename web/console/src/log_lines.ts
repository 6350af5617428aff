/** The lines of the log that the page has, of each run of a node that has answered. */

import type { LogPart } from "./types";

const LINES_MAX = 2000;
/** Runs whose place is remembered: a balancer may bring the page to several nodes in turn. */
const RUNS_MAX = 8;

/** Colors of a terminal. */
const ESCAPES = /\u001b\[[0-9;]*m/g;

export interface Line {
  text: string;
  isBad: boolean;
}

export class LogLines {
  /** The oldest first. */
  readonly lines: Line[] = [];
  /** The run that has answered last. */
  run = "";
  /** The number of the next line, by run. */
  private readonly nexts = new Map<string, number>();

  /** The number from which on the lines of the last run are wanted. */
  get next(): number {
    return this.nexts.get(this.run) ?? 0;
  }

  /** Adds what is new of an answer. Returns how many lines before it were not kept long enough. */
  take(part: LogPart): number {
    const known = this.nexts.get(part.run);
    const first = part.next - part.lines.length;
    const fresh = part.lines.slice(Math.max(0, (known ?? 0) - first));
    if (this.run !== "" && known === undefined) this.lines.push({ text: "— what follows is of another start of the node —", isBad: false });
    this.lines.push(...fresh.map(read));
    this.lines.splice(0, this.lines.length - LINES_MAX);
    this.run = part.run;
    this.nexts.delete(part.run);
    this.nexts.set(part.run, part.next);
    for (const oldest of [...this.nexts.keys()].slice(0, -RUNS_MAX)) this.nexts.delete(oldest);
    return known === undefined ? 0 : Math.max(0, first - known);
  }
}

/** A line as JSON, or as the text for a terminal. */
function read(line: string): Line {
  const plain = line.replace(ESCAPES, "");
  try {
    const { timestamp, level, message, ...fields } = JSON.parse(plain) as Record<string, unknown>;
    const rest = Object.entries(fields).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
    const isBad = level === "WARN" || level === "ERROR";
    return { text: [String(timestamp).replace(/\.\d+Z$/, "Z"), level, message, ...rest].join("  "), isBad };
  } catch {
    return { text: plain, isBad: /\b(WARN|ERROR)\b/.test(plain.slice(0, 60)) };
  }
}
