/** The rooms of the lobby, from publications of the lobby's channel, and their rows. */

import { byId, element, setText } from "../../ticker/src/dom";
import { count, plural } from "../../ticker/src/format";
import { hasPlace, type Listed, listingOf } from "./listed";

export class Listing {
  private readonly rooms = new Map<string, Listed>();
  private readonly rows = new Map<string, HTMLElement>();
  private readonly list = byId("rooms", HTMLElement);

  /** `pageOf` is the address of a room's page. */
  constructor(private readonly pageOf: (room: string, watches: boolean) => string) {
    this.draw();
  }

  /** Called when the subscription begins again, because its reply contains all rooms. */
  clear(): void {
    this.rooms.clear();
    this.draw();
  }

  /** Processes a publication of the lobby's channel. */
  take(data: unknown): void {
    const listing = listingOf(data);
    if (listing === null) return;
    if (listing.listed === null) this.rooms.delete(listing.room);
    else this.rooms.set(listing.room, listing.listed);
    this.draw();
  }

  private draw(): void {
    for (const [name, row] of this.rows) {
      if (this.rooms.has(name)) continue;
      row.remove();
      this.rows.delete(name);
    }
    const ranked = [...this.rooms].sort(([a, one], [b, other]) => other.players - one.players || a.localeCompare(b));
    for (const [place, [name, listed]] of ranked.entries()) {
      const row = this.rows.get(name) ?? this.make(name);
      write(row, listed);
      // Rows are moved only if the order has changed, so that the keyboard focus stays.
      if (this.list.children[place] !== row) this.list.insertBefore(row, this.list.children[place] ?? null);
    }
    byId("no-rooms", HTMLElement).hidden = ranked.length > 0;
    setText(byId("count", HTMLElement), plural(ranked.length, "room", "rooms"));
    this.list.dataset["count"] = String(ranked.length);
  }

  private make(name: string): HTMLElement {
    const link = (label: string, watches: boolean) => {
      const made = element("a", "chip", label);
      made.href = this.pageOf(name, watches);
      made.setAttribute("aria-label", `${label} ${name}`);
      return made;
    };
    const bar = element("span", "places-bar", element("span", ""));
    const title = element("span", "room-title", element("b", "room-name", name), element("span", "room-round"));
    const row = element("li", "room-row", title, element("span", "places"), bar, link("Join", false), link("Watch", true));
    row.dataset["room"] = name;
    this.rows.set(name, row);
    return row;
  }
}

function write(row: HTMLElement, listed: Listed): void {
  const { players, maxPlayers } = listed;
  const [places, round] = [row.querySelector<HTMLElement>(".places"), row.querySelector<HTMLElement>(".room-round")];
  const [bar, join] = [row.querySelector<HTMLElement>(".places-bar span"), row.querySelector("a")];
  if (round !== null) setText(round, listed.round);
  if (places !== null) setText(places, `${count(players)} of ${count(maxPlayers)} players`);
  if (bar !== null) bar.style.transform = `scaleX(${maxPlayers === 0 ? 0 : Math.min(1, players / maxPlayers)})`;
  join?.toggleAttribute("hidden", !hasPlace(listed));
  row.dataset["players"] = String(players);
}
