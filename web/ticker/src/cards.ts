/** The grid of price cards. */

import { type Surface, surface } from "./canvas";
import { drawSoon, element, reducedMotion, setText } from "./dom";
import { count, percent, price } from "./format";
import type { Stock } from "./market";
import { drawSpark } from "./spark";

const FLASH_MS = 450;

export class Cards {
  private readonly cards = new Map<Stock, Card>();

  constructor(grid: HTMLElement, stocks: readonly Stock[]) {
    for (const stock of stocks) {
      const card = new Card(stock);
      this.cards.set(stock, card);
      grid.append(card.root);
    }
  }

  /** Draws a stock's card in the next frame; `live` publications also flash it. */
  update(stock: Stock, live: boolean): void {
    this.cards.get(stock)?.update(live);
  }
}

class Card {
  readonly root: HTMLElement;
  private readonly price = element("span", "price", "\u2013");
  private readonly arrow = element("span", "arrow");
  private readonly change = element("span", "change", "\u2013");
  private readonly volume = element("span", "", "\u2013");
  private readonly offset = element("span", "", "\u2013");
  private readonly flash = element("span", "flash");
  private readonly surface: Surface;
  private shownPrice = 0;
  private mayFlash = false;
  private flashing: Animation | null = null;

  constructor(private readonly stock: Stock) {
    const { symbol, name } = stock.listing;
    const canvas = element("canvas", "spark");
    canvas.setAttribute("aria-hidden", "true");
    this.flash.setAttribute("aria-hidden", "true");
    this.arrow.setAttribute("aria-hidden", "true");
    this.root = element(
      "li",
      "card",
      element(
        "div",
        "card-head",
        element("h3", "", symbol, element("small", "", name)),
        this.change,
      ),
      element("div", "card-price", this.flash, this.price, this.arrow),
      canvas,
      element("div", "card-foot", this.volume, this.offset),
    );
    this.root.dataset["symbol"] = symbol;
    this.surface = surface(canvas, () => this.update(false));
  }

  update(live: boolean): void {
    this.mayFlash ||= live;
    drawSoon(this, () => this.draw());
  }

  private draw(): void {
    const { points, last } = this.stock.series;
    this.root.dataset["points"] = String(points.length);
    if (last === undefined) return;
    const rising = last.changePct >= 0;
    this.root.dataset["trend"] = rising ? "up" : "down";
    this.root.dataset["offset"] = String(last.offset);
    setText(this.price, price(last.price));
    setText(this.change, percent(last.changePct));
    setText(this.volume, `vol ${count(last.volume)}`);
    setText(this.offset, `#${last.offset}`);
    drawSpark(this.surface, points, rising);
    if (last.price !== this.shownPrice) this.show(last.price > this.shownPrice);
    this.shownPrice = last.price;
    this.mayFlash = false;
  }

  private show(moveIsUp: boolean): void {
    const isFirst = this.shownPrice === 0;
    setText(this.arrow, isFirst ? "" : moveIsUp ? "\u25b2" : "\u25bc");
    this.root.dataset["move"] = moveIsUp ? "up" : "down";
    if (isFirst || !this.mayFlash || reducedMotion.matches) return;
    // Only the opacity changes, so that the flash causes no repaint.
    this.flashing ??= this.flash.animate([{ opacity: 0.22 }, { opacity: 0 }], {
      duration: FLASH_MS,
      easing: "ease-out",
    });
    this.flashing.currentTime = 0;
    this.flashing.play();
  }
}
