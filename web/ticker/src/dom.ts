/** Elements of index.html by id, new elements, and drawing once a frame. */

export function byId<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`index.html lacks #${id}`);
  return found;
}

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className !== "") made.className = className;
  made.append(...children);
  return made;
}

/** Writes text only if it differs, because each write causes a layout. */
export function setText(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

const waiting = new Map<object, () => void>();

/** Runs `draw` in the next animation frame, at most once a frame for each `owner`. */
export function drawSoon(owner: object, draw: () => void): void {
  if (waiting.size === 0) requestAnimationFrame(drawWaiting);
  waiting.set(owner, draw);
}

function drawWaiting(): void {
  const draws = [...waiting.values()];
  waiting.clear();
  for (const draw of draws) draw();
}

export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
