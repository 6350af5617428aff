/**
 * Elements with text. Text never becomes markup: nothing here parses it, and the page's policy forbids that. Characters that change
 * the direction of writing, or that are not seen, are written as escapes, so that a name cannot look like another one.
 */

import { visible } from "./text";

export type Child = Node | string | number | null | undefined | false;

type Attributes = Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>;

/** An element. Attributes whose names begin with `on` are listeners. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  add(element, children);
  return element;
}

export function add(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Replaces the content of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  add(element, children);
}

/** Sets a text only if it differs, so that a selection in it survives. */
export function setText(element: Element, unescaped: string): void {
  const text = visible(unescaped);
  if (element.textContent !== text) element.textContent = text;
}
