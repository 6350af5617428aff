/** Actions ask once, and say what came of it. */

import { command } from "./api";
import { el } from "./dom";

export interface Action {
  /** The method of the server API. */
  method: string;
  params: unknown;
  /** What the dialog asks. */
  question: string;
  /** The consequence, in one sentence. */
  detail: string;
  /** On the button, such as "Disconnect". */
  verb: string;
  /** What is said when it is done. */
  done: string;
}

/** Asks, executes, and reports. Whether it was done. */
export async function act(action: Action): Promise<boolean> {
  if (!(await confirmed(action))) return false;
  try {
    await command(action.method, action.params);
  } catch (error) {
    tell(`${action.verb}: ${error instanceof Error ? error.message : error}`, true);
    return false;
  }
  tell(action.done, false);
  return true;
}

function confirmed({ question, detail, verb }: Action): Promise<boolean> {
  return new Promise((resolve) => {
    const focused = document.activeElement;
    const cancel = el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel");
    const go = el("button", { type: "button", class: "danger", onclick: () => dialog.close("go") }, verb);
    const title = el("h2", { id: "question" }, question);
    const text = el("p", { id: "question-detail" }, detail);
    const dialog = el(
      "dialog",
      { "aria-labelledby": "question", "aria-describedby": "question-detail" },
      title,
      text,
      el("div", { class: "buttons" }, cancel, go),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (focused instanceof HTMLElement) focused.focus();
      resolve(dialog.returnValue === "go");
    });
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });
}

const SHOWN_MS = 8000;

/** Says something at the bottom of the page. */
export function tell(text: string, isError: boolean): void {
  const place = document.querySelector("#told");
  if (!place) return;
  const message = el("p", { class: isError ? "told bad" : "told" }, text);
  place.replaceChildren(message);
  setTimeout(() => message.remove(), SHOWN_MS);
}
