/** One line that explains the figure whose label has the focus, is touched, or is under the pointer. */

import { byId, setText } from "./dom";

export function explainLabels(): void {
  const line = byId("explanation", HTMLElement);
  const explain = (event: Event): void => {
    if (!(event.target instanceof HTMLElement)) return;
    const { help } = event.target.dataset;
    if (help !== undefined) setText(line, help);
  };
  // In some browsers, a touch does not focus a button.
  for (const type of ["focusin", "click", "pointerover"]) document.addEventListener(type, explain);
}
