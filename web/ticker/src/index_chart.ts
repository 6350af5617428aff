/** The flock index: the mean of all quotes, from the latest lane, with gaps for missed publications. */

import { palette, type Palette, type Surface, surface } from "./canvas";
import type { Quotes } from "./contract";
import { byId, drawSoon, setText } from "./dom";
import { percent, price } from "./format";
import type { Stock } from "./market";

const WINDOW_MS = 30_000;
/** A longer pause is drawn as a gap. The publisher sends every 50 ms. */
const HOLE_MS = 800;
/** The fraction by which a shrinking scale approaches its target per frame. */
const EASE = 0.1;
const AXIS_WIDTH = 58;
const TOP = 14;
const BOTTOM = 24;

export class IndexChart {
  private readonly value = byId("index-value", HTMLElement);
  private readonly change = byId("index-change", HTMLElement);
  private readonly surface: Surface;
  private quotes: Quotes[] = [];
  private low = Number.NaN;
  private high = Number.NaN;

  constructor(private readonly stocks: readonly Stock[]) {
    this.surface = surface(byId("index-chart", HTMLCanvasElement), () => this.update());
  }

  add(quotes: Quotes): void {
    const last = this.quotes[this.quotes.length - 1];
    if (last !== undefined && quotes.timeMs <= last.timeMs) return;
    this.quotes.push(quotes);
    const keptFrom = quotes.timeMs - WINDOW_MS;
    while ((this.quotes[1]?.timeMs ?? Number.POSITIVE_INFINITY) < keptFrom) this.quotes.shift();
    this.update();
  }

  /**
   * Draws the time before the page was opened from the histories of the twelve symbols. The
   * latest lane itself keeps no history.
   */
  seed(): void {
    if (this.stocks.some(({ series }) => series.points.length === 0)) return;
    const firstQuoteMs = this.quotes[0]?.timeMs ?? Number.POSITIVE_INFINITY;
    const events = this.stocks
      .flatMap(({ series }, stock) => series.points.map((point) => ({ point, stock })))
      .sort((a, b) => a.point.timeMs - b.point.timeMs);
    const prices = new Map<number, number>();
    const seeded: Quotes[] = [];
    for (const { point, stock } of events) {
      if (point.timeMs >= firstQuoteMs) break;
      prices.set(stock, point.price);
      const isNew = point.timeMs > (seeded[seeded.length - 1]?.timeMs ?? 0);
      if (prices.size < this.stocks.length || !isNew) continue;
      let sum = 0;
      for (const value of prices.values()) sum += value;
      seeded.push({ mean: sum / prices.size, timeMs: point.timeMs });
    }
    this.quotes = [...seeded, ...this.quotes];
    this.update();
  }

  private update(): void {
    drawSoon(this, () => this.draw());
  }

  private draw(): void {
    const { context, width, height } = this.surface;
    const last = this.quotes[this.quotes.length - 1];
    context.clearRect(0, 0, width, height);
    if (last === undefined || width === 0) return;
    this.drawLabels(last);
    this.scaleTo(last);

    const right = width - AXIS_WIDTH;
    const x = (quotes: Quotes) => right - ((last.timeMs - quotes.timeMs) / WINDOW_MS) * right;
    const y = (quotes: Quotes) => this.y(quotes.mean);
    const colours = palette();
    this.drawGrid(colours, right);
    for (const run of this.runs()) this.drawRun(run, x, y, colours);
    this.drawHoles(x, colours);

    context.fillStyle = colours.tide;
    context.beginPath();
    context.arc(x(last), y(last), 4, 0, Math.PI * 2);
    context.fill();
    context.globalAlpha = 0.2;
    context.beginPath();
    context.arc(x(last), y(last), 9, 0, Math.PI * 2);
    context.fill();
    context.globalAlpha = 1;
  }

  private drawLabels(last: Quotes): void {
    setText(this.value, price(last.mean));
    const changes = this.stocks.flatMap(({ series }) => series.last?.changePct ?? []);
    if (changes.length === 0) return;
    const change = changes.reduce((sum, value) => sum + value, 0) / changes.length;
    setText(this.change, percent(change));
    this.change.dataset["trend"] = change >= 0 ? "up" : "down";
  }

  /** Grows at once to include every value, and shrinks gradually when an extreme leaves the window. */
  private scaleTo(last: Quotes): void {
    let low = last.mean;
    let high = last.mean;
    for (const { mean } of this.quotes) {
      low = Math.min(low, mean);
      high = Math.max(high, mean);
    }
    const margin = Math.max((high - low) * 0.12, last.mean * 0.0002);
    low -= margin;
    high += margin;
    this.low = this.low < low ? this.low + (low - this.low) * EASE : low;
    this.high = this.high > high ? this.high + (high - this.high) * EASE : high;
  }

  private y(value: number): number {
    const room = this.surface.height - TOP - BOTTOM;
    return TOP + room * (1 - (value - this.low) / (this.high - this.low));
  }

  private drawGrid(colours: Palette, right: number): void {
    const { context, height } = this.surface;
    context.font = this.surface.font;
    context.strokeStyle = colours.line;
    context.fillStyle = colours.muted;
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const step = niceStep((this.high - this.low) / 3);
    for (let at = Math.ceil(this.low / step) * step; at < this.high; at += step) {
      const y = Math.round(this.y(at)) + 0.5;
      if (y > height - BOTTOM || y < TOP / 2) continue;
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillText(price(at), this.surface.width - 2, y);
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText("30 s ago", 0, height - 6);
    context.textAlign = "right";
    context.fillText("now", right, height - 6);
  }

  /** Draws the line, with its gaps left open. */
  private runs(): Quotes[][] {
    const runs: Quotes[][] = [];
    let previousMs = Number.NEGATIVE_INFINITY;
    for (const quotes of this.quotes) {
      if (quotes.timeMs - previousMs > HOLE_MS) runs.push([]);
      runs[runs.length - 1]?.push(quotes);
      previousMs = quotes.timeMs;
    }
    return runs;
  }

  private drawRun(
    run: readonly Quotes[],
    x: (quotes: Quotes) => number,
    y: (quotes: Quotes) => number,
    colours: Palette,
  ): void {
    const { context, height } = this.surface;
    const first = run[0];
    const last = run[run.length - 1];
    if (first === undefined || last === undefined) return;
    context.beginPath();
    for (const quotes of run) context.lineTo(x(quotes), y(quotes));
    context.strokeStyle = colours.tide;
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.stroke();
    context.lineTo(x(last), height - BOTTOM);
    context.lineTo(x(first), height - BOTTOM);
    context.closePath();
    const shade = context.createLinearGradient(0, TOP, 0, height - BOTTOM);
    shade.addColorStop(0, colours.tide);
    shade.addColorStop(1, "transparent");
    context.globalAlpha = 0.16;
    context.fillStyle = shade;
    context.fill();
    context.globalAlpha = 1;
  }

  private drawHoles(x: (quotes: Quotes) => number, colours: Palette): void {
    const { context, height } = this.surface;
    for (let index = 1; index < this.quotes.length; index += 1) {
      const before = this.quotes[index - 1];
      const after = this.quotes[index];
      if (before === undefined || after === undefined) continue;
      if (after.timeMs - before.timeMs <= HOLE_MS) continue;
      const left = Math.max(0, x(before));
      const right = x(after);
      context.fillStyle = colours.signal;
      context.globalAlpha = 0.1;
      context.fillRect(left, TOP / 2, right - left, height - BOTTOM - TOP / 2);
      context.globalAlpha = 1;
      if (right - left < 64) continue;
      context.textAlign = "center";
      context.fillText("no connection", (left + right) / 2, TOP + 10);
    }
  }
}

/** The smallest of 1, 2, 5 times a power of ten that is not below `raw`. */
function niceStep(raw: number): number {
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5].find((candidate) => candidate * power >= raw) ?? 10;
  return factor * power;
}
