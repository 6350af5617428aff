/** A recorded room: a timeline, the map as the server had it or as a player could see it, and what happened at each tick. */

import { byId, element, visible } from "../../page/dom.js";
import { Film } from "./film.js";
import { colourOf, RoomMap } from "./map.js";
import { drawMarks, markWords, timeOf, wordsOf } from "./timeline.js";
import { hadOf, whyOf } from "./why.js";

/**
 * @typedef {import("./film.js").Frame} Frame
 * @typedef {import("./film.js").Scene} Scene
 * @typedef {{simulation: string, channel: string, seed: string, ticks_per_second: number, grid: import("./why.js").Grid,
 *   kinds: Record<string, string>, ticks: number, piece_ticks: number, end: string | null,
 *   marks: import("./timeline.js").Mark[], marks_left_out: number, players: {id: number, user: string, client: string, spectator: boolean, told_until: number}[],
 *   players_left_out: number, tells_of_connections: boolean, carried_left_out: number}} Index
 */

const MARKS_MAX = 500;
const SPEEDS = [0.1, 0.5, 1, 2, 5];

/** @param {number} count of lines that are not there */
const andMore = (count) => (count === 0 ? [] : [`and ${count} more`]);

/**
 * @param {HTMLElement} list
 * @param {readonly (string | HTMLElement)[]} lines
 */
function fill(list, lines) {
  const items = (lines.length === 0 ? ["nothing"] : lines).map((line) => element("li", "", typeof line === "string" ? visible(line) : line));
  list.replaceChildren(...items);
}

/**
 * An element with attributes.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} inside
 */
function made(tag, attributes, ...inside) {
  const made = element(tag, "", ...inside);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The map, and what moves in time. */
function stage() {
  const button = (/** @type {string} */ id, /** @type {string} */ text, /** @type {string} */ label) =>
    made("button", { type: "button", id, ...(label === "" ? { class: "main" } : { "aria-label": label }) }, text);
  const speeds = SPEEDS.map((speed) => new Option(`${speed} ×`, String(speed), speed === 1, speed === 1));
  return made(
    "section",
    { class: "stage", "aria-label": "Map" },
    made(
      "div",
      { class: "bar" },
      made("label", {}, "Shown ", made("select", { id: "view" })),
      made("label", { class: "check" }, made("input", { type: "checkbox", id: "follow" }), " Follow"),
      made("span", { class: "zoom" }, button("out", "−", "Zoom out"), button("in", "+", "Zoom in")),
      made("span", { class: "legend", id: "legend", hidden: "" }, element("i", "near"), " near cells ", element("i", "far"), " far cells"),
    ),
    made("p", { class: "legend", id: "kinds" }),
    made("canvas", { id: "map", tabindex: "0", role: "img", "aria-label": "The room. Click an object to see its fields; drag to move the map" }),
    made(
      "div",
      { class: "timeline" },
      made("canvas", { id: "marks", "aria-hidden": "true" }),
      made("input", { type: "range", id: "tick", min: "1", value: "1", step: "1", "aria-label": "Tick" }),
      made(
        "div",
        { class: "bar" },
        button("back", "◂", "One tick back"),
        button("play", "Play", ""),
        button("forth", "▸", "One tick forward"),
        made("label", {}, "Speed ", made("select", { id: "speed" }, ...speeds)),
        made("output", { id: "time" }),
        made("span", { class: "hint" }, "Space: play · ← →: one tick · with Shift: a second"),
      ),
    ),
  );
}

/** What is in words. */
function side() {
  return made(
    "section",
    { class: "side", "aria-label": "Details", tabindex: "0" },
    made("p", { class: "why", id: "had", hidden: "" }),
    made("h2", { id: "object-title" }, "Object"),
    made("label", {}, "Number ", made("input", { type: "number", id: "object", min: "1", step: "1" })),
    made("p", { class: "why", id: "why" }),
    made("dl", { id: "fields" }),
    made("h2", {}, "Before this tick"),
    made("ul", { id: "steps", class: "entries" }),
    made("h2", {}, "Events of this tick"),
    made("ul", { id: "events", class: "entries" }),
    made("h2", {}, "What happened"),
    made("ol", { id: "marks-list", class: "entries jump" }),
    made("p", { class: "hint", id: "connection" }),
  );
}

/** The ids of its elements are those of one page: there is one at a time. */
export class Player {
  tick = 1;
  isPlaying = false;
  isBusy = false;
  /** Until it is closed. */
  open = new AbortController();
  hasFailed = false;
  /** The request for the next frame while it plays. */
  frame = 0;
  /** @type {number | null} */
  selected = null;
  /** @type {Scene | null} */
  scene = null;
  /** The scene as the chosen player had it, if that is an earlier one. @type {Scene | null} */
  seen = null;

  /**
   * @param {Index} index
   * @param {(from: number, count: number) => Promise<Frame[]>} load
   * @param {HTMLElement} place which gets the elements
   * @param {(text: string | null) => void} warn is told what is wrong; null: nothing
   * @param {(client: string) => Node} explained what says how a connection is doing
   */
  constructor(index, load, place, warn, explained) {
    this.index = index;
    this.warn = warn;
    this.explained = explained;
    place.replaceChildren(stage(), side());
    this.map = new RoomMap(byId("map", HTMLCanvasElement), index.grid);
    this.film = new Film(index.ticks, index.piece_ticks, load);
    // It goes through the same pieces at another place.
    this.seenFilm = new Film(index.ticks, index.piece_ticks, (from) => this.film.piece(from));
    warn(index.end);
    this.slider = byId("tick", HTMLInputElement);
    this.slider.max = String(index.ticks);
    this.view = byId("view", HTMLSelectElement);
    this.view.append(new Option("as the server has it", ""));
    for (const { id, user, spectator } of index.players) {
      this.view.append(new Option(`as player ${id} ${spectator ? "(spectator) " : ""}sees it${user === "" ? "" : `: ${visible(user)}`}`, String(id)));
    }
    this.listMarks();
    this.listKinds();
    this.listen();
    this.describeConnection();
    this.drawTimeline();
  }

  /** What the recording does not say of the connections of players. */
  describeConnection() {
    const chosen = this.index.players.find(({ id }) => String(id) === this.view.value);
    const now = chosen === undefined || chosen.client === "" ? [] : [" While the player is connected, ", this.explained(chosen.client), " says how its connection is now."];
    byId("connection", HTMLElement).replaceChildren(
      this.index.tells_of_connections
        ? "What a connection has skipped is recorded when it gets the next snapshot."
        : "This recording is of an earlier version, which did not record what connections carried.",
      this.index.carried_left_out === 0 ? "" : ` There is too much of it: the last ${this.index.carried_left_out} gaps are left out.`,
      ...now,
    );
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
    this.view.addEventListener("change", () => {
      this.describeConnection();
      this.go(this.tick);
    });
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
    const { signal } = this.open;
    addEventListener("resize", () => {
      this.draw();
      this.drawTimeline();
    }, { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.listKinds();
      this.draw();
      this.drawTimeline();
    }, { signal });
    addEventListener("keydown", (event) => this.key(event), { signal });
    this.listenToMap();
  }

  /** Ends it: nothing outside of its elements refers to it any more. */
  close() {
    this.play(false);
    this.open.abort();
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
        this.select(this.map.objectAt(this.seen ?? this.scene, event.offsetX, event.offsetY)?.id ?? null);
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
      do {
        while (this.scene?.tick !== this.tick) this.scene = await this.film.scene(this.tick);
        // Another player may be chosen, or another tick, while this is loaded.
      } while (!await this.loadSeen(this.scene));
      if (this.open.signal.aborted) return;
      this.film.prefetch(this.tick);
      this.draw();
      if (this.hasFailed) this.warn(this.index.end);
      this.hasFailed = false;
    } catch (error) {
      this.play(false);
      this.warn(error instanceof Error ? error.message : String(error));
      this.hasFailed = true;
    } finally {
      this.isBusy = false;
    }
  }

  /** @param {Scene} scene @returns {import("./why.js").Player | null} the chosen player in it */
  chosen(scene) {
    return scene.players.find(({ id }) => String(id) === this.view.value) ?? null;
  }

  /**
   * Loads what the chosen player had, if its connection was behind. Returns whether that is still what is to be shown.
   * @param {Scene} scene
   */
  async loadSeen(scene) {
    const { value } = this.view;
    const tick = this.chosen(scene)?.had?.tick ?? scene.tick;
    this.seen = tick > 0 && tick < scene.tick ? await this.seenFilm.scene(tick) : null;
    return value === this.view.value && scene.tick === this.tick;
  }

  draw() {
    const { scene, index } = this;
    if (scene === null) return;
    const now = this.chosen(scene);
    // It looked from where it was then. What its connection was doing is that of now.
    const then = this.seen === null ? null : this.chosen(this.seen);
    const shown = this.seen ?? scene;
    const player = then === null || now === null ? now : { ...then, ...(now.had === undefined ? {} : { had: now.had }) };
    if (byId("follow", HTMLInputElement).checked) this.follow(shown, player);
    this.map.draw(shown, player, this.selected);
    this.describeHad(now, scene.tick);
    byId("legend", HTMLElement).hidden = this.view.value === "";
    byId("time", HTMLElement).textContent = `tick ${scene.tick} · ${timeOf(scene.tick, index.ticks_per_second)}`;
    fill(byId("steps", HTMLElement), [...scene.steps.map(wordsOf), ...andMore(scene.steps_left_out)]);
    const events = scene.events.map((event) => JSON.stringify(event["event"] ?? event));
    fill(byId("events", HTMLElement), [...events, ...andMore(scene.events_left_out)]);
    this.describe(shown, player);
    // For tests.
    document.documentElement.dataset["tick"] = String(scene.tick);
  }

  /**
   * @param {import("./why.js").Player | null} player
   * @param {number} tick
   */
  describeHad(player, tick) {
    const place = byId("had", HTMLElement);
    place.hidden = player === null || !this.index.tells_of_connections;
    const toldUntil = this.index.players.find(({ id }) => id === player?.id)?.told_until ?? 0;
    place.textContent = player === null ? "" : hadOf(player, tick, this.index.ticks, toldUntil);
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
        : this.scene?.objects.has(this.selected)
          ? `Object ${this.selected} is in the room since a tick that the player did not have.`
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
      return [element("dt", "", visible(name)), element("dd", "", visible(meaning))];
    }));
  }

  drawTimeline() {
    drawMarks(byId("marks", HTMLCanvasElement), this.index.marks, this.index.ticks);
  }
}
