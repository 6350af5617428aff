/* A WebSocket over POSIX sockets, as small as the tests need: ws:// only, and the server's messages are not fragmented. */
#ifndef WEBSOCKET_H
#define WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct websocket {
  int file; /* -1: closed */
  uint8_t *bytes; /* received and not taken */
  size_t count;
  size_t capacity;
  size_t taken; /* of the last message */
} websocket;

/* Opens it with a subprotocol. The address is ws://HOST:PORT/PATH. */
bool websocket_open(websocket *socket, const char *address, const char *subprotocol);
bool websocket_send(websocket *socket, const uint8_t *message, size_t byte_count);
/* Reads what has arrived, without waiting. */
void websocket_read(websocket *socket);
/* The next message. False if there is none. After a close frame or the end, the socket is closed and `*close_code` is not 0. */
bool websocket_take(websocket *socket, const uint8_t **message, size_t *byte_count, uint32_t *close_code);
/* Closes it without a word, as a lost network does. */
void websocket_drop(websocket *socket);

#endif
