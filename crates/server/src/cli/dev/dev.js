// Shows in the page what `dunlin dev` does. Only `dunlin dev` adds this script to the page.

const POLL_MS = 300;
/** Phases that pass without a change of a file. */
const PASSING = ["building", "starting", "ending"];

const panel = document.createElement("section");
panel.id = "dunlin-dev";
panel.setAttribute("role", "status");
panel.hidden = true;
panel.style.cssText =
  "position:fixed;inset:auto 0 0 0;z-index:99999;max-height:60%;overflow:auto;padding:12px 16px;" +
  "background:#1d1113;color:#ffe9e9;border-top:3px solid #ff6b6b;font:13px/1.45 ui-monospace,monospace;text-align:left";
const title = document.createElement("strong");
const text = document.createElement("pre");
text.style.cssText = "margin:8px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;font:inherit";
panel.append(title, text);
document.body.append(panel);

let version = null;
let shown = "";

function show({ phase, title: what, text: details }) {
  const key = JSON.stringify([phase, what, details]);
  if (key === shown) return;
  shown = key;
  panel.dataset.phase = phase;
  // A build in progress leaves the error of the last one in view, until its server runs.
  if (PASSING.includes(phase) && !panel.hidden && text.textContent !== "") return;
  panel.hidden = phase === "running";
  title.textContent = what;
  text.textContent = details;
  panel.style.borderColor = PASSING.includes(phase) ? "#ffc94a" : "#ff6b6b";
}

for (;;) {
  try {
    const state = await (await fetch("/dunlin-dev/state", { cache: "no-store" })).json();
    // A file of the page has changed. The seat is kept in the tab, so the player comes back.
    if (version !== null && state.version !== version) location.reload();
    version = state.version;
    show(state);
  } catch {
    show({ phase: "ended", title: "dunlin dev has ended.", text: "" });
  }
  await new Promise((done) => setTimeout(done, POLL_MS));
}
