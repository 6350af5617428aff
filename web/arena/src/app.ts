/** Assembles the page: one client, its room, the canvas and the panels. */

import { type Place, Room } from "@dunlin/room-client";
import { byId } from "../../ticker/src/dom";
import { explainLabels } from "../../ticker/src/explanation";
import { Network } from "../../ticker/src/network";
import { loadSdk, pageOptions } from "../../ticker/src/sdk";
import { ClueBanner } from "./clue_banner";
import { Connection } from "./connection";
import { Controls } from "./controls";
import { Feed } from "./feed";
import { Hint } from "./hint";
import { CLUE, DIGGING, EMOTES, LEADERS_CHANNEL, PLAYER, ROOM_CHANNEL } from "./hunt";
import { Leaderboard } from "./leaderboard";
import { Me } from "./me";
import { Minimap } from "./minimap";
import { type Clue, leadersOf, type News, newsOf } from "./news";
import { Panel } from "./panel";
import { Scene } from "./scene";
import { showScore } from "./score";
import { Trails } from "./trails";
import { someColour, someName } from "./visitor";

/** Interval of the debug output for the browser's tools. */
const PUBLISH_MS = 100;
/** Its members that are of one stay in the room. */
const PUBLISHED = ["tick", "avatar", "ack", "pending", "x", "y", "confirmedX", "confirmedY", "others", "joins", "resumed"] as const;

class Arena {
  private readonly scene = new Scene(byId("field", HTMLCanvasElement));
  private readonly minimap = new Minimap(byId("minimap", HTMLCanvasElement));
  private readonly banner = new ClueBanner();
  private readonly feed = new Feed();
  private readonly hint = new Hint();
  private readonly trails = new Trails(() => this.room.replica.avatar);
  private readonly leaderboard = new Leaderboard((player) => this.trails.choose(player));
  private readonly me: Me;
  private readonly panel: Panel;
  private readonly controls: Controls;
  private clue: Clue | null = null;
  private showGrid = false;
  private showView = false;
  private waved = 0;
  private publishedMs = 0;
  private hasResumed = false;
  private joins = 0;

  constructor(private readonly room: Room) {
    this.me = new Me(room);
    this.panel = new Panel(room, this.me);
    this.controls = new Controls(byId("field", HTMLCanvasElement), this.scene.camera.toMap, {
      walk: (dx, dy) => this.me.walk(dx, dy),
      dig: () => this.dig(),
      wave: (emote) => this.me.wave(emote),
    });
    this.listen();
    this.buttons();
    explainLabels();
    requestAnimationFrame((nowMs) => this.frame(nowMs));
  }

  private listen(): void {
    const { room } = this;
    room.on("snapshot", (changes) => {
      this.panel.observe(changes, performance.now());
      this.scene.observe(changes);
      this.me.observe(changes);
      if (changes.removed.some(({ id }) => id === this.clue?.treasure)) this.clue = null;
    });
    room.on("event", ({ event }) => {
      const news = newsOf(event);
      if (news !== null) this.tell(news);
    });
    room.on("joined", ({ seatResumed }) => {
      this.hasResumed = seatResumed;
      this.joins += 1;
    });
    room.on("left", ({ reason, rejoins }) => {
      this.unpublish();
      this.me.forget();
      this.scene.forget();
      this.controls.release();
      this.clue = null;
      this.feed.add("", rejoins ? "Connection lost; reconnecting." : `Left the room: ${reason}.`);
    });
    room.on("error", (error) => this.feed.add("", error.message));
  }

  private dig(): void {
    this.hint.close();
    this.me.dig();
  }

  private buttons(): void {
    const field = byId("field", HTMLElement);
    byId("stage", HTMLElement).addEventListener("click", ({ detail, target }) => {
      // After a click, the keys control the player again. After a key press, the button keeps the focus.
      if (detail > 0 && target instanceof HTMLButtonElement) field.focus({ preventScroll: true });
    });
    const toggle = (id: string, change: () => boolean) => {
      const button = byId(id, HTMLButtonElement);
      button.addEventListener("click", () => button.setAttribute("aria-pressed", String(change())));
    };
    toggle("toggle-grid", () => (this.showGrid = !this.showGrid));
    toggle("toggle-view", () => (this.showView = !this.showView));
    byId("dig", HTMLButtonElement).addEventListener("click", () => this.controls.dig());
    byId("wave", HTMLButtonElement).addEventListener("click", () => {
      this.me.wave(this.waved);
      this.waved = (this.waved + 1) % EMOTES.length;
    });
  }

  leaders(data: unknown): void {
    const leaders = leadersOf(data);
    if (leaders === null) return;
    this.panel.worldObjects = leaders.objects;
    this.leaderboard.show(leaders, this.room.replica.avatar, this.trails.avatar);
  }

  private tell(news: News): void {
    if (news.kind === "welcome") {
      this.clue = news.clue;
      this.feed.add("", `Welcome, ${news.name}.`);
    } else if (news.kind === "clue") {
      this.clue = news.clue;
      this.feed.add("", `A clue has dropped: ${news.clue.shares} shares of ${news.clue.value}.`);
    } else if (news.kind === "clue_over") {
      if (this.clue?.treasure === news.treasure) this.clue = null;
      this.feed.add("", news.found ? "The treasure of the clue was found." : "Nobody found all of the treasure in time.");
    } else if (news.kind === "found") {
      const isMine = news.player === this.room.replica.avatar;
      this.scene.float(`+${news.value}`, news, performance.now());
      this.feed.add(isMine ? "You" : news.name, `found ${news.value}`);
    } else {
      this.feed.add(news.name, news.kind === "joined" ? "came" : "left");
    }
  }

  private frame(nowMs: number): void {
    requestAnimationFrame((next) => this.frame(next));
    const { room, me, scene } = this;
    const shownMs = room.interpolation.advance(room.clock.serverTimeMs(nowMs));
    const place = me.frame(nowMs);
    this.panel.frame(nowMs);
    this.writePurse();
    const { grid } = room.replica;
    if (place === null || grid === null) {
      this.banner.show(null, { x: 0, y: 0 }, 0);
      return;
    }
    this.controls.steer(place);
    const leftS = this.clue === null ? 0 : (this.clue.until - room.tickNow()) / room.replica.ticksPerSecond;
    if (leftS < 0) this.clue = null;
    const drawn = this.trails.counts;
    scene.draw({
      replica: room.replica, me: place, mine: me.state, placeOf: (id) => room.interpolation.place(id, shownMs),
      target: this.controls.target, clue: this.clue, showGrid: this.showGrid, showView: this.showView, nowMs,
      trails: this.trails,
    });
    this.trails.update(grid, nowMs);
    this.minimap.draw(grid, room.replica.view, place, this.clue, this.trails, nowMs);
    this.banner.show(this.clueNow(), place, leftS);
    if (nowMs - this.publishedMs < PUBLISH_MS) return;
    this.publishedMs = nowMs;
    this.publish(place, shownMs, drawn);
  }

  /** The clue with its remaining shares, if the player sees it. */
  private clueNow(): Clue | null {
    if (this.clue === null) return null;
    const { x, y } = this.clue;
    for (const seen of this.room.replica.objects()) {
      if (seen.kind === CLUE && seen.x === x && seen.y === y) return { ...this.clue, shares: seen.state[0] ?? 0 };
    }
    return this.clue;
  }

  private writePurse(): void {
    const { purse, state } = this.me;
    if (purse === null) return;
    showScore(purse.score);
    const energy = byId("energy", HTMLElement);
    energy.setAttribute("aria-valuenow", String(purse.energy));
    energy.dataset["low"] = String(purse.energy < 10);
    byId("energy-bar", HTMLElement).style.transform = `scaleX(${purse.energy / 100})`;
    byId("dig", HTMLButtonElement).dataset["busy"] = String(state?.doing === DIGGING || purse.energy < 10);
  }

  /** For tests and the browser's tools: the shown state. */
  private publish(place: Place, shownMs: number, drawn: Trails["counts"]): void {
    const { replica, inputs, interpolation } = this.room;
    const avatar = replica.object(replica.avatar);
    const players = [...replica.objects()].filter(({ kind, id }) => kind === PLAYER && id !== replica.avatar);
    const others = players.map(({ id }) => ({ id, ...(interpolation.place(id, shownMs) ?? { x: 0, y: 0 }) }));
    Object.assign(byId("stage", HTMLElement).dataset, {
      tick: String(replica.tick), avatar: String(replica.avatar), ack: String(replica.ack), pending: String(inputs.pending.length),
      x: place.x.toFixed(1), y: place.y.toFixed(1), confirmedX: String(avatar?.x ?? ""), confirmedY: String(avatar?.y ?? ""),
      others: others.map(({ id, x, y }) => `${id}:${x.toFixed(1)}:${y.toFixed(1)}`).join(" "),
      joins: String(this.joins), resumed: String(this.hasResumed), ...drawn,
    });
  }

  /** Removes the state of a room that the player is not in any more: with the next join it may be another player. */
  private unpublish(): void {
    const { dataset } = byId("stage", HTMLElement);
    for (const name of PUBLISHED) delete dataset[name];
  }
}

async function start(): Promise<void> {
  const { encoding, endpoint } = pageOptions(location, "protobuf");
  const network = new Network();
  const sdk = await loadSdk(encoding, endpoint, "arena");
  const client = sdk.client(network);
  const room = new Room(client, ROOM_CHANNEL, {
    encoding, typed: true, meter: network, data: { name: someName(), colour: someColour() },
  });
  new Connection(encoding, sdk, client, room, network);
  const arena = new Arena(room);
  const leaders = client.newSubscription(LEADERS_CHANNEL);
  leaders.on("publication", ({ data }) => arena.leaders(sdk.payload(data)));
  leaders.subscribe();
  room.join();
  client.connect();
}

void start();
