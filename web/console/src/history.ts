/** The states of the nodes over the last minutes, and rates between two of them. */

import type { Histogram, NodeState, Status } from "./types";

/** How often the nodes are asked. */
export const INTERVAL_MS = 2000;
const POINTS_MAX = 300;

export interface Point {
  time_s: number;
  /** `null` before the second answer of a node. */
  publications: number | null;
  deliveries: number | null;
  written_bytes: number | null;
  sessions: number;
  p50_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
}

/** Rates of one node since its state before. */
export interface NodeRates {
  publications: number;
  deliveries: number;
  written_bytes: number;
}

export class History {
  readonly points: Point[] = [];
  /** Busy percent by shard, parallel to `points`. A label has the name of the node if there are several. */
  readonly shards = new Map<string, (number | null)[]>();
  status: Status | null = null;
  readonly rates = new Map<string, NodeRates>();
  private before = new Map<string, NodeState>();

  push(status: Status): void {
    this.status = status;
    const sums = { publications: 0, deliveries: 0, written_bytes: 0 };
    let sessions = 0;
    const recent: number[] = [];
    let bounds: number[] = [];
    this.rates.clear();
    for (const node of status.nodes) {
      sessions += node.sessions.open;
      const before = this.before.get(node.uid);
      if (!before || node.time_ms <= before.time_ms) continue;
      const seconds = (node.time_ms - before.time_ms) / 1000;
      const per = (pick: (node: NodeState) => number) => Math.max(0, pick(node) - pick(before)) / seconds;
      const rates = {
        publications: per((node) => node.traffic.publications),
        deliveries: per((node) => node.traffic.deliveries),
        written_bytes: per((node) => node.traffic.written_bytes),
      };
      this.rates.set(node.uid, rates);
      sums.publications += rates.publications;
      sums.deliveries += rates.deliveries;
      sums.written_bytes += rates.written_bytes;
      bounds = node.publish_to_socket.bounds_us;
      node.publish_to_socket.buckets.forEach((number, index) => {
        const added = Math.max(0, number - (before.publish_to_socket.buckets[index] ?? 0));
        recent[index] = (recent[index] ?? 0) + added;
      });
    }
    const at = (share: number) => quantile({ bounds_us: bounds, buckets: recent }, share);
    const rates = this.rates.size > 0 ? sums : { publications: null, deliveries: null, written_bytes: null };
    this.points.push({ time_s: Date.now() / 1000, sessions, ...rates, p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) });
    this.pushShards(status);
    if (this.points.length > POINTS_MAX) {
      this.points.shift();
      for (const values of this.shards.values()) values.shift();
    }
    this.before = new Map(status.nodes.map((node) => [node.uid, node]));
  }

  private pushShards(status: Status): void {
    const place = this.points.length - 1;
    for (const node of status.nodes) {
      const prefix = status.nodes.length > 1 ? `${nameOf(node)} ` : "";
      for (const shard of node.shards) {
        const label = `${prefix}shard ${shard.shard}`;
        let values = this.shards.get(label);
        if (!values) this.shards.set(label, (values = Array<number | null>(place).fill(null)));
        values[place] = shard.busy_percent;
      }
    }
    for (const values of this.shards.values()) values[place] ??= null;
  }
}

export function nameOf(node: { name: string; uid: string }): string {
  return node.name || node.uid;
}

/** The value below which a share of the observations is, in milliseconds; within a bucket they count as evenly spread. */
export function quantile({ bounds_us, buckets }: Histogram, share: number): number | null {
  const total = buckets.reduce((sum, number) => sum + number, 0);
  if (total === 0) return null;
  let rest = total * share;
  for (const [index, number] of buckets.entries()) {
    if (rest <= number && number > 0) {
      const low = index === 0 ? 0 : bounds_us[index - 1] ?? 0;
      const high = bounds_us[index] ?? low;
      return (low + ((high - low) * rest) / number) / 1000;
    }
    rest -= number;
  }
  return (bounds_us.at(-1) ?? 0) / 1000;
}
