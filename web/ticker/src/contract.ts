/**
 * The payloads of the demo's publisher, as CONTRACT.md defines them. Every payload is validated
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
export const CHAT_CHANNEL = "chat:visitors";
export const NODES_CHANNEL = "nodes:live";

/** Number of publications that the server keeps per symbol (`history_size` of the namespace `ticker`). */
export const HISTORY_SIZE = 120;
/** Number of chat messages that the page shows. The server keeps the same number (`history_size` of the namespace `chat`). */
export const CHAT_SIZE = 100;
/** Maximum length of a chat message in UTF-16 code units. */
export const CHAT_TEXT_MAX = 200;
/** Publications per second and symbol, for the estimate shown while the network is cut. */
export const TICKS_PER_SECOND = 5;

/** The tag of a publication in the latest lane that follows skipped ones. */
export const SKIPPED_TAG = "skipped";

export function tickerChannel(symbol: string): string {
  return `ticker:${symbol}`;
}

export interface Tick {
  /** Counts the publications of the symbol. */
  readonly number: number;
  readonly price: number;
  readonly changePct: number;
  readonly volume: number;
  readonly timeMs: number;
}

export function parseTick(payload: unknown, symbol: string): Tick | null {
  if (!isRecord(payload) || payload["symbol"] !== symbol) return null;
  const number = finite(payload["number"]);
  const price = finite(payload["price"]);
  const changePct = finite(payload["change_pct"]);
  const volume = finite(payload["volume"]);
  const timeMs = finite(payload["time_ms"]);
  if (number === null || price === null || changePct === null || volume === null || timeMs === null) return null;
  return { number, price, changePct, volume, timeMs };
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

export interface ChatMessage {
  /** The id of the message, which stays the same when it is sent again. */
  readonly id: string;
  readonly name: string;
  readonly text: string;
  readonly timeMs: number;
}

export function parseChatMessage(payload: unknown): ChatMessage | null {
  if (!isRecord(payload)) return null;
  const [id, name, text] = [payload["id"], payload["name"], payload["text"]];
  const timeMs = finite(payload["time_ms"]);
  if (typeof id !== "string" || typeof name !== "string" || typeof text !== "string" || timeMs === null) return null;
  if (id.length > 40 || name.length > 40 || text.length > CHAT_TEXT_MAX) return null;
  return { id, name, text, timeMs };
}

export interface ClusterNode {
  readonly name: string;
  readonly live: boolean;
  /** The id of its process; null if the process has ended, or if the publisher does not say. */
  readonly pid: number | null;
}

/** The nodes of a cluster, from a publication of `nodes:live`. */
export function parseNodes(payload: unknown): ClusterNode[] | null {
  if (!isRecord(payload) || !Array.isArray(payload["nodes"])) return null;
  const nodes: ClusterNode[] = [];
  for (const node of payload["nodes"]) {
    if (!isRecord(node) || typeof node["name"] !== "string" || typeof node["live"] !== "boolean") return null;
    nodes.push({ name: node["name"], live: node["live"], pid: finite(node["pid"]) });
  }
  return nodes;
}

/** The node of the connection, from the data of the connect reply; null without a cluster. */
export function parseNodeName(data: unknown): string | null {
  return isRecord(data) && typeof data["node"] === "string" ? data["node"] : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function finite(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
