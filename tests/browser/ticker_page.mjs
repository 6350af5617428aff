/** The ticker page for tests: reads what it shows from the document. */

import { DEADLINE_MS } from "./chromium.mjs";

export const SYMBOLS = "ACME DUNL KNOT PLVR SNIP REDS GODW TURN WHIM CURL STNT OYST".split(" ");

export class TickerPage {
  constructor({ page, faults, close }) {
    this.page = page;
    this.faults = faults;
    this.close = close;
  }

  /** Waits until `condition` holds in the page; it gets `argument` and must not close over anything. */
  until(condition, argument) {
    return this.page.waitForFunction(condition, argument, { timeout: DEADLINE_MS });
  }

  /** Waits until the page is connected and has loaded all twelve histories. */
  async ready() {
    await this.until(() => document.querySelector("#state").dataset.state === "connected");
    await this.until(() => !document.querySelector("#cut-switch").disabled);
    await this.until(() => document.querySelectorAll(".card[data-offset]").length === 12);
    await this.until(() => Number(document.querySelector("#here-count").dataset.count) > 0);
    await this.until(() => /^\d/.test(document.querySelector("[data-stat=missing]").textContent));
  }

  client() {
    return this.page.getAttribute("#client", "data-client");
  }

  untilHere(sessions) {
    return this.until(
      (count) => Number(document.querySelector("#here-count").dataset.count) === count,
      sessions,
    );
  }

  /** Waits until the page has drawn what it received before this call. */
  untilDrawn() {
    return this.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  }

  async offset(symbol) {
    return Number(await this.page.getAttribute(`[data-symbol="${symbol}"]`, "data-offset"));
  }

  untilOffset(symbol, least) {
    return this.until(
      ([name, offset]) =>
        Number(document.querySelector(`[data-symbol="${name}"]`).dataset.offset) >= offset,
      [symbol, least],
    );
  }

  untilFeedSays(client, how) {
    return this.until(
      ([id, word]) =>
        [...document.querySelectorAll(`#here-feed [data-how="${word}"] code`)].some(
          (code) => id.startsWith(code.textContent) && code.textContent !== "",
        ),
      [client, how],
    );
  }

  async stat(name) {
    return Number((await this.page.textContent(`[data-stat="${name}"]`)).replaceAll(",", ""));
  }

  logLines() {
    return this.page.locator("#log li span").allTextContents();
  }

  toggleCut() {
    return this.page.click("#cut-switch");
  }

  untilPhase(...phases) {
    return this.until(
      (wanted) => wanted.includes(document.querySelector("#cut").dataset.phase),
      phases,
    );
  }

  async report() {
    const { phase, recovered, channels, missing } = await this.page.evaluate(() => ({
      ...document.querySelector("#cut").dataset,
    }));
    return {
      phase,
      recovered: Number(recovered),
      channels: Number(channels),
      missing: Number(missing),
      title: await this.page.textContent("#cut-title"),
      text: await this.page.textContent("#cut-text"),
    };
  }

  /** Number of painted pixels of a card's sparkline. */
  sparkPixels(symbol) {
    return this.page.evaluate((name) => {
      const canvas = document.querySelector(`[data-symbol="${name}"] canvas`);
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let painted = 0;
      for (let alpha = 3; alpha < data.length; alpha += 4) if (data[alpha] > 0) painted += 1;
      return painted;
    }, symbol);
  }

  layoutShift() {
    return this.page.evaluate(() => window.layoutShift);
  }
}
