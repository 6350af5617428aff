/**
 * The payloads of the server's demo publisher, as CONTRACT.md defines them. Every payload is validated
 * here: the result is null for a payload that violates the contract.
 */

export interface Listing {
  readonly symbol: string;
  readonly name: string;
}

/** The twelve symbols of the demo market, in the order of the page. */
export const LISTINGS: readonly Listing[] = [
  { symbol: "ACME", name: "Acme" },
  { symbol: "DUNL", name: "Dunlin" },
  { symbol: "KNOT", name: "Red Knot" },
  { symbol: "PLVR", name: "Plover" },
  { symbol: "SNIP", name: "Snipe" },
  { symbol: "REDS", name: "Redshank" },
  { symbol: "GODW", name: "Godwit" },
  { symbol: "TURN", name: "Turnstone" },
  { symbol: "WHIM", name: "Whimbrel" },
  { symbol: "CURL", name: "Curlew" },
  { symbol: "STNT", name: "Little Stint" },
  { symbol: "OYST", name: "Oystercatcher" },
];

export const QUOTES_CHANNEL = "quotes:all";
export const LOBBY_CHANNEL = "lobby:visitors";

/** Publications the server keeps per symbol (`history_size` of the namespace `ticker`). */
export const HISTORY_SIZE = 120;
/** Publications per second and symbol, for the estimate shown while the network is cut. */
export const TICKS_PER_SECOND = 5;

/** The tag that the latest lane puts on a publication which follows skipped ones. */
export const SKIPPED_TAG = "skipped";

export function tickerChannel(symbol: string): string {
  return `ticker:${symbol}`;
}

export interface Tick {
  readonly price: number;
  readonly changePct: number;
  readonly volume: number;
  readonly timeMs: number;
}

export function parseTick(payload: unknown, symbol: string): Tick | null {
  if (!isRecord(payload) || payload["symbol"] !== symbol) return null;
  const price = finite(payload["price"]);
  const changePct = finite(payload["change_pct"]);
  const volume = finite(payload["volume"]);
  const timeMs = finite(payload["time_ms"]);
  if (price === null || changePct === null || volume === null || timeMs === null) return null;
  return { price, changePct, volume, timeMs };
}

export interface Quotes {
  /** Mean price of the symbols: the level of the flock index. */
  readonly mean: number;
  readonly timeMs: number;
}

export function parseQuotes(payload: unknown): Quotes | null {
  if (!isRecord(payload) || !isRecord(payload["quotes"])) return null;
  const timeMs = finite(payload["time_ms"]);
  if (timeMs === null) return null;
  let sum = 0;
  for (const { symbol } of LISTINGS) {
    const price = finite(payload["quotes"][symbol]);
    if (price === null) return null;
    sum += price;
  }
  return { mean: sum / LISTINGS.length, timeMs };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function finite(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
