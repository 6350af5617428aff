/** Elements of a page. */

/**
 * The element with this id.
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} kind
 * @returns {E}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`#${id} is no ${kind.name}`);
  return found;
}

/**
 * A new element with a class and what is in it.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} name of the class
 * @param {...(Node | string)} inside
 */
export function element(tag, name, ...inside) {
  const made = document.createElement(tag);
  if (name !== "") made.className = name;
  made.append(...inside);
  return made;
}

/** Control characters except line ends and tabs, and format characters of Unicode. */
const UNSEEN = /[\p{Cf}\p{Cc}\u2028\u2029]/gu;

/**
 * A text in which characters that are not seen, or change the direction of writing, are written as escapes, so that a name cannot
 * look like another one.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0)?.toString(16)}}`));
}

/** The time of the day, to the millisecond. */
export function clock() {
  const now = new Date();
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(":");
  return `${time}.${String(now.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * Puts an entry first, and drops the last ones beyond a number.
 * @param {HTMLElement} list
 * @param {HTMLElement} entry
 * @param {number} max
 */
export function putFirst(list, entry, max) {
  list.prepend(entry);
  while (list.children.length > max) list.lastElementChild?.remove();
}

/**
 * Copies a text, and says so on the button for a while.
 * @param {HTMLButtonElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  await navigator.clipboard.writeText(text);
  const before = button.textContent ?? "";
  button.textContent = "Copied";
  button.disabled = true;
  setTimeout(() => {
    button.textContent = before;
    button.disabled = false;
  }, 1_500);
}
