/** Plots over time. */

import uPlot from "uplot";
import { el, setText } from "./dom";

export interface Line {
  label: string;
  values: (number | null)[];
}

/** Colors that differ from both backgrounds by at least 3:1, for lines. */
const COLORS = ["--plot-1", "--plot-2", "--plot-3", "--plot-4", "--plot-5", "--plot-6"];
const HEIGHT = 150;
/** The first points do not fill the plot. */
const SPAN_MIN_S = 60;
/** Steps of axes whose values are whole. */
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
/** More lines than this have no names below the plot. */
const NAMED_MAX = 6;

export class Plot {
  readonly element: HTMLElement;
  private readonly place: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly text: HTMLElement;
  private plot: uPlot | null = null;
  private labels = "";
  private width = 0;
  /** The times at the left and at the right. */
  private span: [number, number] = [0, SPAN_MIN_S];
  private readonly resized: ResizeObserver;
  private readonly scheme = matchMedia("(prefers-color-scheme: dark)");
  private readonly redraw = () => {
    this.labels = "";
  };

  constructor(
    title: string,
    private readonly format: (value: number) => string,
    private readonly isWhole = false,
  ) {
    this.place = el("div", { class: "plot-canvas", "aria-hidden": "true" });
    this.legend = el("ul", { class: "legend" });
    this.text = el("p", { class: "unseen" });
    this.element = el("figure", { class: "panel plot" }, el("figcaption", {}, title), this.place, this.legend, this.text);
    this.resized = new ResizeObserver(() => {
      const width = this.place.clientWidth;
      if (width === this.width || width === 0) return;
      this.width = width;
      this.plot?.setSize({ width, height: HEIGHT });
    });
    this.resized.observe(this.place);
    this.scheme.addEventListener("change", this.redraw);
  }

  stop(): void {
    this.resized.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    this.plot?.destroy();
  }

  update(times_s: number[], lines: Line[]): void {
    const labels = lines.map((line) => line.label).join("\n");
    const newest = times_s.at(-1) ?? 0;
    this.span = [Math.min(times_s[0] ?? 0, newest - SPAN_MIN_S), newest];
    const data: uPlot.AlignedData = [times_s, ...lines.map((line) => line.values)];
    if (!this.plot || labels !== this.labels) {
      this.plot?.destroy();
      this.labels = labels;
      this.width = this.place.clientWidth;
      this.plot = new uPlot(this.options(lines), data, this.place);
    } else {
      this.plot.setData(data);
    }
    this.describe(lines);
  }

  private options(lines: Line[]): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color("--muted"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1 },
      font: "11px system-ui, sans-serif",
    };
    return {
      width: this.width || 300,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { range: () => this.span }, y: { range: (_, min, max) => [0, Math.max(max * 1.1, 1, min)] } },
      axes: [
        { ...axis, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString("en-GB")), space: 80 },
        { ...axis, size: 64, ...(this.isWhole ? { incrs: WHOLE } : {}), values: (_, values) => values.map(this.format) },
      ],
      series: [
        {},
        ...lines.map(({ label }, index) => ({
          label,
          stroke: color(COLORS[index % COLORS.length] ?? "--ink"),
          width: 1.5,
          points: { show: false },
        })),
      ],
    };
  }

  /** The newest values in words: below the plot, or for screen readers if there are many lines. */
  private describe(lines: Line[]): void {
    const newest = lines.map(({ label, values }) => {
      const value = values.at(-1);
      return { label, text: value === null || value === undefined ? "–" : this.format(value) };
    });
    const isNamed = lines.length <= NAMED_MAX;
    const entries = isNamed ? newest : [];
    while (this.legend.children.length > entries.length) this.legend.lastElementChild?.remove();
    entries.forEach(({ label, text }, index) => {
      let entry = this.legend.children[index];
      if (!entry) {
        entry = el("li", {}, el("span", { class: `key key-${(index % COLORS.length) + 1}`, "aria-hidden": "true" }), el("span"));
        this.legend.append(entry);
      }
      if (entry.lastElementChild) setText(entry.lastElementChild, `${label} ${text}`);
    });
    setText(this.text, isNamed ? "" : newest.map(({ label, text }) => `${label}: ${text}`).join(", "));
  }
}
