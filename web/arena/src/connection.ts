/** The state of the connection and of the room, the switch between encodings, and the simulated cable that can be cut. */

import type { Room } from "@dunlin/room-client";
import { byId, setText } from "../../ticker/src/dom";
import type { Network } from "../../ticker/src/network";
import type { Encoding, Sdk } from "../../ticker/src/sdk";
import { parseNodeName } from "../../ticker/src/contract";

type State = "connecting" | "cut" | "joining" | "joined" | "disconnected";

const WORDS: Record<State, string> = {
  connecting: "Connecting",
  cut: "Network cut",
  joining: "Joining",
  joined: "In the room",
  disconnected: "Disconnected",
};
const VEILS: Record<State, string> = {
  connecting: "Connecting\u2026",
  cut: "The network is cut",
  joining: "Joining the room\u2026",
  joined: "",
  disconnected: "Disconnected",
};
/** The CSS classes of the pill, shared with the ticker page. */
const PILLS: Record<State, string> = {
  connecting: "connecting", cut: "cut", joining: "connecting", joined: "connected", disconnected: "disconnected",
};

export class Connection {
  private readonly pill = byId("state", HTMLElement);
  private readonly stage = byId("stage", HTMLElement);

  constructor(encoding: Encoding, sdk: Sdk, private readonly client: ReturnType<Sdk["client"]>, private readonly room: Room, private readonly network: Network) {
    setText(byId("encoding", HTMLElement), encoding === "json" ? "JSON" : "Protobuf");
    for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-encoding]")) {
      const query = new URLSearchParams(location.search);
      query.set("encoding", link.dataset["encoding"] ?? "json");
      link.href = `?${query}`;
      if (link.dataset["encoding"] === encoding) link.setAttribute("aria-current", "true");
    }
    for (const name of ["connecting", "connected", "disconnected"] as const) client.on(name, () => this.show());
    client.on("connected", ({ data }) => this.showNode(parseNodeName(sdk.payload(data))));
    room.on("joined", () => this.show());
    room.on("left", ({ reason, rejoins }) => this.show(rejoins ? null : reason));
    room.on("snapshot", ({ full }) => {
      if (full) this.show();
    });
    byId("rejoin", HTMLButtonElement).addEventListener("click", () => {
      room.join();
      this.show();
    });
    const cut = byId("cut", HTMLButtonElement);
    cut.addEventListener("click", () => {
      if (network.cut) network.restore();
      else network.cutOff();
      cut.setAttribute("aria-pressed", String(network.cut));
      setText(cut, network.cut ? "Restore network" : "Cut network");
      this.show();
    });
    this.show();
  }

  private show(refusal: string | null = null): void {
    const state = this.state();
    this.pill.dataset["state"] = PILLS[state];
    this.stage.dataset["state"] = state;
    setText(byId("state-word", HTMLElement), WORDS[state]);
    byId("rejoin", HTMLButtonElement).hidden = refusal === null;
    // The overlay keeps its text while it fades out.
    if (state !== "joined") setText(byId("veil-text", HTMLElement), refusal === null ? VEILS[state] : `Not in the room: ${refusal}`);
  }

  /** In a cluster, the node of the connection. */
  private showNode(name: string | null): void {
    const node = byId("node", HTMLElement);
    node.hidden = name === null;
    node.dataset["node"] = name ?? "";
    setText(node, name ?? "");
  }

  private state(): State {
    if (this.network.cut) return "cut";
    if (this.client.state !== "connected") return this.client.state === "connecting" ? "connecting" : "disconnected";
    return this.room.state === "joined" && this.room.replica.tick > 0 ? "joined" : "joining";
  }
}
