/** A room from one player's view: a subscription of a `centrifuge` client, and the state from its publications. */

import { Clock } from "./clock.js";
import { Emitter } from "./emitter.js";
import { RoomError } from "./error.js";
import { type Encoding, encodeInput, Inputs } from "./inputs.js";
import { Interpolation, type InterpolationOptions } from "./interpolation.js";
import { type Changes, Replica, type ReplicaLimits } from "./replica.js";
import { decodeSnapshot, type Snapshot, snapshotFromJson } from "./snapshot.js";
import { type Figures, Statistics } from "./statistics.js";

/** The part of a `centrifuge` subscription that this class uses, in both the JSON and the Protobuf build. */
export interface RoomSubscription {
  on(event: "publication", listener: (context: { data: unknown; offset?: number }) => void): unknown;
  on(event: "subscribed", listener: (context: { data?: unknown }) => void): unknown;
  on(event: "subscribing", listener: (context: { code: number; reason: string }) => void): unknown;
  on(event: "unsubscribed", listener: (context: { code: number; reason: string }) => void): unknown;
  on(event: "error", listener: (context: { error: { code: number; message: string } }) => void): unknown;
  subscribe(): void;
  unsubscribe(): void;
  publish(data: unknown): Promise<unknown>;
  /** Data for the next `subscribe`; older versions of the SDK do not have it. */
  setData?(data: unknown): void;
  removeAllListeners(): unknown;
}

/** Counts the bytes on the client's socket, as a `SocketMeter` does. */
export interface ByteCount {
  readonly bytesIn: number;
}

interface SubscriptionParts {
  data?: unknown;
  token?: string;
  getToken?: (context: { channel: string }) => Promise<string>;
}

/** The part of a `centrifuge` client that is used. */
export interface RoomClient {
  newSubscription(channel: string, options?: SubscriptionParts): RoomSubscription;
  removeSubscription(subscription: RoomSubscription | null): void;
  send(data: unknown): Promise<void>;
  rpc(method: string, data: unknown): Promise<unknown>;
  connect(): void;
  disconnect(): void;
}

export interface RoomOptions {
  /** Which build of `centrifuge` the client is from. */
  readonly encoding?: Encoding;
  /** Data for the game, sent as JSON with each join. */
  readonly data?: unknown;
  /** A subscription token, if the namespace requires one. */
  readonly token?: string;
  /** Gets a subscription token before a join, and again when it expires. A rejection causes an `error` event and a retry. */
  readonly getToken?: (channel: string) => Promise<string>;
  /** The `seatToken` of an earlier `Room`, to return to its player, for instance after a reload of the page. */
  readonly seatToken?: string;
  /** How inputs are sent: `send` has no reply; with `publish`, a refused input causes an `error` event. */
  readonly transport?: "send" | "publish";
  /**
   * Asks for the fields of states: the room then sends the fields that have changed instead of whole states, and
   * `replica.fields` has their values. The data of the join must be an object, if there is any.
   */
  readonly typed?: boolean;
  /** The maximum of snapshots per second, from 0.1 to 1,000: see `setPace`. Without it, one comes after each tick. */
  readonly updatesPerSecond?: number | null;
  readonly limits?: Partial<ReplicaLimits>;
  readonly interpolation?: Partial<InterpolationOptions>;
  /** Needed for `bytesPerSecond` in JSON. */
  readonly meter?: ByteCount;
  /** The local clock in milliseconds; it must be monotonic. */
  readonly now?: () => number;
}

export type RoomState = "left" | "joining" | "joined";

/** Events of a game are objects with one member, which names the kind: `{ found: { value: 35 } }`. */
export type GameEvent<GameEvents extends object> = { [Name in keyof GameEvents]: Pick<GameEvents, Name> }[keyof GameEvents];

export interface RoomEvents<GameEvents extends object = Record<string, unknown>> {
  /** The changes of a snapshot. The first one after joining is full. */
  snapshot: Changes;
  /**
   * The room has moved to another node of its cluster while the player stayed in it, and its `snapshot` follows. Inputs go on; events shortly before may be
   * missing.
   */
  moved: { readonly tick: number };
  /** A reliable event of the room, and the tick in which it happened. */
  event: { readonly tick: number; readonly event: GameEvent<GameEvents> };
  /** The client has joined; a snapshot follows. Also emitted after a reconnect. `seatResumed`: the client has returned to its previous player. */
  joined: { readonly seatResumed: boolean };
  /** The player has left. If `rejoins`, the client is trying to join again. */
  left: { readonly code: number; readonly reason: string; readonly rejoins: boolean };
  /** Invalid data was ignored. After an invalid snapshot, the client reconnects and joins again. */
  error: Error;
}

/**
 * The number of consecutive invalid snapshots after which the client stops joining again. Good ones count from some time after the join: the first one
 * is often good.
 */
const BAD_SNAPSHOTS_MAX = 3;
const GOOD_AFTER_MS = 5_000;

/** `GameEvents` maps the names of the game's events to their values, for the types of `on("event")` and `onEvent`. */
export class Room<GameEvents extends object = Record<string, unknown>> extends Emitter<RoomEvents<GameEvents>> {
  readonly replica: Replica;
  readonly clock = new Clock();
  readonly interpolation: Interpolation;
  readonly inputs = new Inputs();
  readonly encoding: Encoding;
  private readonly gameEvents = new GameEmitter();
  private readonly statistics = new Statistics();
  private readonly now: () => number;
  private subscription: RoomSubscription | null = null;
  private current: RoomState = "left";
  private badSnapshots = 0;
  private joinedAt = 0;
  private metered = 0;
  private seat: string | null;
  private pace: number | null;

  constructor(
    private readonly client: RoomClient,
    readonly channel: string,
    private readonly options: RoomOptions = {},
  ) {
    super();
    this.encoding = options.encoding ?? "json";
    this.seat = options.seatToken ?? null;
    this.pace = options.updatesPerSecond ?? null;
    this.replica = new Replica(options.limits);
    this.interpolation = new Interpolation(options.interpolation);
    this.now = options.now ?? (() => performance.now());
  }

  /** Calls `listener` for each event of the game with a member of this name. The returned function removes the listener. */
  onEvent<Name extends keyof GameEvents & string>(name: Name, listener: (value: GameEvents[Name], tick: number) => void): () => void {
    return this.gameEvents.on(name, ({ value, tick }) => listener(value as GameEvents[Name], tick));
  }

  get state(): RoomState {
    return this.current;
  }

  /** With this token, the next join returns to the same player; null if the room issued none. Each join issues a new one. It is a secret. */
  get seatToken(): string | null {
    return this.seat;
  }

  /** Joins, and joins again after each reconnect, until `leave`. */
  join(): void {
    if (this.subscription !== null) return;
    const { token, getToken } = this.options;
    const data = this.joinData();
    const subscription = this.client.newSubscription(this.channel, {
      ...(data === undefined ? {} : { data: this.encodeValue(data) }),
      ...(token === undefined ? {} : { token }),
      ...(getToken === undefined ? {} : { getToken: ({ channel }) => getToken(channel) }),
    });
    this.subscription = subscription;
    this.listen(subscription);
    this.current = "joining";
    subscription.subscribe();
  }

  leave(): void {
    const { subscription } = this;
    if (subscription === null) return;
    subscription.unsubscribe();
    // The client has emitted "unsubscribed" already, unless it ended the subscription itself.
    if (this.subscription !== subscription) return;
    this.forget(subscription);
    this.end(0, "left", false);
  }

  /**
   * Changes the maximum of snapshots per second, now and for later joins; null: one after each tick. The newest state comes at
   * each. A hidden page may ask for one per second. Events come as before.
   */
  async setPace(updatesPerSecond: number | null): Promise<void> {
    this.pace = updatesPerSecond;
    const { subscription } = this;
    if (subscription === null) return;
    // Older versions of the SDK join again with the data of the first join, so `joined` states the pace once more.
    subscription.setData?.(this.encodeValue(this.joinData()));
    if (this.current === "joined") await this.statePace();
  }

  private async statePace(): Promise<void> {
    const pace = { channel: this.channel, updates_per_second_max: this.pace };
    await this.client.rpc("dunlin.subscription_pace", this.encodeValue(pace));
  }

  /** Sends an input, in the game's own format, and returns its number. @throws RoomError when the room is not joined. */
  send(data: Uint8Array): number {
    const { subscription } = this;
    if (this.current !== "joined" || subscription === null) {
      throw new RoomError("not_joined", `an input for ${this.channel}, which is not joined`);
    }
    const { number } = this.inputs.add(data, this.now());
    const sent =
      this.options.transport === "publish"
        ? subscription.publish(encodeInput(this.encoding, number, data))
        : this.client.send(encodeInput(this.encoding, number, data, this.channel));
    sent.catch((reason: unknown) => this.emit("error", errorOf(reason)));
    return number;
  }

  /** The server's current tick as a fraction: the tick of a snapshot without any latency. */
  tickNow(): number {
    const { replica } = this;
    return replica.tick + ((this.clock.serverTimeMs(this.now()) - replica.timeUs / 1000) * replica.ticksPerSecond) / 1000;
  }

  figures(): Figures {
    return this.statistics.figures(this.now());
  }

  private listen(subscription: RoomSubscription): void {
    subscription.on("subscribed", (context) => {
      this.current = "joined";
      this.joinedAt = this.now();
      const wantsPace = this.pace !== (this.options.updatesPerSecond ?? null);
      if (wantsPace && subscription.setData === undefined) {
        this.statePace().catch((reason: unknown) => this.emit("error", errorOf(reason)));
      }
      this.emit("joined", { seatResumed: this.keepSeat(subscription, context.data) });
    });
    subscription.on("subscribing", ({ code, reason }) => this.end(code, reason, true));
    subscription.on("unsubscribed", ({ code, reason }) => {
      this.forget(subscription);
      this.end(code, reason, false);
    });
    subscription.on("error", ({ error }) => this.emit("error", new Error(`${error.message} (${error.code})`)));
    subscription.on("publication", ({ data, offset }) => {
      // The rest of a frame with an invalid snapshot is ignored, because the client is already reconnecting.
      if (this.current !== "joined") return;
      try {
        if (offset === undefined || offset === 0) this.snapshot(data);
        else this.event(data);
      } catch (error) {
        if (!(error instanceof RoomError)) throw error;
        this.emit("error", error);
      }
    });
  }

  private snapshot(data: unknown): void {
    const now = this.now();
    let changes: Changes;
    let snapshot: Snapshot;
    try {
      snapshot = this.decode(data);
      changes = this.replica.apply(snapshot);
    } catch (error) {
      if (error instanceof RoomError) this.rejoin(error);
      throw error;
    }
    if (now - this.joinedAt >= GOOD_AFTER_MS) this.badSnapshots = 0;
    // The room's new node has a clock of its own. One that is behind would show objects too late for seconds.
    if (snapshot.moved) {
      this.clock.clear();
      this.interpolation.forgetSamples();
    }
    const lateMs = this.clock.observe(snapshot.timeUs, now);
    this.statistics.arrived(snapshot, this.bytesOf(data), lateMs, now);
    const acknowledged = this.inputs.acknowledge(snapshot.ack).at(-1);
    if (acknowledged !== undefined) this.statistics.acknowledged(now - acknowledged.sentMs);
    const { grid } = this.replica;
    if (grid !== null) this.interpolation.observe(changes, grid, this.clock.serverTimeMs(now));
    if (snapshot.moved) this.emit("moved", { tick: snapshot.tick });
    this.emit("snapshot", changes);
  }

  private decode(data: unknown): Snapshot {
    const isBytes = data instanceof Uint8Array;
    if (isBytes !== (this.encoding === "protobuf")) {
      const spoken = isBytes ? "protobuf" : "json";
      throw new RoomError("wrong_encoding", `the client speaks ${spoken}: the room needs the option encoding: "${spoken}"`);
    }
    return isBytes ? decodeSnapshot(data) : snapshotFromJson(data);
  }

  private event(data: unknown): void {
    let value = data;
    if (data instanceof Uint8Array) {
      try {
        value = JSON.parse(decoder.decode(data));
      } catch {
        throw new RoomError("malformed", "an event is not JSON");
      }
    }
    const { tick, event } = (typeof value === "object" && value !== null ? value : {}) as { tick?: unknown; event?: unknown };
    if (typeof tick !== "number" || event === undefined) throw new RoomError("malformed", "an event lacks its tick");
    this.emit("event", { tick, event: event as GameEvent<GameEvents> });
    if (typeof event !== "object" || event === null || Array.isArray(event)) return;
    for (const [name, value] of Object.entries(event)) this.gameEvents.take(name, value, tick);
  }

  private bytesOf(data: unknown): number | null {
    const { meter } = this.options;
    if (meter !== undefined) {
      const bytes = meter.bytesIn - this.metered;
      this.metered = meter.bytesIn;
      return bytes;
    }
    return data instanceof Uint8Array ? data.length : null;
  }

  /**
   * After an invalid snapshot, later ones cannot be applied, and only a new join provides a full snapshot.
   * Unsubscribing would give up the seat, so the client reconnects, as after a lost connection.
   */
  private rejoin(cause: RoomError): void {
    const { client, subscription } = this;
    if (subscription === null) return;
    this.badSnapshots += 1;
    const rejoins = this.badSnapshots < BAD_SNAPSHOTS_MAX && cause.kind !== "wrong_encoding";
    if (!rejoins) {
      subscription.removeAllListeners();
      subscription.unsubscribe();
      this.forget(subscription);
    }
    this.end(0, cause.message, rejoins);
    if (!rejoins || this.subscription !== subscription) return;
    client.disconnect();
    client.connect();
  }

  private end(code: number, reason: string, rejoins: boolean): void {
    const wasIn = this.current === "joined" || (this.current === "joining" && !rejoins);
    this.current = rejoins ? "joining" : "left";
    this.replica.clear();
    this.clock.clear();
    this.interpolation.clear();
    this.inputs.clear();
    this.statistics.clear();
    if (wasIn) this.emit("left", { code, reason, rejoins });
  }

  private forget(subscription: RoomSubscription): void {
    this.subscription = null;
    subscription.removeAllListeners();
    this.client.removeSubscription(subscription);
  }

  /** Stores the seat token from the room, to return it with the next join. Returns whether the room accepted the previous one. */
  private keepSeat(subscription: RoomSubscription, answer: unknown): boolean {
    let value = answer;
    if (answer instanceof Uint8Array) {
      try {
        value = JSON.parse(decoder.decode(answer));
      } catch {
        return false;
      }
    }
    const { seat_token: token, seat_resumed: isResumed } = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
    if (typeof token !== "string") return false;
    this.seat = token;
    subscription.setData?.(this.encodeValue(this.joinData()));
    return isResumed === true;
  }

  private joinData(): unknown {
    const { data, typed } = this.options;
    const members = {
      ...(this.pace === null ? {} : { updates_per_second_max: this.pace }),
      ...(typed === true ? { snapshots: "typed" } : {}),
      ...(this.seat === null ? {} : { seat_token: this.seat }),
    };
    if (Object.keys(members).length === 0) return data;
    if (data === undefined || data === null) return members;
    // Data that is not an object cannot contain them.
    return typeof data === "object" && !Array.isArray(data) ? { ...data, ...members } : data;
  }

  private encodeValue(value: unknown): unknown {
    return this.encoding === "protobuf" ? encoder.encode(JSON.stringify(value)) : value;
  }
}

/** Listeners by the name of the game's event. */
class GameEmitter extends Emitter<Record<string, { readonly value: unknown; readonly tick: number }>> {
  take(name: string, value: unknown, tick: number): void {
    this.emit(name, { value, tick });
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function errorOf(reason: unknown): Error {
  if (reason instanceof Error) return reason;
  const { code, message } = (typeof reason === "object" && reason !== null ? reason : {}) as { code?: unknown; message?: unknown };
  return new Error(typeof message === "string" ? `${message} (${String(code)})` : String(reason));
}
