/** The documentation site: axe finds nothing, nothing is wider than the screen, search and menus lead to pages. */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { assertFits, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";

const SITE = process.env.DUNLIN_SITE;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml" };
const DEVICES = {
  "desktop, light": { ...DESKTOP, colorScheme: "light" },
  "desktop, dark": { ...DESKTOP, colorScheme: "dark" },
  "phone, light": { ...PHONE, colorScheme: "light" },
  "phone, dark": { ...PHONE, colorScheme: "dark" },
};
/** Chromium lets the keyboard scroll a region that the theme does not make focusable. */
const RULES = { runOnly: ["wcag2a", "wcag2aa"], rules: { "scrollable-region-focusable": { enabled: false } } };
/** One with pictures, one with code, one with tables, one that is generated. */
const PAGES = ["index.html", "quick-start.html", "clustering.html", "cli.html"];

let axe;
let browser;
let server;
let base;

before(async () => {
  axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await mkdir(SHOTS, { recursive: true });
  server = createServer(serve);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${server.address().port}/`;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  server?.closeAllConnections();
  server?.close();
});

async function serve(request, response) {
  const path = normalize(new URL(request.url, "http://site").pathname);
  try {
    const body = await readFile(join(SITE, path));
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
}

async function withPage(path, device, check) {
  const opened = await openPage(browser, base + path, device);
  try {
    await check(opened.page);
    assert.deepEqual(opened.faults, []);
  } finally {
    await opened.close();
  }
}

for (const path of PAGES) {
  for (const [title, device] of Object.entries(DEVICES)) {
    test(`${path} is readable: ${title}`, () =>
      withPage(path, device, async (page) => {
        await page.screenshot({ path: `${SHOTS}site-${path}-${title.replace(", ", "-")}.png` });
        await assertFits(page);
        await page.addScriptTag({ content: axe });
        const found = await page.evaluate((options) => window.axe.run(document, options), RULES);
        const violations = found.violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 200))]);
        assert.deepEqual(violations, []);
      }));
  }
}

test("the search finds a configuration key", () =>
  withPage("index.html", DESKTOP, async (page) => {
    await page.click(".md-search__input");
    // The index is loaded when the search is used first.
    await page.waitForSelector(".md-search-result__meta:has-text('Type to start searching')");
    await page.keyboard.type("history_meta_ttl");
    await page.click(".md-search-result__link >> nth=0");
    await page.waitForFunction(() => document.title.startsWith("Configuration"));
  }));

test("a phone's menu leads to a page", () =>
  withPage("index.html", PHONE, async (page) => {
    await page.click("label.md-header__button[for=__drawer]");
    // The menu opens at the page's own section.
    await page.click(".md-nav--primary .md-nav__item--active > .md-nav > label.md-nav__title");
    await page.click(".md-nav--primary > .md-nav__list > li > label:has-text('Operate')");
    await page.click(".md-nav--primary a:has-text('Clusters')");
    await page.waitForFunction(() => document.title.startsWith("Clusters"));
  }));
