/** Who is connected, those that have been behind for longest first; and why one of them is behind. */

import { act } from "../actions";
import { command } from "../api";
import { type Child, el, fill } from "../dom";
import { bytes, count, ms, percent } from "../format";
import { nameOf } from "../history";
import { facts, Table } from "../table";
import type { ClientSession, QueueOfChannel, Sessions } from "../types";
import { clientLink, type Context, isOperator, link, noticePlace, Repeated, showMissing, Submitted, userText, type View } from "../view";

const LIST_INTERVAL_MS = 3000;
const ONE_INTERVAL_MS = 1000;
const PAGE = 100;

type By = "user" | "client" | "address" | "channel";

export function sessions(context: Context, by?: string, text?: string): View {
  const notice = noticePlace();
  const missing = noticePlace();
  const field = el("select", { id: "by" }, ...(["user", "client", "address", "channel"] as By[]).map((name) => el("option", { value: name }, name)));
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false" });
  if (by) field.value = by;
  if (text) input.value = text;
  const submitted = new Submitted(() => ({ by: field.value, text: input.value }));
  const cursors: string[] = [];
  const asked = new Repeated<Sessions>(context, notice, LIST_INTERVAL_MS, ask, show);
  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => (event.preventDefault(), search()) },
    el("label", { for: "by" }, "Find by"),
    field,
    el("label", { for: "text", class: "unseen" }, "Text"),
    input,
    el("button", {}, "Find"),
    el("button", { type: "button", onclick: () => ((input.value = ""), search()) }, "All"),
  );
  const table = new Table<ClientSession>(
    "Sessions",
    [
      { title: "User", cell: ({ user }) => userText(user) },
      { title: "Client", cell: ({ client }) => clientLink(client) },
      { title: "Verdict", cell: ({ verdict }) => verdictText(verdict.code, verdict.text) },
      { title: "Behind", cell: ({ queue }) => (queue.age_ms > 0 ? ms(queue.age_ms) : ""), isNumber: true },
      { title: "Queue", cell: ({ queue }) => (queue.bytes > 0 ? bytes(queue.bytes) : ""), isNumber: true },
      { title: "RTT", cell: rtt, isNumber: true },
      { title: "Channels", cell: ({ num_subs }) => count(num_subs), isNumber: true },
      { title: "Transport", cell: ({ transport }) => transport },
      { title: "Address", cell: ({ address }) => address ?? "" },
      { title: "Node", cell: ({ node }) => nameOf(node) },
    ],
    ({ client }) => client,
    "No session fits.",
  );
  const pages = el("div", { class: "pages" });
  const element = el("div", {}, form, notice, missing, table.element, pages);

  function search(): void {
    submitted.take();
    cursors.length = 0;
    asked.now();
  }

  function ask(): Promise<Sessions> {
    const params: Record<string, unknown> = { limit: PAGE, cursor: cursors.at(-1) ?? "" };
    const { by, text } = submitted.value;
    if (text) params[by] = text;
    return command("sessions", params);
  }

  function show(answer: Sessions): void {
    showMissing(missing, answer.missing);
    table.update(answer.sessions);
    const more = answer.more;
    fill(
      pages,
      cursors.length > 0 && el("button", { type: "button", onclick: () => (cursors.pop(), asked.now()) }, "Before"),
      more !== undefined && el("button", { type: "button", onclick: () => (cursors.push(more), asked.now()) }, "More"),
    );
  }

  asked.now();
  return { title: "Sessions", element, stop: () => asked.stop() };
}

export function oneSession(context: Context, client: string): View {
  const notice = noticePlace();
  const verdict = el("p", { class: "panel verdict" }, "…");
  const actions = el("div", { class: "buttons" });
  const about = el("div", { class: "panel" });
  const waits = new Table<QueueOfChannel>(
    "The queue by channel",
    [
      { title: "Channel", cell: ({ channel }) => (channel === undefined ? "(replies and pushes)" : link(channel, "channels", channel)) },
      { title: "Lane", cell: ({ lane }) => lane },
      { title: "Frames", cell: ({ frames }) => count(frames), isNumber: true },
      { title: "Bytes", cell: (each) => bytes(each.bytes), isNumber: true },
      { title: "Replaced", cell: ({ replaced }) => count(replaced), isNumber: true },
      { title: "Oldest", cell: ({ oldest_ms }) => ms(oldest_ms), isNumber: true },
    ],
    ({ channel, lane }) => `${lane} ${channel ?? ""}`,
    "Nothing waits.",
  );
  let known: ClientSession | null = null;
  const asked = new Repeated<Sessions>(context, notice, ONE_INTERVAL_MS, () => command("explain", { client }), show);
  const element = el(
    "div",
    {},
    el("p", { class: "crumbs" }, link("Sessions", "sessions"), " / ", el("code", {}, client)),
    notice,
    verdict,
    actions,
    about,
    el("h2", {}, "What waits for it"),
    waits.element,
  );

  function show(answer: Sessions): void {
    const session = answer.sessions[0];
    if (!session) return;
    if (!known && isOperator(context)) {
      actions.append(el("button", { type: "button", class: "danger", onclick: () => void disconnect() }, "Disconnect"));
    }
    known = session;
    fill(verdict, verdictText(session.verdict.code, session.verdict.text));
    fill(about, described(session));
    waits.update(session.queue.channels ?? []);
  }

  async function disconnect(): Promise<void> {
    if (!known) return;
    const done = await act({
      method: "disconnect",
      params: { user: known.user, client },
      question: `Disconnect ${userText(known.user)}?`,
      detail: `Client ${client} is closed with code 3503, and does not reconnect by itself.`,
      verb: "Disconnect",
      done: `${userText(known.user)} is disconnected.`,
    });
    if (done) asked.now();
  }

  asked.now();
  return { title: "Session", element, stop: () => asked.stop() };
}

function described(session: ClientSession): HTMLElement {
  const { queue, socket, ping, shard } = session;
  const retransmitted = socket.sent_segments ? `${count(socket.retransmitted_segments ?? 0)} of ${count(socket.sent_segments)} segments` : null;
  return facts([
    ["User", session.user === "" ? "(anonymous)" : link(session.user, "sessions", "user", session.user)],
    ["Address", session.address ? link(session.address, "sessions", "address", session.address) : null],
    ["Node", `${nameOf(session.node)}, shard ${shard.index}`],
    ["Transport", `${session.transport}, ${session.encoding}`],
    ["Subscriptions", count(session.num_subs)],
    ["Queue", `${bytes(queue.bytes)} in ${count(queue.frames)} frames, the oldest waits for ${ms(queue.age_ms)}`],
    ["Reliable lane", `${bytes(queue.reliable.bytes)} in ${count(queue.reliable.frames)} frames`],
    ["Latest lane", `${bytes(queue.latest.bytes)} in ${count(queue.latest.frames)} frames, ${count(queue.replaced)} replaced by newer ones`],
    ["Rooms", queue.rooms_due > 0 ? `${count(queue.rooms_due)} snapshots are due, ${bytes(queue.room_bytes)} wait` : null],
    ["Kernel holds", socket.kernel_bytes === undefined ? null : `${bytes(socket.kernel_bytes)}, ${bytes(socket.not_sent_bytes ?? 0)} not sent`],
    ["Socket", socket.full ? "full" : "takes data"],
    ["Round trip", socket.rtt_ms === undefined ? null : `${ms(socket.rtt_ms)}, varies by ${ms(socket.rtt_var_ms ?? 0)}`],
    ["Retransmitted", retransmitted],
    ["Receive window", socket.receive_window_bytes === undefined ? null : bytes(socket.receive_window_bytes)],
    ["Connection takes", socket.delivery_bytes_per_second ? `${bytes(socket.delivery_bytes_per_second)}/s` : null],
    ["Ping → pong", ping.round_trip_ms === undefined ? null : ms(ping.round_trip_ms)],
    ["Ping not answered", ping.unanswered_ms === undefined ? null : `since ${ms(ping.unanswered_ms)}`],
    ["Its shard", `${percent(shard.busy_percent)} busy, turns of up to ${ms(shard.longest_turn_ms)}`],
    ["Commands wait for", session.commands_wait_for ?? null],
    ...(session.limits ?? []).map(({ key, value, used, effect }): [string, Child] => [
      "Limit",
      `${key}${used === undefined ? "" : `: ${count(used)}`}${value === undefined ? "" : ` of ${count(value)}`}; ${effect}`,
    ]),
  ]);
}

function rtt({ socket, ping }: ClientSession): string {
  const value = socket.rtt_ms ?? ping.round_trip_ms;
  return value === undefined ? "" : ms(value);
}

function verdictText(code: string, text: string): HTMLElement {
  return el("span", { class: code === "up_to_date" ? "good" : "bad" }, text);
}
