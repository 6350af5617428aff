/**
 * The player's own object, shown where it will be when the server has applied the inputs that were sent. The game's rules
 * run here as well, ahead of the server; every snapshot corrects the result.
 *
 * An input takes effect before a tick, and lasts as the rules define: for instance until the next input. The prediction
 * has its own tick, ahead of the snapshots. When the server acknowledges an input, the client learns how many ticks later
 * the input took effect on the server, and moves its own tick by that number. So each input has the same duration on both
 * sides, and nothing jumps when the latency changes.
 */

export interface Rules<State, Input> {
  /** The state with an input applied, before the tick that follows. */
  apply(state: State, input: Input): State;
  /** The state after `tick`. */
  step(state: State, tick: number): State;
}

interface Predicted<Input> {
  readonly number: number;
  readonly input: Input;
  /** The tick that it is applied before. */
  tick: number;
}

/** The number of ticks that are predicted after the last snapshot. Then the player stops, because the connection is silent. */
export const AHEAD_TICKS_MAX = 60;
const PENDING_MAX = 1_024;

export class Prediction<State, Input> {
  private pending: Predicted<Input>[] = [];
  private tick = 0;
  private authoritativeTick = 0;
  private states: { before: State; now: State } | null = null;

  constructor(private readonly rules: Rules<State, Input>) {}

  /** The state at the last tick that was predicted; null before the first snapshot. */
  get now(): State | null {
    return this.states?.now ?? null;
  }

  /** The state one tick earlier, for interpolation between the two. */
  get before(): State | null {
    return this.states?.before ?? null;
  }

  /** The number of ticks that the prediction is ahead of the last snapshot. */
  get aheadTicks(): number {
    return this.tick - this.authoritativeTick;
  }

  clear(): void {
    this.pending = [];
    this.tick = this.authoritativeTick = 0;
    this.states = null;
  }

  /** Adds an input that the player has sent. It is applied before the next tick. */
  input(number: number, input: Input): void {
    this.pending.push({ number, input, tick: this.tick + 1 });
    if (this.pending.length > PENDING_MAX) this.pending.shift();
  }

  /** Advances by this number of the server's ticks. */
  advance(ticks: number): void {
    for (let count = 0; count < ticks && this.aheadTicks < AHEAD_TICKS_MAX; count += 1) this.stepOnce();
  }

  /** Processes a snapshot: after `tick`, with the inputs up to `ack` applied, the state was `state`. */
  reconcile(state: State, tick: number, ack: number): void {
    let ahead = this.states === null ? 0 : Math.max(0, this.tick - tick);
    const acknowledged = this.pending.filter(({ number }) => number <= ack).at(-1);
    this.pending = this.pending.filter(({ number }) => number > ack);
    if (acknowledged !== undefined) ahead += this.delay(tick - acknowledged.tick);
    // The next one is not applied yet: at the soonest it is before the tick after this one.
    const [next] = this.pending;
    if (next !== undefined && next.tick <= tick) ahead += this.delay(tick + 1 - next.tick);
    if (ahead >= AHEAD_TICKS_MAX) {
      // An input cannot be this late, so the room has dropped it.
      this.pending = [];
      ahead = 0;
    }
    this.authoritativeTick = this.tick = tick;
    this.states = { before: state, now: state };
    this.advance(Math.max(0, ahead));
  }

  /** Inputs in flight take effect this many ticks later than predicted. */
  private delay(ticks: number): number {
    for (const pending of this.pending) pending.tick += ticks;
    return ticks;
  }

  private stepOnce(): void {
    if (this.states === null) return;
    this.tick += 1;
    const before = this.states.now;
    let now = before;
    for (const { input, tick } of this.pending) {
      if (tick === this.tick) now = this.rules.apply(now, input);
    }
    this.states = { before, now: this.rules.step(now, this.tick) };
  }
}

/** Smooths corrections: the shown position moves to the corrected one gradually. */
export class Smoothing {
  private offsetX = 0;
  private offsetY = 0;

  /** Half of a correction is applied after `halfLifeMs`. A correction of more than `jumpUnits` is applied at once. */
  constructor(
    private readonly halfLifeMs = 60,
    private readonly jumpUnits = 256,
  ) {}

  /** Records a correction of the prediction from one position to another. */
  corrected(from: { x: number; y: number }, to: { x: number; y: number }): void {
    this.offsetX += from.x - to.x;
    this.offsetY += from.y - to.y;
    if (Math.hypot(this.offsetX, this.offsetY) > this.jumpUnits) this.offsetX = this.offsetY = 0;
  }

  /** The position to show for `place`, `passedMs` after the last call. */
  show(place: { x: number; y: number }, passedMs: number): { x: number; y: number } {
    const left = 0.5 ** (passedMs / this.halfLifeMs);
    this.offsetX *= left;
    this.offsetY *= left;
    return { x: place.x + this.offsetX, y: place.y + this.offsetY };
  }
}
