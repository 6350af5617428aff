// The WebSocket of the browser for Unity's WebGL player, which WebGLRoomSocket.cs polls. Emscripten's compiler reads this file, so it has no newer
// syntax than ES5.
mergeInto(LibraryManager.library, {
  $dunlinSockets: {
    last: 0,
    byId: {},
    // Messages that wait for the game. A browser cannot be told to read more slowly.
    receivedBytesMax: 64 * 1024 * 1024,
    unsentBytesMax: 1024 * 1024,

    // The socket has ended: what has arrived stays, then comes the end.
    end: function (entry, code, reason) {
      if (entry.isEnded) return;
      entry.isEnded = true;
      entry.messages.push({ kind: 3, bytes: new TextEncoder().encode(reason), code: code });
      entry.socket.close();
    },

    take: function (entry, data) {
      if (entry.isEnded) return;
      var bytes = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
      entry.receivedBytes += bytes.length;
      if (entry.receivedBytes > dunlinSockets.receivedBytesMax) dunlinSockets.end(entry, 1006, "more has arrived than is processed");
      else entry.messages.push({ kind: 2, bytes: bytes, code: 0 });
    },
  },

  // Returns the number of the socket. Throws nothing: a socket that cannot be made has ended.
  DunlinSocketOpen__deps: ["$dunlinSockets"],
  DunlinSocketOpen: function (url, subprotocol) {
    var entry = { socket: { close: function () {} }, messages: [], receivedBytes: 0, isEnded: false };
    dunlinSockets.last += 1;
    dunlinSockets.byId[dunlinSockets.last] = entry;
    try {
      entry.socket = new WebSocket(UTF8ToString(url), UTF8ToString(subprotocol));
    } catch (error) {
      dunlinSockets.end(entry, 1006, String(error));
      return dunlinSockets.last;
    }
    entry.socket.binaryType = "arraybuffer";
    entry.socket.onopen = function () {
      if (!entry.isEnded) entry.messages.push({ kind: 1, bytes: new Uint8Array(0), code: 0 });
    };
    entry.socket.onmessage = function (event) {
      dunlinSockets.take(entry, event.data);
    };
    // The end follows.
    entry.socket.onerror = function () {};
    entry.socket.onclose = function (event) {
      dunlinSockets.end(entry, event.code, event.reason);
    };
    return dunlinSockets.last;
  },

  // The kind of the next message: 0 none, 1 opened, 2 data, 3 closed.
  DunlinSocketNext__deps: ["$dunlinSockets"],
  DunlinSocketNext: function (id) {
    var entry = dunlinSockets.byId[id];
    return entry === undefined || entry.messages.length === 0 ? 0 : entry.messages[0].kind;
  },

  // The size of its data; of the end, that of the reason.
  DunlinSocketBytes__deps: ["$dunlinSockets"],
  DunlinSocketBytes: function (id) {
    return dunlinSockets.byId[id].messages[0].bytes.length;
  },

  // Copies its data, and removes it. Returns the code of the end.
  DunlinSocketTake__deps: ["$dunlinSockets"],
  DunlinSocketTake: function (id, data) {
    var entry = dunlinSockets.byId[id];
    var message = entry.messages.shift();
    if (message.kind === 2) entry.receivedBytes -= message.bytes.length;
    HEAPU8.set(message.bytes, data);
    return message.code;
  },

  DunlinSocketSend__deps: ["$dunlinSockets"],
  DunlinSocketSend: function (id, data, length, isText) {
    var entry = dunlinSockets.byId[id];
    // 1: open. What is sent before or after that is of no interest.
    if (entry === undefined || entry.isEnded || entry.socket.readyState !== 1) return;
    if (entry.socket.bufferedAmount + length > dunlinSockets.unsentBytesMax) {
      dunlinSockets.end(entry, 1006, "more is to be sent than the network takes");
      return;
    }
    // A copy: the memory of the game is another one after it has grown.
    var bytes = HEAPU8.slice(data, data + length);
    entry.socket.send(isText ? new TextDecoder().decode(bytes) : bytes);
  },

  // Closes the socket and forgets it.
  DunlinSocketClose__deps: ["$dunlinSockets"],
  DunlinSocketClose: function (id) {
    var entry = dunlinSockets.byId[id];
    if (entry === undefined) return;
    delete dunlinSockets.byId[id];
    entry.isEnded = true;
    entry.socket.close();
  },
});
