/** The newest lines of the log. */

import { log as askLog } from "../api";
import { el, fill, setText } from "../dom";
import { count } from "../format";
import { LogLines } from "../log_lines";
import type { LogPart } from "../types";
import { type Context, noticePlace, Repeated, type View } from "../view";

const INTERVAL_MS = 1500;

export function log(context: Context): View {
  const notice = noticePlace();
  const known = new LogLines();
  let isPaused = false;
  const list = el("ol", { class: "lines", tabindex: "0", "aria-label": "Log lines, the newest at the end" });
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => show() });
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => setPaused(!isPaused) }, "Pause");
  const missed = el("p", { class: "hint" });
  const asked = new Repeated<LogPart>(context, notice, INTERVAL_MS, () => askLog(known.run, known.next), (part) => {
    const skipped = known.take(part);
    if (skipped > 0) setText(missed, `${count(skipped)} lines were not kept long enough to be shown.`);
    if (part.lines.length > 0 && !isPaused) show();
  });

  function setPaused(paused: boolean): void {
    isPaused = paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) show();
  }

  function show(): void {
    const wanted = input.value.toLowerCase();
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 30;
    const fitting = known.lines.filter(({ text }) => text.toLowerCase().includes(wanted));
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
