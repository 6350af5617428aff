/** The recordings of rooms of all nodes. */

import { recordings as ask } from "../api";
import { el, fill } from "../dom";
import { bytes, count, time } from "../format";
import { nameOf } from "../history";
import { Table } from "../table";
import type { Recording, Recordings } from "../types";
import { type Context, link, noticePlace, Repeated, showMissing, Submitted, type View } from "../view";

const INTERVAL_MS = 10_000;

/** Of all rooms, or of the room with this name. */
export function recordings(context: Context, channel: string): View {
  const notice = noticePlace();
  const hint = el("p", { class: "hint" });
  const missing = noticePlace();
  const input = el("input", { id: "text", type: "search", autocomplete: "off", spellcheck: "false" });
  const submitted = new Submitted(() => input.value);
  const table = new Table<Recording>(
    "Recordings",
    [
      { title: "Room", cell: ({ channel, file, node }) => link(channel || file, "recordings", "file", file, ...placeOf(node)) },
      { title: "Game", cell: ({ simulation, fault }) => simulation ?? `cannot be read: ${fault ?? "unknown"}` },
      { title: "Opened", cell: ({ began_ms }) => time(began_ms) },
      { title: "Last written", cell: ({ written_ms }) => time(written_ms) },
      { title: "Size", cell: (recording) => bytes(recording.bytes), isNumber: true },
      { title: "Node", cell: ({ node }) => nameOf(node) },
      { title: "File", cell: ({ file }) => el("code", {}, file) },
    ],
    ({ file, node }) => `${node.uid} ${file}`,
    "There is no recording.",
  );
  const asked = new Repeated<Recordings>(context, notice, INTERVAL_MS, () => ask(submitted.value, channel), show);
  const form = el(
    "form",
    { class: "find", role: "search", onsubmit: (event) => (event.preventDefault(), submitted.take(), asked.now()) },
    el("label", { for: "text" }, "Part of a room's name"),
    input,
    el("button", {}, "Find"),
  );
  const crumbs = el("p", { class: "crumbs" }, link("Recordings", "recordings"), " / ", el("code", {}, channel), " · ", link("the room", "rooms", channel));

  /** How the address of a recording names its node: not at all if it is this one. An id is new after a restart. */
  // The id, because several nodes may have the same name.
  function placeOf({ uid }: Recording["node"]): string[] {
    return uid === context.history.status?.nodes[0]?.uid ? [] : [uid];
  }

  function show(answer: Recordings): void {
    table.update(answer.recordings);
    showMissing(missing, answer.missing);
    const places = answer.directories === 0
      ? "No namespace has room.record_directory, so rooms are not recorded. "
      : "A room is recorded on the node that runs it. ";
    const leftOut = answer.left_out > 0 ? `${count(answer.left_out)} older ones are not listed. ` : "";
    const cut = answer.cut > 0 ? "A directory has more files than are looked at. " : "";
    const unreadable = answer.unreadable.length > 0 ? `Cannot be read: ${answer.unreadable.join("; ")}.` : "";
    fill(hint, places, leftOut, cut, unreadable);
  }

  asked.now();
  return { title: "Recordings", element: el("div", {}, channel === "" ? form : crumbs, notice, missing, hint, table.element), stop: () => asked.stop() };
}
