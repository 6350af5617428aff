/** Debian's Chromium with a fresh profile, and pages that record errors. */

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const ARGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const DESKTOP = { viewport: { width: 1320, height: 900 } };
export const PHONE = {
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
};

/** The deadline of every wait; on an idle machine each takes seconds. */
export const DEADLINE_MS = 60_000;

export function launch() {
  // Playwright gives each launch a profile folder of its own and removes it in the end.
  return chromium.launch({
    executablePath: process.env.DUNLIN_CHROMIUM ?? "/usr/bin/chromium",
    args: ARGS,
  });
}

/**
 * Opens a page in a context of its own. `faults` fills with console errors, uncaught exceptions
 * and requests to any other origin; `prepare` may set up routes before the page loads.
 */
export async function openPage(browser, address, device = DESKTOP, prepare = async () => {}) {
  const context = await browser.newContext({ reducedMotion: "no-preference", ...device });
  const page = await context.newPage();
  page.setDefaultTimeout(DEADLINE_MS);
  const faults = [];
  const { origin } = new URL(address);
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== origin) faults.push(`request: ${request.url()}`);
  });
  await page.addInitScript(noteLayoutShifts);
  await prepare(page);
  await page.goto(address);
  return { page, faults, close: () => context.close() };
}

/** Nothing is wider than the screen. On a phone, `innerWidth` grows with what is too wide, so it says nothing. */
export async function assertFits(page, name = "the page") {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  const { width } = page.viewportSize();
  assert.ok(wide <= width, `${name}: ${wide} px of content on ${width} px`);
}

/** Runs in the page: sums up layout shifts that were not caused by input of the user. */
function noteLayoutShifts() {
  window.layoutShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (!entry.hadRecentInput) window.layoutShift += entry.value;
    }
  }).observe({ type: "layout-shift", buffered: true });
}
