/** The views by the first part of the address. */

import type { Context, View } from "./view";
import { channels, oneChannel } from "./views/channels";
import { cluster } from "./views/cluster";
import { configuration } from "./views/configuration";
import { log } from "./views/log";
import { overview } from "./views/overview";
import { recordings } from "./views/recordings";
import { replay } from "./views/replay";
import { oneRoom, rooms } from "./views/rooms";
import { oneSession, sessions } from "./views/sessions";
import { storage } from "./views/storage";

interface Entry {
  title: string;
  open(context: Context, ...parts: string[]): View;
}

export const VIEWS: Record<string, Entry> = {
  overview: { title: "Overview", open: overview },
  sessions: {
    title: "Sessions",
    open: (context, by, text) => (by === "client" && text ? oneSession(context, text) : sessions(context, by, text)),
  },
  channels: { title: "Channels", open: (context, channel) => (channel ? oneChannel(context, channel) : channels(context)) },
  rooms: { title: "Rooms", open: (context, channel) => (channel ? oneRoom(context, channel) : rooms(context)) },
  recordings: {
    title: "Recordings",
    open: (context, by, text, node) => (by === "file" && text ? replay(context, text, node ?? "") : recordings(context, by === "of" ? (text ?? "") : "")),
  },
  cluster: { title: "Cluster", open: cluster },
  storage: { title: "Storage", open: storage },
  configuration: { title: "Configuration", open: configuration },
  log: { title: "Log", open: log },
};

/** The view that the parts of an address name; the overview if there is none. */
export function viewOf(context: Context, parts: string[]): { name: string; view: View } {
  const [first = "", ...rest] = parts;
  const name = Object.hasOwn(VIEWS, first) ? first : "overview";
  const entry = VIEWS[name] as Entry;
  return { name, view: entry.open(context, ...rest.filter((part) => part !== "")) };
}
