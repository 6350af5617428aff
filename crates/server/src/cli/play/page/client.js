/** A client of the protocol that shows each frame. Applications use an SDK, whose code the page writes. */

import { SUBPROTOCOLS, encode, frameOf, repliesOf } from "./codec.js";

/** @typedef {import("./codec.js").Encoding} Encoding */
/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./codec.js").Message} Message */
/** @typedef {"disconnected" | "connecting" | "connected" | "cut"} State */

/**
 * @typedef {object} Subscription
 * @property {string} channel
 * @property {"subscribing" | "subscribed" | "refused"} state
 * @property {string} why of a refusal
 * @property {boolean} isOfServer the server has subscribed the client
 * @property {boolean} isRecoverable
 * @property {number} offset of the newest publication
 * @property {string} epoch
 */

/**
 * @typedef {object} Listener
 * @property {(state: State, why: string) => void} onState
 * @property {(direction: "out" | "in", frame: Frame) => void} onFrame
 * @property {() => void} onSubscriptions one of them has changed, come or gone
 * @property {(channel: string, publication: Message, how: "live" | "recovered" | "with the reply") => void} onPublication
 * @property {(channel: string, what: "joined" | "left", info: Message) => void} onMember
 * @property {(channel: string, text: string) => void} onNote
 */

/** Close codes after which a client does not come back, as in the specification of the SDKs. */
const TERMINAL = [[3500, 3999], [4500, 4999]];
const UNRECOVERABLE_POSITION = 112;
/** An `unsubscribe` with at least this code asks for a new subscription. */
const RESUBSCRIBE_FROM = 2500;

const RECONNECT_MS = 500;
const RECONNECT_MS_MAX = 10_000;
const RESUBSCRIBE_MS = 1_000;
const REPLY_MS_MAX = 10_000;
/** How much later than announced a ping may come. */
const PING_DELAY_MS = 10_000;

/** An error that the server has answered with. */
export class RequestError extends Error {
  /** @param {{ code: number, message: string, temporary?: boolean }} error */
  constructor({ code, message, temporary = false }) {
    super(`${code}: ${message}`);
    this.code = code;
    this.temporary = temporary || code < 100;
  }
}

export class Client {
  /** @type {State} */
  state = "disconnected";
  /** @type {Encoding} */
  encoding = "json";
  token = "";
  id = "";
  /** @type {Map<string, Subscription>} */
  subscriptions = new Map();

  /** @type {WebSocket | null} */
  #socket = null;
  #commands = 0;
  #attempts = 0;
  #pingMs = 0;
  #answersPings = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #reconnecting;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #silence;
  /** @type {Map<number, { resolve: (reply: Message) => void, reject: (error: Error) => void }>} */
  #pending = new Map();

  /**
   * @param {string} url
   * @param {Listener} listener
   */
  constructor(url, listener) {
    this.url = url;
    this.listener = listener;
  }

  connect() {
    this.#attempts = 0;
    this.#open("");
  }

  disconnect() {
    this.#become("disconnected", "");
  }

  /** Loses the connection, and opens no other one before `connect`. */
  cut() {
    this.#become("cut", "");
  }

  /** @param {string} channel */
  subscribe(channel) {
    const known = this.subscriptions.get(channel);
    if (known && known.state !== "refused") return;
    const subscription = {
      channel, state: /** @type {const} */ ("subscribing"), why: "", isOfServer: false, isRecoverable: false, offset: 0, epoch: "",
    };
    this.subscriptions.set(channel, subscription);
    this.listener.onSubscriptions();
    if (this.state === "connected") void this.#subscribe(subscription);
  }

  /** @param {string} channel */
  async unsubscribe(channel) {
    this.subscriptions.delete(channel);
    this.listener.onSubscriptions();
    if (this.state === "connected") await this.request("unsubscribe", { channel });
  }

  /**
   * Sends a command; its result.
   * @param {string} name
   * @param {Message} fields
   * @returns {Promise<Message>}
   */
  async request(name, fields) {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) throw new Error("not connected");
    const id = ++this.#commands;
    /** @type {Promise<Message>} */
    const replied = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject }));
    const timeout = setTimeout(() => this.#pending.get(id)?.reject(new Error("the server has not answered")), REPLY_MS_MAX);
    this.#send(socket, { id, [name]: fields });
    try {
      const reply = await replied;
      if (reply.error) throw new RequestError(reply.error);
      return reply[name] ?? {};
    } finally {
      clearTimeout(timeout);
      this.#pending.delete(id);
    }
  }

  /** @param {string} why */
  #open(why) {
    this.#become("connecting", why);
    const socket = new WebSocket(this.url, SUBPROTOCOLS[this.encoding]);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.addEventListener("open", () => this.#introduce(socket));
    socket.addEventListener("message", ({ data }) => {
      if (socket === this.#socket) this.#receive(socket, frameOf(data));
    });
    socket.addEventListener("close", ({ code, reason }) => {
      if (socket === this.#socket) this.#lose(code, reason === "" ? `closed with ${code}` : `${code}: ${reason}`);
    });
  }

  /**
   * Enters a state in which there is no connection yet.
   * @param {State} state
   * @param {string} why
   */
  #become(state, why) {
    clearTimeout(this.#reconnecting);
    clearTimeout(this.#silence);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    for (const { reject } of this.#pending.values()) reject(new Error("the connection is closed"));
    this.#pending.clear();
    this.id = "";
    for (const subscription of this.subscriptions.values()) {
      if (subscription.state === "subscribed") subscription.state = "subscribing";
    }
    this.#enter(state, why);
    this.listener.onSubscriptions();
  }

  /**
   * @param {State} state
   * @param {string} why
   */
  #enter(state, why) {
    this.state = state;
    this.listener.onState(state, why);
  }

  /** @param {WebSocket} socket */
  async #introduce(socket) {
    const subs = [...this.subscriptions.values()].filter(({ isOfServer, epoch }) => isOfServer && epoch !== "");
    const positions = subs.map(({ channel, offset, epoch }) => [channel, { recover: true, offset, epoch }]);
    try {
      const result = await this.request("connect", {
        name: "playground",
        ...(this.token !== "" && { token: this.token }),
        ...(positions.length > 0 && { subs: Object.fromEntries(positions) }),
      });
      if (socket === this.#socket) this.#welcome(result);
    } catch (error) {
      if (socket !== this.#socket) return;
      if (error instanceof RequestError && !error.temporary) this.#become("disconnected", error.message);
      else socket.close();
    }
  }

  /** @param {Message} result */
  #welcome(result) {
    this.#attempts = 0;
    this.id = result.client;
    this.#pingMs = (result.ping ?? 0) * 1_000;
    this.#answersPings = result.pong ?? false;
    this.#hear();
    this.#enter("connected", "");
    for (const { channel, isOfServer } of [...this.subscriptions.values()]) if (isOfServer) this.subscriptions.delete(channel);
    for (const [channel, subscribed] of Object.entries(result.subs ?? {})) this.#addOfServer(channel, subscribed);
    for (const subscription of this.subscriptions.values()) {
      if (!subscription.isOfServer && subscription.state === "subscribing") void this.#subscribe(subscription);
    }
  }

  /**
   * @param {number} code of the WebSocket
   * @param {string} why
   */
  #lose(code, why) {
    if (TERMINAL.some(([first = 0, last = 0]) => code >= first && code <= last)) {
      this.#become("disconnected", why);
      return;
    }
    this.#become("connecting", why);
    const delay = Math.min(RECONNECT_MS * 2 ** this.#attempts, RECONNECT_MS_MAX);
    this.#attempts += 1;
    this.#reconnecting = setTimeout(() => this.#open(why), delay);
  }

  /** The server was heard: it is lost when the next ping does not come. */
  #hear() {
    clearTimeout(this.#silence);
    if (this.#pingMs > 0) this.#silence = setTimeout(() => this.#lose(0, "no ping came"), this.#pingMs + PING_DELAY_MS);
  }

  /**
   * @param {WebSocket} socket
   * @param {Message} command
   */
  #send(socket, command) {
    const frame = encode(this.encoding, command);
    socket.send("text" in frame ? frame.text : frame.bytes);
    this.listener.onFrame("out", frame);
  }

  /**
   * @param {WebSocket} socket
   * @param {Frame} frame
   */
  #receive(socket, frame) {
    this.listener.onFrame("in", frame);
    this.#hear();
    /** @type {Message[]} */
    let replies = [];
    try {
      replies = repliesOf(frame);
    } catch (error) {
      this.listener.onNote("", `a frame that is none of this protocol: ${error}`);
    }
    for (const reply of replies) {
      if (reply.id) this.#pending.get(reply.id)?.resolve(reply);
      else if (reply.push) this.#push(reply.push);
      // An empty reply is a ping.
      else if (this.#answersPings) this.#send(socket, {});
    }
  }

  /** @param {Subscription} subscription */
  async #subscribe(subscription) {
    const { channel, offset, epoch, isRecoverable } = subscription;
    const isCurrent = () => this.subscriptions.get(channel) === subscription;
    try {
      const position = isRecoverable && epoch !== "" ? { recover: true, offset, epoch } : {};
      const result = await this.request("subscribe", { channel, ...position });
      if (isCurrent()) this.#subscribed(subscription, result);
    } catch (error) {
      if (!isCurrent() || !(error instanceof RequestError)) return;
      if (error.code === UNRECOVERABLE_POSITION) {
        subscription.epoch = "";
        this.listener.onNote(channel, "the position is too old: what was missed is lost");
        void this.#subscribe(subscription);
      } else if (error.temporary) {
        this.listener.onNote(channel, `${error.message}, tried again in a second`);
        setTimeout(() => this.state === "connected" && isCurrent() && this.#subscribe(subscription), RESUBSCRIBE_MS);
      } else {
        subscription.state = "refused";
        subscription.why = error.message;
        this.listener.onSubscriptions();
      }
    }
  }

  /**
   * @param {Subscription} subscription
   * @param {Message} result
   */
  #subscribed(subscription, result) {
    const { channel } = subscription;
    /** @type {Message[]} */
    const publications = result.publications ?? [];
    subscription.state = "subscribed";
    subscription.isRecoverable = result.recoverable ?? false;
    subscription.offset = result.offset ?? 0;
    subscription.epoch = result.epoch ?? "";
    if (result.was_recovering) {
      const count = publications.length === 1 ? "1 publication" : `${publications.length} publications`;
      this.listener.onNote(channel, result.recovered ? `recovered: ${count} while away` : "not recovered: history has lost the position");
    }
    for (const publication of publications) {
      // With publications, the offset of the reply is that from which they were recovered.
      subscription.offset = Math.max(subscription.offset, publication.offset ?? 0);
      this.listener.onPublication(channel, publication, result.was_recovering ? "recovered" : "with the reply");
    }
    this.listener.onSubscriptions();
  }

  /**
   * @param {string} channel
   * @param {Message} result
   */
  #addOfServer(channel, result) {
    const subscription = {
      channel, state: /** @type {const} */ ("subscribed"), why: "", isOfServer: true, isRecoverable: false, offset: 0, epoch: "",
    };
    this.subscriptions.set(channel, subscription);
    this.#subscribed(subscription, result);
  }

  /** @param {Message} push */
  #push(push) {
    const channel = push.channel ?? "";
    const subscription = this.subscriptions.get(channel);
    if (push.pub) {
      if (subscription && push.pub.offset) subscription.offset = push.pub.offset;
      this.listener.onPublication(channel, push.pub, "live");
      this.listener.onSubscriptions();
    } else if (push.join) this.listener.onMember(channel, "joined", push.join.info ?? {});
    else if (push.leave) this.listener.onMember(channel, "left", push.leave.info ?? {});
    else if (push.subscribe) this.#addOfServer(channel, push.subscribe);
    else if (push.unsubscribe && subscription) this.#unsubscribed(subscription, push.unsubscribe);
    else if (push.message) this.listener.onNote("", `message: ${JSON.stringify(push.message.data)}`);
  }

  /**
   * @param {Subscription} subscription
   * @param {Message} unsubscribed
   */
  #unsubscribed(subscription, { code = 0, reason = "" }) {
    this.listener.onNote(subscription.channel, `the server has ended the subscription: ${code} ${reason}`);
    if (code >= RESUBSCRIBE_FROM && !subscription.isOfServer) {
      subscription.state = "subscribing";
      void this.#subscribe(subscription);
    } else this.subscriptions.delete(subscription.channel);
    this.listener.onSubscriptions();
  }
}
