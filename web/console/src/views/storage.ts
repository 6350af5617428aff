/** The storage of each node. */

import { el, fill } from "../dom";
import { bytes, count, ms, time } from "../format";
import { nameOf } from "../history";
import { facts } from "../table";
import type { StorageState } from "../types";
import { type Context, type View } from "../view";

export function storage(context: Context): View {
  const list = el("div", { class: "columns" });
  function onStatus(): void {
    const { status } = context.history;
    if (!status) return;
    fill(
      list,
      ...status.nodes.map((node) => {
        const state = node.storage ? described(node.storage) : el("p", { class: "hint" }, "It has no storage: set storage.path.");
        return el("section", { class: "panel" }, el("h2", {}, nameOf(node)), state);
      }),
    );
  }
  onStatus();
  return { title: "Storage", element: el("div", {}, list), onStatus };
}

function described(state: StorageState): HTMLElement {
  const { counts } = state;
  const number = (field: string) => counts[field] ?? 0;
  const commits = number("commits");
  const backups = state.backups_made + state.backups_failed;
  return facts([
    ["State", el("span", { class: state.fault ? "bad" : "good" }, state.fault ? `stopped: ${state.fault}` : "works")],
    ["Publications kept", bytes(state.history_bytes)],
    ["Free on its disk", state.free_bytes === null ? "unknown" : bytes(state.free_bytes)],
    ["Publications stored", `${count(number("publications"))} (${bytes(number("publication_bytes"))})`],
    ["Group commits", `${count(commits)}, ${commits > 0 ? ms(state.commit_us / commits / 1000) : "–"} each`],
    ["Longest commit", ms(state.commit_us_max / 1000)],
    ["Synced", count(number("syncs"))],
    ["Pages read", count(number("pages"))],
    ["Refused: queue, space, limits", `${count(number("refused"))}, ${count(state.refused_low_space)}, ${count(state.refused_full)}`],
    ["Failed reads", count(number("read_faults"))],
    ["Evictions", count(number("evictions"))],
    ["Last backup", state.last_backup_s === null ? "none" : time(state.last_backup_s * 1000)],
    ["Backups since the start", backups === 0 ? "none" : `${count(state.backups_made)} made, ${count(state.backups_failed)} failed`],
  ]);
}
