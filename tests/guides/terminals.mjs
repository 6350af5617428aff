/** Runs the rest of a prepared guide, in a browser and in terminals. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DEADLINE_MS, launch } from "../browser/chromium.mjs";
import { Reader } from "./guide.mjs";

const RETRY_MS = 50;

/** Runs the rest of the guide that was prepared in this folder, as `withTerminals` does. */
export function withGuide(folder, places, body) {
  const steps = JSON.parse(readFileSync(join(folder, "guide.json"), "utf8"));
  return withTerminals(new Reader(folder), steps, places, body);
}

/**
 * Starts the servers among the steps, waits for the addresses, and passes a browser and the remaining commands to `body`:
 * `open(address)` opens a page, by default `page`, `follow()` follows all commands, `commands` are functions that follow one each.
 * Ends everything afterwards.
 */
export async function withTerminals(reader, steps, { addresses, page: address }, body) {
  const outputs = steps.filter((step) => step.isServer).map((step) => reader.serve(step));
  const browser = await launch();
  try {
    for (const url of addresses) await untilAnswered(url, outputs);
    const context = await browser.newContext();
    const open = async (at = address) => {
      const page = await context.newPage();
      page.setDefaultTimeout(DEADLINE_MS);
      page.faults = [];
      page.on("pageerror", (error) => page.faults.push(`exception: ${error.message}`));
      page.on("request", (request) => {
        if (new URL(request.url()).hostname !== "localhost") page.faults.push(`request: ${request.url()}`);
      });
      await page.goto(at);
      return page;
    };
    const commands = steps.filter((step) => step.command !== undefined && !step.isServer).map((step) => () => reader.follow(step));
    await body({ open, commands, follow: () => commands.map((command) => command()) });
  } catch (error) {
    error.message += `\n${outputs.map((output) => output()).join("\n")}`;
    throw error;
  } finally {
    await browser.close();
    await reader.end();
  }
}

/** Waits until a server answers there, with any status. */
async function untilAnswered(url, outputs) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    try {
      await fetch(url);
      return;
    } catch (error) {
      assert.ok(Date.now() < deadline, `${url}: ${error.cause ?? error}\n${outputs.map((output) => output()).join("\n")}`);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
