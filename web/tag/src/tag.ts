/** Assembles the game's page: one client, its room, the canvas and the scores. */

import { type Place, Room } from "@dunlin/room-client";
import { Connection } from "../../arena/src/connection";
import { Feed } from "../../arena/src/feed";
import { showScore } from "../../arena/src/score";
import { someColour, someName } from "../../arena/src/visitor";
import { byId, setText } from "../../ticker/src/dom";
import { Network } from "../../ticker/src/network";
import { loadSdk, pageOptions } from "../../ticker/src/sdk";
import { aim } from "./aim";
import { TagControls } from "./controls";
import { forgetGuest, guestOptions, INVALID_TOKEN } from "./guest";
import { Me } from "./me";
import { type TagEvent, tagEventOf } from "./events";
import { NAMESPACE, RUNNER, runnerOf, SHOT, shotOf } from "./rules";
import { TagScene } from "./scene";
import { Scoreboard } from "./scoreboard";
import { forgetSeat, keepSeat, storedSeat } from "./seat";

/** Interval of the debug output for the browser's tools. */
const PUBLISH_MS = 100;
const LOBBY = "../lobby/";

class Tag {
  private readonly canvas = byId("field", HTMLCanvasElement);
  private readonly scene = new TagScene(this.canvas);
  private readonly scoreboard = new Scoreboard();
  private readonly feed = new Feed();
  private readonly controls = new TagControls(this.canvas, this.scene.camera.toMap);
  private readonly me: Me;
  private heading = 0;
  private taggedByMe = 0;
  private shotsOfMine = 0;
  private runners = 0;
  private resumed = false;
  private publishedMs = 0;

  constructor(private readonly room: Room, private readonly isWatching: boolean) {
    this.me = new Me(room);
    this.listen();
    byId("shoot", HTMLButtonElement).addEventListener("click", () => this.controls.shootOnce());
    byId("shoot", HTMLButtonElement).hidden = isWatching;
    byId("watching", HTMLElement).hidden = !isWatching;
    byId("stage", HTMLElement).addEventListener("click", ({ detail, target }) => {
      // After a click, the keys control the runner again. After a key press, the button keeps the focus.
      if (detail > 0 && target instanceof HTMLButtonElement) this.canvas.focus({ preventScroll: true });
    });
    requestAnimationFrame((nowMs) => this.frame(nowMs));
  }

  private listen(): void {
    const { room } = this;
    room.on("joined", ({ seatResumed }) => (this.resumed = seatResumed));
    room.on("snapshot", (changes) => {
      this.scene.observe(changes);
      if (this.isWatching) return;
      this.me.observe(changes);
      for (const seen of changes.added) if (seen.kind === SHOT && shotOf(seen).owner === room.replica.avatar) this.shotsOfMine += 1;
    });
    room.on("event", ({ event }) => {
      const known = tagEventOf(event);
      if (known !== null) this.show(known);
    });
    room.on("left", ({ reason, rejoins }) => {
      this.me.forget();
      this.scene.forget();
      this.controls.release();
      this.shotsOfMine = 0;
      this.resumed = false;
      // The shown state belongs to the lost connection.
      const { dataset } = byId("stage", HTMLElement);
      for (const name of ["tick", "avatar", "resumed", "shots", "ack"]) delete dataset[name];
      this.feed.add("", rejoins ? "Connection lost; reconnecting." : `Left the room: ${reason}.`);
    });
    room.on("error", (error) => this.feed.add("", error.message));
  }

  private show(event: TagEvent): void {
    const { avatar } = this.room.replica;
    if (event.kind === "welcome") this.feed.add("", `Welcome, ${event.name}. First to ${event.scoreLimit} wins.`);
    else if (event.kind === "scores") {
      this.runners = event.scores.runners;
      this.scoreboard.show(event.scores, this.isWatching ? 0 : avatar);
    } else if (event.kind === "tagged") {
      this.scene.burst(event, performance.now());
      const isMine = event.by === avatar && !this.isWatching;
      if (isMine) this.taggedByMe += 1;
      const isMe = event.player === avatar && !this.isWatching;
      if (isMine || isMe || this.isWatching) this.feed.add(isMine ? "You" : event.byName, `tagged ${isMe ? "you" : event.name}`);
    } else if (event.kind === "round_over") this.feed.add(event.name, `wins round ${event.round}`);
    else if (event.kind === "result") {
      const words = event.error === "" ? event.message : `The result of round ${event.round} is not saved: ${event.error}.`;
      if (words !== "") this.feed.add("", words);
    } else this.feed.add("", `Round ${event.round} begins: first to ${event.scoreLimit}.`);
  }

  private frame(nowMs: number): void {
    requestAnimationFrame((next) => this.frame(next));
    const { room, scene } = this;
    const shownMs = room.interpolation.advance(room.clock.serverTimeMs(nowMs));
    const placeOf = (id: number) => room.interpolation.place(id, shownMs);
    const place = this.isWatching ? this.watched(placeOf) : this.me.frame(nowMs);
    if (place === null || room.replica.grid === null) return;
    const mouse = this.controls.mouse === null ? null : scene.camera.toMap(this.controls.mouse.x, this.controls.mouse.y);
    if (!this.isWatching) this.play(place, mouse, placeOf, shownMs, nowMs);
    const direction = mouse === null ? null : Math.atan2(mouse.y - place.y, mouse.x - place.x);
    scene.draw({ replica: room.replica, me: place, isMine: !this.isWatching, placeOf, aim: direction, nowMs });
    this.writeState();
    if (nowMs - this.publishedMs < PUBLISH_MS) return;
    this.publishedMs = nowMs;
    this.publish(place, placeOf);
  }

  private play(place: Place, mouse: Place | null, placeOf: (id: number) => Place | null, shownMs: number, nowMs: number): void {
    const [dx, dy] = this.controls.direction(place);
    if (dx !== 0 || dy !== 0) this.heading = Math.atan2(dy, dx);
    this.me.run(dx, dy);
    if (!this.controls.takeShot()) return;
    this.me.shoot(aim(this.room.replica, place, mouse, placeOf, this.heading), shownMs, nowMs);
  }

  /** The position of the runner that a spectator follows. */
  private watched(placeOf: (id: number) => Place | null): Place | null {
    const { replica } = this.room;
    return placeOf(replica.avatar) ?? replica.object(replica.avatar) ?? null;
  }

  private writeState(): void {
    const { replica } = this.room;
    showScore(this.scene.pointsOf(replica.avatar));
    const condition = this.me.state?.condition ?? "Running";
    byId("out", HTMLElement).hidden = this.isWatching || condition !== "Tagged";
    byId("shoot", HTMLButtonElement).dataset["busy"] = String(condition === "Tagged");
  }

  /** For tests and the browser's tools: the shown state. */
  private publish(place: Place, placeOf: (id: number) => Place | null): void {
    const { replica, inputs } = this.room;
    const seen = [...replica.objects()];
    const runners = seen.filter(({ kind }) => kind === RUNNER);
    const confirmed = replica.object(replica.avatar);
    const others = runners.filter(({ id }) => id !== replica.avatar).map((runner) => {
      const { x, y } = placeOf(runner.id) ?? runner;
      return `${runner.id}:${x.toFixed(0)}:${y.toFixed(0)}:${runnerOf(runner).condition}`;
    });
    Object.assign(byId("stage", HTMLElement).dataset, {
      room: this.room.channel, tick: String(replica.tick), avatar: String(replica.avatar), resumed: String(this.resumed),
      x: place.x.toFixed(1), y: place.y.toFixed(1), confirmedX: String(confirmed?.x ?? ""), confirmedY: String(confirmed?.y ?? ""),
      ack: String(replica.ack), pending: String(inputs.pending.length), tagged: String(this.taggedByMe), runners: String(this.runners),
      shots: String(this.shotsOfMine), others: others.join(" "),
    });
  }
}

async function start(): Promise<void> {
  const query = new URLSearchParams(location.search);
  const channel = query.get("room") ?? "";
  if (!channel.startsWith(`${NAMESPACE}:`)) {
    location.replace(LOBBY + location.search);
    return;
  }
  const isWatching = query.has("watch");
  const { encoding, endpoint } = pageOptions(location, "protobuf");
  const network = new Network();
  const sdk = await loadSdk(encoding, endpoint, "tag");
  const client = sdk.client(network, await guestOptions());
  const seatToken = isWatching ? null : storedSeat(channel);
  const data = { name: someName(), colour: someColour(), ...(isWatching ? { seat: "spectator" } : {}) };
  const room = new Room(client, channel, { encoding, typed: true, meter: network, data, ...(seatToken === null ? {} : { seatToken }) });
  if (!isWatching) keepSeat(room);
  new Connection(encoding, sdk, client, room, network);
  new Tag(room, isWatching);
  setText(byId("channel", HTMLElement), channel);
  for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-lobby]")) {
    link.href = `${LOBBY}?encoding=${encoding}`;
    // Going to the lobby gives the seat up. The reply to another request shows that the server has processed this.
    link.addEventListener("click", (event) => {
      if (client.state !== "connected") return;
      event.preventDefault();
      room.leave();
      forgetSeat(channel);
      client.rpc("dunlin.match_status", sdk.encoded({ namespace: NAMESPACE })).catch(() => {}).finally(() => (location.href = link.href));
    });
  }
  client.on("disconnected", ({ code }) => {
    if (code === INVALID_TOKEN) forgetGuest();
  });
  room.join();
  client.connect();
}

void start();
