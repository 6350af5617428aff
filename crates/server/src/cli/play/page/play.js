/** The playground: connects the parts of the page. */

import { ChannelList } from "./channels.js";
import { Client } from "./client.js";
import { LANGUAGES, codeOf } from "./code.js";
import { byId, copy, element } from "../../page/dom.js";
import { FrameList } from "./frames.js";
import { MessageList, personOf } from "./messages.js";

/** @typedef {import("./client.js").State} State */
/** @typedef {import("./code.js").Done} Done */
/** @typedef {import("./code.js").Language} Language */
/** @typedef {import("./codec.js").Message} Message */
/** @typedef {{ url: string | null, token: string, apiKey: string | null, channels: { channel: string, about: string }[] }} Settings */

/** How long "published" is shown. */
const NOTE_MS = 2_000;

/** @type {Settings} */
const settings = await (await fetch("settings.json")).json();
const url = settings.url ?? `${location.origin.replace(/^http/, "ws")}/connection/websocket`;
const apiUrl = `${new URL(url).origin.replace(/^ws/, "http")}/api`;

const button = (/** @type {string} */ id) => byId(id, HTMLButtonElement);
const input = (/** @type {string} */ id) => byId(id, HTMLInputElement);
const data = byId("data", HTMLTextAreaElement);
const answer = byId("answer", HTMLElement);

const messages = new MessageList(byId("messages", HTMLElement));
const frames = new FrameList(byId("frames", HTMLElement), byId("frames-total", HTMLElement));
const channels = new ChannelList(byId("channels", HTMLElement), () => showControls());
const client = new Client(url, {
  onState: showState,
  onFrame: (direction, frame) => frames.add(direction, frame),
  onSubscriptions: () => channels.show(client.subscriptions),
  onPublication: (channel, publication, how) => messages.addPublication(channel, publication, how),
  onMember: (channel, what, info) => messages.addMember(channel, what, info),
  onNote: (channel, text) => messages.addNote(channel, text),
});

/** @type {Done} */
const done = {
  url, apiUrl, apiKey: settings.apiKey ?? "YOUR_API_KEY", encoding: "json", hasToken: false,
  channel: undefined, data: undefined, presence: false, historyLimit: undefined, unsubscribe: false,
};
/** @type {Language} */
let language = "javascript";

/**
 * Notes what was done with a channel. Another channel begins anew.
 * @param {string} channel
 * @param {Partial<Done>} what
 */
function note(channel, what) {
  if (done.channel !== channel) {
    Object.assign(done, { channel, data: undefined, presence: false, historyLimit: undefined, unsubscribe: false });
  }
  Object.assign(done, what);
  showCode();
}

function showCode() {
  byId("code", HTMLElement).textContent = codeOf(language, done);
  byId("code-get", HTMLElement).textContent = LANGUAGES[language].get;
  for (const tab of byId("languages", HTMLElement).querySelectorAll("button")) {
    const isSelected = tab.dataset.language === language;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected ? 0 : -1;
  }
}

/**
 * @param {State} state
 * @param {string} why
 */
function showState(state, why) {
  const pill = byId("state", HTMLElement);
  pill.dataset.state = state;
  pill.textContent = state;
  byId("why", HTMLElement).textContent = state === "connected" ? `client ${client.id}` : whyOf(why);
  button("connect").textContent = state === "disconnected" ? "Connect" : "Disconnect";
  button("cut").disabled = state === "disconnected" || state === "connecting";
  button("cut").textContent = state === "cut" ? "Restore the connection" : "Cut the connection";
  byId("cut-hint", HTMLElement).hidden = state !== "cut";
  if (state === "cut") messages.addNote("", "the connection is cut");
  else if (state === "connected") messages.addNote("", "connected");
  else messages.addNote("", why === "" ? state : `${state}: ${why}`);
  showControls();
}

/** A browser tells a page nothing about a handshake that fails. @param {string} why */
function whyOf(why) {
  if (!why.includes("1006") || settings.url === null) return why;
  return `${why}: the server is not there, or its client.allowed_origins does not name ${location.origin}`;
}

function showControls() {
  const channel = channels.selected;
  const isConnected = client.state === "connected" && client.subscriptions.get(channel)?.state === "subscribed";
  for (const id of ["presence", "history"]) button(id).disabled = !isConnected;
  button("unsubscribe").disabled = channel === "";
  button("publish").disabled = !isConnected && !publishesByApi();
  byId("publish-to", HTMLElement).textContent = channel === "" ? "" : `to ${channel}`;
}

/** While the connection is cut, the page publishes as a backend does. It has the key of its own server only. */
const publishesByApi = () => client.state === "cut" && settings.apiKey !== null && channels.selected !== "";

/**
 * Shows what a request has returned, or why it failed.
 * @param {string} title
 * @param {() => Promise<string[]>} request
 */
async function show(title, request) {
  let lines;
  try {
    lines = await request();
    answer.dataset.failed = "false";
  } catch (error) {
    lines = [error instanceof Error ? error.message : String(error)];
    answer.dataset.failed = "true";
  }
  answer.replaceChildren(element("b", "", title), ...lines.map((line) => element("div", "", line)));
  answer.hidden = false;
}

async function presence() {
  const channel = channels.selected;
  await show(`Presence of ${channel}`, async () => {
    const result = await client.request("presence", { channel });
    note(channel, { presence: true });
    /** @type {Message[]} */
    const people = Object.values(result.presence ?? {});
    const count = people.length === 1 ? "1 client" : `${people.length} clients`;
    return [count, ...people.map((info) => personOf(info) + (info.client === client.id ? " (this page)" : ""))];
  });
}

async function history() {
  const channel = channels.selected;
  await show(`History of ${channel}`, async () => {
    const limit = input("limit").valueAsNumber || 10;
    const result = await client.request("history", { channel, limit, reverse: true });
    note(channel, { historyLimit: limit });
    /** @type {Message[]} */
    const publications = result.publications ?? [];
    const position = `newest offset ${result.offset ?? 0}, epoch ${result.epoch ?? ""}`;
    return [position, ...publications.map((publication) => `${publication.offset} ${JSON.stringify(publication.data)}`)];
  });
}

async function publish() {
  const channel = channels.selected;
  const noted = byId("publish-note", HTMLElement);
  try {
    const value = JSON.parse(data.value);
    if (publishesByApi()) await publishByApi(channel, value);
    else await client.request("publish", { channel, data: value });
    noted.textContent = publishesByApi() ? "published by the server API, as your backend does" : "published";
    note(channel, { data: value });
  } catch (error) {
    noted.textContent = error instanceof SyntaxError ? `this is no JSON: ${error.message}` : String(error);
    return;
  }
  const text = noted.textContent;
  setTimeout(() => noted.textContent === text && (noted.textContent = ""), NOTE_MS);
}

/**
 * @param {string} channel
 * @param {unknown} value
 */
async function publishByApi(channel, value) {
  const headers = { "Content-Type": "application/json", "X-API-Key": settings.apiKey ?? "" };
  const response = await fetch("api/publish", { method: "POST", headers, body: JSON.stringify({ channel, data: value }) });
  const { error } = await response.json();
  if (error) throw new Error(`${error.code}: ${error.message}`);
}

function connectOrDisconnect() {
  if (client.state !== "disconnected") {
    client.disconnect();
    return;
  }
  client.token = input("token").value.trim();
  Object.assign(done, { encoding: client.encoding, hasToken: client.token !== "" });
  showCode();
  client.connect();
}

/** @param {string} channel */
function subscribe(channel) {
  client.subscribe(channel);
  channels.select(channel);
  note(channel, { unsubscribe: false });
}

function unsubscribe() {
  const channel = channels.selected;
  note(channel, { unsubscribe: true });
  // Its failure is that of the connection, which is shown.
  client.unsubscribe(channel).catch(() => undefined);
}

/** @param {Event} event */
function chooseEncoding({ target }) {
  if (!(target instanceof HTMLInputElement) || (target.value !== "json" && target.value !== "protobuf")) return;
  client.encoding = target.value;
  done.encoding = target.value;
  showCode();
  if (client.state === "connected" || client.state === "connecting") {
    client.disconnect();
    client.connect();
  }
}

function addLanguages() {
  const tabs = byId("languages", HTMLElement);
  const keys = /** @type {Language[]} */ (Object.keys(LANGUAGES));
  for (const key of keys) {
    const tab = element("button", "", LANGUAGES[key].name);
    tab.type = "button";
    tab.dataset.language = key;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "code");
    tab.addEventListener("click", () => {
      language = key;
      showCode();
    });
    tabs.append(tab);
  }
  tabs.addEventListener("keydown", ({ key }) => {
    const step = Number(key === "ArrowRight") - Number(key === "ArrowLeft");
    if (step === 0) return;
    language = keys[(keys.indexOf(language) + step + keys.length) % keys.length] ?? language;
    showCode();
    /** @type {HTMLElement | null} */ (tabs.querySelector("button[aria-selected=true]"))?.focus();
  });
}

function addExamples() {
  byId("examples", HTMLElement).hidden = settings.channels.length === 0;
  for (const { channel, about } of settings.channels) {
    const choose = element("button", "", channel);
    choose.type = "button";
    choose.addEventListener("click", () => subscribe(channel));
    byId("example-list", HTMLElement).append(element("li", "", choose, element("span", "", about)));
    const option = element("option", "");
    option.value = channel;
    byId("suggestions", HTMLElement).append(option);
  }
}

byId("url", HTMLElement).textContent = url;
byId("token-field", HTMLElement).hidden = settings.url === null;
input("token").value = settings.token;
addLanguages();
addExamples();
showCode();
button("connect").addEventListener("click", connectOrDisconnect);
button("cut").addEventListener("click", () => (client.state === "cut" ? client.connect() : client.cut()));
button("presence").addEventListener("click", presence);
button("history").addEventListener("click", history);
button("unsubscribe").addEventListener("click", unsubscribe);
button("clear-messages").addEventListener("click", () => messages.clear());
button("clear-frames").addEventListener("click", () => frames.clear());
button("copy").addEventListener("click", () => copy(button("copy"), codeOf(language, done)));
for (const choice of document.querySelectorAll("input[name=encoding]")) choice.addEventListener("change", chooseEncoding);
byId("subscribe-form", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  subscribe(input("channel").value.trim());
});
byId("publish-form", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  void publish();
});
