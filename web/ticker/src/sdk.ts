/** The official SDK in one of its two builds, with one interface to open clients and read payloads. */

import { Centrifuge, type Options } from "centrifuge";
import type { Network } from "./network";

export type Encoding = "json" | "protobuf";

export interface Sdk {
  readonly encoding: Encoding;
  /** A client, not connected yet. With a network, its socket can be cut and is counted. `options` are those of the SDK. */
  client(network: Network | null, options?: Partial<Options>): Centrifuge;
  /** The payload of a publication as a value, or null if it is not JSON. */
  payload(data: unknown): unknown;
  /** A value as the payload of a publication. */
  encoded(value: unknown): unknown;
}

export async function loadSdk(encoding: Encoding, endpoint: string, name = "ticker"): Promise<Sdk> {
  const Client = encoding === "protobuf" ? await loadProtobufClient() : Centrifuge;
  return {
    encoding,
    client: (network, options = {}) =>
      new Client(endpoint, {
        ...options,
        name,
        // Visitors wait for the page, so it retries sooner than the SDK's maximum of 20 s.
        maxReconnectDelay: 4000,
        ...(network === null
          ? {}
          : { websocket: network.socketClass(), networkEventTarget: network.events }),
      }),
    payload: encoding === "protobuf" ? decodeBytes : (data) => data,
    encoded: encoding === "protobuf" ? (value) => encoder.encode(JSON.stringify(value)) : (value) => value,
  };
}

/** The encoding and the endpoint from the page's address. */
export function pageOptions(location: Location, unasked: Encoding = "json"): { encoding: Encoding; endpoint: string } {
  const query = new URLSearchParams(location.search);
  const asked = query.get("encoding");
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return {
    encoding: asked === "json" || asked === "protobuf" ? asked : unasked,
    endpoint:
      developmentEndpoint(query.get("ws"), location.hostname) ??
      `${scheme}//${location.host}/connection/websocket`,
  };
}

/** `?ws=` works only on a page from localhost, so that a link cannot direct visitors to another server. */
function developmentEndpoint(address: string | null, hostname: string): string | null {
  if (address === null || !["127.0.0.1", "localhost", "[::1]"].includes(hostname)) return null;
  try {
    const url = new URL(address);
    return url.protocol === "ws:" || url.protocol === "wss:" ? url.href : null;
  } catch {
    return null;
  }
}

async function loadProtobufClient(): Promise<typeof Centrifuge> {
  // A variable prevents the bundler from following the path, because protobuf.js is bundled separately.
  const address = "./protobuf.js";
  const module = (await import(address)) as { Centrifuge: unknown };
  // Both builds have the same public interface, but TypeScript sees two unrelated classes.
  return module.Centrifuge as typeof Centrifuge;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

function decodeBytes(data: unknown): unknown {
  if (!(data instanceof Uint8Array)) return null;
  try {
    return JSON.parse(decoder.decode(data));
  } catch {
    return null;
  }
}
