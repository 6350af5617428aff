/** The ticks of a recording, loaded in pieces. */

/**
 * @typedef {import("./why.js").Player} Player
 * @typedef {import("./why.js").RoomObject} RoomObject
 * @typedef {{tick: number, objects: RoomObject[], removed: number[], players: Player[], steps: Record<string, unknown>[],
 *   events: Record<string, unknown>[], steps_left_out: number, events_left_out: number}} Frame
 * @typedef {{tick: number, objects: Map<number, RoomObject>, players: Player[], steps: Record<string, unknown>[],
 *   events: Record<string, unknown>[], steps_left_out: number, events_left_out: number}} Scene
 */

const PIECES_MAX = 24;

export class Film {
  /** @type {Map<number, Promise<Frame[]>>} */
  pieces = new Map();
  /** @type {{scene: Scene, frames: Frame[]} | null} */
  last = null;

  /**
   * @param {number} ticks the number of the last tick
   * @param {number} pieceTicks the ticks of a piece
   * @param {(from: number, count: number) => Promise<Frame[]>} load
   */
  constructor(ticks, pieceTicks, load) {
    this.ticks = ticks;
    this.pieceTicks = pieceTicks;
    this.load = load;
  }

  /**
   * The room after a tick.
   * @param {number} tick
   * @returns {Promise<Scene>}
   */
  async scene(tick) {
    const from = tick - ((tick - 1) % this.pieceTicks);
    const frames = await this.piece(from);
    const { last } = this;
    const follows = last !== null && last.frames === frames && last.scene.tick <= tick;
    // The first frame of a piece has all objects.
    const objects = follows ? last.scene.objects : new Map();
    for (const frame of frames.slice(follows ? last.scene.tick - from + 1 : 0, tick - from + 1)) {
      for (const object of frame.objects) objects.set(object.id, object);
      for (const id of frame.removed) objects.delete(id);
    }
    const frame = frames[tick - from];
    if (frame === undefined) throw new Error(`tick ${tick} is missing`);
    const scene = { ...frame, objects };
    this.last = { scene, frames };
    return scene;
  }

  /**
   * Begins to load the piece after this tick.
   * @param {number} tick
   */
  prefetch(tick) {
    const next = tick - ((tick - 1) % this.pieceTicks) + this.pieceTicks;
    // What fails is asked for again when it is shown.
    if (next <= this.ticks) this.piece(next).catch(() => {});
  }

  /**
   * @param {number} from
   * @returns {Promise<Frame[]>}
   */
  piece(from) {
    const known = this.pieces.get(from);
    if (known !== undefined) return known;
    const loading = this.load(from, Math.min(this.pieceTicks, this.ticks - from + 1));
    loading.catch(() => this.pieces.delete(from));
    this.pieces.set(from, loading);
    for (const oldest of this.pieces.keys()) {
      if (this.pieces.size <= PIECES_MAX) break;
      this.pieces.delete(oldest);
    }
    return loading;
  }
}
