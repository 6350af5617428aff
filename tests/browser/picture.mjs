/**
 * Takes the picture of the ticker page for README.md, after a recovery and with ten more sessions:
 *   DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs ../../docs/images/ticker.png
 */

import { launch, openPage } from "./chromium.mjs";
import { TickerPage } from "./ticker_page.mjs";

const CUT_PUBLICATIONS = 20;
const LIVE_PUBLICATIONS = 40;
const VIEWPORT = { width: 1280, height: 1404 };

const address = process.env.DUNLIN_PAGE_URL;
const browser = await launch();
const page = new TickerPage(await openPage(browser, address, { viewport: VIEWPORT }));
const witness = new TickerPage(await openPage(browser, address));
await Promise.all([page.ready(), witness.ready()]);
await page.page.click("#tabs-open");
await page.until(() => document.querySelector("#tabs").dataset.connected === "10");
await page.toggleCut();
await page.untilPhase("away");
await witness.untilOffset("OYST", (await page.offset("OYST")) + CUT_PUBLICATIONS);
await page.toggleCut();
await page.untilPhase("recovered");
await page.untilOffset("OYST", (await page.offset("OYST")) + LIVE_PUBLICATIONS);
await page.until(() => /\d/.test(document.querySelector("#round-trip").textContent));
await page.page.screenshot({ path: process.argv[2] });
await browser.close();
