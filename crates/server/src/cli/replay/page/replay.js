/** The page of `dunlin replay FILE --page`. */

import { byId, element } from "../../page/dom.js";
import { Film } from "./film.js";
import { colourOf, RoomMap } from "./map.js";
import { drawMarks, markWords, timeOf, wordsOf } from "./timeline.js";
import { whyOf } from "./why.js";

/**
 * @typedef {import("./film.js").Frame} Frame
 * @typedef {import("./film.js").Scene} Scene
 * @typedef {{simulation: string, channel: string, seed: string, ticks_per_second: number, grid: import("./why.js").Grid,
 *   kinds: Record<string, string>, ticks: number, piece_ticks: number, end: string | null,
 *   marks: import("./timeline.js").Mark[], marks_left_out: number, players: {id: number, user: string, spectator: boolean}[],
 *   players_left_out: number}} Index
 */

const POLL_MS = 200;
const MARKS_MAX = 500;

/** @param {number} count of lines that are not there */
const andMore = (count) => (count === 0 ? [] : [`and ${count} more`]);

/**
 * @param {HTMLElement} list
 * @param {readonly (string | HTMLElement)[]} lines
 */
function fill(list, lines) {
  const items = (lines.length === 0 ? ["nothing"] : lines).map((line) => element("li", "", line));
  list.replaceChildren(...items);
}

/** @param {string} path */
async function get(path) {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return { isReady: response.status === 200, body };
}

/** Waits until the recording has been replayed once. @returns {Promise<Index>} */
async function loadIndex() {
  for (;;) {
    const { isReady, body } = await get("index");
    if (isReady) return body;
    say(`replaying: tick ${body.tick.toLocaleString("en")}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** @param {string} text */
function say(text) {
  byId("state", HTMLElement).textContent = text;
}

/** Says above the page what is wrong. @param {string | null} text null: nothing */
function warn(text) {
  const end = byId("end", HTMLElement);
  end.hidden = text === null;
  end.textContent = text;
}

/** @param {unknown} error */
function fail(error) {
  warn(error instanceof Error ? error.message : String(error));
}

class Page {
  tick = 1;
  isPlaying = false;
  isBusy = false;
  hasFailed = false;
  /** The request for the next frame while it plays. */
  frame = 0;
  /** @type {number | null} */
  selected = null;
  /** @type {Scene | null} */
  scene = null;

  /** @param {Index} index */
  constructor(index) {
    this.index = index;
    this.map = new RoomMap(byId("map", HTMLCanvasElement), index.grid);
    const load = async (/** @type {number} */ from, /** @type {number} */ count) => (await get(`ticks?from=${from}&count=${count}`)).body.frames;
    this.film = new Film(index.ticks, index.piece_ticks, load);
    byId("title", HTMLElement).textContent = `${index.channel || "a room"}: ${index.simulation}, seed ${index.seed}`;
    byId("main", HTMLElement).hidden = false;
    warn(index.end);
    const players = index.players.length + index.players_left_out;
    say(`${index.ticks.toLocaleString("en")} ticks, ${players} ${players === 1 ? "player" : "players"}`);
    this.slider = byId("tick", HTMLInputElement);
    this.slider.max = String(index.ticks);
    this.view = byId("view", HTMLSelectElement);
    this.view.append(new Option("as the server has it", ""));
    for (const { id, user, spectator } of index.players) {
      this.view.append(new Option(`as player ${id} ${spectator ? "(spectator) " : ""}sees it${user === "" ? "" : `: ${user}`}`, String(id)));
    }
    this.listMarks();
    this.listKinds();
    this.listen();
    this.drawTimeline();
  }

  listMarks() {
    const { marks, marks_left_out: leftOut } = this.index;
    const lines = marks.slice(0, MARKS_MAX).map((mark) => {
      const button = element("button", "", `${timeOf(mark.tick, this.index.ticks_per_second)} ${markWords(mark)}`);
      button.type = "button";
      button.addEventListener("click", () => this.go(mark.tick));
      return button;
    });
    fill(byId("marks-list", HTMLElement), [...lines, ...andMore(leftOut + Math.max(0, marks.length - MARKS_MAX))]);
  }

  listKinds() {
    const kinds = Object.entries(this.index.kinds).map(([kind, name]) => {
      const sign = element("i", Number(kind) % 2 === 1 ? "round" : "");
      sign.style.background = colourOf(Number(kind));
      return element("span", "", sign, ` ${name}`);
    });
    byId("kinds", HTMLElement).replaceChildren(...kinds);
  }

  listen() {
    const click = (/** @type {string} */ id, /** @type {() => void} */ act) => byId(id, HTMLButtonElement).addEventListener("click", act);
    click("play", () => this.play(!this.isPlaying));
    click("back", () => this.go(this.tick - 1));
    click("forth", () => this.go(this.tick + 1));
    click("in", () => this.zoom(1.4));
    click("out", () => this.zoom(1 / 1.4));
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.view.addEventListener("change", () => this.draw());
    const object = byId("object", HTMLInputElement);
    object.addEventListener("input", () => {
      this.selected = object.valueAsNumber || null;
      this.draw();
    });
    const follow = byId("follow", HTMLInputElement);
    follow.addEventListener("change", () => {
      // A map that is shown as a whole has nothing to follow.
      if (follow.checked && this.map.zoom === 1) this.map.zoom = 3;
      this.draw();
    });
    addEventListener("resize", () => {
      this.draw();
      this.drawTimeline();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.listKinds();
      this.draw();
      this.drawTimeline();
    });
    addEventListener("keydown", (event) => this.key(event));
    this.listenToMap();
  }

  listenToMap() {
    const { canvas } = this.map;
    /** @type {{x: number, y: number, moved: boolean} | null} */
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held === null) return;
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(dx, dy) < 4) return;
      held = { x: event.clientX, y: event.clientY, moved: true };
      const { width, height, drawn: { scale } } = this.map;
      const from = this.map.centre ?? { x: width / 2, y: height / 2 };
      this.map.centre = { x: from.x - dx / scale, y: from.y - dy / scale };
      byId("follow", HTMLInputElement).checked = false;
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held !== null && !held.moved && this.scene !== null) {
        this.select(this.map.objectAt(this.scene, event.offsetX, event.offsetY)?.id ?? null);
      }
      held = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }

  /** @param {number | null} id of an object */
  select(id) {
    this.selected = id;
    byId("object", HTMLInputElement).value = id === null ? "" : String(id);
    this.draw();
  }

  /** @param {number} factor */
  zoom(factor) {
    this.map.zoom = Math.min(60, Math.max(1, this.map.zoom * factor));
    if (this.map.zoom === 1) this.map.centre = null;
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { target } = event;
    // These elements have their own meaning of the keys.
    if (target instanceof HTMLSelectElement || (target instanceof HTMLInputElement && target.type === "number")) return;
    // With these, keys are the browser's: Alt and an arrow leads to another page.
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const isPressed = target instanceof HTMLButtonElement || (target instanceof HTMLInputElement && target.type === "checkbox");
    const step = event.shiftKey ? this.index.ticks_per_second : 1;
    if (event.key === " " && !isPressed) this.play(!this.isPlaying);
    else if (event.key === "ArrowLeft") this.go(this.tick - step);
    else if (event.key === "ArrowRight") this.go(this.tick + step);
    else return;
    event.preventDefault();
  }

  /** @param {boolean} isPlaying */
  play(isPlaying) {
    this.isPlaying = isPlaying;
    byId("play", HTMLElement).textContent = isPlaying ? "Pause" : "Play";
    cancelAnimationFrame(this.frame);
    if (!isPlaying) return;
    if (this.tick === this.index.ticks) this.tick = 1;
    let [asked, shown] = [this.tick, this.tick];
    let last = performance.now();
    const advance = (/** @type {number} */ now) => {
      if (!this.isPlaying) return;
      const speed = Number(byId("speed", HTMLSelectElement).value);
      // The slider, a key or a mark has led elsewhere: playing goes on from there.
      if (this.tick !== asked) shown = this.tick;
      // A tab in the background, or a piece that is loading, does not skip what comes after.
      shown += (Math.min(now - last, 100) / 1_000) * this.index.ticks_per_second * speed;
      last = now;
      if (!this.isBusy && Math.floor(shown) > this.tick) this.go(Math.floor(shown));
      else if (this.isBusy) shown = this.tick;
      asked = this.tick;
      if (this.tick >= this.index.ticks) this.play(false);
      else this.frame = requestAnimationFrame(advance);
    };
    this.frame = requestAnimationFrame(advance);
  }

  /** Shows a tick. @param {number} tick */
  async go(tick) {
    this.tick = Math.min(Math.max(Math.round(tick), 1), this.index.ticks);
    this.slider.value = String(this.tick);
    // One at a time: the last one that was asked for is shown in the end.
    if (this.isBusy) return;
    this.isBusy = true;
    try {
      while (this.scene?.tick !== this.tick) this.scene = await this.film.scene(this.tick);
      this.film.prefetch(this.tick);
      this.draw();
      if (this.hasFailed) warn(this.index.end);
      this.hasFailed = false;
    } catch (error) {
      this.play(false);
      fail(error);
      this.hasFailed = true;
    } finally {
      this.isBusy = false;
    }
  }

  draw() {
    const { scene, index } = this;
    if (scene === null) return;
    const player = scene.players.find(({ id }) => String(id) === this.view.value) ?? null;
    if (byId("follow", HTMLInputElement).checked) this.follow(scene, player);
    this.map.draw(scene, player, this.selected);
    byId("legend", HTMLElement).hidden = this.view.value === "";
    byId("time", HTMLElement).textContent = `tick ${scene.tick} · ${timeOf(scene.tick, index.ticks_per_second)}`;
    fill(byId("steps", HTMLElement), [...scene.steps.map(wordsOf), ...andMore(scene.steps_left_out)]);
    const events = scene.events.map((event) => JSON.stringify(event["event"] ?? event));
    fill(byId("events", HTMLElement), [...events, ...andMore(scene.events_left_out)]);
    this.describe(scene, player);
    // For tests.
    document.documentElement.dataset["tick"] = String(scene.tick);
  }

  /**
   * @param {Scene} scene
   * @param {import("./why.js").Player | null} player
   */
  follow(scene, player) {
    const id = player?.avatar ?? this.selected;
    const object = id === null ? undefined : scene.objects.get(id);
    if (object === undefined) return;
    this.map.centre = { x: object.x, y: object.y };
  }

  /**
   * @param {Scene} scene
   * @param {import("./why.js").Player | null} player
   */
  describe(scene, player) {
    const object = this.selected === null ? undefined : scene.objects.get(this.selected);
    const [title, why, fields] = [byId("object-title", HTMLElement), byId("why", HTMLElement), byId("fields", HTMLElement)];
    if (object === undefined) {
      title.textContent = "Object";
      why.textContent = this.selected === null
        ? "Click an object on the map, or type its number."
        : `Object ${this.selected} is not in the room at this tick.`;
      fields.replaceChildren();
      return;
    }
    const kind = this.index.kinds[object.kind] ?? `kind ${object.kind}`;
    title.textContent = `Object ${object.id}: ${kind}`;
    if (this.view.value === "") why.textContent = "Choose a player above to see whether it sees this object.";
    else if (player === null) why.textContent = `Player ${this.view.value} is not in the room at this tick.`;
    else why.textContent = whyOf(this.index.grid, player, object);
    const rows = { place: `${object.x}, ${object.y}`, cell: object.cell, ...object.fields, ...(object.state ? { state: object.state } : {}) };
    fields.replaceChildren(...Object.entries(rows).flatMap(([name, value]) => {
      const meaning = typeof value === "object" ? JSON.stringify(value) : String(value);
      return [element("dt", "", name), element("dd", "", meaning)];
    }));
  }

  drawTimeline() {
    drawMarks(byId("marks", HTMLCanvasElement), this.index.marks, this.index.ticks);
  }
}

try {
  const index = await loadIndex();
  if (index.ticks === 0) throw new Error(index.end ?? "The recording has no ticks.");
  const page = new Page(index);
  await page.go(1);
} catch (error) {
  say("stopped");
  fail(error);
}
