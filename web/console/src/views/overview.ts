/** What an operator looks at first: what needs attention, rates, delays, load. */

import { el, fill, setText } from "../dom";
import { bytes, count, duration, ms, percent, rate } from "../format";
import { nameOf } from "../history";
import { Plot } from "../plot";
import { Table } from "../table";
import type { NodeState, Status } from "../types";
import { type Context, hash, type View } from "../view";

/** From these values on, something needs attention. */
const BUSY_PERCENT = 90;
const BEHIND_MS = 1000;
const FREE_BYTES_MIN = 1e9;

/** Codes with which the server closes sessions, as the client protocol names them. */
const CLOSE_REASONS: Record<string, string> = {
  "3000": "connection closed",
  "3001": "shutdown",
  "3004": "internal error",
  "3005": "connection expired",
  "3006": "subscription expired",
  "3008": "slow: its queue was full",
  "3009": "write error",
  "3010": "insufficient state",
  "3011": "force reconnect",
  "3012": "no pong",
  "3013": "too many requests",
  "3500": "invalid token",
  "3501": "bad request",
  "3502": "stale: no connect",
  "3503": "force disconnect",
  "3504": "connection limit",
  "3505": "channel limit",
  "3506": "inappropriate protocol",
  "3507": "permission denied",
  "3508": "not available",
  "3509": "too many errors",
};

interface Concern {
  text: string;
  where: string[] | null;
}

export function overview(context: Context): View {
  const concerns = el("ul", { class: "concerns" });
  const calm = el("p", { class: "calm" }, "Nothing needs attention.");
  const tiles = el("div", { class: "tiles" });
  const figures = new Map<string, HTMLElement>();
  const tile = (title: string) => {
    const value = el("strong", {}, "–");
    figures.set(title, value);
    tiles.append(el("div", { class: "panel tile" }, el("span", {}, title), value));
  };
  const TILES = ["Sessions", "Users", "Channels", "Publications / s", "Deliveries / s", "Written / s", "Publish → socket p99", "Behind > 100 ms"];
  TILES.forEach(tile);
  const set = (title: string, text: string) => setText(figures.get(title) as HTMLElement, text);

  const traffic = new Plot("Publications and deliveries per second", rate);
  const delay = new Plot("Publish → last socket", ms);
  const sessions = new Plot("Sessions", count, true);
  const load = new Plot("Load of the shards", percent);
  const nodes = new Table<NodeState>(
    "Nodes",
    [
      { title: "Node", cell: (node) => nameOf(node) },
      { title: "Version", cell: (node) => node.version },
      { title: "Up", cell: (node) => duration(node.uptime_s) },
      { title: "Sessions", cell: (node) => count(node.sessions.open), isNumber: true },
      { title: "Publications / s", cell: (node) => rate(context.history.rates.get(node.uid)?.publications ?? 0), isNumber: true },
      { title: "Deliveries / s", cell: (node) => rate(context.history.rates.get(node.uid)?.deliveries ?? 0), isNumber: true },
      { title: "Rooms", cell: (node) => count(node.rooms.open), isNumber: true },
      { title: "CPU", cell: (node) => percent(node.cpu_percent), isNumber: true },
      { title: "Memory", cell: (node) => bytes(node.memory_bytes), isNumber: true },
      { title: "Busiest shard", cell: (node) => percent(Math.max(0, ...node.shards.map((shard) => shard.busy_percent))), isNumber: true },
    ],
    (node) => node.uid,
    "No node has answered yet.",
  );
  const closes = new Table<[string, number]>(
    "Sessions closed by the server",
    [
      { title: "Code", cell: ([code]) => code },
      { title: "Reason", cell: ([code]) => CLOSE_REASONS[code] ?? "set by the application" },
      { title: "Since the start", cell: ([, number]) => count(number), isNumber: true },
    ],
    ([code]) => code,
    "The server has closed no session.",
  );
  const element = el(
    "div",
    {},
    el("section", { class: "panel attention", "aria-label": "What needs attention" }, concerns, calm),
    tiles,
    el("div", { class: "plots" }, traffic.element, delay.element, sessions.element, load.element),
    el("h2", {}, "Nodes"),
    nodes.element,
    el("h2", {}, "Sessions that the server closed, by reason"),
    closes.element,
  );

  function onStatus(): void {
    const { points, status, shards } = context.history;
    const point = points.at(-1);
    if (!status || !point) return;
    const found = concernsOf(status);
    fill(concerns, ...found.map(({ text, where }) => el("li", {}, where ? el("a", { href: hash(...where) }, text) : text)));
    calm.hidden = found.length > 0;
    const sum = (pick: (node: NodeState) => number) => status.nodes.reduce((all, node) => all + pick(node), 0);
    set("Sessions", count(point.sessions));
    set("Users", count(sum((node) => node.sessions.users)));
    set("Channels", count(sum((node) => node.sessions.channels)));
    set("Publications / s", shown(point.publications, rate));
    set("Deliveries / s", shown(point.deliveries, rate));
    set("Written / s", shown(point.written_bytes, bytes));
    set("Publish → socket p99", shown(point.p99_ms, ms));
    set("Behind > 100 ms", count(sum((node) => node.sessions.behind[2] ?? 0)));
    const times = points.map(({ time_s }) => time_s);
    traffic.update(times, [
      { label: "publications", values: points.map((each) => each.publications) },
      { label: "deliveries", values: points.map((each) => each.deliveries) },
    ]);
    delay.update(times, [
      { label: "p50", values: points.map((each) => each.p50_ms) },
      { label: "p95", values: points.map((each) => each.p95_ms) },
      { label: "p99", values: points.map((each) => each.p99_ms) },
    ]);
    sessions.update(times, [{ label: "sessions", values: points.map((each) => each.sessions) }]);
    load.update(times, [...shards].map(([label, values]) => ({ label, values })));
    nodes.update(status.nodes);
    const closed = new Map<string, number>();
    for (const node of status.nodes) {
      for (const [code, number] of Object.entries(node.sessions.closes)) closed.set(code, (closed.get(code) ?? 0) + number);
    }
    closes.update([...closed].sort(([, one], [, other]) => other - one));
  }

  onStatus();
  return {
    title: "Overview",
    element,
    onStatus,
    stop: () => [traffic, delay, sessions, load].forEach((plot) => plot.stop()),
  };
}

function shown(value: number | null, format: (value: number) => string): string {
  return value === null ? "–" : format(value);
}

/** What an operator should look at, with where to look. */
function concernsOf(status: Status): Concern[] {
  const found: Concern[] = status.missing.map(({ node, why }) => ({ text: `${node || "Nodes"}: ${why}`, where: ["cluster"] }));
  for (const node of status.nodes) {
    const name = status.nodes.length > 1 ? `${nameOf(node)}: ` : "";
    for (const shard of node.silent_shards) found.push({ text: `${name}shard ${shard} does not answer`, where: null });
    const busy = node.shards.filter((shard) => shard.busy_percent >= BUSY_PERCENT).map(({ shard }) => shard);
    if (busy.length > 0) found.push({ text: `${name}busy for more than ${BUSY_PERCENT} % of the time: shard ${busy.join(", ")}`, where: null });
    const behind = node.sessions.behind[3] ?? 0;
    if (behind > 0) found.push({ text: `${name}sessions behind by more than ${ms(BEHIND_MS)}: ${count(behind)}`, where: ["sessions"] });
    if (node.storage?.fault) found.push({ text: `${name}the storage has stopped: ${node.storage.fault}`, where: ["storage"] });
    const free = node.storage?.free_bytes;
    if (typeof free === "number" && free < FREE_BYTES_MIN) found.push({ text: `${name}${bytes(free)} of the disk are free`, where: ["storage"] });
    if (node.cluster && !node.cluster.ready) found.push({ text: `${name}the cluster is not ready`, where: ["cluster"] });
    for (const { stream, why } of node.cluster?.unusable_streams ?? []) {
      found.push({ text: `${name}stream ${stream}: ${why}`, where: ["cluster"] });
    }
  }
  return found;
}
