/* A scripted server: what the client sends, in order, and what it makes of replies, pushes, ends and time. */
#include "check.h"

#include <time.h>

enum { FRAME_BYTES = 4096, EVENTS_MAX = 64 };

/* A message that is written from its fields. */
typedef struct writer {
  uint8_t bytes[FRAME_BYTES];
  size_t count;
} writer;

/* A client and what it has told. The texts of events are copied; `sent` has all that it has sent since the last look. */
typedef struct script {
  dunlin_client *client;
  dunlin_room *room;
  double now_ms;
  dunlin_event event;
  char text[256];
  char bytes[FRAME_BYTES];
  uint8_t sent[FRAME_BYTES];
  size_t sent_bytes;
  test_random *random; /* of mutations of what the server sends; NULL for none */
  uint32_t rate_permille; /* of the next ship; 0 for none */
  bool has_moved; /* the room of the next ship */
  bool is_lenient; /* memory fails, or messages are damaged: nothing is checked */
} script;

static void put_varint(writer *to, uint64_t number) {
  for (; number >= 0x80; number >>= 7) to->bytes[to->count++] = (uint8_t)(number | 0x80);
  to->bytes[to->count++] = (uint8_t)number;
}

static void put_number(writer *to, uint32_t field, uint64_t number) {
  put_varint(to, field << 3);
  put_varint(to, number);
}

static void put_bytes(writer *to, uint32_t field, const void *bytes, size_t count) {
  put_varint(to, field << 3 | 2);
  put_varint(to, count);
  memcpy(to->bytes + to->count, bytes, count);
  to->count += count;
}

static void put_text(writer *to, uint32_t field, const char *text) {
  put_bytes(to, field, text, strlen(text));
}

static void put_message(writer *to, uint32_t field, const writer *message) {
  put_bytes(to, field, message->bytes, message->count);
}

#define EXPECT(of, condition) do { if (!(of)->is_lenient) CHECK(condition, (of)->text); } while (0)

/* The next event, which is not that something is to be sent. */
static dunlin_event_kind next(script *of) {
  while (dunlin_next(of->client, of->now_ms, &of->event)) {
    if (of->event.kind == DUNLIN_EVENT_SEND) {
      CHECK(of->event.byte_count > 0 && of->sent_bytes + of->event.byte_count <= sizeof of->sent, "a message");
      memcpy(of->sent + of->sent_bytes, of->event.bytes, of->event.byte_count);
      of->sent_bytes += of->event.byte_count;
      continue;
    }
    snprintf(of->text, sizeof of->text, "%s", of->event.text);
    snprintf(of->bytes, sizeof of->bytes, "%.*s", (int)of->event.byte_count, of->event.bytes == NULL ? "" : (const char *)of->event.bytes);
    return of->event.kind;
  }
  return DUNLIN_EVENT_NONE;
}

#define NEXT(of, wanted) do { \
    dunlin_event_kind kind = next(of); \
    if (kind != (wanted) && !(of)->is_lenient) fprintf(stderr, "%s:%d: event %d, not %d\n", __FILE__, __LINE__, kind, (wanted)); \
    EXPECT(of, kind == (wanted)); \
  } while (0)

static void arrive(script *of, const uint8_t *frame, size_t byte_count) {
  uint8_t *copy = (uint8_t *)malloc(byte_count == 0 ? 1 : byte_count);
  CHECK(copy != NULL, "memory of the test");
  memcpy(copy, frame, byte_count);
  if (of->random != NULL && test_next(of->random, 4) == 0) copy = test_mutate(of->random, copy, &byte_count);
  dunlin_received(of->client, copy, byte_count, of->now_ms);
  free(copy);
}

static void arrive_message(script *of, const writer *message) {
  static writer frame;
  frame.count = 0;
  put_varint(&frame, message->count);
  memcpy(frame.bytes + frame.count, message->bytes, message->count);
  arrive(of, frame.bytes, frame.count + message->count);
}

static void reply(script *of, uint32_t id, uint32_t field, const writer *result) {
  static writer message;
  message.count = 0;
  put_number(&message, 1, id);
  put_message(&message, field, result);
  arrive_message(of, &message);
}

static void reply_error(script *of, uint32_t id, uint32_t code, bool is_temporary) {
  writer error;
  error.count = 0;
  put_number(&error, 1, code);
  put_text(&error, 2, "refused");
  put_number(&error, 3, is_temporary);
  reply(of, id, 2, &error);
}

static void push(script *of, uint32_t field, const writer *part) {
  static writer message, inner;
  message.count = inner.count = 0;
  put_text(&inner, 2, "hunt:1");
  put_message(&inner, field, part);
  put_message(&message, 4, &inner);
  arrive_message(of, &message);
}

static void push_end(script *of, uint32_t code) {
  writer end;
  end.count = 0;
  put_number(&end, 2, code);
  put_text(&end, 3, "the end");
  push(of, 7, &end);
}

static void publication(writer *to, const void *data, size_t byte_count, uint64_t offset) {
  to->count = 0;
  put_bytes(to, 4, data, byte_count);
  if (offset > 0) put_number(to, 6, offset);
}

static const uint8_t GRID[] = {8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60};

/* A full snapshot of an empty map, or one that builds on `base`. */
static void push_snapshot(script *of, uint32_t tick, uint32_t base, uint32_t ack) {
  writer snapshot, pub;
  uint32_t at;
  snapshot.count = 0;
  put_varint(&snapshot, 1 << 3 | 5);
  for (at = 0; at < 4; at += 1) snapshot.bytes[snapshot.count++] = (uint8_t)(ack >> (8 * at));
  put_number(&snapshot, 4, tick);
  put_number(&snapshot, 5, base);
  if (base == 0) put_bytes(&snapshot, 7, GRID, sizeof GRID);
  publication(&pub, snapshot.bytes, snapshot.count, 0);
  push(of, 4, &pub);
}

static void push_event(script *of, const char *document, uint64_t offset) {
  writer pub;
  publication(&pub, document, strlen(document), offset);
  push(of, 4, &pub);
}

static bool has_sent(script *of, const char *text) {
  size_t count = strlen(text), at;
  bool is_found = false;
  for (at = 0; at + count <= of->sent_bytes; at += 1) is_found = is_found || memcmp(of->sent + at, text, count) == 0;
  return is_found;
}

/* False if there is no memory. */
static bool begin(script *of, dunlin_allocator allocator, const dunlin_room_options *given, bool asks_for_tokens) {
  dunlin_options options;
  dunlin_room_options room = *given;
  test_random *random = of->random;
  bool is_lenient = of->is_lenient;
  memset(of, 0, sizeof *of);
  memset(&options, 0, sizeof options);
  of->random = random;
  of->is_lenient = is_lenient;
  of->now_ms = 1000;
  options.allocator = allocator;
  options.asks_for_tokens = asks_for_tokens;
  options.seed = 7;
  of->client = dunlin_client_new(&options);
  if (of->client == NULL) return false;
  room.channel = "hunt:1";
  of->room = dunlin_room_new(of->client, &room);
  if (of->room != NULL) return true;
  dunlin_client_free(of->client);
  return false;
}

/* Opens the socket and answers `connect`. */
static void connect_now(script *of, bool expires) {
  writer result;
  dunlin_opened(of->client, of->now_ms);
  NEXT(of, DUNLIN_EVENT_NONE);
  result.count = 0;
  put_text(&result, 1, "client");
  if (expires) put_number(&result, 3, 1), put_number(&result, 4, 60);
  put_number(&result, 7, 25);
  put_number(&result, 8, 1);
  reply(of, 1, 5, &result);
  NEXT(of, DUNLIN_EVENT_CONNECTED);
}

/* Answers `subscribe`, with a recovered event if `offset` is below 12. */
static void join_now(script *of, uint32_t id, const char *data, bool has_recovered) {
  static const char missed[] = "{\"tick\":8,\"event\":{\"clue\":1}}";
  writer result, pub;
  result.count = 0;
  put_number(&result, 3, 1);
  put_text(&result, 6, "xkJa");
  if (has_recovered) {
    publication(&pub, missed, sizeof missed - 1, 13);
    put_message(&result, 7, &pub);
    put_number(&result, 8, 1);
  }
  put_number(&result, 9, 12);
  put_text(&result, 11, data);
  reply(of, id, 6, &result);
  NEXT(of, DUNLIN_EVENT_JOINED);
}

/* Waits until the client opens another socket. */
static void wait_for_open(script *of) {
  uint32_t left = 1000;
  NEXT(of, DUNLIN_EVENT_NONE);
  do of->now_ms += 50; while (left-- > 0 && next(of) == DUNLIN_EVENT_NONE);
  EXPECT(of, of->event.kind == DUNLIN_EVENT_OPEN);
}

static void play_session(script *of) {
  static const uint8_t ping[] = {0};
  dunlin_pending_input pending;
  writer empty;
  uint32_t number = 0, call;
  empty.count = 0;
  dunlin_join(of->room);
  dunlin_connect(of->client, of->now_ms);
  NEXT(of, DUNLIN_EVENT_OPEN);
  connect_now(of, false);
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, has_sent(of, "hunt:1") && has_sent(of, "{\"name\":\"Ada\",\"seat\":1,\"snapshots\":\"typed\"}"));
  EXPECT(of, dunlin_input(of->room, "x", 1, &number) == DUNLIN_NOT_READY);
  join_now(of, 2, "{\"seat_token\":\"abc\",\"seat_resumed\":false}", false);
  EXPECT(of, !of->event.returns && !of->event.missed && strcmp(dunlin_room_seat_token(of->room), "abc") == 0);
  EXPECT(of, dunlin_input(of->room, "move", 4, &number) == DUNLIN_OK && number == 1);
  EXPECT(of, dunlin_input(of->room, "fire", 4, &number) == DUNLIN_OK && number == 2 && dunlin_pending_count(of->room) == 2);
  push_snapshot(of, 5, 0, 1);
  NEXT(of, DUNLIN_EVENT_SNAPSHOT);
  EXPECT(of, of->event.tick == 5 && dunlin_room_world(of->room)->grid.columns == 4 && dunlin_pending_count(of->room) == 1);
  EXPECT(of, dunlin_pending_at(of->room, 0, &pending) && pending.number == 2 && pending.byte_count == 4 && memcmp(pending.data, "fire", 4) == 0);
  EXPECT(of, !dunlin_pending_at(of->room, 1, &pending));
  push_event(of, "{\"tick\":6,\"event\":{\"clue\":[1, 2]}}", 12);
  push_event(of, "{\"event\":{}}", 12);
  NEXT(of, DUNLIN_EVENT_EVENT);
  EXPECT(of, of->event.tick == 6 && strcmp(of->bytes, "{\"clue\":[1, 2]}") == 0);
  NEXT(of, DUNLIN_EVENT_FAILED);
  reply_error(of, 3, 107, false);
  NEXT(of, DUNLIN_EVENT_INPUT_REFUSED);
  EXPECT(of, of->event.number == 1 && of->event.code == 107);
  EXPECT(of, dunlin_call(of->client, "dunlin.match", "{]", &call) == DUNLIN_BAD_ARGUMENT);
  EXPECT(of, dunlin_call(of->client, "dunlin.match", "{\"namespace\":\"arena\"}", &call) == DUNLIN_OK);
  put_text(&empty, 1, "{\"ticket\":\"5\"}");
  reply(of, 5, 13, &empty);
  NEXT(of, DUNLIN_EVENT_REPLY);
  EXPECT(of, of->event.number == call && of->event.code == 0 && strcmp(of->bytes, "{\"ticket\":\"5\"}") == 0);
  of->sent_bytes = 0;
  arrive(of, ping, 1);
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, of->sent_bytes == 1 && of->sent[0] == 0);
  /* A call without a reply in time, and one whose connection is lost. */
  EXPECT(of, dunlin_call(of->client, "slow", NULL, &call) == DUNLIN_OK);
  of->now_ms += 10001;
  NEXT(of, DUNLIN_EVENT_REPLY);
  EXPECT(of, of->event.code == 1 && of->event.number == call);
  EXPECT(of, dunlin_call(of->client, "lost", NULL, &call) == DUNLIN_OK);
  NEXT(of, DUNLIN_EVENT_NONE);
  dunlin_closed(of->client, 1006, NULL, of->now_ms);
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, of->event.returns && of->event.code == 1006 && of->event.room == of->room && dunlin_room_world(of->room)->tick == 0);
  NEXT(of, DUNLIN_EVENT_REPLY);
  EXPECT(of, of->event.code == 0 && of->event.number == call && of->text[0] != 0);
  NEXT(of, DUNLIN_EVENT_DISCONNECTED);
  EXPECT(of, of->event.returns && of->event.delay_ms >= 500 && of->event.delay_ms <= 1000);
  wait_for_open(of);
  of->sent_bytes = 0;
  connect_now(of, false);
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, has_sent(of, "\"seat_token\":\"abc\"") && has_sent(of, "xkJa"));
  join_now(of, 2, "{\"seat_token\":\"def\",\"seat_resumed\":true}", true);
  EXPECT(of, of->event.returns && !of->event.missed);
  NEXT(of, DUNLIN_EVENT_EVENT);
  EXPECT(of, of->event.tick == 8 && of->event.offset == 13);
  NEXT(of, DUNLIN_EVENT_NONE);
}

/* Three invalid snapshots in a row: the client connects again after each of the first two, and leaves after the third. */
static void play_bad_snapshots(script *of) {
  uint32_t at;
  for (at = 0; at < 3; at += 1) {
    /* A good one after the join does not show that the room is well. */
    push_snapshot(of, 5, 0, 0);
    NEXT(of, DUNLIN_EVENT_SNAPSHOT);
    push_snapshot(of, 9, 8, 0);
    NEXT(of, DUNLIN_EVENT_FAILED);
    EXPECT(of, of->event.code == DUNLIN_WRONG_BASE && of->event.room == of->room);
    if (at == 2) break;
    NEXT(of, DUNLIN_EVENT_CLOSE);
    NEXT(of, DUNLIN_EVENT_LEFT);
    NEXT(of, DUNLIN_EVENT_DISCONNECTED);
    EXPECT(of, of->event.returns);
    wait_for_open(of);
    connect_now(of, false);
    NEXT(of, DUNLIN_EVENT_NONE);
    join_now(of, 2, "{}", false);
    EXPECT(of, of->event.missed);
  }
  of->sent_bytes = 0;
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, !of->event.returns);
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, of->sent_bytes > 0 && dunlin_is_connected(of->client) && !dunlin_is_joined(of->room));
}

/* How a join and a subscription may end. */
static void play_endings(script *of) {
  dunlin_join(of->room);
  NEXT(of, DUNLIN_EVENT_NONE);
  reply_error(of, 4, 111, true);
  NEXT(of, DUNLIN_EVENT_FAILED);
  EXPECT(of, of->event.code == 111);
  of->now_ms += 1001;
  NEXT(of, DUNLIN_EVENT_NONE);
  reply_error(of, 5, 423, false);
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, of->event.code == 423 && !of->event.returns && strcmp(of->text, "refused") == 0);
  dunlin_join(of->room);
  NEXT(of, DUNLIN_EVENT_NONE);
  join_now(of, 6, "[]", false);
  push_end(of, 2510);
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, of->event.code == 2510 && of->event.returns);
  of->now_ms += 1001;
  NEXT(of, DUNLIN_EVENT_NONE);
  join_now(of, 7, "{}", false);
  push_end(of, 2012);
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, of->event.code == 2012 && !of->event.returns);
  of->now_ms += 60000;
  NEXT(of, DUNLIN_EVENT_CLOSE);
  NEXT(of, DUNLIN_EVENT_DISCONNECTED);
  EXPECT(of, of->event.returns && strcmp(of->text, "no message from the server") == 0);
  wait_for_open(of);
  dunlin_closed(of->client, 3501, "bad request", of->now_ms);
  NEXT(of, DUNLIN_EVENT_DISCONNECTED);
  EXPECT(of, !of->event.returns && of->event.code == 3501 && strcmp(of->text, "bad request") == 0);
  of->now_ms += 60000;
  NEXT(of, DUNLIN_EVENT_NONE);
}

/* Tokens of the connection and of the room: asked for, refreshed, refused, absent. */
static void play_tokens(script *of) {
  writer result;
  dunlin_join(of->room);
  dunlin_connect(of->client, of->now_ms);
  (void)dunlin_set_token(of->client, NULL);
  NEXT(of, DUNLIN_EVENT_TOKEN);
  EXPECT(of, of->event.room == NULL);
  NEXT(of, DUNLIN_EVENT_NONE);
  (void)dunlin_set_token(of->client, NULL);
  NEXT(of, DUNLIN_EVENT_LEFT);
  NEXT(of, DUNLIN_EVENT_DISCONNECTED);
  EXPECT(of, of->event.returns);
  of->now_ms += 1001;
  NEXT(of, DUNLIN_EVENT_TOKEN);
  (void)dunlin_set_token(of->client, "first");
  NEXT(of, DUNLIN_EVENT_OPEN);
  connect_now(of, true);
  EXPECT(of, has_sent(of, "first"));
  NEXT(of, DUNLIN_EVENT_TOKEN);
  EXPECT(of, of->event.room == of->room);
  (void)dunlin_room_set_token(of->room, "of the room");
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, has_sent(of, "of the room"));
  reply_error(of, 2, 109, false);
  NEXT(of, DUNLIN_EVENT_FAILED);
  of->now_ms += 1001;
  NEXT(of, DUNLIN_EVENT_TOKEN);
  (void)dunlin_room_set_token(of->room, "another");
  NEXT(of, DUNLIN_EVENT_NONE);
  result.count = 0;
  put_number(&result, 1, 1);
  put_number(&result, 2, 30);
  reply(of, 3, 6, &result);
  NEXT(of, DUNLIN_EVENT_JOINED);
  of->now_ms += 30001;
  NEXT(of, DUNLIN_EVENT_TOKEN);
  EXPECT(of, of->event.room == of->room);
  of->sent_bytes = 0;
  (void)dunlin_room_set_token(of->room, "the next");
  NEXT(of, DUNLIN_EVENT_NONE);
  EXPECT(of, has_sent(of, "the next") && of->sent[3] == (15 << 3 | 2));
  reply(of, 4, 15, &result);
  push_snapshot(of, 1, 0, 0);
  NEXT(of, DUNLIN_EVENT_SNAPSHOT);
  of->now_ms += 29000;
  NEXT(of, DUNLIN_EVENT_TOKEN);
  EXPECT(of, of->event.room == NULL);
  (void)dunlin_set_token(of->client, "second");
  NEXT(of, DUNLIN_EVENT_NONE);
  reply_error(of, 5, 109, false);
  NEXT(of, DUNLIN_EVENT_FAILED);
  dunlin_disconnect(of->client);
  NEXT(of, DUNLIN_EVENT_CLOSE);
  NEXT(of, DUNLIN_EVENT_LEFT);
  EXPECT(of, !of->event.returns);
  NEXT(of, DUNLIN_EVENT_DISCONNECTED);
}

/* The whole script. False if the client could not be made. */
static bool play(script *of, dunlin_allocator allocator) {
  dunlin_room_options options;
  memset(&options, 0, sizeof options);
  options.data = " { \"name\":\"Ada\", \"seat\" : 1, \"snapshots\": 7}";
  options.is_typed = options.publishes = true;
  if (!begin(of, allocator, &options, false)) return false;
  play_session(of);
  play_bad_snapshots(of);
  play_endings(of);
  dunlin_room_free(of->room);
  dunlin_client_free(of->client);
  memset(&options, 0, sizeof options);
  options.asks_for_tokens = true;
  if (!begin(of, allocator, &options, true)) return false;
  play_tokens(of);
  dunlin_client_free(of->client);
  return true;
}

/* A ship in the only full cell, with a heading and a height: two moving fields, and one in steps. */
static void push_ship(script *of, uint32_t tick, uint32_t base, const uint8_t *state, size_t state_bytes) {
  static const char schema[] = "{\"kinds\":[{\"kind\":3,\"name\":\"Ship\",\"fields\":["
    "{\"name\":\"fuel\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":255},"
    "{\"name\":\"heading\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":255,\"motion\":\"angle\"},"
    "{\"name\":\"height\",\"type\":\"integer\",\"bytes\":2,\"min\":-300,\"max\":300,\"per_unit\":10,\"motion\":\"linear\"}]}]}";
  writer snapshot, cell, object, pub;
  uint64_t time_us = 1000000 + (uint64_t)tick * 100000;
  uint32_t at;
  snapshot.count = cell.count = object.count = 0;
  put_number(&object, 1, 9);
  put_number(&object, 2, 3);
  put_number(&object, 3, tick * 4);
  put_bytes(&object, 5, state, state_bytes);
  put_number(&cell, 1, 1);
  put_message(&cell, 4, &object);
  put_number(&snapshot, 4, tick);
  put_number(&snapshot, 5, base);
  put_varint(&snapshot, 6 << 3 | 1);
  for (at = 0; at < 8; at += 1) snapshot.bytes[snapshot.count++] = (uint8_t)(time_us >> (8 * at));
  if (base == 0) put_bytes(&snapshot, 7, GRID, sizeof GRID), put_text(&snapshot, 10, schema);
  put_number(&snapshot, 8, 1);
  if (of->rate_permille != 0) put_number(&snapshot, 11, of->rate_permille);
  if (of->has_moved) put_number(&snapshot, 13, 1);
  put_message(&snapshot, 9, &cell);
  publication(&pub, snapshot.bytes, snapshot.count, 0);
  push(of, 4, &pub);
}

static bool is_near(double one, double other) {
  return one - other < 1e-6 && other - one < 1e-6;
}

/* The heading crosses the end of its range; the height falls. A tick is a hundred milliseconds here. */
static void moving_fields(dunlin_allocator allocator) {
  static const uint8_t first[] = {7, 250, 0x9c, 0xff}, second[] = {8, 6, 0x64, 0}, opposite[] = {8, 122, 0x64, 0}, broken[] = {8, 6};
  dunlin_room_options options;
  const dunlin_kind *kind;
  int heading, height, fuel;
  double x, y;
  script of;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  options.is_typed = true;
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  join_now(&of, 2, "{}", false);
  push_ship(&of, 1, 0, first, sizeof first);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  of.now_ms += 100;
  push_ship(&of, 2, 1, second, sizeof second);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  kind = dunlin_kind_of(dunlin_room_world(of.room), 3);
  fuel = dunlin_field_index(kind, "fuel");
  heading = dunlin_field_index(kind, "heading");
  height = dunlin_field_index(kind, "height");
  CHECK(fuel == 0 && heading == 1 && height == 2 && dunlin_field_index(kind, "no such") == -1, "fields");
  CHECK(dunlin_shown_field(of.room, 9, fuel, 1125) == 7 && dunlin_shown_field(of.room, 9, fuel, 1199) == 7, "a step comes with the delay");
  CHECK(dunlin_place(of.room, 9, 1125, &x, &y) && is_near(x, 105) && y == 0, "a quarter of the way");
  CHECK(is_near(dunlin_shown_field(of.room, 9, heading, 1125), 253), "a quarter of the turn");
  CHECK(is_near(dunlin_shown_field(of.room, 9, height, 1125), -5), "a quarter of the height");
  CHECK(is_near(dunlin_shown_field(of.room, 9, heading, 1175), 3), "over the end of the range");
  CHECK(is_near(dunlin_shown_field(of.room, 9, height, 1300), 10), "not beyond the last known value");
  CHECK(dunlin_shown_field(of.room, 9, 3, 1175) == 0 && dunlin_shown_field(of.room, 9, -1, 1175) == 0 && dunlin_shown_field(of.room, 8, 0, 0) == 0, "no fields");
  CHECK(dunlin_field_number(dunlin_room_world(of.room), dunlin_find(dunlin_room_world(of.room), 9), fuel) == 8, "the newest value");
  CHECK(dunlin_shown_field(of.room, 9, fuel, 1200) == 8, "a step comes with the place");
  CHECK(dunlin_tick_at(of.room, 1200) == 2 && dunlin_tick_at(of.room, -1e300) == 1 && dunlin_tick_at(of.room, 1e300) == UINT32_MAX, "ticks");
  of.now_ms += 100;
  push_ship(&of, 3, 2, first, sizeof first);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(is_near(dunlin_shown_field(of.room, 9, heading, 1225), 3) && is_near(dunlin_shown_field(of.room, 9, heading, 1275), 253), "the way back");
  of.now_ms += 100;
  push_ship(&of, 4, 3, opposite, sizeof opposite);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(is_near(dunlin_shown_field(of.room, 9, heading, 1325), 26), "half a turn goes up, as in what dunlin schema writes");
  push_ship(&of, 5, 4, broken, sizeof broken);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(!dunlin_find(dunlin_room_world(of.room), 9)->has_fields && dunlin_shown_field(of.room, 9, heading, 1400) == 0, "a state without fields");
  CHECK(dunlin_room_world(of.room)->rate_permille == 1000 && dunlin_tick_at(of.room, 1600) == 11, "real time");
  of.rate_permille = 500;
  push_ship(&of, 6, 5, first, sizeof first);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(dunlin_room_world(of.room)->rate_permille == 500 && dunlin_tick_at(of.room, 1700) == 9, "a slowed clock");
  of.now_ms += 500;
  CHECK(!dunlin_room_world(of.room)->has_moved && dunlin_server_time_ms(of.room, of.now_ms) > 2000, "a room that stays");
  of.has_moved = true;
  push_ship(&of, 1, 0, first, sizeof first);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(dunlin_room_world(of.room)->has_moved && is_near(dunlin_server_time_ms(of.room, of.now_ms), 1100), "a room that has moved has another clock");
  of.has_moved = false;
  of.now_ms += 100;
  push_ship(&of, 2, 1, first, sizeof first);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(!dunlin_room_world(of.room)->has_moved, "it has moved once");
  CHECK(dunlin_place(of.room, 9, 1150, &x, &y) && is_near(x, 106), "half of the way, on the new clock");
  dunlin_client_free(of.client);
}

/* The limits of a replica: the object and the bytes at the limit, and one past it. */
static void replica_limits(dunlin_allocator allocator) {
  static const uint8_t one[] = {0x20, 1, 0x3a, 12, 8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60, 0x4a, 9, 8, 0, 0x22, 5, 8, 1, 0x2a, 1, 5};
  static const uint8_t another[] = {0x20, 2, 0x28, 1, 0x4a, 9, 8, 0, 0x22, 5, 8, 2, 0x2a, 1, 6};
  static const uint8_t own_twice[] = {0x20, 1, 0x3a, 12, 8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60, 0x1a, 4, 10, 2, 8, 1, 0x1a, 4, 10, 2, 8, 2};
  dunlin_replica *last = dunlin_replica_new(allocator, 0, 0);
  size_t at;
  CHECK(last != NULL && dunlin_replica_apply(last, own_twice, sizeof own_twice) == DUNLIN_OK, "own objects twice");
  CHECK(dunlin_replica_world(last)->object_count == 1 && dunlin_find(dunlin_replica_world(last), 2) != NULL, "the last counts");
  dunlin_replica_free(last);
  for (at = 0; at < 3; at += 1) {
    dunlin_replica *replica = dunlin_replica_new(allocator, at == 0 ? 1 : 2, at == 1 ? 1 : 2);
    CHECK(replica != NULL && dunlin_replica_apply(replica, one, sizeof one) == DUNLIN_OK, "one object");
    CHECK(dunlin_replica_apply(replica, another, sizeof another) == (at < 2 ? DUNLIN_TOO_LARGE : DUNLIN_OK), "another");
    CHECK(dunlin_replica_world(replica)->object_count == (at < 2 ? 1u : 2u), "objects");
    dunlin_replica_free(replica);
  }
}

/* The lowest bit comes first. The bytes behind the writer's count are 0. */
static void put_bits(writer *to, size_t *at, uint32_t number, uint32_t count) {
  for (; count > 0; count -= 1, number >>= 1, *at += 1) to->bytes[*at >> 3] = (uint8_t)(to->bytes[*at >> 3] | (number & 1) << (*at & 7));
  to->count = (*at + 7) >> 3;
}

/* Lists of one number, of which a change has only the length: 11 bits for 4 KiB. */
static void long_states(dunlin_allocator allocator) {
  static const char schema[] = "{\"kinds\":[{\"kind\":0,\"name\":\"Bag\",\"fields\":["
    "{\"name\":\"items\",\"type\":\"list\",\"bytes\":4,\"min\":5,\"max\":5,\"count_min\":0,\"count_max\":1024}]}]}";
  static const uint32_t objects = 16;
  const test_memory *used = (const test_memory *)allocator.context;
  static writer first, cell, object, second, changes;
  size_t at = 0, limit, before;
  uint32_t id;
  first.count = cell.count = second.count = changes.count = 0;
  memset(changes.bytes, 0, sizeof changes.bytes);
  put_bits(&changes, &at, 1, 2);
  put_bits(&changes, &at, objects - 1, 4);
  for (id = 1; id <= objects; id += 1) {
    object.count = 0;
    put_number(&object, 1, id);
    put_message(&cell, 4, &object);
    put_bits(&changes, &at, 0, 1);
    /* The field, and not the position; then as before. */
    if (id == 1) put_bits(&changes, &at, 4, 3);
    else put_bits(&changes, &at, 1, 1);
    put_bits(&changes, &at, 1024, 11);
  }
  put_number(&first, 4, 1);
  put_bytes(&first, 7, GRID, sizeof GRID);
  put_message(&first, 9, &cell);
  put_text(&first, 10, schema);
  cell.count = 0;
  put_message(&cell, 5, &changes);
  put_number(&second, 4, 2);
  put_number(&second, 5, 1);
  put_message(&second, 9, &cell);
  for (limit = 100; limit <= 65536; limit += 65436) {
    dunlin_replica *replica = dunlin_replica_new(allocator, 0, limit);
    CHECK(replica != NULL && dunlin_replica_apply(replica, first.bytes, first.count) == DUNLIN_OK, "empty lists");
    before = used->bytes;
    CHECK(dunlin_replica_apply(replica, second.bytes, second.count) == (limit == 100 ? DUNLIN_TOO_LARGE : DUNLIN_OK), "long lists");
    if (limit == 100) CHECK(used->bytes - before < 65536, "the rest is not written");
    else CHECK(dunlin_field_count(dunlin_replica_world(replica), dunlin_find(dunlin_replica_world(replica), 16), 0) == 1024, "the last list");
    dunlin_replica_free(replica);
  }
}

/* The longest document of a schema, and one byte more. */
static void schema_limit(dunlin_allocator allocator) {
  static uint8_t snapshot[66000];
  writer head;
  size_t size;
  for (size = 65536; size <= 65537; size += 1) {
    dunlin_replica *replica = dunlin_replica_new(allocator, 0, 0);
    head.count = 0;
    put_number(&head, 4, 1);
    put_bytes(&head, 7, GRID, sizeof GRID);
    put_varint(&head, 10 << 3 | 2);
    put_varint(&head, size);
    memcpy(snapshot, head.bytes, head.count);
    memset(snapshot + head.count, ' ', size);
    memcpy(snapshot + head.count, "{\"kinds\":[]}", 12);
    CHECK(replica != NULL && dunlin_replica_apply(replica, snapshot, head.count + size) == (size == 65536 ? DUNLIN_OK : DUNLIN_MALFORMED), "a long schema");
    dunlin_replica_free(replica);
  }
}

/* Until a snapshot has arrived, each connection may end as the last one did, here by a message that is too large. */
static void growing_delays(dunlin_allocator allocator) {
  static const uint8_t large[2000] = {0};
  dunlin_room_options room;
  dunlin_options options;
  double longest_ms = 0;
  script of;
  uint32_t at;
  memset(&of, 0, sizeof of);
  memset(&room, 0, sizeof room);
  memset(&options, 0, sizeof options);
  options.allocator = allocator;
  options.received_bytes_max = 1500;
  of.now_ms = 1000;
  of.client = dunlin_client_new(&options);
  room.channel = "hunt:1";
  of.room = dunlin_room_new(of.client, &room);
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  for (at = 0; at <= 10; at += 1) {
    connect_now(&of, false);
    join_now(&of, 2, "{}", false);
    if (at == 10) push_snapshot(&of, 5, 0, 0);
    if (at == 10) NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
    dunlin_received(of.client, large, sizeof large, of.now_ms);
    NEXT(&of, DUNLIN_EVENT_CLOSE);
    NEXT(&of, DUNLIN_EVENT_LEFT);
    NEXT(&of, DUNLIN_EVENT_DISCONNECTED);
    CHECK(of.event.returns && of.event.delay_ms >= 500 && of.event.delay_ms <= 20000, "a delay");
    if (at < 10 && of.event.delay_ms > longest_ms) longest_ms = of.event.delay_ms;
    if (at < 10) wait_for_open(&of);
  }
  CHECK(longest_ms > 1000, "delays grow");
  CHECK(of.event.delay_ms <= 1000, "after a snapshot, they begin again");
  dunlin_client_free(of.client);
}

/* The same for joins: a room that fails before its first snapshot is asked less and less often. */
static void growing_rejoins(dunlin_allocator allocator) {
  dunlin_room_options options;
  double asked_ms, longest_ms = 0;
  script of;
  uint32_t at, waits;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  for (at = 0; at < 10; at += 1) {
    join_now(&of, 2 + at, "{}", false);
    push_end(&of, 2502);
    NEXT(&of, DUNLIN_EVENT_LEFT);
    asked_ms = of.now_ms;
    for (of.sent_bytes = waits = 0; of.sent_bytes == 0 && waits < 1000; waits += 1) {
      writer ping;
      ping.count = 0;
      of.now_ms += 50;
      arrive_message(&of, &ping);
      of.sent_bytes = 0;
      NEXT(&of, DUNLIN_EVENT_NONE);
      if (!has_sent(&of, "hunt:1")) of.sent_bytes = 0;
    }
    if (of.now_ms - asked_ms > longest_ms) longest_ms = of.now_ms - asked_ms;
  }
  CHECK(longest_ms > 1100, "delays grow");
  dunlin_client_free(of.client);
}

/* What the game may leave unsent: as many bytes as allowed, and one more. */
static void unsent_limit(dunlin_allocator allocator) {
  dunlin_options options;
  script of;
  size_t count;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  options.allocator = allocator;
  options.unsent_bytes_max = 1000;
  of.now_ms = 1000;
  of.client = dunlin_client_new(&options);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  for (count = 980; count <= 1000; count += 1) {
    char data[1001];
    memset(data, '1', sizeof data);
    data[count] = 0;
    of.sent_bytes = 0;
    if (dunlin_call(of.client, "x", data, NULL) != DUNLIN_OK) break;
    NEXT(&of, DUNLIN_EVENT_NONE);
  }
  CHECK(count <= 1000, "a limit");
  {
    char data[1001];
    memset(data, '1', sizeof data);
    data[count - 1] = 0;
    CHECK(dunlin_call(of.client, "x", data, NULL) == DUNLIN_OK, "one byte less");
    CHECK(dunlin_call(of.client, "x", NULL, NULL) == DUNLIN_TOO_LARGE, "nothing besides");
    NEXT(&of, DUNLIN_EVENT_NONE);
    CHECK(of.sent_bytes == 1000, "as many bytes as allowed");
  }
  dunlin_client_free(of.client);
}

/* Memory for the samples of as many objects as possible, and of one more. */
static void sample_limit(dunlin_allocator allocator) {
  static const uint32_t bytes_of_one = 8 * 3 * sizeof(double);
  uint32_t objects = (64u << 20) / bytes_of_one + 1, id;
  uint8_t *snapshot = (uint8_t *)malloc(32 + 8 * (size_t)objects), *out = snapshot;
  dunlin_replica *replica = dunlin_replica_new(allocator, 0, 0);
  dunlin_interpolation *interpolation = dunlin_interpolation_new(allocator);
  writer head, own;
  size_t own_bytes, tick;
  double x, y;
  CHECK(snapshot != NULL && replica != NULL && interpolation != NULL, "memory of the test");
  for (tick = 1; tick <= 2; tick += 1) {
    own_bytes = 0;
    /* In the second tick, the last object has gone, and the first has moved. */
    for (out = snapshot + 32, id = 1; id <= objects - (uint32_t)(tick - 1); id += 1) {
      own.count = 0;
      put_number(&own, 1, id);
      if (tick == 2 && id == 1) put_number(&own, 3, 7);
      head.count = 0;
      put_bytes(&head, 1, own.bytes, own.count);
      memcpy(out, head.bytes, head.count);
      out += head.count;
      own_bytes += head.count;
    }
    head.count = 0;
    put_number(&head, 4, tick);
    put_number(&head, 5, tick - 1);
    if (tick == 1) put_bytes(&head, 7, GRID, sizeof GRID);
    put_varint(&head, 3 << 3 | 2);
    put_varint(&head, own_bytes);
    memcpy(snapshot + 32 - head.count, head.bytes, head.count);
    CHECK(dunlin_replica_apply(replica, snapshot + 32 - head.count, head.count + own_bytes) == DUNLIN_OK, "many objects");
    dunlin_interpolation_observe(interpolation, replica, (double)tick);
    CHECK(dunlin_interpolation_count(interpolation) == objects + 1 - tick, "all are known");
    CHECK(dunlin_interpolation_place(interpolation, 2, 0, &x, &y), "the last that is followed");
    CHECK(dunlin_interpolation_place(interpolation, 1, 0, &x, &y) == (tick == 2), "one past it has no samples, until another leaves");
  }
  dunlin_interpolation_free(interpolation);
  dunlin_replica_free(replica);
  free(snapshot);
}

/* A plain channel, and limits of a client. */
static void channel(dunlin_allocator allocator) {
  static uint8_t large[1000] = {0};
  dunlin_room_options room;
  dunlin_options options;
  script of;
  uint32_t at;
  char name[16];
  memset(&of, 0, sizeof of);
  memset(&room, 0, sizeof room);
  memset(&options, 0, sizeof options);
  options.allocator = allocator;
  options.received_bytes_max = 1004;
  of.now_ms = 1000;
  of.client = dunlin_client_new(&options);
  room.channel = "hunt:1";
  room.is_channel = true;
  of.room = dunlin_room_new(of.client, &room);
  for (at = 2; at <= DUNLIN_ROOMS_MAX + 1; at += 1) {
    sprintf(name, "hunt:%u", at);
    room.channel = name;
    CHECK((dunlin_room_new(of.client, &room) != NULL) == (at <= DUNLIN_ROOMS_MAX), "rooms");
  }
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  join_now(&of, 2, "{}", false);
  CHECK(dunlin_input(of.room, "x", 1, NULL) == DUNLIN_NOT_READY, "no input of a channel");
  push_event(&of, "{\"room\":\"arena:7\"}", 0);
  NEXT(&of, DUNLIN_EVENT_PUBLICATION);
  CHECK(strcmp(of.bytes, "{\"room\":\"arena:7\"}") == 0 && of.event.offset == 0 && of.event.room == of.room, "a publication");
  for (at = 0; at < DUNLIN_REQUESTS_MAX; at += 1) CHECK(dunlin_call(of.client, "x", NULL, NULL) == DUNLIN_OK, "calls");
  CHECK(dunlin_call(of.client, "x", NULL, NULL) == DUNLIN_TOO_LARGE, "one call more");
  dunlin_received(of.client, large, 1000, of.now_ms);
  CHECK(dunlin_is_connected(of.client), "the longest message");
  dunlin_received(of.client, large, 1, of.now_ms);
  CHECK(!dunlin_is_connected(of.client), "one byte more");
  NEXT(&of, DUNLIN_EVENT_CLOSE);
  dunlin_client_free(of.client);
}

/* The reply to a subscription that has ended, and a message that arrives before recovered events are taken. */
static void late_reply(dunlin_allocator allocator) {
  dunlin_room_options options;
  writer result;
  script of;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  dunlin_leave(of.room);
  dunlin_join(of.room);
  result.count = 0;
  reply(&of, 2, 6, &result);
  NEXT(&of, DUNLIN_EVENT_NONE);
  CHECK(!dunlin_is_joined(of.room), "a late reply");
  join_now(&of, 4, "{}", true);
  push_snapshot(&of, 5, 0, 0);
  NEXT(&of, DUNLIN_EVENT_EVENT);
  CHECK(of.event.offset == 13 && of.event.tick == 8, "a recovered event");
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  NEXT(&of, DUNLIN_EVENT_NONE);
  dunlin_client_free(of.client);
}

/* The push about the stay before was sent before the server took the unsubscription. */
static void earlier_end(dunlin_allocator allocator) {
  dunlin_room_options options;
  script of;
  uint32_t code;
  for (code = 2010; code <= 2502; code += 492) {
    memset(&of, 0, sizeof of);
    memset(&options, 0, sizeof options);
    CHECK(begin(&of, allocator, &options, false), "a client");
    dunlin_join(of.room);
    dunlin_connect(of.client, of.now_ms);
    NEXT(&of, DUNLIN_EVENT_OPEN);
    connect_now(&of, false);
    join_now(&of, 2, "{}", false);
    dunlin_leave(of.room);
    dunlin_join(of.room);
    push_end(&of, code);
    NEXT(&of, DUNLIN_EVENT_NONE);
    of.now_ms += 2000;
    NEXT(&of, DUNLIN_EVENT_NONE);
    join_now(&of, 4, "{}", false);
    push_end(&of, code);
    NEXT(&of, DUNLIN_EVENT_LEFT);
    CHECK(of.event.code == code && of.event.returns == (code == 2502), "the end of the new stay");
    dunlin_client_free(of.client);
  }
}

/* A game that was busy for a minute: what arrived meanwhile is not late. */
static void busy_game(dunlin_allocator allocator) {
  dunlin_room_options options;
  writer result;
  uint32_t call;
  script of;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  dunlin_opened(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_NONE);
  result.count = 0;
  put_number(&result, 7, 25);
  of.now_ms += 60000;
  reply(&of, 1, 5, &result);
  NEXT(&of, DUNLIN_EVENT_CONNECTED);
  CHECK(dunlin_call(of.client, "slow", NULL, &call) == DUNLIN_OK, "a call");
  NEXT(&of, DUNLIN_EVENT_NONE);
  of.now_ms += 60000;
  result.count = 0;
  reply(&of, 3, 13, &result);
  NEXT(&of, DUNLIN_EVENT_REPLY);
  CHECK(of.event.number == call && of.event.text[0] == 0, "a reply in time");
  join_now(&of, 2, "{}", false);
  dunlin_client_free(of.client);
}

/* Snapshots for which there is no memory, more often than invalid ones end the stay: the client joins again each time. */
static void no_memory(dunlin_allocator allocator) {
  test_memory *used = (test_memory *)allocator.context;
  dunlin_room_options options;
  script of;
  uint32_t at;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  for (at = 0; at < 4; at += 1) {
    connect_now(&of, false);
    join_now(&of, 2, "{}", false);
    push_snapshot(&of, 5, 0, 0);
    if (at == 3) break;
    used->fails_at = used->calls + 1;
    NEXT(&of, DUNLIN_EVENT_FAILED);
    CHECK(of.event.code == DUNLIN_NO_MEMORY, "no memory");
    NEXT(&of, DUNLIN_EVENT_CLOSE);
    NEXT(&of, DUNLIN_EVENT_LEFT);
    CHECK(of.event.returns, "the seat is kept");
    NEXT(&of, DUNLIN_EVENT_DISCONNECTED);
    wait_for_open(&of);
  }
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  dunlin_client_free(of.client);
}

/* Sends an input. Returns the number of the oldest one that is kept. */
static uint32_t send_input(script *of, size_t byte_count) {
  static uint8_t data[32768];
  dunlin_pending_input oldest;
  CHECK(dunlin_input(of->room, data, byte_count, NULL) == DUNLIN_OK, "an input");
  while (dunlin_next(of->client, of->now_ms, &of->event)) CHECK(of->event.kind == DUNLIN_EVENT_SEND, "an input is sent");
  CHECK(dunlin_pending_at(of->room, 0, &oldest), "kept inputs");
  return oldest.number;
}

/* Unacknowledged inputs: as many bytes and as many inputs as are kept, and one more. */
static void pending_limits(dunlin_allocator allocator) {
  dunlin_room_options options;
  script of;
  uint32_t count;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  CHECK(begin(&of, allocator, &options, false), "a client");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  join_now(&of, 2, "{}", false);
  for (count = 0; count < DUNLIN_PENDING_BYTES_MAX / 32768; count += 1) CHECK(send_input(&of, 32768) == 1, "as many bytes");
  CHECK(send_input(&of, 1) == 2 && dunlin_pending_count(of.room) == count, "one byte more");
  push_snapshot(&of, 5, 0, count + 1);
  NEXT(&of, DUNLIN_EVENT_SNAPSHOT);
  CHECK(dunlin_pending_count(of.room) == 0, "all are acknowledged");
  for (count = 0; count < DUNLIN_PENDING_MAX; count += 1) CHECK(send_input(&of, 0) == 34, "as many inputs");
  CHECK(send_input(&of, 0) == 35 && dunlin_pending_count(of.room) == DUNLIN_PENDING_MAX, "one more");
  dunlin_client_free(of.client);
}

/* What is refused at once, and limits. */
static void arguments(dunlin_allocator allocator) {
  static const char *const documents[] = {"{", "{\"a\":1,}", "[1] 2", "\"\\ud800\"", "01", "\x80", "nul", "1.", "\"\n\"", ""};
  static uint8_t long_input[DUNLIN_DATA_BYTES_MAX + 1];
  dunlin_room_options options;
  script of;
  size_t at;
  memset(&of, 0, sizeof of);
  memset(&options, 0, sizeof options);
  of.client = dunlin_client_new(NULL);
  CHECK(of.client != NULL && dunlin_room_new(of.client, NULL) == NULL && dunlin_room_new(NULL, &options) == NULL, "nothing instead of options");
  dunlin_client_free(of.client);
  CHECK(begin(&of, allocator, &options, false), "a client");
  options.channel = "hunt:1";
  CHECK(dunlin_room_new(of.client, &options) == NULL, "a second room of the channel");
  options.channel = "hunt:2";
  for (at = 0; at < sizeof documents / sizeof *documents; at += 1) {
    options.data = documents[at];
    CHECK(dunlin_room_new(of.client, &options) == NULL, documents[at]);
  }
  options.data = "[1, 2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\"]";
  options.is_typed = true;
  CHECK(dunlin_room_new(of.client, &options) == NULL, "typed without an object");
  options.is_typed = false;
  options.is_channel = true;
  CHECK(dunlin_room_new(of.client, &options) != NULL, "a plain channel");
  dunlin_join(of.room);
  dunlin_connect(of.client, of.now_ms);
  NEXT(&of, DUNLIN_EVENT_OPEN);
  connect_now(&of, false);
  join_now(&of, 2, "{}", false);
  CHECK(dunlin_input(of.room, long_input, DUNLIN_DATA_BYTES_MAX, NULL) == DUNLIN_OK, "the longest input");
  CHECK(dunlin_input(of.room, long_input, DUNLIN_DATA_BYTES_MAX + 1, NULL) == DUNLIN_TOO_LARGE, "one past it");
  CHECK(dunlin_pending_count(of.room) == 1, "it is not kept");
  for (at = 1; dunlin_input(of.room, long_input, 50000, NULL) == DUNLIN_OK; at += 1) CHECK(at < 100, "a bound of what is not sent");
  CHECK(dunlin_pending_count(of.room) == at, "an input that is refused drops none");
  dunlin_client_free(of.client);
}

void scripted(void) {
  test_memory used;
  dunlin_allocator allocator = test_allocator(&used);
  script of;
  memset(&of, 0, sizeof of);
  CHECK(play(&of, allocator), "memory of the test");
  arguments(allocator);
  moving_fields(allocator);
  late_reply(allocator);
  earlier_end(allocator);
  busy_game(allocator);
  no_memory(allocator);
  pending_limits(allocator);
  replica_limits(allocator);
  long_states(allocator);
  schema_limit(allocator);
  channel(allocator);
  growing_delays(allocator);
  growing_rejoins(allocator);
  unsent_limit(allocator);
  sample_limit(allocator);
  CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
  printf("scripted: passed\n");
}

void scripted_memory(void) {
  size_t at;
  for (at = 1; at > 0; at += 1) {
    test_memory used;
    dunlin_allocator allocator = test_allocator(&used);
    script of;
    memset(&of, 0, sizeof of);
    of.is_lenient = true;
    used.fails_at = at;
    (void)play(&of, allocator);
    CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
    if (used.calls < at) break;
  }
  printf("scripted: %lu failing allocations\n", (unsigned long)(at - 1));
}

void scripted_fuzz(double seconds) {
  clock_t start = clock();
  test_random random;
  size_t count = 0;
  random.state = 2;
  while ((double)(clock() - start) < seconds * CLOCKS_PER_SEC) {
    test_memory used;
    dunlin_allocator allocator = test_allocator(&used);
    script of;
    memset(&of, 0, sizeof of);
    of.is_lenient = true;
    of.random = &random;
    if (test_next(&random, 4) == 0) used.fails_at = 1 + test_next(&random, 200);
    (void)play(&of, allocator);
    CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
    count += 1;
  }
  printf("scripted: %lu sessions with damaged messages\n", (unsigned long)count);
}
