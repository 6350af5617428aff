/** The nodes, their connections and streams, and what went wrong between them. */

import { el } from "../dom";
import { count, duration } from "../format";
import { nameOf } from "../history";
import { Table } from "../table";
import type { ClusterState, NodeState } from "../types";
import { type Context, type View } from "../view";

interface Row {
  key: string;
  node: string;
  what: string;
  value: string;
}

/** The counters in the order of their meaning for an operator, with words. */
const COUNTERS: [string, string][] = [
  ["gaps", "gaps in channels"],
  ["filled", "messages read to fill gaps"],
  ["lost_tails", "ends that were lost and found by a comparison"],
  ["truncations", "truncated streams"],
  ["holes", "missing messages"],
  ["interrupted", "channels whose subscribers had to resubscribe"],
  ["overflows", "overflows of the queue of NATS messages"],
  ["retries", "messages sent again"],
  ["abandoned", "publications given up"],
  ["in_flight", "messages not acknowledged yet"],
  ["followed", "channels followed"],
  ["requests_queued", "requests that wait"],
  ["requests_refused", "requests refused because the queue was full"],
];

export function cluster(context: Context): View {
  const alone = el("p", { class: "hint", hidden: true }, "This node has no cluster.");
  const nodes = new Table<NodeState>(
    "Nodes",
    [
      { title: "Node", cell: (node) => nameOf(node) },
      { title: "Id", cell: ({ uid }) => el("code", {}, uid) },
      { title: "Version", cell: ({ version }) => version },
      { title: "Up", cell: ({ uptime_s }) => duration(uptime_s) },
      { title: "State", cell: ({ cluster: state }) => (state ? stateText(state) : "no cluster") },
      { title: "Knows", cell: ({ cluster: state }) => (state ? `${count(state.live.length)} live nodes` : ""), isNumber: true },
      { title: "Connections opened", cell: ({ cluster: state }) => (state ? Object.entries(state.connections_opened).map(([name, opened]) => `${name} ${opened}`).join(", ") : "") },
    ],
    ({ uid }) => uid,
    "No node has answered yet.",
  );
  const streams = new Table<Row>(
    "Streams that cannot be used",
    [
      { title: "Node", cell: ({ node }) => node },
      { title: "Stream", cell: ({ what }) => what },
      { title: "Why", cell: ({ value }) => value },
    ],
    ({ key }) => key,
    "Every stream can be used.",
  );
  const counters = new Table<Row>(
    "Counters",
    [
      { title: "Node", cell: ({ node }) => node },
      { title: "What", cell: ({ what }) => what },
      { title: "Number", cell: ({ value }) => value, isNumber: true },
    ],
    ({ key }) => key,
    "Nothing is counted.",
  );
  const details = el("div", {}, el("h2", {}, "Streams that cannot be used"), streams.element, el("h2", {}, "Since the start"), counters.element);
  const element = el("div", {}, alone, nodes.element, details);

  function onStatus(): void {
    const { status } = context.history;
    if (!status) return;
    const clustered = status.nodes.filter((node) => node.cluster);
    alone.hidden = clustered.length > 0;
    details.hidden = clustered.length === 0;
    nodes.update(status.nodes);
    streams.update(
      clustered.flatMap((node) => (node.cluster?.unusable_streams ?? []).map(({ stream, why }) => ({ key: `${node.uid} ${stream}`, node: nameOf(node), what: stream, value: why }))),
    );
    counters.update(
      COUNTERS.flatMap(([field, what]) => clustered.map((node) => ({ key: `${field} ${node.uid}`, node: nameOf(node), what, value: count(Number(node.cluster?.[field] ?? 0)) }))),
    );
  }

  onStatus();
  return { title: "Cluster", element, onStatus };
}

function stateText({ ready }: ClusterState): HTMLElement {
  return el("span", { class: ready ? "good" : "bad" }, ready ? "ready" : "not ready");
}
