/** The twelve ticker channels and the quotes channel: subscribing, filling, checking, recovering. */

import type { Centrifuge, PublicationContext, SubscribedContext, Subscription } from "centrifuge";
import {
  HISTORY_SIZE,
  LISTINGS,
  type Listing,
  parseQuotes,
  parseTick,
  QUOTES_CHANNEL,
  type Quotes,
  SKIPPED_TAG,
  tickerChannel,
} from "./contract";
import { type Point, Series } from "./series";
import type { Sdk } from "./sdk";

export interface Stock {
  readonly listing: Listing;
  readonly series: Series;
}

/** How one channel returned after a lost connection. */
export interface ChannelReturn {
  readonly symbol: string;
  readonly recovered: number;
  readonly missing: number;
  /** False if the server could not recover and the page loaded history instead. */
  readonly complete: boolean;
  readonly restarted: boolean;
}

export interface MarketEvents {
  ticked(stock: Stock, live: boolean): void;
  filled(stock: Stock): void;
  returned(channel: ChannelReturn): void;
  quoted(quotes: Quotes): void;
  failed(channel: string, message: string): void;
}

export class Market {
  readonly stocks: readonly Stock[];
  /** Publications pushed to the page, live or recovered; pages of history are not counted. */
  publications = 0;
  /** Publications that violate the contract: counted and ignored. */
  malformed = 0;
  /** Publications of the latest lane with the tag for skipped predecessors. */
  skippedTags = 0;
  /** Ages of publications on arrival in ms, from the clocks of server and page, since the last read. */
  private agesMs: number[] = [];

  constructor(
    private readonly client: Centrifuge,
    private readonly sdk: Sdk,
    private readonly events: MarketEvents,
  ) {
    this.stocks = LISTINGS.map((listing) => ({ listing, series: new Series(HISTORY_SIZE) }));
    for (const stock of this.stocks) this.follow(stock);
    this.followQuotes();
  }

  total(of: "missing" | "duplicates" | "checked"): number {
    return this.stocks.reduce((sum, { series }) => sum + series[of], 0);
  }

  takeAgesMs(): number[] {
    const ages = this.agesMs;
    this.agesMs = [];
    return ages;
  }

  private follow(stock: Stock): void {
    const subscription = this.client.newSubscription(tickerChannel(stock.listing.symbol));
    // The SDK delivers recovered publications directly after `subscribed`, in the same task.
    let recovering = false;
    let recovered = 0;
    subscription.on("subscribed", (context) => {
      if (!context.wasRecovering || !context.recovered) {
        void this.fill(stock, subscription, context);
        return;
      }
      const missingBefore = stock.series.missing;
      recovering = true;
      recovered = 0;
      queueMicrotask(() => {
        recovering = false;
        this.events.returned({
          symbol: stock.listing.symbol,
          recovered,
          missing: stock.series.missing - missingBefore,
          complete: true,
          restarted: false,
        });
      });
    });
    subscription.on("publication", (context) => {
      this.publications += 1;
      const point = this.point(stock, context, recovering);
      if (point === null || !stock.series.append(point)) return;
      if (recovering) recovered += 1;
      else if (this.agesMs.length < 1000) this.agesMs.push(Date.now() - point.timeMs);
      this.events.ticked(stock, !recovering);
    });
    this.reportErrors(subscription);
    subscription.subscribe();
  }

  private async fill(stock: Stock, subscription: Subscription, context: SubscribedContext) {
    const { series, listing } = stock;
    const missingBefore = series.missing;
    const outcome = series.beginAt(context.streamPosition ?? { offset: 0, epoch: "" });
    try {
      const history = await subscription.history({ limit: HISTORY_SIZE, reverse: true });
      const points = history.publications
        .map((publication) => this.point(stock, publication, false))
        .filter((point) => point !== null);
      series.fill(points.reverse());
    } catch (error) {
      this.events.failed(subscription.channel, `history: ${messageOf(error)}`);
      return;
    }
    this.events.filled(stock);
    if (outcome === "first") return;
    this.events.returned({
      symbol: listing.symbol,
      recovered: 0,
      missing: series.missing - missingBefore,
      complete: false,
      restarted: outcome === "restarted",
    });
  }

  private followQuotes(): void {
    const subscription = this.client.newSubscription(QUOTES_CHANNEL);
    subscription.on("publication", (context) => {
      this.publications += 1;
      const quotes = parseQuotes(this.sdk.payload(context.data));
      if (quotes === null) {
        this.malformed += 1;
        return;
      }
      if (context.tags?.[SKIPPED_TAG] !== undefined) this.skippedTags += 1;
      this.events.quoted(quotes);
    });
    this.reportErrors(subscription);
    subscription.subscribe();
  }

  private point(stock: Stock, context: PublicationContext, recovered: boolean): Point | null {
    const tick = parseTick(this.sdk.payload(context.data), stock.listing.symbol);
    if (tick === null || context.offset === undefined) {
      this.malformed += 1;
      return null;
    }
    return { ...tick, offset: context.offset, recovered };
  }

  private reportErrors(subscription: Subscription): void {
    subscription.on("error", ({ error }) => this.events.failed(subscription.channel, error.message));
    subscription.on("unsubscribed", ({ code, reason }) => {
      this.events.failed(subscription.channel, `unsubscribed: ${code} ${reason}`);
    });
  }
}

function messageOf(error: unknown): string {
  if (typeof error === "object" && error !== null && "message" in error) {
    return String(error.message);
  }
  return String(error);
}
