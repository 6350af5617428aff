/** The nodes of the cluster, and the one that this page is connected to. Hidden without a cluster. */

import type { Centrifuge } from "centrifuge";
import { type ClusterNode, NODES_CHANNEL, parseNodes } from "./contract";
import { byId, element, setText } from "./dom";
import type { Sdk } from "./sdk";

export class ClusterPanel {
  private readonly panel = byId("cluster", HTMLElement);
  private readonly list = byId("nodes", HTMLElement);
  private readonly number = byId("nodes-count", HTMLElement);
  private readonly noun = byId("nodes-noun", HTMLElement);
  private readonly fact = byId("node-fact", HTMLElement);
  private readonly node = byId("node", HTMLElement);
  private nodes: readonly ClusterNode[] = [];
  private connectedTo: string | null = null;
  /** The node of the connection that is open, or was the last one. */
  private lastConnectedTo: string | null = null;
  private isFollowed = false;

  constructor(
    private readonly client: Centrifuge,
    private readonly sdk: Sdk,
    private readonly changed: (message: string) => void,
  ) {}

  /** Sets the node of the connection, or that the connection is lost. */
  connected(node: string | null): void {
    this.connectedTo = node;
    this.lastConnectedTo = node ?? this.lastConnectedTo;
    setText(this.node, node ?? "\u2013");
    this.node.dataset["node"] = node ?? "";
    if (node !== null && !this.isFollowed) this.follow();
    this.show();
  }

  private follow(): void {
    this.isFollowed = true;
    document.documentElement.dataset["cluster"] = "true";
    this.panel.hidden = false;
    this.fact.hidden = false;
    const subscription = this.client.newSubscription(NODES_CHANNEL, { since: { offset: 0, epoch: "" } });
    subscription.on("publication", ({ data }) => {
      const nodes = parseNodes(this.sdk.payload(data));
      if (nodes === null) return;
      this.logChanges(nodes);
      this.nodes = nodes;
      this.show();
    });
    subscription.subscribe();
  }

  private logChanges(nodes: readonly ClusterNode[]): void {
    const live = new Map(this.nodes.map((node) => [node.name, node.live]));
    for (const node of nodes) {
      const was = live.get(node.name);
      if (was !== undefined && was !== node.live) this.changed(`${node.name} is ${node.live ? "live again" : "down"}`);
    }
  }

  private show(): void {
    const live = this.nodes.filter((node) => node.live).length;
    this.number.dataset["count"] = String(live);
    setText(this.number, this.nodes.length === 0 ? "\u2013" : String(live));
    setText(this.noun, live === 1 ? "node is live" : "nodes are live");
    this.list.replaceChildren(...this.nodes.map((node) => this.row(node)));
  }

  private row({ name, live, pid }: ClusterNode): HTMLElement {
    const isLost = this.connectedTo === null && name === this.lastConnectedTo;
    const here = name === this.connectedTo ? "true" : isLost ? "lost" : "false";
    const note = !live ? "down" : { true: "this page is here", lost: "connection lost", false: "live" }[here];
    const row = element("li", "", element("span", "dot"), element("b", "", name), element("span", "node-note", note));
    if (live && pid !== null) row.append(element("code", "", `kill -9 ${pid}`));
    row.dataset["live"] = String(live);
    row.dataset["here"] = here;
    return row;
  }
}
