/** The list of what arrives: publications, who joins and leaves, what happens to the connection. */

import { clock, element, putFirst } from "../../page/dom.js";

/** @typedef {import("./codec.js").Message} Message */

const ENTRIES_MAX = 200;

export class MessageList {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
  }

  /**
   * @param {string} channel
   * @param {Message} publication
   * @param {"live" | "recovered" | "with the reply"} how
   */
  addPublication(channel, publication, how) {
    const { data, offset, info, tags } = publication;
    const facts = [
      ...(offset ? [`offset ${offset}`] : []),
      ...(tags ? [`tags ${JSON.stringify(tags)}`] : []),
      ...(info ? [`by ${personOf(info)}`] : []),
    ];
    const entry = this.#entry(how, channel, element("code", "data", JSON.stringify(data)), element("span", "facts", facts.join(" · ")));
    Object.assign(entry.dataset, { channel, offset: offset ?? 0 });
  }

  /**
   * @param {string} channel
   * @param {"joined" | "left"} what
   * @param {Message} info
   */
  addMember(channel, what, info) {
    this.#entry(what, channel, personOf(info));
  }

  /**
   * @param {string} channel
   * @param {string} text
   */
  addNote(channel, text) {
    this.#entry("note", channel, text);
  }

  clear() {
    this.list.replaceChildren();
  }

  /**
   * @param {string} kind
   * @param {string} channel
   * @param {...(Node | string)} inside
   */
  #entry(kind, channel, ...inside) {
    const head = element("span", "head", element("time", "", clock()), element("span", "kind", kind), element("b", "", channel));
    const entry = element("li", "", head, ...inside);
    entry.dataset.kind = kind;
    putFirst(this.list, entry, ENTRIES_MAX);
    return entry;
  }
}

/** @param {Message} info */
export const personOf = ({ user, client }) => (user ? `user ${user}, client ${client}` : `client ${client ?? "?"}`);
