/** The canvas: draws a frame of the player's view. */

import type { Changes, Place, Replica, SeenObject } from "@dunlin/room-client";
import { type Colours, colours } from "./colours";
import { drawFog, drawGrid, drawGround } from "./ground";
import { CHEST, chestOf, CLUE, DIGGING, emoteOf, EMOTES, PLAYER, playerOf, ROCK, sizeOf, TAG, tagOf, TREE, type Walker } from "./hunt";
import { MapCanvas } from "./map_canvas";
import { drawPlate, Names } from "./names";
import type { Clue } from "./news";
import type { Trails } from "./trails";
import { drawBeacon, drawBird, drawChest, drawDigging, drawRock, drawTree } from "./sprites";
import { Walks } from "./walks";

export interface Frame {
  readonly replica: Replica;
  /** The player's own shown position and its action. */
  readonly me: Place;
  readonly mine: Walker | null;
  /** The shown position of another object. */
  readonly placeOf: (id: number) => Place | null;
  readonly target: Place | null;
  readonly clue: Clue | null;
  readonly showGrid: boolean;
  readonly showView: boolean;
  readonly trails: Trails;
  readonly nowMs: number;
}

const FLOATS_MAX = 64;
const FLOAT_MS = 1_600;
/** Players are never drawn smaller than this many pixels for a unit. */
const PLAYER_SCALE_MIN = 0.24;
/** A tree whose centre is this near may cover the player. */
const COVER_UNITS = 130;
const MARGIN_UNITS = 160;

interface Float extends Place {
  readonly text: string;
  readonly sinceMs: number;
}

export class Scene extends MapCanvas {
  private readonly names = new Names();
  private readonly walks = new Walks();
  private floats: Float[] = [];

  /** Processes the changes of a snapshot. */
  observe({ added, changed, removed }: Changes): void {
    for (const { kind, id, state } of removed) {
      if (kind === TAG) this.names.forget(new DataView(state.buffer, state.byteOffset).getUint32(0, true));
      if (kind === PLAYER) this.walks.forget(id);
    }
    for (const seen of [...added, ...changed.map(({ after }) => after)]) {
      if (seen.kind !== TAG) continue;
      const { player, name } = tagOf(seen);
      this.names.set(player, name);
    }
  }

  forget(): void {
    this.names.clear();
    this.walks.clear();
    this.floats = [];
    this.camera.cut();
  }

  /** Shows a text that rises from a position on the map. */
  float(text: string, place: Place, nowMs: number): void {
    this.floats.push({ ...place, text, sinceMs: nowMs });
    if (this.floats.length > FLOATS_MAX) this.floats.shift();
  }

  draw(frame: Frame): void {
    const { grid } = frame.replica;
    if (grid === null) return;
    const { context, camera } = this;
    const paint = colours();
    this.begin(frame.me, grid, frame.showView, frame.nowMs);
    drawGround(context, camera, grid, paint);
    if (frame.showGrid) drawGrid(context, camera, grid, paint);
    frame.trails.drawHeat(context, camera, grid);
    frame.trails.drawTrail(context, camera, paint);
    const players = this.drawThings(frame, paint);
    this.drawPlayers(frame, paint, players);
    for (const tree of this.visible(frame, TREE)) {
      // A tree over the player is drawn transparent.
      context.globalAlpha = Math.hypot(tree.x - frame.me.x, tree.y - frame.me.y) < COVER_UNITS ? 0.5 : 0.94;
      this.at(tree, () => drawTree(context, paint, sizeOf(tree), tree.id));
    }
    context.globalAlpha = 1;
    drawFog(context, camera, grid, frame.replica.view, paint, frame.showView);
    this.names.draw(context, camera, players.map((player) => {
      const isMe = player.id === frame.replica.avatar;
      const place = isMe ? frame.me : (frame.placeOf(player.id) ?? player);
      return { id: player.id, place, isMe, colour: playerOf(player).colour };
    }), frame.me, paint);
    this.drawFloats(frame.nowMs, paint);
  }

  private *visible(frame: Frame, kind: number): Generator<SeenObject> {
    for (const seen of this.inView(frame.replica.objects(), MARGIN_UNITS)) {
      if (seen.kind === kind && seen.cell !== null) yield seen;
    }
  }

  /** Everything on the ground, under the players. Returns the players. */
  private drawThings(frame: Frame, paint: Colours): SeenObject[] {
    const { context } = this;
    for (const rock of this.visible(frame, ROCK)) this.at(rock, () => drawRock(context, paint, sizeOf(rock), rock.id));
    for (const chest of this.visible(frame, CHEST)) this.at(chest, () => drawChest(context, paint, chestOf(chest) !== null));
    for (const clue of this.visible(frame, CLUE)) this.at(clue, () => drawBeacon(context, paint, frame.nowMs));
    if (frame.target !== null) {
      this.at(frame.target, () => {
        context.strokeStyle = paint.me;
        context.lineWidth = 5;
        context.beginPath();
        context.arc(0, 0, 20, 0, Math.PI * 2);
        context.stroke();
      });
    }
    return [...this.visible(frame, PLAYER)];
  }

  private drawPlayers(frame: Frame, paint: Colours, players: readonly SeenObject[]): void {
    const { context } = this;
    const { avatar } = frame.replica;
    for (const player of players) {
      if (player.id !== avatar) this.drawPlayer(frame, paint, player, frame.placeOf(player.id) ?? player, playerOf(player).doing);
    }
    const mine = frame.replica.object(avatar);
    if (mine !== undefined) this.drawPlayer(frame, paint, mine, frame.me, frame.mine?.doing ?? 0);
    context.globalAlpha = 1;
  }

  private drawPlayer(frame: Frame, paint: Colours, player: SeenObject, place: Place, doing: number): void {
    const { context } = this;
    const walk = this.walks.moved(player.id, place);
    const isMe = player.id === frame.replica.avatar;
    this.at(place, () => {
      if (doing === DIGGING) drawDigging(context, paint, frame.nowMs);
      drawBird(context, paint, playerOf(player).colour, walk.heading, walk.stride, isMe);
    }, Math.max(PLAYER_SCALE_MIN, this.camera.scale));
    const emote = emoteOf(doing);
    if (emote !== null) this.bubble(EMOTES[emote] ?? "", place, paint);
  }

  private bubble(text: string, place: Place, paint: Colours): void {
    const { context } = this;
    const [x, y] = this.camera.toScreen(place.x, place.y);
    context.font = "600 15px ui-sans-serif, system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    drawPlate(context, text, x, y - 60 * this.camera.scale - 10, paint.plate, paint.ink);
  }

  private drawFloats(nowMs: number, paint: Colours): void {
    const { context } = this;
    this.floats = this.floats.filter(({ sinceMs }) => nowMs - sinceMs < FLOAT_MS);
    context.font = "700 17px ui-sans-serif, system-ui, sans-serif";
    context.textAlign = "center";
    context.lineWidth = 4;
    context.lineJoin = "round";
    for (const { x, y, text, sinceMs } of this.floats) {
      const share = (nowMs - sinceMs) / FLOAT_MS;
      const [sx, sy] = this.camera.toScreen(x, y);
      context.globalAlpha = 1 - share ** 3;
      context.strokeStyle = paint.plate;
      context.fillStyle = paint.gold;
      context.strokeText(text, sx, sy - 20 - share * 44);
      context.fillText(text, sx, sy - 20 - share * 44);
    }
    context.globalAlpha = 1;
  }
}
