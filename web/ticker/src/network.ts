/**
 * A simulated network cable of the page. It carries every socket of a client with `Network.socketClass`, counts the
 * bytes, and can be cut. A cut closes the real WebSocket, and refuses each new one until the cable is restored.
 */

const NORMAL_CLOSURE = 1000;
/** What a browser reports for a connection that ended without a closing handshake. */
const ABNORMAL_CLOSURE = 1006;

export class Network {
  /** Bytes and messages of WebSocket payload, both without frame headers. */
  bytesIn = 0;
  messagesIn = 0;
  bytesOut = 0;
  /** Pass this to the SDK as `networkEventTarget`: `online` makes it reconnect at once. */
  readonly events = new EventTarget();
  private readonly sockets = new Set<CuttableSocket>();
  private isCut = false;

  constructor() {
    for (const type of ["online", "offline"]) {
      globalThis.addEventListener(type, () => this.events.dispatchEvent(new Event(type)));
    }
  }

  get cut(): boolean {
    return this.isCut;
  }

  cutOff(): void {
    this.isCut = true;
    for (const socket of [...this.sockets]) socket.drop();
  }

  restore(): void {
    this.isCut = false;
    this.events.dispatchEvent(new Event("online"));
  }

  /** A constructor with the shape of `WebSocket`, bound to this cable. */
  socketClass(): new (url: string, protocols?: string | string[]) => CuttableSocket {
    const network = this;
    return class extends CuttableSocket {
      constructor(url: string, protocols?: string | string[]) {
        super(network, network.sockets, url, protocols);
      }
    };
  }
}

/** The part of the WebSocket interface that the SDK uses. */
export class CuttableSocket {
  onopen: ((event: Event) => void) | null = null;
  onmessage: ((event: MessageEvent) => void) | null = null;
  onerror: ((event: Event) => void) | null = null;
  onclose: ((event: CloseEvent) => void) | null = null;
  private readonly real: WebSocket | null;
  private isClosed = false;

  constructor(
    private readonly network: Network,
    private readonly open: Set<CuttableSocket>,
    url: string,
    protocols?: string | string[],
  ) {
    if (network.cut) {
      this.real = null;
      // Later, as with a real socket, because the caller has not set its handlers yet.
      setTimeout(() => this.end(ABNORMAL_CLOSURE, "network is cut"), 0);
      return;
    }
    this.real = protocols === undefined ? new WebSocket(url) : new WebSocket(url, protocols);
    this.open.add(this);
    this.real.onopen = (event) => this.onopen?.(event);
    this.real.onmessage = (event) => this.receive(event);
    this.real.onerror = (event) => this.onerror?.(event);
    this.real.onclose = (event) => this.end(event.code, event.reason);
  }

  get readyState(): number {
    if (this.isClosed) return WebSocket.CLOSED;
    return this.real?.readyState ?? WebSocket.CONNECTING;
  }

  set binaryType(type: BinaryType) {
    if (this.real !== null) this.real.binaryType = type;
  }

  send(data: string | ArrayBuffer | ArrayBufferView<ArrayBuffer>): void {
    if (this.real === null || this.isClosed) throw new DOMException("not open", "InvalidStateError");
    this.network.bytesOut += byteLength(data);
    this.real.send(data);
  }

  close(code: number = NORMAL_CLOSURE, reason = ""): void {
    this.real?.close(code, reason);
  }

  /** Ends this socket like a cut cable: nothing more arrives, and there is no close handshake. */
  drop(): void {
    const real = this.real;
    if (real !== null) {
      real.onopen = real.onmessage = real.onerror = real.onclose = null;
      real.close();
    }
    this.end(ABNORMAL_CLOSURE, "network is cut");
  }

  private receive(event: MessageEvent): void {
    this.network.messagesIn += 1;
    this.network.bytesIn += byteLength(event.data);
    this.onmessage?.(event);
  }

  private end(code: number, reason: string): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.open.delete(this);
    this.onclose?.(new CloseEvent("close", { code, reason, wasClean: code === NORMAL_CLOSURE }));
  }
}

const encoder = new TextEncoder();

function byteLength(data: unknown): number {
  if (typeof data === "string") return encoder.encode(data).length;
  if (data instanceof ArrayBuffer || ArrayBuffer.isView(data)) return data.byteLength;
  return 0;
}
