/** The newest lines of the log. */

import { log as askLog } from "../api";
import { el, fill, setText } from "../dom";
import { count } from "../format";
import type { LogPart } from "../types";
import { type Context, noticePlace, Repeated, type View } from "../view";

const INTERVAL_MS = 1500;
const LINES_MAX = 2000;
/** Colors of a terminal. */
const ESCAPES = /\u001b\[[0-9;]*m/g;

interface Line {
  text: string;
  isBad: boolean;
}

export function log(context: Context): View {
  const notice = noticePlace();
  const lines: Line[] = [];
  let next = 0;
  let isPaused = false;
  const list = el("ol", { class: "lines", tabindex: "0", "aria-label": "Log lines, the newest at the end" });
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => show() });
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => setPaused(!isPaused) }, "Pause");
  const missed = el("p", { class: "hint" });
  const asked = new Repeated<LogPart>(context, notice, INTERVAL_MS, () => askLog(next), (part) => {
    if (part.next < next) lines.length = 0; // The node was started anew.
    if (part.missed > 0 && next > 0) setText(missed, `${count(part.missed)} lines were not kept long enough to be shown.`);
    next = part.next;
    if (part.lines.length === 0) return;
    lines.push(...part.lines.map(read));
    lines.splice(0, lines.length - LINES_MAX);
    if (!isPaused) show();
  });

  function setPaused(paused: boolean): void {
    isPaused = paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) show();
  }

  function show(): void {
    const wanted = input.value.toLowerCase();
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 30;
    const fitting = lines.filter(({ text }) => text.toLowerCase().includes(wanted));
    fill(list, ...fitting.map(({ text, isBad }) => el("li", { class: isBad ? "bad" : null }, text)));
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => event.preventDefault() },
    el("label", { for: "text" }, "Line contains"),
    input,
    pause,
  );
  const about = el("p", { class: "hint" }, "The newest lines of the node whose page this is.");
  asked.now();
  return { title: "Log", element: el("div", {}, form, notice, about, missed, list), stop: () => asked.stop() };
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
