/** Rooms; and of one room its ticks, players, and what can be done with it. */

import { act } from "../actions";
import { command } from "../api";
import { el, fill, setText } from "../dom";
import { bytes, count, ms } from "../format";
import { nameOf } from "../history";
import { Plot } from "../plot";
import { facts, Table } from "../table";
import type { ClientSession, Room, RoomInfo, Sessions } from "../types";
import { clientLink, type Context, isOperator, link, noticePlace, pretty, Repeated, Submitted, userText, type View } from "../view";

const LIST_INTERVAL_MS = 3000;
const ONE_INTERVAL_MS = 1000;
const POINTS_MAX = 300;
const PAGE = 100;
const PLAYERS_LIMIT = 200;

interface RoomList {
  rooms: Room[];
  more?: string;
  partial?: boolean;
}

export function rooms(context: Context): View {
  const notice = noticePlace();
  const partial = noticePlace();
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false" });
  const submitted = new Submitted(() => input.value);
  const cursors: string[] = [];
  const table = new Table<Room>(
    "Rooms",
    [
      { title: "Room", cell: ({ channel }) => link(channel, "rooms", channel) },
      { title: "Players", cell: (room) => `${count(room.num_players)} of ${count(room.max_players)}`, isNumber: true },
      { title: "Away", cell: (room) => count(room.num_players_away), isNumber: true },
      { title: "Spectators", cell: (room) => count(room.num_spectators), isNumber: true },
      { title: "State", cell: stateOf },
      { title: "Tick", cell: ({ tick }) => count(tick), isNumber: true },
      { title: "Metadata", cell: ({ metadata }) => (metadata === undefined ? "" : el("code", {}, JSON.stringify(metadata))) },
      { title: "Node", cell: ({ node }) => nameOf(node) },
    ],
    ({ channel, node }) => `${node.uid} ${channel}`,
    "No room is open.",
  );
  const pages = el("div", { class: "pages" });
  const asked = new Repeated<RoomList>(context, notice, LIST_INTERVAL_MS, ask, show);
  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => (event.preventDefault(), search()) },
    el("label", { for: "text" }, "Pattern of names"),
    input,
    el("button", {}, "Find"),
  );

  function search(): void {
    submitted.take();
    cursors.length = 0;
    asked.now();
  }

  function ask(): Promise<RoomList> {
    return command("room_list", { pattern: submitted.value, include_unlisted: true, limit: PAGE, cursor: cursors.at(-1) ?? "" });
  }

  function show(answer: RoomList): void {
    setText(partial, answer.partial ? "Not all nodes have answered: see above." : "");
    table.update(answer.rooms);
    const more = answer.more;
    fill(
      pages,
      cursors.length > 0 && el("button", { type: "button", onclick: () => (cursors.pop(), asked.now()) }, "Before"),
      more !== undefined && el("button", { type: "button", onclick: () => (cursors.push(more), asked.now()) }, "More"),
    );
  }

  asked.now();
  return { title: "Rooms", element: el("div", {}, form, notice, partial, table.element, pages), stop: () => asked.stop() };
}

function stateOf({ locked, unlisted }: Room): string {
  return [locked && "locked", unlisted && "unlisted"].filter(Boolean).join(", ");
}

export function oneRoom(context: Context, channel: string): View {
  const notice = noticePlace();
  const about = el("div", { class: "panel" });
  const actions = el("div", { class: "buttons" });
  const ticks = new Plot("Duration of ticks", ms);
  const [times, p50, p99]: number[][] = [[], [], []];
  const hint = el("p", { class: "hint" });
  const players = new Table<ClientSession>(
    "Players and spectators",
    [
      { title: "User", cell: ({ user }) => userText(user) },
      { title: "Client", cell: ({ client }) => clientLink(client) },
      { title: "Verdict", cell: ({ verdict }) => verdict.text },
      { title: "RTT", cell: ({ socket }) => (socket.rtt_ms === undefined ? "" : ms(socket.rtt_ms)), isNumber: true },
      { title: "Snapshots wait", cell: ({ queue }) => (queue.rooms_due > 0 ? bytes(queue.room_bytes) : ""), isNumber: true },
      { title: "Node", cell: ({ node }) => nameOf(node) },
      ...(isOperator(context)
        ? [{ title: "Action", cell: (session: ClientSession) => el("button", { type: "button", class: "danger", "aria-label": `Kick ${userText(session.user)}`, onclick: () => void kick(session) }, "Kick") }]
        : []),
    ],
    ({ client }) => client,
    "Nobody is in the room.",
  );
  let isLocked: boolean | null = null;
  const asked = new Repeated<[RoomInfo, Sessions]>(
    context,
    notice,
    ONE_INTERVAL_MS,
    () => Promise.all([command<RoomInfo>("room_info", { channel }), command<Sessions>("sessions", { channel, limit: PLAYERS_LIMIT })]),
    show,
  );
  const element = el(
    "div",
    {},
    el("p", { class: "crumbs" }, link("Rooms", "rooms"), " / ", el("code", {}, channel), " · ", link("its recordings", "recordings", "of", channel)),
    notice,
    actions,
    about,
    el("div", { class: "plots spaced" }, ticks.element),
    el("h2", {}, "Players and spectators"),
    hint,
    players.element,
  );

  function show([room, sessions]: [RoomInfo, Sessions]): void {
    fill(about, described(room));
    push(times, Date.now() / 1000);
    push(p50, room.tick_p50_us / 1000);
    push(p99, room.tick_p99_us / 1000);
    ticks.update(times ?? [], [
      { label: "p50", values: p50 ?? [] },
      { label: "p99", values: p99 ?? [] },
    ]);
    players.update(sessions.sessions);
    setText(hint, sessions.more === undefined ? "" : `The ${PLAYERS_LIMIT} that have been behind for longest.`);
    if (isOperator(context) && room.locked !== isLocked) {
      isLocked = room.locked;
      fill(
        actions,
        el("button", { type: "button", onclick: () => void lock(!room.locked) }, room.locked ? "Unlock" : "Lock"),
        el("button", { type: "button", class: "danger", onclick: () => void close() }, "Close room"),
      );
    }
  }

  async function kick({ client, user }: ClientSession): Promise<void> {
    const done = await act({
      method: "room_kick",
      params: { channel, client },
      question: `Kick ${userText(user)}?`,
      detail: `Client ${client} is removed from ${channel}.`,
      verb: "Kick",
      done: `${userText(user)} is removed.`,
    });
    if (done) asked.now();
  }

  async function lock(locked: boolean): Promise<void> {
    const verb = locked ? "Lock" : "Unlock";
    const done = await act({
      method: "room_lock",
      params: { channel, locked },
      question: `${verb} ${channel}?`,
      detail: locked ? "Nobody can join it any more. Who is in stays." : "Everybody can join it again.",
      verb,
      done: `${channel} is ${locked ? "locked" : "unlocked"}.`,
    });
    if (done) asked.now();
  }

  async function close(): Promise<void> {
    const done = await act({
      method: "room_close",
      params: { channel },
      question: `Close ${channel}?`,
      detail: "Its world ends, and all players are unsubscribed.",
      verb: "Close room",
      done: `${channel} is closed.`,
    });
    if (done) asked.now();
  }

  asked.now();
  return { title: "Room", element, stop: () => (asked.stop(), ticks.stop()) };
}

function described(room: RoomInfo): HTMLElement {
  return facts([
    ["Players", `${count(room.num_players)} of ${count(room.max_players)}, ${count(room.num_players_away)} away`],
    ["Spectators", count(room.num_spectators)],
    ["State", stateOf(room) || "open"],
    ["Tick", `${count(room.tick)}, ${count(room.ticks_per_second)} per second${room.rate < 1_000 ? `, slowed to ${room.rate / 10} %` : ""}`],
    ["Late, skipped, overrun", `${count(room.late)}, ${count(room.skipped)}, ${count(room.overruns)}`],
    ["Objects", count(room.num_objects)],
    ["Memory", `${bytes(room.memory_bytes)}, of which ${bytes(room.world_bytes)} are its world`],
    ["Node", `${nameOf(room.node)}, thread ${room.thread}`],
    ["Metadata", room.metadata === undefined ? null : el("code", {}, pretty(room.metadata))],
    ["Parameters", room.params === undefined ? null : el("code", {}, pretty(room.params))],
  ]);
}

function push(values: number[] | undefined, value: number): void {
  values?.push(value);
  if (values && values.length > POINTS_MAX) values.shift();
}
