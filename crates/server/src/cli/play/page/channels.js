/** The list of subscriptions, one of which is selected: what the page publishes and asks for concerns it. */

import { element } from "../../page/dom.js";

/** @typedef {import("./client.js").Subscription} Subscription */
/** @typedef {{ item: HTMLLIElement, button: HTMLButtonElement, state: HTMLElement, position: HTMLElement }} Entry */

export class ChannelList {
  selected = "";
  /** @type {Map<string, Entry>} */
  #entries = new Map();

  /**
   * @param {HTMLElement} list
   * @param {() => void} onSelect
   */
  constructor(list, onSelect) {
    this.list = list;
    this.onSelect = onSelect;
  }

  /**
   * Shows these, in the elements that are there: one of them may have the focus.
   * @param {ReadonlyMap<string, Subscription>} subscriptions
   */
  show(subscriptions) {
    for (const [channel, { item }] of this.#entries) {
      if (subscriptions.has(channel)) continue;
      item.remove();
      this.#entries.delete(channel);
    }
    for (const subscription of subscriptions.values()) this.#update(subscription);
    if (subscriptions.has(this.selected)) this.onSelect();
    else this.select([...subscriptions.keys()].at(-1) ?? "");
  }

  /** @param {string} channel */
  select(channel) {
    this.selected = channel;
    for (const [name, { button }] of this.#entries) button.setAttribute("aria-pressed", String(name === channel));
    this.onSelect();
  }

  /** @param {Subscription} subscription */
  #update({ channel, state, why, isRecoverable, isOfServer, offset, epoch }) {
    const entry = this.#entries.get(channel) ?? this.#add(channel);
    const facts = [
      ...(isOfServer ? ["by the server"] : []),
      ...(isRecoverable ? [`offset ${offset}, epoch ${epoch}`] : []),
    ];
    entry.item.dataset.state = state;
    entry.state.textContent = why === "" ? state : `${state}, ${why}`;
    entry.position.textContent = facts.join(" · ");
  }

  /** @param {string} channel */
  #add(channel) {
    const [state, position] = [element("span", "state"), element("span", "position")];
    const button = element("button", "", element("b", "", channel), state, position);
    button.type = "button";
    button.dataset.channel = channel;
    button.addEventListener("click", () => this.select(channel));
    const entry = { item: element("li", "", button), button, state, position };
    this.#entries.set(channel, entry);
    this.list.append(entry.item);
    return entry;
  }
}
