/** Counts the bytes on a client's socket. The SDK delivers parsed JSON snapshots, so their size is known only on the socket. */

interface MeteredSocket {
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
}

type SocketClass = new (url: string, protocols?: string | string[]) => MeteredSocket;

export class SocketMeter {
  /** WebSocket payload, without frame headers. */
  bytesIn = 0;
  messagesIn = 0;

  /** A class to give to `centrifuge` as its option `websocket`. `Base` is the browser's `WebSocket`, or that of a package. */
  socketClass<Base extends SocketClass>(Base: Base): Base {
    const meter = this;
    // TypeScript requires this signature of a class that extends a type parameter; the arguments are WebSocket's.
    const Metered = class extends (Base as SocketClass) {
      constructor(url: string, protocols?: string | string[]) {
        super(url, ...(protocols === undefined ? [] : [protocols]));
        this.addEventListener("message", ({ data }) => {
          meter.messagesIn += 1;
          meter.bytesIn += byteLength(data);
        });
      }
    };
    return Metered as unknown as Base;
  }
}

/** The number of UTF-8 bytes of a string, counted without encoding it. */
function textLength(text: string): number {
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) continue;
    // A surrogate pair has two UTF-16 units and four bytes in UTF-8.
    bytes += unit < 0x800 || (unit >= 0xd800 && unit < 0xe000) ? 1 : 2;
  }
  return bytes;
}

function byteLength(data: unknown): number {
  if (typeof data === "string") return textLength(data);
  return data instanceof ArrayBuffer || ArrayBuffer.isView(data) ? data.byteLength : 0;
}
