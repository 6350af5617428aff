/** The configuration as it holds, without secrets, and what was wrong or ignored in it. */

import { configuration as askConfiguration } from "../api";
import { el, fill, setText } from "../dom";
import { Table } from "../table";
import type { Configuration, Setting } from "../types";
import { type Context, noticePlace, Repeated, type View } from "../view";

const INTERVAL_MS = 10_000;

export function configuration(context: Context): View {
  const notice = noticePlace();
  const file = el("p", { class: "hint" });
  const warnings = el("ul", {});
  const calm = el("p", { class: "good" }, "No warning, and no key is ignored.");
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => filter() });
  const table = new Table<Setting>(
    "Settings that differ from the default",
    [
      { title: "Key", cell: ({ key }) => el("code", {}, key) },
      { title: "Value", cell: valueText },
    ],
    ({ key }) => key,
    "No setting fits.",
  );
  let known: Configuration | null = null;
  const asked = new Repeated<Configuration>(context, notice, INTERVAL_MS, askConfiguration, (answer) => {
    known = answer;
    setText(file, `${context.ownName()}: ${answer.file ? `from ${answer.file}, the environment and flags` : "from the environment and flags"}. Keys that are not listed have their defaults.`);
    fill(warnings, ...answer.warnings.map((text) => el("li", {}, text)));
    calm.hidden = answer.warnings.length > 0;
    filter();
  });

  function filter(): void {
    if (known) table.update(known.settings.filter(({ key }) => key.includes(input.value.trim())));
  }

  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => event.preventDefault() },
    el("label", { for: "text" }, "Key contains"),
    input,
  );
  const element = el("div", {}, notice, file, el("h2", {}, "Warnings and ignored keys"), calm, warnings, el("h2", {}, "Settings"), form, table.element);
  asked.now();
  return { title: "Configuration", element, stop: () => asked.stop() };
}

function valueText({ value, hidden }: Setting): HTMLElement | string {
  if (hidden && value === null) return "(set, not shown)";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return el("code", {}, hidden ? `${text} (a part is not shown)` : text);
}
