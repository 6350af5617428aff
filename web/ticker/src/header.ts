/** The connection in the header: state, encoding, client id, round trip. */

import { byId, setText } from "./dom";
import { milliseconds, shortId } from "./format";
import type { Encoding } from "./sdk";

export type Connection = "connecting" | "connected" | "cut" | "disconnected";

const WORDS: Record<Connection, string> = {
  connecting: "Connecting",
  connected: "Connected",
  cut: "Network cut",
  disconnected: "Disconnected",
};

export class Header {
  private readonly pill = byId("state", HTMLElement);
  private readonly word = byId("state-word", HTMLElement);
  private readonly client = byId("client", HTMLElement);
  private readonly roundTrip = byId("round-trip", HTMLElement);

  constructor(encoding: Encoding) {
    setText(byId("encoding", HTMLElement), encoding === "json" ? "JSON" : "Protobuf");
    for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-encoding]")) {
      const query = new URLSearchParams(location.search);
      query.set("encoding", link.dataset["encoding"] ?? "json");
      link.href = `?${query}`;
      if (link.dataset["encoding"] === encoding) link.setAttribute("aria-current", "true");
    }
  }

  show(connection: Connection, client: string | null): void {
    this.pill.dataset["state"] = connection;
    document.documentElement.dataset["connection"] = connection;
    setText(this.word, WORDS[connection]);
    setText(this.client, client === null ? "\u2013" : shortId(client));
    this.client.dataset["client"] = client ?? "";
    if (connection !== "connected") setText(this.roundTrip, "\u2013");
  }

  showRoundTrip(value: number): void {
    setText(this.roundTrip, milliseconds(value));
  }
}
