/** Tables whose rows are kept between updates, so that focus and selections survive. On a phone each row is a card. */

import { add, type Child, el, fill } from "./dom";

export interface Column<Row> {
  title: string;
  cell(row: Row): Child;
  /** A number, which stands at the right. */
  isNumber?: boolean;
}

export class Table<Row> {
  readonly element: HTMLElement;
  private readonly body: HTMLTableSectionElement;
  private readonly empty: HTMLElement;
  private readonly rows = new Map<string, { row: HTMLTableRowElement; shown: string[] }>();

  constructor(
    private readonly caption: string,
    private readonly columns: Column<Row>[],
    private readonly key: (row: Row) => string,
    emptyText: string,
  ) {
    const heads = columns.map(({ title, isNumber }) => el("th", { scope: "col", class: isNumber ? "number" : null }, title));
    this.body = el("tbody");
    this.empty = el("p", { class: "empty", hidden: true }, emptyText);
    const head = el("thead", {}, el("tr", {}, ...heads));
    const table = el("table", {}, el("caption", { class: "unseen" }, this.caption), head, this.body);
    this.element = el("div", { class: "table" }, table, this.empty);
  }

  update(rows: Row[]): void {
    const wanted = new Set<string>();
    let place = 0;
    for (const row of rows) {
      const key = this.key(row);
      if (wanted.has(key)) continue;
      wanted.add(key);
      let known = this.rows.get(key);
      if (!known) this.rows.set(key, (known = { row: el("tr"), shown: [] }));
      this.show(known, row);
      const there = this.body.children[place];
      if (there !== known.row) this.body.insertBefore(known.row, there ?? null);
      place += 1;
    }
    for (const [key, { row }] of this.rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    this.empty.hidden = wanted.size > 0;
  }

  /** Replaces the cells whose text differs. Nodes in cells stay as they are while their text is the same. */
  private show(known: { row: HTMLTableRowElement; shown: string[] }, row: Row): void {
    this.columns.forEach(({ title, cell, isNumber }, index) => {
      const content = cell(row);
      const text = content instanceof Node ? `${content.nodeName}:${content.textContent}` : String(content ?? "");
      if (known.shown[index] === text && known.row.children[index]) return;
      known.shown[index] = text;
      const there = known.row.children[index];
      if (there) {
        fill(there, content);
      } else {
        const made = el("td", { class: isNumber ? "number" : null, "data-title": title });
        add(made, [content]);
        known.row.append(made);
      }
    });
  }
}

/** Names and values. */
export function facts(pairs: [string, Child][]): HTMLElement {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
