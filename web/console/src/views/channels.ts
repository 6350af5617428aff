/** Channels with subscribers; and of one channel its subscribers, presence and history, and what can be done with it. */

import { act } from "../actions";
import { channels as askChannels, command } from "../api";
import { el, fill, setText } from "../dom";
import { count } from "../format";
import { nameOf } from "../history";
import { Table } from "../table";
import type { ChannelPage, ClientSession, Sessions } from "../types";
import { clientLink, type Context, hash, isOperator, link, noticePlace, pretty, Repeated, showMissing, Submitted, userText, type View } from "../view";

const INTERVAL_MS = 3000;
const HISTORY_LIMIT = 50;
const SUBSCRIBERS_LIMIT = 100;

export function channels(context: Context, text?: string): View {
  const notice = noticePlace();
  const missing = noticePlace();
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false" });
  if (text) input.value = text;
  const order = el("select", { id: "order" }, el("option", { value: "name" }, "by name"), el("option", { value: "largest" }, "most subscribers first"));
  const total = el("p", { class: "hint" });
  const cursors: string[] = [];
  const table = new Table<ChannelPage["channels"][number]>(
    "Channels",
    [
      { title: "Channel", cell: ({ channel }) => link(channel, "channels", channel) },
      { title: "Subscribers", cell: ({ num_clients }) => count(num_clients), isNumber: true },
    ],
    ({ channel }) => channel,
    "No channel with subscribers fits.",
  );
  const pages = el("div", { class: "pages" });
  const submitted = new Submitted(() => input.value);
  const ask = () => askChannels(submitted.value, order.value === "largest", cursors.at(-1) ?? "");
  const asked = new Repeated<ChannelPage>(context, notice, INTERVAL_MS, ask, show);
  const restart = () => {
    cursors.length = 0;
    asked.now();
  };
  const search = () => {
    submitted.take();
    restart();
  };
  order.addEventListener("change", restart);
  const openExactly = () => {
    if (input.value) location.hash = hash("channels", input.value);
  };
  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => (event.preventDefault(), search()) },
    el("label", { for: "text" }, "Name contains"),
    input,
    el("label", { for: "order", class: "unseen" }, "Order"),
    order,
    el("button", {}, "Find"),
    el("button", { type: "button", onclick: openExactly }, "Open this name"),
  );
  const hint = el("p", { class: "hint" }, "* and ? stand for any characters. “Open this name” also finds a channel that only has a history.");

  function show(page: ChannelPage): void {
    showMissing(missing, page.missing);
    const { more, missing_up_to } = page;
    const others = missing_up_to === undefined ? "" : ` Others with up to ${count(missing_up_to)} subscribers may not be listed: find them by name.`;
    setText(total, `${page.total_counts_twice ? "At most " : ""}${count(page.total)} channels with subscribers.${others}`);
    table.update(page.channels);
    fill(
      pages,
      cursors.length > 0 && el("button", { type: "button", onclick: () => (cursors.pop(), asked.now()) }, "Before"),
      more !== undefined && el("button", { type: "button", onclick: () => (cursors.push(more), asked.now()) }, "More"),
    );
  }

  asked.now();
  return { title: "Channels", element: el("div", {}, form, hint, notice, missing, total, table.element, pages), stop: () => asked.stop() };
}

interface Publication {
  data?: unknown;
  b64data?: string;
  offset: number;
  tags?: Record<string, string>;
  info?: { user: string; client: string };
}

interface History {
  publications: Publication[];
  epoch: string;
  offset: number;
}

interface Present {
  user: string;
  client: string;
}

export function oneChannel(context: Context, channel: string): View {
  const notice = noticePlace();
  const missing = noticePlace();
  const subscribers = new Table<ClientSession>(
    "Subscribers",
    [
      { title: "User", cell: ({ user }) => userText(user) },
      { title: "Client", cell: ({ client }) => clientLink(client) },
      { title: "Verdict", cell: ({ verdict }) => verdict.text },
      { title: "Node", cell: ({ node }) => nameOf(node) },
    ],
    ({ client }) => client,
    "Nobody is subscribed.",
  );
  const presence = new Table<Present>(
    "Presence",
    [
      { title: "User", cell: ({ user }) => userText(user) },
      { title: "Client", cell: ({ client }) => clientLink(client) },
    ],
    ({ client }) => client,
    "Nobody is present.",
  );
  const history = new Table<Publication>(
    "History",
    [
      { title: "Offset", cell: ({ offset }) => count(offset), isNumber: true },
      { title: "Data", cell: ({ data, b64data }) => el("code", {}, b64data === undefined ? pretty(data) : `base64 ${b64data}`) },
      { title: "From", cell: ({ info }) => (info ? userText(info.user) : "the server API") },
      { title: "Tags", cell: ({ tags }) => (tags ? pretty(tags) : "") },
    ],
    ({ offset }) => String(offset),
    "There is no publication.",
  );
  const [presenceNote, historyNote, count_] = [el("p", { class: "hint" }), el("p", { class: "hint" }), el("p", { class: "hint" })];
  let known = 0;

  async function ask(): Promise<Sessions> {
    const [sessions] = await Promise.all([
      command<Sessions>("sessions", { channel, limit: SUBSCRIBERS_LIMIT }),
      part(presenceNote, presence.element, async () => {
        const present = await command<{ presence: Record<string, Present>; partial?: boolean }>("presence", { channel });
        presence.update(Object.values(present.presence));
        setText(presenceNote, present.partial ? "Not all nodes have answered." : "");
      }),
      part(historyNote, history.element, async () => {
        const kept = await command<History>("history", { channel, limit: HISTORY_LIMIT, reverse: true });
        history.update(kept.publications);
        setText(historyNote, `Newest offset ${count(kept.offset)}, epoch ${kept.epoch}. The newest ${HISTORY_LIMIT} are shown.`);
      }),
    ]);
    return sessions;
  }

  /** A part that the namespace may not have: the node says why. */
  async function part(note: HTMLElement, table: HTMLElement, show: () => Promise<void>): Promise<void> {
    try {
      await show();
      table.hidden = false;
    } catch (error) {
      table.hidden = true;
      setText(note, error instanceof Error ? error.message : String(error));
    }
  }

  function show(answer: Sessions): void {
    showMissing(missing, answer.missing);
    known = answer.sessions.length;
    subscribers.update(answer.sessions);
    setText(count_, answer.more === undefined ? `Subscribers: ${count(known)}` : `The ${count(known)} that have been behind for longest.`);
  }

  const asked = new Repeated<Sessions>(context, notice, INTERVAL_MS, ask, show);
  const element = el(
    "div",
    {},
    el("p", { class: "crumbs" }, link("Channels", "channels"), " / ", el("code", {}, channel)),
    notice,
    missing,
    isOperator(context) && publishForm(),
    el("h2", {}, "Subscribers"),
    count_,
    subscribers.element,
    el("h2", {}, "Presence"),
    presenceNote,
    presence.element,
    el("h2", {}, "History"),
    historyNote,
    history.element,
    isOperator(context) && el("div", { class: "buttons" }, el("button", { type: "button", class: "danger", onclick: () => void remove() }, "Remove history")),
  );

  function publishForm(): HTMLElement {
    const data = el("textarea", { id: "data", spellcheck: "false" });
    data.value = "{}";
    const wrong = el("p", { class: "bad", role: "alert" });
    const publish = async () => {
      let parsed: unknown;
      try {
        parsed = JSON.parse(data.value);
        setText(wrong, "");
      } catch {
        return setText(wrong, "The data is not JSON.");
      }
      const stats = await command<{ num_clients: number }>("presence_stats", { channel }).catch(() => null);
      const receivers = stats ? `Clients that are present: ${count(stats.num_clients)}` : `Subscribers: ${count(known)}${known === SUBSCRIBERS_LIMIT ? " or more" : ""}`;
      const done = await act({
        method: "publish",
        params: { channel, data: parsed },
        question: `Publish into ${channel}?`,
        detail: `${receivers}. They would get it, as would clients that recover the history.`,
        verb: "Publish",
        done: `Published into ${channel}.`,
      });
      if (done) asked.now();
    };
    return el(
      "details",
      { class: "panel" },
      el("summary", {}, "Publish"),
      el("form", { onsubmit: (event) => (event.preventDefault(), void publish()) },
        el("label", { for: "data" }, "Data (JSON)"), data, wrong, el("div", { class: "buttons" }, el("button", { class: "primary" }, "Publish"))),
    );
  }

  async function remove(): Promise<void> {
    const done = await act({
      method: "history_remove",
      params: { channel },
      question: `Remove the history of ${channel}?`,
      detail: "Its publications are gone for good. Clients that return later cannot recover them.",
      verb: "Remove history",
      done: `The history of ${channel} is removed.`,
    });
    if (done) asked.now();
  }

  asked.now();
  return { title: "Channel", element, stop: () => asked.stop() };
}
