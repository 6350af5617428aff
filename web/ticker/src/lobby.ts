/** The presence of the lobby channel, updated by joins and leaves and verified by its count. */

import type { Centrifuge, Subscription } from "centrifuge";
import { LOBBY_CHANNEL } from "./contract";

const CHECK_INTERVAL_MS = 2000;

export interface LobbyEvents {
  /** The set of present sessions has changed; `present` is live. */
  changed(present: ReadonlySet<string>): void;
  joined(client: string): void;
  left(client: string): void;
  /** Time from a command to its reply. */
  roundTrip(milliseconds: number): void;
}

export class Lobby {
  private readonly present = new Set<string>();
  private readonly subscription: Subscription;
  private mismatches = 0;

  constructor(
    client: Centrifuge,
    private readonly events: LobbyEvents,
  ) {
    this.subscription = joinLobby(client);
    this.subscription.on("subscribed", () => void this.load());
    this.subscription.on("join", ({ info }) => {
      if (this.present.has(info.client)) return;
      this.present.add(info.client);
      this.events.joined(info.client);
      this.events.changed(this.present);
    });
    this.subscription.on("leave", ({ info }) => {
      if (!this.present.delete(info.client)) return;
      this.events.left(info.client);
      this.events.changed(this.present);
    });
    setInterval(() => void this.check(), CHECK_INTERVAL_MS);
  }

  private async load(): Promise<void> {
    try {
      const { clients } = await this.subscription.presence();
      this.present.clear();
      for (const client of Object.keys(clients)) this.present.add(client);
      this.events.changed(this.present);
    } catch {
      // The connection was lost in the meantime. The next `subscribed` loads presence again.
    }
  }

  /**
   * Requests the count. Its reply provides the round-trip time. A count that differs twice in a row means that a join
   * or leave was missed, so presence is loaded. A single difference may be a join in flight.
   */
  private async check(): Promise<void> {
    if (this.subscription.state !== "subscribed" || document.hidden) return;
    try {
      const started = performance.now();
      const { numClients } = await this.subscription.presenceStats();
      this.events.roundTrip(performance.now() - started);
      this.mismatches = numClients === this.present.size ? 0 : this.mismatches + 1;
      if (this.mismatches >= 2) await this.load();
    } catch {
      // As above.
    }
  }
}

/** Subscribes a client to the lobby, so that it counts as a visitor. */
export function joinLobby(client: Centrifuge): Subscription {
  const subscription = client.newSubscription(LOBBY_CHANNEL);
  subscription.subscribe();
  return subscription;
}
