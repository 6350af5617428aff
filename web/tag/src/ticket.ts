/** A place in a room by matchmaking: a ticket, whose status is requested until it has a room. */

import type { Sdk } from "../../ticker/src/sdk";
import { fieldsOf, text } from "./events";
import { NAMESPACE } from "./rules";

/** Time between two requests for the status. The server places tickets ten times per second. */
const STATUS_MS = 200;
/** The user already has a ticket, whose status is requested instead. */
const CONFLICT = 409;

export class Ticket {
  private isCancelled = false;

  constructor(
    private readonly sdk: Sdk,
    private readonly client: ReturnType<Sdk["client"]>,
  ) {}

  /** The channel of the room. @throws Error with the reason; null after `cancel`. */
  async place(): Promise<string | null> {
    let answer = await this.call("dunlin.match", { namespace: NAMESPACE }).catch((error: unknown) => {
      if (fieldsOf(error)["code"] !== CONFLICT) throw error;
      return this.call("dunlin.match_status", { namespace: NAMESPACE });
    });
    while (!this.isCancelled) {
      const { status, channel, reason, ticket } = answer;
      if (status === "placed" || status === "joined") return text(channel);
      if (status === "ended") throw new Error(`no room was found: ${text(reason)}`);
      await new Promise((resolve) => setTimeout(resolve, STATUS_MS));
      answer = await this.call("dunlin.match_status", { ticket });
    }
    return null;
  }

  cancel(): void {
    this.isCancelled = true;
    // An error is ignored, because a ticket that has ended cannot be cancelled.
    this.call("dunlin.match_cancel", { namespace: NAMESPACE }).catch(() => {});
  }

  private async call(method: string, data: unknown): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.client.rpc(method, this.sdk.encoded(data));
    return fieldsOf(this.sdk.payload(answer.data));
  }
}
