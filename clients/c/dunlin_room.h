/* A client for Dunlin rooms in one file of C99 that is also C++11, for Unreal, Defold, GameMaker and engines of your own.
 *
 * Include it where you need it. In one file, define DUNLIN_ROOM_IMPLEMENTATION before the include.
 *
 * The library opens no socket and reads no clock. The game has a WebSocket. It tells the library what arrived, and
 * dunlin_next tells the game what to do: open the socket, send these bytes, close it, show this snapshot. There are no
 * callbacks, threads or global variables, and all memory comes from the allocator of the game. README.md has an example.
 *
 * docs/rooms-protocol.md describes what the library does. It uses the Protobuf encoding. */
#ifndef DUNLIN_ROOM_H
#define DUNLIN_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of Dunlin that this file was released with. */
#define DUNLIN_ROOM_VERSION "0.1.0"

/* -- The connection ------------------------------------------------------------------------------------------------ */

/* The subprotocol that the WebSocket must request. */
#define DUNLIN_SUBPROTOCOL "centrifuge-protobuf"
/* Rooms and channels of a client. By default, a server allows as many subscriptions. */
#define DUNLIN_ROOMS_MAX 128
/* Commands that may wait for a reply. */
#define DUNLIN_REQUESTS_MAX 1024
/* Unacknowledged inputs that are kept, and their total size; the oldest are dropped first. */
#define DUNLIN_PENDING_MAX 1024
#define DUNLIN_PENDING_BYTES_MAX (1u << 20)
/* Maximum size of an input, of the data of a join or a call, and of a token. By default, a server accepts messages of 64 KiB. */
#define DUNLIN_DATA_BYTES_MAX 60000u

typedef struct dunlin_client dunlin_client;
typedef struct dunlin_room dunlin_room;

typedef enum dunlin_status {
  DUNLIN_OK = 0,
  DUNLIN_MALFORMED,    /* the server sent invalid data */
  DUNLIN_WRONG_BASE,   /* the snapshot builds on another tick */
  DUNLIN_WRONG_CELL,   /* the snapshot has a cell outside of the map or the view */
  DUNLIN_TOO_LARGE,    /* a limit is exceeded */
  DUNLIN_NO_MEMORY,    /* the allocator has returned NULL */
  DUNLIN_NOT_READY,    /* there is no connection, or the room is not joined */
  DUNLIN_BAD_ARGUMENT  /* the game has passed something invalid */
} dunlin_status;

/* `resize` is like realloc: memory is NULL for a new block, bytes_after is 0 to free one. It may return NULL; the old block stays then. Blocks
 * are aligned as those of malloc. If `resize` itself is NULL, realloc and free of the C library are used. */
typedef struct dunlin_allocator {
  void *(*resize)(void *context, void *memory, size_t bytes_before, size_t bytes_after);
  void *context;
} dunlin_allocator;

/* Zeros are the defaults. */
typedef struct dunlin_options {
  dunlin_allocator allocator;
  const char *name;          /* in the server's metrics and logs; "c" */
  bool asks_for_tokens;      /* ask for a token before each connection and when it expires: DUNLIN_EVENT_TOKEN */
  uint64_t seed;             /* of the random delays between connections: give each client another one */
  double reconnect_min_ms;   /* 500 */
  double reconnect_max_ms;   /* 20,000 */
  double reply_timeout_ms;   /* 10,000 */
  size_t received_bytes_max; /* received and not processed by dunlin_next; 16 MiB */
  size_t unsent_bytes_max;   /* 1 MiB */
} dunlin_options;

typedef struct dunlin_room_options {
  const char *channel;
  const char *data;          /* a JSON document for the game, sent with each join; NULL for none */
  const char *seat_token;    /* of an earlier run of the game, to come back to its player; NULL for none */
  bool is_typed;             /* ask for the fields of states; `data` must be an object then */
  bool is_channel;           /* not a room, but a plain channel such as a lobby: its publications are DUNLIN_EVENT_PUBLICATION */
  bool publishes;            /* inputs get a reply if they are refused: DUNLIN_EVENT_INPUT_REFUSED */
  bool asks_for_tokens;      /* ask for a subscription token before each join and when it expires */
  size_t objects_max;        /* 1,000,000 */
  size_t state_bytes_max;    /* total size of the objects' states; 256 MiB */
} dunlin_room_options;

typedef enum dunlin_event_kind {
  DUNLIN_EVENT_NONE = 0,
  /* What the game has to do. */
  DUNLIN_EVENT_OPEN,          /* open a WebSocket; then call dunlin_opened, or dunlin_closed if it fails */
  DUNLIN_EVENT_SEND,          /* send `bytes` as one binary message */
  DUNLIN_EVENT_CLOSE,         /* close the WebSocket and forget it: report nothing more of it */
  DUNLIN_EVENT_TOKEN,         /* call dunlin_set_token, or dunlin_room_set_token if `room` is not NULL, now or later */
  /* What has happened. */
  DUNLIN_EVENT_CONNECTED,
  DUNLIN_EVENT_DISCONNECTED,  /* `code`, `text`; `returns`: DUNLIN_EVENT_OPEN follows in `delay_ms` */
  DUNLIN_EVENT_JOINED,        /* `returns`: to the same player; `missed`: events may have been missed since the last join */
  DUNLIN_EVENT_LEFT,          /* `code`, `text`; `returns`: the room is joined again without the game */
  DUNLIN_EVENT_SNAPSHOT,      /* dunlin_room_world is new */
  DUNLIN_EVENT_EVENT,         /* of the game, in `tick`; `bytes` is a JSON document */
  DUNLIN_EVENT_PUBLICATION,   /* of a plain channel: `bytes`, a JSON document, and `offset` */
  DUNLIN_EVENT_INPUT_REFUSED, /* `number` of the input, `code`, `text` */
  DUNLIN_EVENT_REPLY,         /* to the call `number`: `bytes`, or an error with `code` (0: the connection was lost, 1: no reply in time) */
  DUNLIN_EVENT_FAILED         /* something that the library copes with: `code` is a dunlin_status or the server's code, and `text` */
} dunlin_event_kind;

/* All pointers are valid until the next call of a function that takes the client, or a room of it, and changes it. */
typedef struct dunlin_event {
  dunlin_event_kind kind;
  dunlin_room *room;
  const uint8_t *bytes;
  size_t byte_count;
  const char *text;
  uint32_t code;
  uint32_t number;
  uint32_t tick;
  uint64_t offset;
  double delay_ms;
  bool returns;
  bool missed;
} dunlin_event;

/* NULL for the options are the defaults. Returns NULL if there is no memory. */
dunlin_client *dunlin_client_new(const dunlin_options *options);
/* Frees the client and all of its rooms. NULL is nothing. */
void dunlin_client_free(dunlin_client *client);

/* Connects, and connects again after a loss, until dunlin_disconnect. `now_ms` is a clock of the game that begins at 0 or above and does not go
 * back, the same in all calls. */
void dunlin_connect(dunlin_client *client, double now_ms);
/* Closes the connection. Players keep their seats for a while, as after a lost connection. */
void dunlin_disconnect(dunlin_client *client);
bool dunlin_is_connected(const dunlin_client *client);
/* A connection token. At the time of a DUNLIN_EVENT_TOKEN, NULL means that there is none now: the library asks again later. */
dunlin_status dunlin_set_token(dunlin_client *client, const char *token);

/* The three things that happen to the WebSocket. */
void dunlin_opened(dunlin_client *client, double now_ms);
void dunlin_received(dunlin_client *client, const void *message, size_t byte_count, double now_ms);
/* `code` of the close frame, 0 or 1006 without one; `reason` may be NULL. */
void dunlin_closed(dunlin_client *client, uint32_t code, const char *reason, double now_ms);

/* The next event. Call it once per frame until it returns false, and after each message if you like. */
bool dunlin_next(dunlin_client *client, double now_ms, dunlin_event *event);

/* Calls a method of the server, such as dunlin.match, or of its backend. `json` may be NULL. `*number` is that of the DUNLIN_EVENT_REPLY. */
dunlin_status dunlin_call(dunlin_client *client, const char *method, const char *json, uint32_t *number);

/* -- Rooms --------------------------------------------------------------------------------------------------------- */

/* NULL if there is no memory, or if the options are invalid, or for a second room with this channel. */
dunlin_room *dunlin_room_new(dunlin_client *client, const dunlin_room_options *options);
/* Leaves the room and frees it. NULL is nothing. */
void dunlin_room_free(dunlin_room *room);

/* Joins, and joins again whenever the connection comes back, until dunlin_leave. */
void dunlin_join(dunlin_room *room);
/* The player is gone at once; only a lost connection keeps its seat. There is no DUNLIN_EVENT_LEFT. */
void dunlin_leave(dunlin_room *room);
bool dunlin_is_joined(const dunlin_room *room);
const char *dunlin_room_channel(const dunlin_room *room);
/* A subscription token; NULL as in dunlin_set_token. */
dunlin_status dunlin_room_set_token(dunlin_room *room, const char *token);
/* Brings the next join back to the same player: to be stored, and secret. Empty if the room gave none. Each join gives a new one. */
const char *dunlin_room_seat_token(const dunlin_room *room);

/* Sends an input in the format of the game. `*number` (which may be NULL) is its number, which snapshots acknowledge. */
dunlin_status dunlin_input(dunlin_room *room, const void *data, size_t byte_count, uint32_t *number);

typedef struct dunlin_pending_input {
  uint32_t number;
  double sent_ms;
  const uint8_t *data;
  size_t byte_count;
} dunlin_pending_input;

/* The inputs that no snapshot has acknowledged, in order, for prediction. */
size_t dunlin_pending_count(const dunlin_room *room);
bool dunlin_pending_at(const dunlin_room *room, size_t index, dunlin_pending_input *input);
/* From sending an input until a snapshot acknowledged it, smoothed; negative before the first. */
double dunlin_round_trip_ms(const dunlin_room *room);

/* -- What the player sees ------------------------------------------------------------------------------------------ */

/* The cell of an object that only this player receives. */
#define DUNLIN_NO_CELL UINT32_MAX

typedef struct dunlin_grid {
  uint32_t columns;
  uint32_t rows;
  uint32_t cell_units;
  uint32_t near_cells;
  uint32_t far_cells;
  uint32_t far_interval_ticks;
  uint32_t ticks_per_second;
} dunlin_grid;

typedef struct dunlin_object {
  uint32_t id;
  uint32_t x; /* units from the corner of the map */
  uint32_t y;
  uint32_t cell;
  uint16_t kind;
  bool has_fields; /* the room has told the fields of its kind, and its state has their form */
  const uint8_t *state;
  size_t state_bytes;
} dunlin_object;

/* Without `before` the object is new, without `after` it is gone. An object that moves to another cell is changed. */
typedef struct dunlin_change {
  const dunlin_object *before;
  const dunlin_object *after;
} dunlin_change;

typedef struct dunlin_schema dunlin_schema;

/* Valid until the next snapshot; without one, all is 0. */
typedef struct dunlin_world {
  uint32_t tick;
  uint32_t base;    /* of the last snapshot; 0: it was full */
  uint32_t ack;     /* number of the last input that the room had applied */
  uint32_t avatar;  /* id of the player's own object; 0 for none */
  uint32_t view;    /* the cell of the player's viewpoint */
  uint64_t time_us; /* Unix time of the tick at the server */
  uint32_t rate_permille; /* rate of the room's clock at the tick: 1000 is real time, and an overloaded room runs slower */
  uint32_t waited;        /* waits of the zones of the view, see docs/rooms-protocol.md; 0 if no cells have waited for a bandwidth limit */
  bool has_moved;         /* the last snapshot is the first one after the room has moved to another node; events before it may be missing */
  dunlin_grid grid;
  const dunlin_schema *schema;  /* NULL if the room has not told it */
  const dunlin_object *objects; /* in ascending order of ids */
  size_t object_count;
  const dunlin_change *changes; /* by the last snapshot, in ascending order of ids */
  size_t change_count;
} dunlin_world;

const dunlin_world *dunlin_room_world(const dunlin_room *room);
/* NULL if the player does not see it. */
const dunlin_object *dunlin_find(const dunlin_world *world, uint32_t id);

/* -- Fields of states ---------------------------------------------------------------------------------------------- */

#define DUNLIN_FIELDS_MAX 62

typedef enum dunlin_field_type {
  DUNLIN_INTEGER,
  DUNLIN_FLAG,
  DUNLIN_CHOICE,
  DUNLIN_OBJECT_ID,
  DUNLIN_TEXT,
  DUNLIN_LIST
} dunlin_field_type;

typedef enum dunlin_motion { DUNLIN_STEP, DUNLIN_LINEAR, DUNLIN_ANGLE } dunlin_motion;

/* Of integers, and of the elements of lists. */
typedef struct dunlin_range {
  uint32_t bytes;
  int64_t min;
  int64_t max;
} dunlin_range;

typedef struct dunlin_field {
  const char *name;
  dunlin_field_type type;
  dunlin_motion motion;
  dunlin_range range;
  uint32_t count_min;
  uint32_t count_max;
  uint32_t delta_bits;
  uint32_t per_unit;
  bool is_optional;
  const char *const *choices;
  uint32_t choice_count;
} dunlin_field;

typedef struct dunlin_kind {
  uint16_t number;
  const char *name;
  const dunlin_field *fields;
  uint32_t field_count;
  size_t state_bytes_max;
} dunlin_kind;

/* NULL if the room has not told the fields of this kind. */
const dunlin_kind *dunlin_kind_of(const dunlin_world *world, uint16_t number);
/* The index of a field; -1 if there is none. Look it up once, not in each frame: a schema holds until the next join. */
int dunlin_field_index(const dunlin_kind *kind, const char *name);

/* Values of an object's fields. They are 0, or NULL, if the object has no such field. `index` is that of the field in its kind.
 * An integer, 0 or 1 for a flag, the index of a choice, the id of an object. */
int64_t dunlin_field_integer(const dunlin_world *world, const dunlin_object *object, int index);
/* An integer divided by its `per_unit`. */
double dunlin_field_number(const dunlin_world *world, const dunlin_object *object, int index);
/* The name of a choice. */
const char *dunlin_field_choice(const dunlin_world *world, const dunlin_object *object, int index);
/* A text in UTF-8, which does not end with 0. */
const char *dunlin_field_text(const dunlin_world *world, const dunlin_object *object, int index, size_t *byte_count);
/* The number of elements of a list. */
size_t dunlin_field_count(const dunlin_world *world, const dunlin_object *object, int index);
int64_t dunlin_field_element(const dunlin_world *world, const dunlin_object *object, int index, size_t place);
/* The same as dunlin_field_integer and dunlin_field_number, by name. */
int64_t dunlin_field_integer_of(const dunlin_world *world, const dunlin_object *object, const char *name);
double dunlin_field_number_of(const dunlin_world *world, const dunlin_object *object, const char *name);

/* -- Time and motion ----------------------------------------------------------------------------------------------- */

/* The server's clock in milliseconds since 1970, as estimated from the snapshots; now_ms before the first. */
double dunlin_server_time_ms(const dunlin_room *room, double now_ms);
/* The server's current tick as a fraction. */
double dunlin_tick_now(const dunlin_room *room, double now_ms);

/* The server time to show in this frame: call it once per frame. It does not decrease, except after a new join. */
double dunlin_shown_ms(dunlin_room *room, double now_ms);
/* Where to show an object at this time. False if the player does not see it; `*x` and `*y` are unchanged then. */
bool dunlin_place(dunlin_room *room, uint32_t id, double shown_ms, double *x, double *y);
/* As dunlin_field_number, at this time, so that it agrees with dunlin_place. A field whose motion is linear or an angle is between two snapshots; an
 * angle is inside of its range. Others, also flags, choices and ids, have the earlier value until the time of the later snapshot. */
double dunlin_shown_field(dunlin_room *room, uint32_t id, int index, double shown_ms);
/* The tick that the player sees, for inputs that the game judges by it; 0 before the first snapshot. */
uint32_t dunlin_tick_at(const dunlin_room *room, double shown_ms);

/* -- Parts that can be used alone ---------------------------------------------------------------------------------- */

/* A part of a JSON document; `text` is NULL if there is no such part. */
typedef struct dunlin_json {
  const char *text;
  size_t byte_count;
} dunlin_json;

/* The document, if it is JSON (RFC 8259, at most 64 levels). The functions below take parts of it. Names have at most 63 bytes. */
dunlin_json dunlin_json_parse(const void *text, size_t byte_count);
dunlin_json dunlin_json_member(dunlin_json object, const char *name);
dunlin_json dunlin_json_item(dunlin_json array, size_t index);
/* `fallback` if it is no number. */
double dunlin_json_number(dunlin_json value, double fallback);
bool dunlin_json_is_true(dunlin_json value);
/* Copies a text with a 0 at its end. Returns its length in bytes without that; it is cut if this is not below `capacity`. 0 if it is no text. */
size_t dunlin_json_text(dunlin_json value, char *text, size_t capacity);

/* A replica without a connection. */
typedef struct dunlin_replica dunlin_replica;
dunlin_replica *dunlin_replica_new(dunlin_allocator allocator, size_t objects_max, size_t state_bytes_max);
void dunlin_replica_free(dunlin_replica *replica);
/* Applies the `data` of a publication without an offset completely, or leaves the replica unchanged. */
dunlin_status dunlin_replica_apply(dunlin_replica *replica, const void *snapshot, size_t byte_count);
const dunlin_world *dunlin_replica_world(const dunlin_replica *replica);

/* Interpolation without a connection. */
typedef struct dunlin_interpolation dunlin_interpolation;
dunlin_interpolation *dunlin_interpolation_new(dunlin_allocator allocator);
void dunlin_interpolation_free(dunlin_interpolation *interpolation);
/* After each snapshot, with the server time of its arrival. Without memory, objects are left out: they are then shown where they are. */
void dunlin_interpolation_observe(dunlin_interpolation *interpolation, const dunlin_replica *replica, double arrived_ms);
double dunlin_interpolation_advance(dunlin_interpolation *interpolation, double server_ms);
bool dunlin_interpolation_place(dunlin_interpolation *interpolation, uint32_t id, double at_ms, double *x, double *y);
double dunlin_interpolation_delay_ms(const dunlin_interpolation *interpolation);
size_t dunlin_interpolation_count(const dunlin_interpolation *interpolation);

/* An estimate of the server's clock. Begin with zeros. */
typedef struct dunlin_clock {
  double window_start_ms;
  double least_ms;
  double least_before_ms;
  bool has_least;
  bool has_least_before;
} dunlin_clock;

/* A snapshot arrived. Returns its delay relative to the shortest latency. */
double dunlin_clock_observe(dunlin_clock *clock, uint64_t time_us, double now_ms);
/* What to add to the local clock. */
double dunlin_clock_offset_ms(const dunlin_clock *clock);

/* Writes the Protobuf message of an input, for connections of another kind. Returns its size; nothing is written if `capacity` is below that.
 * `room` is the channel, for `send`; it may be NULL. */
size_t dunlin_write_input(const dunlin_pending_input *input, const char *room, void *out, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* DUNLIN_ROOM_H */

#if defined(DUNLIN_ROOM_IMPLEMENTATION) && !defined(DUNLIN_ROOM_IMPLEMENTED)
#define DUNLIN_ROOM_IMPLEMENTED

#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -- Memory -------------------------------------------------------------------------------------------------------- */

static void *dunlin__resize(const dunlin_allocator *allocator, void *memory, size_t before, size_t after) {
  if (allocator->resize != NULL) return allocator->resize(allocator->context, memory, before, after);
  if (after > 0) return realloc(memory, after);
  free(memory);
  return NULL;
}

static void dunlin__free(const dunlin_allocator *allocator, void *memory, size_t bytes) {
  if (memory != NULL) (void)dunlin__resize(allocator, memory, bytes, 0);
}

/* A new block of zeros. */
static void *dunlin__new(const dunlin_allocator *allocator, size_t bytes) {
  void *memory = dunlin__resize(allocator, NULL, 0, bytes);
  if (memory != NULL) memset(memory, 0, bytes);
  return memory;
}

/* Items of one size. */
typedef struct dunlin__list {
  void *items;
  size_t count;
  size_t capacity;
  size_t item_bytes;
} dunlin__list;

static bool dunlin__reserve(const dunlin_allocator *allocator, dunlin__list *list, size_t needed) {
  size_t capacity = list->capacity < 8 ? 8 : list->capacity;
  void *items;
  if (needed <= list->capacity) return true;
  if (needed > SIZE_MAX / 2 / list->item_bytes) return false;
  while (capacity < needed) capacity *= 2;
  if (capacity > SIZE_MAX / list->item_bytes) capacity = needed;
  items = dunlin__resize(allocator, list->items, list->capacity * list->item_bytes, capacity * list->item_bytes);
  if (items == NULL) return false;
  list->items = items;
  list->capacity = capacity;
  return true;
}

/* A new last item of zeros; NULL if there is no memory. */
static void *dunlin__push(const dunlin_allocator *allocator, dunlin__list *list) {
  unsigned char *item;
  if (!dunlin__reserve(allocator, list, list->count + 1)) return NULL;
  item = (unsigned char *)list->items + list->count * list->item_bytes;
  memset(item, 0, list->item_bytes);
  list->count += 1;
  return item;
}

static bool dunlin__append(const dunlin_allocator *allocator, dunlin__list *bytes, const void *from, size_t count) {
  if (count == 0) return true;
  if (count > SIZE_MAX / 4 - bytes->count || !dunlin__reserve(allocator, bytes, bytes->count + count)) return false;
  memcpy((unsigned char *)bytes->items + bytes->count, from, count);
  bytes->count += count;
  return true;
}

static void dunlin__release(const dunlin_allocator *allocator, dunlin__list *list) {
  dunlin__free(allocator, list->items, list->capacity * list->item_bytes);
  list->items = NULL;
  list->count = list->capacity = 0;
}

static bool dunlin__same(const void *one, size_t one_bytes, const void *other, size_t other_bytes) {
  return one_bytes == other_bytes && (one_bytes == 0 || memcmp(one, other, one_bytes) == 0);
}

/* Sorts by the first and then the second number of the items, which begin with two uint64_t. Without memory, as qsort may need it. */
static bool dunlin__is_before(const dunlin__list *list, size_t one, size_t other) {
  uint64_t a[2], b[2];
  memcpy(a, (const unsigned char *)list->items + one * list->item_bytes, sizeof a);
  memcpy(b, (const unsigned char *)list->items + other * list->item_bytes, sizeof b);
  return a[0] != b[0] ? a[0] < b[0] : a[1] < b[1];
}

static void dunlin__swap(const dunlin__list *list, size_t one, size_t other) {
  unsigned char kept[64];
  unsigned char *a = (unsigned char *)list->items + one * list->item_bytes;
  unsigned char *b = (unsigned char *)list->items + other * list->item_bytes;
  memcpy(kept, a, list->item_bytes);
  memcpy(a, b, list->item_bytes);
  memcpy(b, kept, list->item_bytes);
}

static void dunlin__sift(const dunlin__list *list, size_t root, size_t end) {
  while (2 * root + 1 < end) {
    size_t child = 2 * root + 1;
    if (child + 1 < end && dunlin__is_before(list, child, child + 1)) child += 1;
    if (!dunlin__is_before(list, root, child)) return;
    dunlin__swap(list, root, child);
    root = child;
  }
}

static void dunlin__sort(const dunlin__list *list) {
  size_t at;
  bool is_sorted = true;
  for (at = 1; at < list->count && is_sorted; at += 1) is_sorted = !dunlin__is_before(list, at, at - 1);
  if (is_sorted) return;
  for (at = list->count / 2; at > 0; at -= 1) dunlin__sift(list, at - 1, list->count);
  for (at = list->count - 1; at > 0; at -= 1) {
    dunlin__swap(list, 0, at);
    dunlin__sift(list, 0, at);
  }
}

/* -- Protobuf ------------------------------------------------------------------------------------------------------ */

enum { DUNLIN__VARINT = 0, DUNLIN__FIXED64 = 1, DUNLIN__BYTES = 2, DUNLIN__FIXED32 = 5 };

typedef struct dunlin__reader {
  const uint8_t *at;
  const uint8_t *end;
  bool has_failed;
} dunlin__reader;

/* A number, or bytes. */
typedef struct dunlin__field {
  uint32_t number;
  uint32_t wire;
  uint64_t value;
  const uint8_t *bytes;
  size_t byte_count;
} dunlin__field;

static dunlin__reader dunlin__reader_of(const void *bytes, size_t count) {
  static const uint8_t nothing[1] = {0};
  dunlin__reader reader;
  reader.at = count == 0 ? nothing : (const uint8_t *)bytes;
  reader.end = reader.at + count;
  reader.has_failed = false;
  return reader;
}

static bool dunlin__fail(dunlin__reader *reader) {
  reader->has_failed = true;
  return false;
}

static bool dunlin__read_varint(dunlin__reader *reader, uint64_t *number) {
  uint32_t shift;
  *number = 0;
  for (shift = 0; shift < 64; shift += 7) {
    uint8_t byte;
    if (reader->at == reader->end) return dunlin__fail(reader);
    byte = *reader->at;
    reader->at += 1;
    if (shift == 63 && byte > 1) return dunlin__fail(reader);
    *number |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return dunlin__fail(reader);
}

static uint64_t dunlin__little_endian(const uint8_t *bytes, size_t count) {
  uint64_t number = 0;
  size_t at;
  for (at = 0; at < count; at += 1) number |= (uint64_t)bytes[at] << (8 * at);
  return number;
}

/* The next field. False at the end, or after a failure. */
static bool dunlin__next_field(dunlin__reader *reader, dunlin__field *field) {
  uint64_t tag;
  size_t count = 0;
  memset(field, 0, sizeof *field);
  if (reader->has_failed || reader->at == reader->end) return false;
  if (!dunlin__read_varint(reader, &tag)) return false;
  if (tag > UINT32_MAX || tag >> 3 == 0) return dunlin__fail(reader);
  field->number = (uint32_t)(tag >> 3);
  field->wire = (uint32_t)(tag & 7);
  switch (field->wire) {
    case DUNLIN__VARINT: return dunlin__read_varint(reader, &field->value);
    case DUNLIN__FIXED64: count = 8; break;
    case DUNLIN__FIXED32: count = 4; break;
    case DUNLIN__BYTES:
      if (!dunlin__read_varint(reader, &tag)) return false;
      if (tag > (uint64_t)(reader->end - reader->at)) return dunlin__fail(reader);
      count = (size_t)tag;
      break;
    default: return dunlin__fail(reader);
  }
  if (count > (size_t)(reader->end - reader->at)) return dunlin__fail(reader);
  field->bytes = reader->at;
  field->byte_count = count;
  if (field->wire != DUNLIN__BYTES) field->value = dunlin__little_endian(field->bytes, count);
  reader->at += count;
  return true;
}

static dunlin__reader dunlin__inner(const dunlin__field *field) {
  return dunlin__reader_of(field->bytes, field->byte_count);
}

/* The functions below take the value of a known field. They fail if it has another type. */
static void dunlin__take_u32(dunlin__reader *reader, const dunlin__field *field, uint32_t *number) {
  if (field->wire != DUNLIN__VARINT || field->value > UINT32_MAX) reader->has_failed = true;
  else *number = (uint32_t)field->value;
}

static void dunlin__take_bool(dunlin__reader *reader, const dunlin__field *field, bool *flag) {
  if (field->wire != DUNLIN__VARINT) reader->has_failed = true;
  else *flag = field->value != 0;
}

static bool dunlin__is(dunlin__reader *reader, const dunlin__field *field, uint32_t wire) {
  return field->wire == wire || dunlin__fail(reader);
}

static bool dunlin__is_utf8(const uint8_t *text, size_t count) {
  size_t at = 0;
  while (at < count) {
    uint8_t first = text[at];
    size_t more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 4;
    size_t place;
    if (more == 4 || more >= count - at) return false;
    for (place = 1; place <= more; place += 1) {
      if ((text[at + place] & 0xc0) != 0x80) return false;
    }
    if (first == 0xe0 && text[at + 1] < 0xa0) return false;
    if (first == 0xed && text[at + 1] >= 0xa0) return false;
    if (first == 0xf0 && text[at + 1] < 0x90) return false;
    if (first == 0xf4 && text[at + 1] >= 0x90) return false;
    at += more + 1;
  }
  return true;
}

static void dunlin__take_text(dunlin__reader *reader, const dunlin__field *field, dunlin_json *text) {
  if (!dunlin__is(reader, field, DUNLIN__BYTES)) return;
  if (!dunlin__is_utf8(field->bytes, field->byte_count)) reader->has_failed = true;
  text->text = (const char *)field->bytes;
  text->byte_count = field->byte_count;
}

static size_t dunlin__varint_bytes(uint64_t number) {
  size_t count = 1;
  for (; number >= 0x80; number >>= 7) count += 1;
  return count;
}

static uint8_t *dunlin__write_varint(uint8_t *out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) *out++ = (uint8_t)(number | 0x80);
  *out++ = (uint8_t)number;
  return out;
}

static size_t dunlin__bytes_field_bytes(size_t count) {
  return count == 0 ? 0 : 1 + dunlin__varint_bytes(count) + count;
}

static uint8_t *dunlin__write_bytes_field(uint8_t *out, uint32_t number, const void *bytes, size_t count) {
  if (count == 0) return out;
  *out++ = (uint8_t)(number << 3 | DUNLIN__BYTES);
  out = dunlin__write_varint(out, count);
  memcpy(out, bytes, count);
  return out + count;
}

static size_t dunlin__input_bytes(uint32_t number, size_t byte_count, size_t room_bytes) {
  return (number == 0 ? 0 : 1 + dunlin__varint_bytes(number)) + dunlin__bytes_field_bytes(byte_count) + dunlin__bytes_field_bytes(room_bytes);
}

size_t dunlin_write_input(const dunlin_pending_input *input, const char *room, void *out, size_t capacity) {
  size_t room_bytes = room == NULL ? 0 : strlen(room);
  size_t needed = dunlin__input_bytes(input->number, input->byte_count, room_bytes);
  uint8_t *at = (uint8_t *)out;
  if (needed > capacity) return needed;
  if (input->number != 0) {
    *at++ = 1 << 3 | DUNLIN__VARINT;
    at = dunlin__write_varint(at, input->number);
  }
  at = dunlin__write_bytes_field(at, 2, input->data, input->byte_count);
  (void)dunlin__write_bytes_field(at, 3, room, room_bytes);
  return needed;
}

/* -- JSON ---------------------------------------------------------------------------------------------------------- */

#define DUNLIN__JSON_DEPTH_MAX 64

typedef struct dunlin__cursor {
  const char *at;
  const char *end;
} dunlin__cursor;

static bool dunlin__skip_json(dunlin__cursor *cursor, uint32_t depth);

static void dunlin__skip_space(dunlin__cursor *cursor) {
  while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\n' || *cursor->at == '\r')) cursor->at += 1;
}

static bool dunlin__skip_character(dunlin__cursor *cursor, char character) {
  if (cursor->at == cursor->end || *cursor->at != character) return false;
  cursor->at += 1;
  return true;
}

static bool dunlin__skip_word(dunlin__cursor *cursor, const char *word) {
  for (; *word != 0; word += 1) {
    if (!dunlin__skip_character(cursor, *word)) return false;
  }
  return true;
}

/* The value of a hexadecimal digit; 16 for another character. */
static uint32_t dunlin__hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return (uint32_t)(digit - '0');
  if (digit >= 'a' && digit <= 'f') return (uint32_t)(digit - 'a' + 10);
  return digit >= 'A' && digit <= 'F' ? (uint32_t)(digit - 'A' + 10) : 16;
}

/* The four digits after \u. */
static bool dunlin__skip_hex(dunlin__cursor *cursor, uint32_t *unit) {
  uint32_t place;
  *unit = 0;
  for (place = 0; place < 4; place += 1) {
    uint32_t digit = cursor->at == cursor->end ? 16 : dunlin__hex_digit(*cursor->at);
    if (digit == 16) return false;
    *unit = *unit * 16 + digit;
    cursor->at += 1;
  }
  return true;
}

/* One character of a text, as a code point if it is escaped, otherwise as a byte of UTF-8. */
static bool dunlin__skip_text_character(dunlin__cursor *cursor, uint32_t *code, bool *is_escaped) {
  uint32_t low;
  *is_escaped = *cursor->at == '\\';
  *code = (unsigned char)*cursor->at;
  cursor->at += 1;
  if (!*is_escaped) return *code >= 0x20;
  if (cursor->at == cursor->end) return false;
  cursor->at += 1;
  switch (cursor->at[-1]) {
    case '"': case '\\': case '/': *code = (unsigned char)cursor->at[-1]; return true;
    case 'b': *code = 8; return true;
    case 'f': *code = 12; return true;
    case 'n': *code = 10; return true;
    case 'r': *code = 13; return true;
    case 't': *code = 9; return true;
    case 'u': break;
    default: return false;
  }
  if (!dunlin__skip_hex(cursor, code)) return false;
  if (*code < 0xd800 || *code > 0xdfff) return true;
  if (*code >= 0xdc00 || !dunlin__skip_word(cursor, "\\u") || !dunlin__skip_hex(cursor, &low) || low < 0xdc00 || low > 0xdfff) return false;
  *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
  return true;
}

static bool dunlin__skip_text(dunlin__cursor *cursor) {
  uint32_t code;
  bool is_escaped;
  if (!dunlin__skip_character(cursor, '"')) return false;
  while (cursor->at < cursor->end && *cursor->at != '"') {
    if (!dunlin__skip_text_character(cursor, &code, &is_escaped)) return false;
  }
  return dunlin__skip_character(cursor, '"');
}

static bool dunlin__skip_digits(dunlin__cursor *cursor) {
  const char *start = cursor->at;
  while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') cursor->at += 1;
  return cursor->at > start;
}

static bool dunlin__skip_number(dunlin__cursor *cursor) {
  (void)dunlin__skip_character(cursor, '-');
  if (!dunlin__skip_character(cursor, '0') && !dunlin__skip_digits(cursor)) return false;
  if (dunlin__skip_character(cursor, '.') && !dunlin__skip_digits(cursor)) return false;
  if (!dunlin__skip_character(cursor, 'e') && !dunlin__skip_character(cursor, 'E')) return true;
  if (!dunlin__skip_character(cursor, '-')) (void)dunlin__skip_character(cursor, '+');
  return dunlin__skip_digits(cursor);
}

/* What stands between the brackets of an object or array. */
static bool dunlin__skip_members(dunlin__cursor *cursor, char last, uint32_t depth) {
  cursor->at += 1;
  dunlin__skip_space(cursor);
  if (dunlin__skip_character(cursor, last)) return true;
  if (depth == DUNLIN__JSON_DEPTH_MAX) return false;
  for (;;) {
    if (last == '}') {
      dunlin__skip_space(cursor);
      if (!dunlin__skip_text(cursor)) return false;
      dunlin__skip_space(cursor);
      if (!dunlin__skip_character(cursor, ':')) return false;
    }
    if (!dunlin__skip_json(cursor, depth + 1)) return false;
    dunlin__skip_space(cursor);
    if (dunlin__skip_character(cursor, last)) return true;
    if (!dunlin__skip_character(cursor, ',')) return false;
  }
}

/* Skips space and a value. */
static bool dunlin__skip_json(dunlin__cursor *cursor, uint32_t depth) {
  dunlin__skip_space(cursor);
  if (cursor->at == cursor->end) return false;
  switch (*cursor->at) {
    case '{': return dunlin__skip_members(cursor, '}', depth);
    case '[': return dunlin__skip_members(cursor, ']', depth);
    case '"': return dunlin__skip_text(cursor);
    case 't': return dunlin__skip_word(cursor, "true");
    case 'f': return dunlin__skip_word(cursor, "false");
    case 'n': return dunlin__skip_word(cursor, "null");
    default: return dunlin__skip_number(cursor);
  }
}

static dunlin_json dunlin__json_of(const char *text, size_t byte_count) {
  dunlin_json json;
  json.text = text;
  json.byte_count = byte_count;
  return json;
}

/* The next value, without the space around it. */
static dunlin_json dunlin__next_json(dunlin__cursor *cursor) {
  const char *start;
  dunlin__skip_space(cursor);
  start = cursor->at;
  if (!dunlin__skip_json(cursor, 0)) return dunlin__json_of(NULL, 0);
  return dunlin__json_of(start, (size_t)(cursor->at - start));
}

dunlin_json dunlin_json_parse(const void *text, size_t byte_count) {
  dunlin__cursor cursor;
  dunlin_json json = dunlin__json_of(NULL, 0);
  if (text == NULL || !dunlin__is_utf8((const uint8_t *)text, byte_count)) return json;
  cursor.at = (const char *)text;
  cursor.end = cursor.at + byte_count;
  json = dunlin__next_json(&cursor);
  dunlin__skip_space(&cursor);
  return cursor.at == cursor.end ? json : dunlin__json_of(NULL, 0);
}

static bool dunlin__json_begins(dunlin_json json, char first) {
  return json.text != NULL && json.byte_count > 0 && *json.text == first;
}

/* Walks through an object or array, which is valid: begin with zeros. `name` is that of a member, with its quotes. */
typedef struct dunlin__walk {
  dunlin__cursor cursor;
  dunlin_json name;
  dunlin_json value;
} dunlin__walk;

static bool dunlin__walk_on(dunlin_json json, dunlin__walk *walk) {
  bool is_object = dunlin__json_begins(json, '{');
  if (!is_object && !dunlin__json_begins(json, '[')) return false;
  if (walk->cursor.at == NULL) {
    walk->cursor.at = json.text + 1;
    walk->cursor.end = json.text + json.byte_count;
  } else {
    dunlin__skip_space(&walk->cursor);
    if (!dunlin__skip_character(&walk->cursor, ',')) return false;
  }
  if (is_object) {
    walk->name = dunlin__next_json(&walk->cursor);
    dunlin__skip_space(&walk->cursor);
    if (walk->name.text == NULL || !dunlin__skip_character(&walk->cursor, ':')) return false;
  }
  walk->value = dunlin__next_json(&walk->cursor);
  return walk->value.text != NULL;
}

static size_t dunlin__utf8_bytes(uint32_t code, char *out) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    return 3;
  }
  out[0] = (char)(0xf0 | code >> 18);
  out[1] = (char)(0x80 | (code >> 12 & 0x3f));
  out[2] = (char)(0x80 | (code >> 6 & 0x3f));
  out[3] = (char)(0x80 | (code & 0x3f));
  return 4;
}

size_t dunlin_json_text(dunlin_json value, char *text, size_t capacity) {
  dunlin__cursor cursor;
  size_t count = 0;
  if (capacity > 0) text[0] = 0;
  if (!dunlin__json_begins(value, '"')) return 0;
  cursor.at = value.text + 1;
  cursor.end = value.text + value.byte_count;
  while (cursor.at < cursor.end && *cursor.at != '"') {
    char bytes[4];
    uint32_t code;
    bool is_escaped;
    size_t length = 1;
    if (!dunlin__skip_text_character(&cursor, &code, &is_escaped)) break;
    bytes[0] = (char)(unsigned char)code;
    if (is_escaped) length = dunlin__utf8_bytes(code, bytes);
    if (length < capacity && count < capacity - length) {
      memcpy(text + count, bytes, length);
      text[count + length] = 0;
    } else {
      capacity = 0;
    }
    count += length;
  }
  return count;
}

static bool dunlin__json_is(dunlin_json value, const char *text) {
  char short_text[64];
  size_t length = dunlin_json_text(value, short_text, sizeof short_text);
  return dunlin__json_begins(value, '"') && length < sizeof short_text && dunlin__same(short_text, length, text, strlen(text));
}

dunlin_json dunlin_json_member(dunlin_json object, const char *name) {
  dunlin__walk walk;
  memset(&walk, 0, sizeof walk);
  if (!dunlin__json_begins(object, '{')) return dunlin__json_of(NULL, 0);
  while (dunlin__walk_on(object, &walk)) {
    if (dunlin__json_is(walk.name, name)) return walk.value;
  }
  return dunlin__json_of(NULL, 0);
}

dunlin_json dunlin_json_item(dunlin_json array, size_t index) {
  dunlin__walk walk;
  memset(&walk, 0, sizeof walk);
  if (!dunlin__json_begins(array, '[')) return dunlin__json_of(NULL, 0);
  for (; dunlin__walk_on(array, &walk); index -= 1) {
    if (index == 0) return walk.value;
  }
  return dunlin__json_of(NULL, 0);
}

bool dunlin_json_is_true(dunlin_json value) {
  return dunlin__same(value.text, value.byte_count, "true", 4);
}

/* Not strtod, because that depends on the locale. */
double dunlin_json_number(dunlin_json value, double fallback) {
  dunlin__cursor cursor;
  double number = 0, power = 10;
  bool is_negative, is_fraction = false;
  int32_t exponent = 0, given = 0;
  if (value.text == NULL || value.byte_count == 0) return fallback;
  cursor.at = value.text;
  cursor.end = value.text + value.byte_count;
  if (!dunlin__skip_number(&cursor) || cursor.at != cursor.end) return fallback;
  cursor.at = value.text;
  is_negative = dunlin__skip_character(&cursor, '-');
  for (; cursor.at < cursor.end && *cursor.at != 'e' && *cursor.at != 'E'; cursor.at += 1) {
    if (*cursor.at == '.') is_fraction = true;
    else {
      /* More digits than a double has change nothing. */
      if (number < 1e17) number = number * 10 + (*cursor.at - '0');
      else exponent += exponent < 100000;
      exponent -= is_fraction && exponent > -100000;
    }
  }
  if (cursor.at < cursor.end) {
    bool is_small;
    cursor.at += 1;
    is_small = dunlin__skip_character(&cursor, '-');
    (void)dunlin__skip_character(&cursor, '+');
    for (; cursor.at < cursor.end; cursor.at += 1) given = given < 100000 ? given * 10 + (*cursor.at - '0') : given;
    exponent += is_small ? -given : given;
  }
  /* By division, because 10 to a negative power is not exact. */
  for (given = exponent < 0 ? (exponent < -400 ? 400 : -exponent) : (exponent > 400 ? 400 : exponent); given > 0; given >>= 1) {
    if ((given & 1) != 0) number = exponent < 0 ? number / power : number * power;
    if (given > 1) power *= power;
  }
  return is_negative ? -number : number;
}

/* A whole number, written without a fraction or an exponent. */
static bool dunlin__json_integer(dunlin_json value, int64_t min, int64_t max, int64_t *number) {
  size_t at = dunlin__json_begins(value, '-') ? 1 : 0;
  int64_t magnitude = 0;
  if (value.text == NULL || value.byte_count == at || value.byte_count - at > 12) return false;
  for (; at < value.byte_count; at += 1) {
    if (value.text[at] < '0' || value.text[at] > '9') return false;
    magnitude = magnitude * 10 + (value.text[at] - '0');
  }
  *number = *value.text == '-' ? -magnitude : magnitude;
  return *number >= min && *number <= max;
}

/* -- Fields of states ---------------------------------------------------------------------------------------------- */

#define DUNLIN__SCHEMA_BYTES_MAX 65536u
#define DUNLIN__KINDS_MAX 256
#define DUNLIN__CHOICES_MAX 256
#define DUNLIN__LENGTH_MAX 1024
#define DUNLIN__SHORT_LENGTH_MAX 255

struct dunlin_schema {
  dunlin__list kinds; /* in ascending order of their numbers */
  dunlin__list fields;
  dunlin__list choices;
  char *texts;
  size_t texts_used;
  size_t texts_bytes;
};

static void dunlin__schema_free(const dunlin_allocator *allocator, dunlin_schema *schema) {
  if (schema == NULL) return;
  dunlin__release(allocator, &schema->kinds);
  dunlin__release(allocator, &schema->fields);
  dunlin__release(allocator, &schema->choices);
  dunlin__free(allocator, schema->texts, schema->texts_bytes);
  dunlin__free(allocator, schema, sizeof *schema);
}

/* Keeps a text of the document, which has more bytes than all of its texts together with a 0 after each. */
static const char *dunlin__keep_text(dunlin_schema *schema, dunlin_json value) {
  char *text = schema->texts + schema->texts_used;
  if (!dunlin__json_begins(value, '"')) return NULL;
  schema->texts_used += dunlin_json_text(value, text, schema->texts_bytes - schema->texts_used) + 1;
  return text;
}

static uint32_t dunlin__bits_of(uint64_t max) {
  uint32_t bits = 0;
  for (; max > 0; max >>= 1) bits += 1;
  return bits;
}

/* The least number of elements. */
static uint32_t dunlin__count_min(const dunlin_field *field) {
  return field->type == DUNLIN_LIST ? field->count_min : 0;
}

static bool dunlin__is_long(const dunlin_field *field) {
  return field->type == DUNLIN_TEXT || field->type == DUNLIN_LIST;
}

/* Bytes of an element, and the range of a field that is one number. */
static dunlin_range dunlin__range_of(const dunlin_field *field) {
  dunlin_range range = field->range;
  range.min = 0;
  range.bytes = 1;
  switch (field->type) {
    case DUNLIN_FLAG: range.max = 1; break;
    case DUNLIN_CHOICE: range.max = (int64_t)field->choice_count - 1; break;
    case DUNLIN_TEXT: range.max = 255; break;
    case DUNLIN_OBJECT_ID:
      range.max = UINT32_MAX;
      range.bytes = 4;
      break;
    default: return field->range;
  }
  return range;
}

/* Each name of these members may occur once. `values` has as many places, with NULL for members that are absent. */
static bool dunlin__members(dunlin_json object, const char *const *names, size_t count, dunlin_json *values) {
  dunlin__walk walk;
  size_t at;
  memset(&walk, 0, sizeof walk);
  for (at = 0; at < count; at += 1) values[at] = dunlin__json_of(NULL, 0);
  if (!dunlin__json_begins(object, '{')) return false;
  while (dunlin__walk_on(object, &walk)) {
    for (at = 0; at < count && !dunlin__json_is(walk.name, names[at]); at += 1) continue;
    if (at == count) continue;
    if (values[at].text != NULL) return false;
    values[at] = walk.value;
  }
  return true;
}

/* A whole number, or `absent` if it is absent. */
static bool dunlin__optional_integer(dunlin_json value, uint32_t max, uint32_t absent, uint32_t *number) {
  int64_t read = absent;
  if (value.text != NULL && !dunlin__json_integer(value, 0, max, &read)) return false;
  *number = (uint32_t)read;
  return true;
}

static bool dunlin__read_range(dunlin_json bytes, dunlin_json min, dunlin_json max, dunlin_range *range) {
  int64_t half, count;
  if (!dunlin__json_integer(bytes, 1, 4, &count) || count == 3) return false;
  range->bytes = (uint32_t)count;
  half = (int64_t)1 << (8 * count - 1);
  if (!dunlin__json_integer(min, -half, 2 * half - 1, &range->min)) return false;
  return dunlin__json_integer(max, range->min, range->min < 0 ? half - 1 : 2 * half - 1, &range->max);
}

/* The index of a word; `count` if it is none of them. */
static size_t dunlin__word_index(dunlin_json value, const char *const *words, size_t count) {
  size_t at;
  for (at = 0; at < count && !dunlin__json_is(value, words[at]); at += 1) continue;
  return at;
}

enum {
  DUNLIN__NAME, DUNLIN__TYPE, DUNLIN__BYTES_OF, DUNLIN__MIN, DUNLIN__MAX, DUNLIN__COUNT_MIN, DUNLIN__COUNT_MAX, DUNLIN__NAMES,
  DUNLIN__DELTA_BITS, DUNLIN__PER_UNIT, DUNLIN__MOTION, DUNLIN__OPTIONAL, DUNLIN__MEMBERS
};

static dunlin_status dunlin__read_choices(const dunlin_allocator *allocator, dunlin_schema *schema, dunlin_json names, dunlin_field *field) {
  dunlin__walk walk;
  memset(&walk, 0, sizeof walk);
  if (!dunlin__json_begins(names, '[')) return DUNLIN_MALFORMED;
  while (dunlin__walk_on(names, &walk)) {
    const char **choice = (const char **)dunlin__push(allocator, &schema->choices);
    if (choice == NULL) return DUNLIN_NO_MEMORY;
    *choice = dunlin__keep_text(schema, walk.value);
    if (*choice == NULL || field->choice_count == DUNLIN__CHOICES_MAX) return DUNLIN_MALFORMED;
    field->choice_count += 1;
  }
  return field->choice_count == 0 ? DUNLIN_MALFORMED : DUNLIN_OK;
}

static bool dunlin__read_counts(const dunlin_json *values, dunlin_field *field) {
  int64_t least = 0, most;
  if (field->type == DUNLIN_LIST && !dunlin__json_integer(values[DUNLIN__COUNT_MIN], 0, DUNLIN__LENGTH_MAX, &least)) return false;
  if (!dunlin__json_integer(values[DUNLIN__COUNT_MAX], least < 1 ? 1 : least, DUNLIN__LENGTH_MAX, &most)) return false;
  field->count_min = (uint32_t)least;
  field->count_max = (uint32_t)most;
  return true;
}

static dunlin_status dunlin__read_field(const dunlin_allocator *allocator, dunlin_schema *schema, dunlin_json json, dunlin_field *field) {
  static const char *const names[] = {"name", "type", "bytes", "min", "max", "count_min", "count_max", "names", "delta_bits", "per_unit", "motion", "optional"};
  static const char *const types[] = {"integer", "flag", "choice", "object", "text", "list"};
  static const char *const motions[] = {"step", "linear", "angle"};
  dunlin_json values[DUNLIN__MEMBERS];
  size_t type, motion = 0;
  if (!dunlin__members(json, names, DUNLIN__MEMBERS, values)) return DUNLIN_MALFORMED;
  field->name = dunlin__keep_text(schema, values[DUNLIN__NAME]);
  type = dunlin__word_index(values[DUNLIN__TYPE], types, 6);
  if (values[DUNLIN__MOTION].text != NULL) motion = dunlin__word_index(values[DUNLIN__MOTION], motions, 3);
  if (field->name == NULL || type == 6 || motion == 3) return DUNLIN_MALFORMED;
  field->type = (dunlin_field_type)type;
  field->motion = (dunlin_motion)motion;
  field->is_optional = dunlin_json_is_true(values[DUNLIN__OPTIONAL]);
  if (values[DUNLIN__OPTIONAL].text != NULL && !field->is_optional && !dunlin__same(values[DUNLIN__OPTIONAL].text, values[DUNLIN__OPTIONAL].byte_count, "false", 5)) return DUNLIN_MALFORMED;
  if (!dunlin__optional_integer(values[DUNLIN__DELTA_BITS], 31, 0, &field->delta_bits)) return DUNLIN_MALFORMED;
  if (!dunlin__optional_integer(values[DUNLIN__PER_UNIT], UINT32_MAX, 1, &field->per_unit) || field->per_unit == 0) return DUNLIN_MALFORMED;
  if (dunlin__is_long(field) && !dunlin__read_counts(values, field)) return DUNLIN_MALFORMED;
  if (field->type == DUNLIN_INTEGER || field->type == DUNLIN_LIST) {
    if (!dunlin__read_range(values[DUNLIN__BYTES_OF], values[DUNLIN__MIN], values[DUNLIN__MAX], &field->range)) return DUNLIN_MALFORMED;
  }
  if (field->delta_bits > 0) {
    if (field->type != DUNLIN_INTEGER || field->delta_bits >= dunlin__bits_of((uint64_t)(field->range.max - field->range.min))) return DUNLIN_MALFORMED;
  }
  return field->type == DUNLIN_CHOICE ? dunlin__read_choices(allocator, schema, values[DUNLIN__NAMES], field) : DUNLIN_OK;
}

/* Whether all fields after the first optional one can be left out, and all names differ. */
static bool dunlin__are_fields_valid(const dunlin_field *fields, uint32_t count) {
  uint32_t at, other;
  bool has_optional = false;
  for (at = 0; at < count; at += 1) {
    has_optional = has_optional || fields[at].is_optional;
    if (has_optional) {
      if (fields[at].type == DUNLIN_INTEGER && (fields[at].range.min > 0 || fields[at].range.max < 0)) return false;
      if (fields[at].type == DUNLIN_LIST && fields[at].count_min > 0) return false;
    }
    for (other = 0; other < at; other += 1) {
      if (strcmp(fields[other].name, fields[at].name) == 0) return false;
    }
  }
  return true;
}

static dunlin_status dunlin__read_kind(const dunlin_allocator *allocator, dunlin_schema *schema, dunlin_json json) {
  static const char *const names[] = {"kind", "name", "fields"};
  dunlin_json values[3];
  dunlin__walk walk;
  dunlin_kind kind, *kept_kind;
  int64_t number;
  size_t first = schema->fields.count;
  memset(&walk, 0, sizeof walk);
  memset(&kind, 0, sizeof kind);
  if (!dunlin__members(json, names, 3, values) || !dunlin__json_integer(values[0], 0, 0xffff, &number)) return DUNLIN_MALFORMED;
  kind.number = (uint16_t)number;
  kind.name = dunlin__keep_text(schema, values[1]);
  if (kind.name == NULL || !dunlin__json_begins(values[2], '[') || schema->kinds.count == DUNLIN__KINDS_MAX) return DUNLIN_MALFORMED;
  while (dunlin__walk_on(values[2], &walk)) {
    dunlin_field field;
    dunlin_field *kept;
    dunlin_status status;
    memset(&field, 0, sizeof field);
    status = dunlin__read_field(allocator, schema, walk.value, &field);
    if (status != DUNLIN_OK) return status;
    if (kind.field_count == DUNLIN_FIELDS_MAX) return DUNLIN_MALFORMED;
    kept = (dunlin_field *)dunlin__push(allocator, &schema->fields);
    if (kept == NULL) return DUNLIN_NO_MEMORY;
    *kept = field;
    kind.field_count += 1;
    kind.state_bytes_max += dunlin__is_long(&field) ? 2 + field.count_max * dunlin__range_of(&field).bytes : dunlin__range_of(&field).bytes;
  }
  if (kind.field_count == 0 || !dunlin__are_fields_valid((const dunlin_field *)schema->fields.items + first, kind.field_count)) return DUNLIN_MALFORMED;
  kept_kind = (dunlin_kind *)dunlin__push(allocator, &schema->kinds);
  if (kept_kind == NULL) return DUNLIN_NO_MEMORY;
  *kept_kind = kind;
  return DUNLIN_OK;
}

/* Lists have grown while they were read, so pointers into them are set at the end. False if a kind occurs twice. */
static bool dunlin__link_schema(dunlin_schema *schema) {
  dunlin_kind *kinds = (dunlin_kind *)schema->kinds.items;
  dunlin_field *fields = (dunlin_field *)schema->fields.items;
  const char *const *choices = (const char *const *)schema->choices.items;
  size_t at, place;
  for (at = 0; at < schema->fields.count; at += 1) {
    if (fields[at].choice_count == 0) continue;
    fields[at].choices = choices;
    choices += fields[at].choice_count;
  }
  for (at = 0; at < schema->kinds.count; at += 1) {
    dunlin_kind kind = kinds[at];
    kind.fields = fields;
    fields += kind.field_count;
    for (place = at; place > 0 && kinds[place - 1].number >= kind.number; place -= 1) {
      if (kinds[place - 1].number == kind.number) return false;
      kinds[place] = kinds[place - 1];
    }
    kinds[place] = kind;
  }
  return true;
}

static dunlin_status dunlin__read_kinds(const dunlin_allocator *allocator, dunlin_schema *schema, dunlin_json document) {
  static const char *const names[] = {"kinds"};
  dunlin_json kinds;
  dunlin__walk walk;
  memset(&walk, 0, sizeof walk);
  if (!dunlin__members(document, names, 1, &kinds) || !dunlin__json_begins(kinds, '[')) return DUNLIN_MALFORMED;
  while (dunlin__walk_on(kinds, &walk)) {
    dunlin_status status = dunlin__read_kind(allocator, schema, walk.value);
    if (status != DUNLIN_OK) return status;
  }
  return dunlin__link_schema(schema) ? DUNLIN_OK : DUNLIN_MALFORMED;
}

/* Reads a schema into `*schema`, which is NULL after a failure. */
static dunlin_status dunlin__read_schema(const dunlin_allocator *allocator, const uint8_t *bytes, size_t count, dunlin_schema **schema) {
  dunlin_json document = dunlin__json_of(NULL, 0);
  dunlin_schema *read;
  dunlin_status status = DUNLIN_NO_MEMORY;
  *schema = NULL;
  if (count <= DUNLIN__SCHEMA_BYTES_MAX) document = dunlin_json_parse(bytes, count);
  if (document.text == NULL) return DUNLIN_MALFORMED;
  read = (dunlin_schema *)dunlin__new(allocator, sizeof *read);
  if (read == NULL) return DUNLIN_NO_MEMORY;
  read->kinds.item_bytes = sizeof(dunlin_kind);
  read->fields.item_bytes = sizeof(dunlin_field);
  read->choices.item_bytes = sizeof(const char *);
  read->texts_bytes = document.byte_count + 1;
  read->texts = (char *)dunlin__new(allocator, read->texts_bytes);
  if (read->texts != NULL) status = dunlin__read_kinds(allocator, read, document);
  if (status == DUNLIN_OK) *schema = read;
  else dunlin__schema_free(allocator, read);
  return status;
}

static const dunlin_kind *dunlin__kind_in(const dunlin_schema *schema, uint16_t number) {
  size_t first = 0, end;
  const dunlin_kind *kinds;
  if (schema == NULL) return NULL;
  kinds = (const dunlin_kind *)schema->kinds.items;
  for (end = schema->kinds.count; first < end;) {
    size_t middle = first + (end - first) / 2;
    if (kinds[middle].number == number) return &kinds[middle];
    if (kinds[middle].number < number) first = middle + 1;
    else end = middle;
  }
  return NULL;
}

const dunlin_kind *dunlin_kind_of(const dunlin_world *world, uint16_t number) {
  return dunlin__kind_in(world->schema, number);
}

int dunlin_field_index(const dunlin_kind *kind, const char *name) {
  uint32_t at;
  for (at = 0; kind != NULL && at < kind->field_count; at += 1) {
    if (strcmp(kind->fields[at].name, name) == 0) return (int)at;
  }
  return -1;
}

/* A value in a state: a number, or `count` elements in `bytes`, which are those of a state. */
typedef struct dunlin__value {
  int64_t number;
  const uint8_t *bytes;
  uint32_t count;
} dunlin__value;

static int64_t dunlin__integer_at(const uint8_t *bytes, const dunlin_range *range) {
  int64_t number = (int64_t)dunlin__little_endian(bytes, range->bytes);
  int64_t turn = (int64_t)1 << (8 * range->bytes);
  return range->min < 0 && number >= turn / 2 ? number - turn : number;
}

static bool dunlin__is_nothing(const dunlin_field *field, const dunlin__value *value) {
  return dunlin__is_long(field) ? value->count == 0 : value->number == 0;
}

static bool dunlin__is_in_range(const dunlin__value *value, const dunlin_range *range) {
  uint32_t at;
  for (at = 0; at < value->count; at += 1) {
    int64_t element = dunlin__integer_at(value->bytes + at * range->bytes, range);
    if (element < range->min || element > range->max) return false;
  }
  return true;
}

/* Takes the value of a field from the state. */
static bool dunlin__take_value(dunlin__reader *state, const dunlin_field *field, bool is_last, dunlin__value *value) {
  dunlin_range range = dunlin__range_of(field);
  size_t left = (size_t)(state->end - state->at), head, count;
  if (!dunlin__is_long(field)) {
    if (left < range.bytes) return false;
    value->number = dunlin__integer_at(state->at, &range);
    state->at += range.bytes;
    return value->number >= range.min && value->number <= range.max;
  }
  count = dunlin__count_min(field);
  if (count != field->count_max && is_last) {
    if (left % range.bytes != 0) return false;
    count = left / range.bytes;
  } else if (count != field->count_max) {
    head = field->count_max <= DUNLIN__SHORT_LENGTH_MAX ? 1 : 2;
    if (left < head) return false;
    count = (size_t)dunlin__little_endian(state->at, head);
    state->at += head;
    left -= head;
  }
  if (count < dunlin__count_min(field) || count > field->count_max || count * range.bytes > left) return false;
  value->count = (uint32_t)count;
  value->bytes = state->at;
  state->at += count * range.bytes;
  return field->type == DUNLIN_TEXT ? dunlin__is_utf8(value->bytes, count) : dunlin__is_in_range(value, &range);
}

/* The values of a state's first fields; false if it does not have the form of its kind so far. */
static bool dunlin__split_first(const dunlin_kind *kind, const uint8_t *bytes, size_t byte_count, uint32_t count, dunlin__value *values) {
  dunlin__reader state = dunlin__reader_of(bytes, byte_count);
  bool has_optional = false, has_value = false;
  uint32_t at;
  memset(values, 0, sizeof *values * count);
  for (at = 0; at < count; at += 1) {
    const dunlin_field *field = &kind->fields[at];
    if (field->is_optional && !has_optional && state.at == state.end) return true;
    has_optional = has_optional || field->is_optional;
    if (!dunlin__take_value(&state, field, at + 1 == kind->field_count, &values[at])) return false;
    has_value = has_value || (has_optional && !dunlin__is_nothing(field, &values[at]));
  }
  return count < kind->field_count || (state.at == state.end && (!has_optional || has_value));
}

/* The values of a state's fields; false if it does not have the form of its kind. */
static bool dunlin__split_state(const dunlin_kind *kind, const uint8_t *bytes, size_t byte_count, dunlin__value *values) {
  return dunlin__split_first(kind, bytes, byte_count, kind->field_count, values);
}

static uint8_t *dunlin__write_integer(uint8_t *out, int64_t number, uint32_t bytes) {
  uint64_t rest = (uint64_t)number;
  for (; bytes > 0; bytes -= 1, rest >>= 8) *out++ = (uint8_t)(rest & 0xff);
  return out;
}

/* Writes the state with these values, which are in their ranges. Returns its end; it has at most state_bytes_max of the kind. */
static uint8_t *dunlin__join_state(const dunlin_kind *kind, const dunlin__value *values, uint8_t *out) {
  uint8_t *optional_start = NULL;
  bool has_value = false;
  uint32_t at;
  for (at = 0; at < kind->field_count; at += 1) {
    const dunlin_field *field = &kind->fields[at];
    dunlin_range range = dunlin__range_of(field);
    if (field->is_optional && optional_start == NULL) optional_start = out;
    has_value = has_value || (optional_start != NULL && !dunlin__is_nothing(field, &values[at]));
    if (!dunlin__is_long(field)) {
      out = dunlin__write_integer(out, values[at].number, range.bytes);
      continue;
    }
    if (dunlin__count_min(field) != field->count_max && at + 1 < kind->field_count) {
      out = dunlin__write_integer(out, values[at].count, field->count_max <= DUNLIN__SHORT_LENGTH_MAX ? 1 : 2);
    }
    if (values[at].count == 0) continue;
    memmove(out, values[at].bytes, values[at].count * range.bytes);
    out += values[at].count * range.bytes;
  }
  return optional_start != NULL && !has_value ? optional_start : out;
}

static bool dunlin__has_form(const dunlin_schema *schema, uint16_t number, const uint8_t *state, size_t byte_count) {
  dunlin__value values[DUNLIN_FIELDS_MAX];
  const dunlin_kind *kind = dunlin__kind_in(schema, number);
  return kind != NULL && dunlin__split_state(kind, state, byte_count, values);
}

/* The value of a field; NULL for the field if the object has none. */
static const dunlin_field *dunlin__value_of(const dunlin_world *world, const dunlin_object *object, int index, dunlin__value *value) {
  dunlin__value values[DUNLIN_FIELDS_MAX];
  const dunlin_kind *kind;
  if (object == NULL || !object->has_fields || index < 0) return NULL;
  kind = dunlin_kind_of(world, object->kind);
  if (kind == NULL || (uint32_t)index >= kind->field_count) return NULL;
  /* Its form is known, so nothing behind the field is looked at. */
  if (!dunlin__split_first(kind, object->state, object->state_bytes, (uint32_t)index + 1, values)) return NULL;
  *value = values[index];
  return &kind->fields[index];
}

int64_t dunlin_field_integer(const dunlin_world *world, const dunlin_object *object, int index) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  return field == NULL || dunlin__is_long(field) ? 0 : value.number;
}

double dunlin_field_number(const dunlin_world *world, const dunlin_object *object, int index) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  return field == NULL || dunlin__is_long(field) ? 0 : (double)value.number / field->per_unit;
}

const char *dunlin_field_choice(const dunlin_world *world, const dunlin_object *object, int index) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  return field == NULL || field->type != DUNLIN_CHOICE ? NULL : field->choices[value.number];
}

const char *dunlin_field_text(const dunlin_world *world, const dunlin_object *object, int index, size_t *byte_count) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  *byte_count = 0;
  if (field == NULL || field->type != DUNLIN_TEXT) return NULL;
  *byte_count = value.count;
  return value.count == 0 ? "" : (const char *)value.bytes;
}

size_t dunlin_field_count(const dunlin_world *world, const dunlin_object *object, int index) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  return field == NULL || field->type != DUNLIN_LIST ? 0 : value.count;
}

int64_t dunlin_field_element(const dunlin_world *world, const dunlin_object *object, int index, size_t place) {
  dunlin__value value;
  const dunlin_field *field = dunlin__value_of(world, object, index, &value);
  if (field == NULL || field->type != DUNLIN_LIST || place >= value.count) return 0;
  return dunlin__integer_at(value.bytes + place * field->range.bytes, &field->range);
}

int64_t dunlin_field_integer_of(const dunlin_world *world, const dunlin_object *object, const char *name) {
  return object == NULL ? 0 : dunlin_field_integer(world, object, dunlin_field_index(dunlin_kind_of(world, object->kind), name));
}

double dunlin_field_number_of(const dunlin_world *world, const dunlin_object *object, const char *name) {
  return object == NULL ? 0 : dunlin_field_number(world, object, dunlin_field_index(dunlin_kind_of(world, object->kind), name));
}

/* -- Changes in bits ----------------------------------------------------------------------------------------------- */

typedef struct dunlin__bits {
  const uint8_t *bytes;
  size_t bit_count;
  size_t at;
  bool has_failed;
} dunlin__bits;

/* The next bits, at most 32; 0 after a failure. */
static uint32_t dunlin__take_bits(dunlin__bits *bits, uint32_t count) {
  uint64_t number = 0;
  uint32_t done;
  if (bits->has_failed || count > bits->bit_count - bits->at) {
    bits->has_failed = true;
    return 0;
  }
  for (done = 0; done < count;) {
    uint32_t used = (uint32_t)(bits->at & 7);
    uint32_t part = 8 - used < count - done ? 8 - used : count - done;
    number |= (uint64_t)((bits->bytes[bits->at >> 3] >> used) & ((1u << part) - 1)) << done;
    done += part;
    bits->at += part;
  }
  return (uint32_t)number;
}

static uint32_t dunlin__take_count(dunlin__bits *bits) {
  static const uint32_t class_bits[] = {0, 4, 8, 16, 32};
  uint64_t number = 0;
  uint32_t place = 0;
  for (; place < 4 && dunlin__take_bits(bits, 1) == 1; place += 1) number += (uint64_t)1 << class_bits[place];
  number += dunlin__take_bits(bits, class_bits[place]);
  if (number > UINT32_MAX) bits->has_failed = true;
  return bits->has_failed ? 0 : (uint32_t)number;
}

static int64_t dunlin__take_signed(dunlin__bits *bits, uint32_t count) {
  int64_t number = dunlin__take_bits(bits, count), half = (int64_t)1 << (count - 1);
  return number < half ? number : number - 2 * half;
}

/* An object of a snapshot that is not applied. The numbers come first, for dunlin__sort: of several with an id, the last counts. */
typedef struct dunlin__staged {
  uint64_t id;
  uint64_t order;
  const uint8_t *state; /* NULL: at `start` of the decoded states */
  size_t start;
  size_t state_bytes;
  uint32_t x;
  uint32_t y;
  uint32_t cell;
  uint32_t kind;
} dunlin__staged;

typedef struct dunlin__place {
  uint32_t x;
  uint32_t y;
} dunlin__place;

static void dunlin__take_place(dunlin__bits *bits, uint32_t cell_units, dunlin__place *place) {
  static const uint32_t step_bits[] = {3, 5, 7};
  uint32_t step_class = dunlin__take_bits(bits, 2);
  int64_t x, y;
  if (step_class == 3) {
    x = dunlin__take_bits(bits, dunlin__bits_of(cell_units - 1));
    y = dunlin__take_bits(bits, dunlin__bits_of(cell_units - 1));
  } else {
    x = (int64_t)place->x + dunlin__take_signed(bits, step_bits[step_class]);
    y = (int64_t)place->y + dunlin__take_signed(bits, step_bits[step_class]);
  }
  if (x < 0 || y < 0 || x >= cell_units || y >= cell_units) {
    bits->has_failed = true;
    return;
  }
  place->x = (uint32_t)x;
  place->y = (uint32_t)y;
}

/* The elements of a text or list, written to `out`. Returns the end. */
static uint8_t *dunlin__take_elements(dunlin__bits *bits, const dunlin_field *field, dunlin__value *value, uint8_t *out) {
  dunlin_range range = dunlin__range_of(field);
  uint32_t least = dunlin__count_min(field), count, width, at;
  count = dunlin__take_bits(bits, dunlin__bits_of(field->count_max - least));
  width = field->type == DUNLIN_TEXT ? 8 : dunlin__bits_of((uint64_t)(range.max - range.min));
  if (bits->has_failed || count > field->count_max - least) {
    bits->has_failed = true;
    return out;
  }
  value->count = least + count;
  value->bytes = out;
  for (at = 0; at < value->count && !bits->has_failed; at += 1) {
    int64_t element = range.min + dunlin__take_bits(bits, width);
    if (element > range.max) bits->has_failed = true;
    else out = dunlin__write_integer(out, element, range.bytes);
  }
  if (!bits->has_failed && field->type == DUNLIN_TEXT && !dunlin__is_utf8(value->bytes, count)) bits->has_failed = true;
  return out;
}

static void dunlin__take_number(dunlin__bits *bits, const dunlin_field *field, dunlin__value *value) {
  dunlin_range range = dunlin__range_of(field);
  if (field->type == DUNLIN_OBJECT_ID) {
    value->number = dunlin__take_count(bits);
  } else if (field->delta_bits > 0 && dunlin__take_bits(bits, 1) == 1) {
    int64_t turn = range.max - range.min + 1;
    value->number += dunlin__take_signed(bits, field->delta_bits);
    if (field->motion == DUNLIN_ANGLE) value->number = range.min + ((value->number - range.min) % turn + turn) % turn;
  } else {
    value->number = range.min + dunlin__take_bits(bits, dunlin__bits_of((uint64_t)(range.max - range.min)));
  }
  if (value->number < range.min || value->number > range.max) bits->has_failed = true;
}

/* Reads the changes of a cell, which build on the world. */
typedef struct dunlin__changes {
  dunlin__bits bits;
  const dunlin_allocator *allocator;
  dunlin__list *decoded; /* gets the states */
  const dunlin_world *world;
  const dunlin_kind *last_kind; /* of the previous object, and its set of changed things */
  uint64_t last_set;
  uint32_t cell;
  uint32_t left; /* the corner of the cell */
  uint32_t top;
} dunlin__changes;

static void dunlin__take_set(dunlin__changes *changes, const dunlin_kind *kind) {
  uint32_t count = kind->field_count + 1, first = count < 32 ? count : 32;
  if (dunlin__take_bits(&changes->bits, 1) == 0) {
    changes->last_kind = kind;
    changes->last_set = dunlin__take_bits(&changes->bits, first);
    changes->last_set |= (uint64_t)dunlin__take_bits(&changes->bits, count - first) << 32;
  }
  if (changes->last_kind != kind || changes->last_set == 0) changes->bits.has_failed = true;
}

/* Reads a changed object, whose id is known. */
static dunlin_status dunlin__read_change(dunlin__changes *changes, dunlin__staged *staged) {
  dunlin__value values[DUNLIN_FIELDS_MAX];
  dunlin__bits *bits = &changes->bits;
  dunlin__list *decoded = changes->decoded;
  const dunlin_object *before = dunlin_find(changes->world, (uint32_t)staged->id);
  const dunlin_kind *kind = before == NULL || before->cell != changes->cell ? NULL : dunlin_kind_of(changes->world, before->kind);
  dunlin__place place;
  uint8_t *out, *end;
  uint32_t at;
  if (kind == NULL || !dunlin__split_state(kind, before->state, before->state_bytes, values)) return DUNLIN_MALFORMED;
  dunlin__take_set(changes, kind);
  if (bits->has_failed) return DUNLIN_MALFORMED;
  place.x = before->x - changes->left;
  place.y = before->y - changes->top;
  if ((changes->last_set & 1) != 0) dunlin__take_place(bits, changes->world->grid.cell_units, &place);
  /* New elements come first, and then the state with them. */
  if (kind->state_bytes_max > SIZE_MAX / 8 - decoded->count) return DUNLIN_TOO_LARGE;
  if (!dunlin__reserve(changes->allocator, decoded, decoded->count + 2 * kind->state_bytes_max)) return DUNLIN_NO_MEMORY;
  out = (uint8_t *)decoded->items + decoded->count;
  for (at = 0; at < kind->field_count && !bits->has_failed; at += 1) {
    if ((changes->last_set >> (at + 1) & 1) == 0) continue;
    if (dunlin__is_long(&kind->fields[at])) out = dunlin__take_elements(bits, &kind->fields[at], &values[at], out);
    else dunlin__take_number(bits, &kind->fields[at], &values[at]);
  }
  if (bits->has_failed) return DUNLIN_MALFORMED;
  end = dunlin__join_state(kind, values, out);
  staged->x = place.x;
  staged->y = place.y;
  staged->kind = kind->number;
  staged->start = (size_t)(out - (uint8_t *)decoded->items);
  staged->state_bytes = (size_t)(end - out);
  decoded->count = (size_t)(end - (uint8_t *)decoded->items);
  return DUNLIN_OK;
}

/* -- The replica --------------------------------------------------------------------------------------------------- */

#define DUNLIN__SIDE_MAX 1024u
#define DUNLIN__FULL_RATE_PERMILLE 1000u
/* A cell may occur twice. */
#define DUNLIN__CELLS_MAX (2 * DUNLIN__SIDE_MAX * DUNLIN__SIDE_MAX)

/* The objects of one tick. `states` has room for all of them before the first is copied, so it does not move. */
typedef struct dunlin__seen {
  dunlin__list objects;
  dunlin__list states;
} dunlin__seen;

typedef struct dunlin__cell {
  uint32_t cell;
  bool is_full;
  const uint8_t *changes;
  size_t change_bytes;
} dunlin__cell;

/* An id that departed from a cell, for dunlin__sort. */
typedef struct dunlin__departed {
  uint64_t id;
  uint64_t cell;
} dunlin__departed;

/* A snapshot that is not applied. The lists are kept for the next one. */
typedef struct dunlin__snapshot {
  dunlin_world head; /* its numbers */
  bool has_own;
  bool has_grid;
  dunlin_schema *schema;
  dunlin__list own;
  dunlin__list staged;
  dunlin__list cells;
  dunlin__list departed;
  dunlin__list decoded;
  size_t items_max;
  dunlin_status status; /* of the lists; a reader knows its own failure */
} dunlin__snapshot;

/* The zones of a view: three of near cells, the nearest first, and that of the far cells. */
#define DUNLIN__ZONES 4
#define DUNLIN__FAR_ZONE 3

struct dunlin_replica {
  dunlin_allocator allocator;
  size_t objects_max;
  size_t state_bytes_max;
  dunlin_world world;
  dunlin_schema *schema;
  dunlin__seen seen[2];
  uint32_t current; /* the index of the objects of `world`; the other one has those of the tick before */
  dunlin__list changes;
  dunlin__snapshot snapshot;
  bool is_zone_updated[DUNLIN__ZONES]; /* by the last snapshot */
};

/* A new item of a snapshot; NULL, with the status, above the limit. */
static void *dunlin__stage(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__list *list) {
  void *item = list->count >= snapshot->items_max ? NULL : dunlin__push(allocator, list);
  if (item == NULL) snapshot->status = list->count >= snapshot->items_max ? DUNLIN_TOO_LARGE : DUNLIN_NO_MEMORY;
  return item;
}

static void dunlin__read_object(dunlin__reader *outer, const dunlin__field *message, dunlin__staged *staged) {
  static const uint8_t nothing[1] = {0};
  dunlin__reader reader;
  dunlin__field field;
  uint32_t id = 0;
  staged->state = nothing;
  if (!dunlin__is(outer, message, DUNLIN__BYTES)) return;
  reader = dunlin__inner(message);
  while (dunlin__next_field(&reader, &field)) {
    switch (field.number) {
      case 1: dunlin__take_u32(&reader, &field, &id); break;
      case 2: dunlin__take_u32(&reader, &field, &staged->kind); break;
      case 3: dunlin__take_u32(&reader, &field, &staged->x); break;
      case 4: dunlin__take_u32(&reader, &field, &staged->y); break;
      case 5:
        if (!dunlin__is(&reader, &field, DUNLIN__BYTES)) break;
        staged->state = field.byte_count == 0 ? nothing : field.bytes;
        staged->state_bytes = field.byte_count;
        break;
      default: break;
    }
  }
  staged->id = id;
  if (reader.has_failed || staged->kind > 0xffff) outer->has_failed = true;
}

/* Of several `own`, the last counts. */
static void dunlin__read_own(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__reader *outer, const dunlin__field *message) {
  dunlin__reader reader;
  dunlin__field field;
  snapshot->own.count = 0;
  snapshot->has_own = true;
  if (!dunlin__is(outer, message, DUNLIN__BYTES)) return;
  reader = dunlin__inner(message);
  while (snapshot->status == DUNLIN_OK && dunlin__next_field(&reader, &field)) {
    dunlin__staged *staged;
    if (field.number != 1) continue;
    staged = (dunlin__staged *)dunlin__stage(allocator, snapshot, &snapshot->own);
    if (staged == NULL) return;
    staged->cell = DUNLIN_NO_CELL;
    dunlin__read_object(&reader, &field, staged);
  }
  if (reader.has_failed) outer->has_failed = true;
}

static void dunlin__read_grid(dunlin__snapshot *snapshot, dunlin__reader *outer, const dunlin__field *message) {
  dunlin__reader reader;
  dunlin__field field;
  dunlin_grid *grid = &snapshot->head.grid;
  memset(grid, 0, sizeof *grid);
  snapshot->has_grid = true;
  if (!dunlin__is(outer, message, DUNLIN__BYTES)) return;
  reader = dunlin__inner(message);
  while (dunlin__next_field(&reader, &field)) {
    switch (field.number) {
      case 1: dunlin__take_u32(&reader, &field, &grid->columns); break;
      case 2: dunlin__take_u32(&reader, &field, &grid->rows); break;
      case 3: dunlin__take_u32(&reader, &field, &grid->cell_units); break;
      case 4: dunlin__take_u32(&reader, &field, &grid->near_cells); break;
      case 5: dunlin__take_u32(&reader, &field, &grid->far_cells); break;
      case 6: dunlin__take_u32(&reader, &field, &grid->far_interval_ticks); break;
      case 7: dunlin__take_u32(&reader, &field, &grid->ticks_per_second); break;
      default: break;
    }
  }
  if (reader.has_failed) outer->has_failed = true;
}

static void dunlin__stage_departed(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__reader *reader, uint64_t id) {
  dunlin__departed *departed;
  if (id == 0 || id > UINT32_MAX) {
    reader->has_failed = true;
    return;
  }
  departed = (dunlin__departed *)dunlin__stage(allocator, snapshot, &snapshot->departed);
  if (departed != NULL) departed->id = id;
}

/* Packed, or one by one. */
static void dunlin__read_departed(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__reader *reader, const dunlin__field *field) {
  dunlin__reader packed;
  uint64_t id;
  if (field->wire == DUNLIN__VARINT) {
    dunlin__stage_departed(allocator, snapshot, reader, field->value);
    return;
  }
  if (!dunlin__is(reader, field, DUNLIN__BYTES)) return;
  packed = dunlin__inner(field);
  while (packed.at < packed.end && snapshot->status == DUNLIN_OK && !reader->has_failed) {
    if (dunlin__read_varint(&packed, &id)) dunlin__stage_departed(allocator, snapshot, reader, id);
    else reader->has_failed = true;
  }
}

static void dunlin__read_cell(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__reader *outer, const dunlin__field *message) {
  size_t first_departed = snapshot->departed.count, first_staged = snapshot->staged.count, place = snapshot->cells.count;
  dunlin__reader reader;
  dunlin__field field;
  dunlin__cell cell, *kept;
  dunlin__staged *staged;
  memset(&cell, 0, sizeof cell);
  if (!dunlin__is(outer, message, DUNLIN__BYTES)) return;
  reader = dunlin__inner(message);
  while (snapshot->status == DUNLIN_OK && dunlin__next_field(&reader, &field)) {
    switch (field.number) {
      case 1: dunlin__take_u32(&reader, &field, &cell.cell); break;
      case 2: dunlin__take_bool(&reader, &field, &cell.is_full); break;
      case 3: dunlin__read_departed(allocator, snapshot, &reader, &field); break;
      case 4:
        staged = (dunlin__staged *)dunlin__stage(allocator, snapshot, &snapshot->staged);
        if (staged == NULL) return;
        /* Objects that changed follow the upserts of their cell. */
        staged->order = (uint64_t)(place + 1) << 33 | (snapshot->staged.count & UINT32_MAX);
        dunlin__read_object(&reader, &field, staged);
        break;
      case 5:
        if (!dunlin__is(&reader, &field, DUNLIN__BYTES)) break;
        cell.changes = field.bytes;
        cell.change_bytes = field.byte_count;
        break;
      default: break;
    }
  }
  if (reader.has_failed || place == DUNLIN__CELLS_MAX) outer->has_failed = true;
  if (snapshot->status != DUNLIN_OK || outer->has_failed) return;
  kept = (dunlin__cell *)dunlin__push(allocator, &snapshot->cells);
  if (kept == NULL) {
    snapshot->status = DUNLIN_NO_MEMORY;
    return;
  }
  *kept = cell;
  for (; first_departed < snapshot->departed.count; first_departed += 1) ((dunlin__departed *)snapshot->departed.items)[first_departed].cell = cell.cell;
  for (; first_staged < snapshot->staged.count; first_staged += 1) ((dunlin__staged *)snapshot->staged.items)[first_staged].cell = cell.cell;
}

/* A later schema replaces an earlier one, which is checked as well. */
static void dunlin__read_schema_of(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, dunlin__reader *outer, const dunlin__field *field) {
  dunlin__schema_free(allocator, snapshot->schema);
  snapshot->schema = NULL;
  if (dunlin__is(outer, field, DUNLIN__BYTES)) snapshot->status = dunlin__read_schema(allocator, field->bytes, field->byte_count, &snapshot->schema);
}

static dunlin_status dunlin__read_snapshot(const dunlin_allocator *allocator, dunlin__snapshot *snapshot, const void *bytes, size_t byte_count) {
  dunlin__reader reader = dunlin__reader_of(bytes, byte_count);
  dunlin__field field;
  dunlin_world *head = &snapshot->head;
  memset(head, 0, sizeof *head);
  head->rate_permille = DUNLIN__FULL_RATE_PERMILLE;
  snapshot->status = DUNLIN_OK;
  snapshot->has_own = snapshot->has_grid = false;
  snapshot->own.count = snapshot->staged.count = snapshot->cells.count = snapshot->departed.count = snapshot->decoded.count = 0;
  while (snapshot->status == DUNLIN_OK && dunlin__next_field(&reader, &field)) {
    switch (field.number) {
      case 1: if (dunlin__is(&reader, &field, DUNLIN__FIXED32)) head->ack = (uint32_t)field.value; break;
      case 2: if (dunlin__is(&reader, &field, DUNLIN__FIXED32)) head->avatar = (uint32_t)field.value; break;
      case 3: dunlin__read_own(allocator, snapshot, &reader, &field); break;
      case 4: dunlin__take_u32(&reader, &field, &head->tick); break;
      case 5: dunlin__take_u32(&reader, &field, &head->base); break;
      case 6: if (dunlin__is(&reader, &field, DUNLIN__FIXED64)) head->time_us = field.value; break;
      case 7: dunlin__read_grid(snapshot, &reader, &field); break;
      case 8: dunlin__take_u32(&reader, &field, &head->view); break;
      case 9: dunlin__read_cell(allocator, snapshot, &reader, &field); break;
      case 10: dunlin__read_schema_of(allocator, snapshot, &reader, &field); break;
      case 11: dunlin__take_u32(&reader, &field, &head->rate_permille); break;
      case 12: dunlin__take_u32(&reader, &field, &head->waited); break;
      case 13: dunlin__take_bool(&reader, &field, &head->has_moved); break;
      default: break;
    }
  }
  return reader.has_failed ? DUNLIN_MALFORMED : snapshot->status;
}

static bool dunlin__is_grid_valid(const dunlin_grid *grid) {
  return grid->columns >= 1 && grid->columns <= DUNLIN__SIDE_MAX && grid->rows >= 1 && grid->rows <= DUNLIN__SIDE_MAX
    && grid->cell_units >= 1 && grid->cell_units <= 65536 && grid->near_cells <= 0xffff && grid->far_cells <= 0xffff
    && grid->far_interval_ticks >= 1 && grid->far_interval_ticks <= 15 && grid->ticks_per_second >= 1;
}

/* How many cells a cell is away from the view. */
static uint32_t dunlin__distance(const dunlin_grid *grid, uint32_t view, uint32_t cell) {
  uint32_t a = view % grid->columns, b = cell % grid->columns, c = view / grid->columns, d = cell / grid->columns;
  uint32_t across = a < b ? b - a : a - b, down = c < d ? d - c : c - d;
  return across > down ? across : down;
}

static bool dunlin__is_visible(const dunlin_grid *grid, uint32_t view, uint32_t cell) {
  return dunlin__distance(grid, view, cell) <= grid->near_cells + grid->far_cells;
}

/* The zone of a visible cell: cells that wait together if the server limits the player's bandwidth. Objects in no cell do not wait. */
static size_t dunlin__zone(const dunlin_grid *grid, uint32_t view, uint32_t cell) {
  uint32_t distance = cell == DUNLIN_NO_CELL ? 0 : dunlin__distance(grid, view, cell);
  if (distance <= (grid->near_cells < 1 ? grid->near_cells : 1)) return 0;
  if (distance <= (grid->near_cells + 1) / 2) return 1;
  return distance <= grid->near_cells ? 2 : DUNLIN__FAR_ZONE;
}

/* Checks the numbers of a snapshot and its cells, and takes the map of its base. */
static dunlin_status dunlin__check_head(const dunlin_replica *replica, dunlin__snapshot *snapshot) {
  dunlin_world *head = &snapshot->head;
  const dunlin__cell *cells = (const dunlin__cell *)snapshot->cells.items;
  uint32_t cell_count;
  size_t at;
  if (head->tick == 0 || head->tick < head->base) return DUNLIN_MALFORMED;
  if (head->rate_permille < 1 || head->rate_permille > DUNLIN__FULL_RATE_PERMILLE) return DUNLIN_MALFORMED;
  if (head->base != 0 && head->base != replica->world.tick) return DUNLIN_WRONG_BASE;
  if (head->base == 0 && !snapshot->has_grid) return DUNLIN_MALFORMED;
  if (snapshot->has_grid && !dunlin__is_grid_valid(&head->grid)) return DUNLIN_MALFORMED;
  if (head->base != 0) head->grid = replica->world.grid;
  cell_count = head->grid.columns * head->grid.rows;
  if (head->view >= cell_count) return DUNLIN_WRONG_CELL;
  for (at = 0; at < snapshot->cells.count; at += 1) {
    if (cells[at].cell >= cell_count || !dunlin__is_visible(&head->grid, head->view, cells[at].cell)) return DUNLIN_WRONG_CELL;
  }
  for (at = 1; at < snapshot->cells.count; at += 1) {
    bool is_second = cells[at - 1].is_full && !cells[at].is_full;
    if (cells[at - 1].cell > cells[at].cell || (cells[at - 1].cell == cells[at].cell && !is_second)) return DUNLIN_MALFORMED;
  }
  return DUNLIN_OK;
}

static dunlin_status dunlin__read_all_changes(const dunlin_replica *replica, dunlin__snapshot *snapshot, size_t place) {
  const dunlin__cell *cell = (const dunlin__cell *)snapshot->cells.items + place;
  const dunlin_grid *grid = &snapshot->head.grid;
  dunlin__changes changes;
  uint64_t id = 0;
  uint32_t left;
  if (cell->change_bytes == 0) return DUNLIN_OK;
  if (cell->is_full || snapshot->head.base == 0) return DUNLIN_MALFORMED;
  memset(&changes, 0, sizeof changes);
  changes.bits.bytes = cell->changes;
  changes.bits.bit_count = cell->change_bytes * 8;
  changes.allocator = &replica->allocator;
  changes.decoded = &snapshot->decoded;
  changes.world = &replica->world;
  changes.cell = cell->cell;
  changes.left = cell->cell % grid->columns * grid->cell_units;
  changes.top = cell->cell / grid->columns * grid->cell_units;
  for (left = dunlin__take_count(&changes.bits); left > 0 && !changes.bits.has_failed; left -= 1) {
    dunlin__staged *staged;
    dunlin_status status;
    id += (uint64_t)dunlin__take_count(&changes.bits) + 1;
    if (changes.bits.has_failed || id > UINT32_MAX) return DUNLIN_MALFORMED;
    staged = (dunlin__staged *)dunlin__stage(&replica->allocator, snapshot, &snapshot->staged);
    if (staged == NULL) return snapshot->status;
    staged->id = id;
    staged->cell = cell->cell;
    staged->order = (uint64_t)(place + 1) << 33 | (uint64_t)1 << 32;
    status = dunlin__read_change(&changes, staged);
    if (status != DUNLIN_OK) return status;
    /* A few bits may be a long state. Its elements were written before it, so there may be twice the bytes of the states. */
    if (snapshot->decoded.count / 2 > replica->state_bytes_max) return DUNLIN_TOO_LARGE;
  }
  /* Zeros fill the last byte. */
  if (changes.bits.bit_count - changes.bits.at >= 8) return DUNLIN_MALFORMED;
  if (dunlin__take_bits(&changes.bits, (uint32_t)(changes.bits.bit_count - changes.bits.at)) != 0) changes.bits.has_failed = true;
  return changes.bits.has_failed ? DUNLIN_MALFORMED : DUNLIN_OK;
}

/* Checks the objects, and gives them positions on the map and their states. */
static dunlin_status dunlin__check_objects(const dunlin_replica *replica, dunlin__snapshot *snapshot) {
  const dunlin_grid *grid = &snapshot->head.grid;
  size_t at;
  for (at = 0; at < snapshot->cells.count; at += 1) {
    dunlin_status status = dunlin__read_all_changes(replica, snapshot, at);
    if (status != DUNLIN_OK) return status;
  }
  for (at = 0; at < snapshot->own.count; at += 1) {
    dunlin__staged *staged = (dunlin__staged *)dunlin__stage(&replica->allocator, snapshot, &snapshot->staged);
    if (staged == NULL) return snapshot->status;
    *staged = ((const dunlin__staged *)snapshot->own.items)[at];
    staged->order = at;
  }
  for (at = 0; at < snapshot->staged.count; at += 1) {
    dunlin__staged *one = (dunlin__staged *)snapshot->staged.items + at;
    bool is_own = one->cell == DUNLIN_NO_CELL;
    if (one->id == 0 || one->x >= (is_own ? grid->columns : 1) * grid->cell_units || one->y >= (is_own ? grid->rows : 1) * grid->cell_units) return DUNLIN_MALFORMED;
    if (one->state == NULL) one->state = (const uint8_t *)snapshot->decoded.items + one->start;
    if (is_own) continue;
    one->x += one->cell % grid->columns * grid->cell_units;
    one->y += one->cell / grid->columns * grid->cell_units;
  }
  return DUNLIN_OK;
}

static bool dunlin__is_emptied(const dunlin__snapshot *snapshot, uint32_t cell) {
  const dunlin__cell *cells = (const dunlin__cell *)snapshot->cells.items;
  size_t first = 0, end = snapshot->cells.count;
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    if (cells[middle].cell < cell) first = middle + 1;
    else end = middle;
  }
  return first < snapshot->cells.count && cells[first].cell == cell && cells[first].is_full;
}

/* Whether an object stays, unless it is replaced. `*departed` is the place in the list of departed ids, which only grows. */
static bool dunlin__stays(const dunlin__snapshot *snapshot, const dunlin_object *object, size_t *departed) {
  const dunlin__departed *list = (const dunlin__departed *)snapshot->departed.items;
  if (snapshot->head.base == 0) return false;
  if (object->cell == DUNLIN_NO_CELL) return !snapshot->has_own;
  if (!dunlin__is_visible(&snapshot->head.grid, snapshot->head.view, object->cell) || dunlin__is_emptied(snapshot, object->cell)) return false;
  while (*departed < snapshot->departed.count && (list[*departed].id < object->id || (list[*departed].id == object->id && list[*departed].cell < object->cell))) *departed += 1;
  return *departed == snapshot->departed.count || list[*departed].id != object->id || list[*departed].cell != object->cell;
}

static void dunlin__copy(dunlin__seen *next, dunlin_object object) {
  uint8_t *state = (uint8_t *)next->states.items + next->states.count;
  memcpy(state, object.state, object.state_bytes);
  object.state = state;
  next->states.count += object.state_bytes;
  ((dunlin_object *)next->objects.items)[next->objects.count] = object;
  next->objects.count += 1;
}

static dunlin_object dunlin__object_of(const dunlin__staged *staged, const dunlin_schema *schema) {
  dunlin_object object;
  object.id = (uint32_t)staged->id;
  object.x = staged->x;
  object.y = staged->y;
  object.cell = staged->cell;
  object.kind = (uint16_t)staged->kind;
  object.state = staged->state;
  object.state_bytes = staged->state_bytes;
  object.has_fields = dunlin__has_form(schema, object.kind, object.state, object.state_bytes);
  return object;
}

static bool dunlin__is_same_object(const dunlin_object *one, const dunlin_object *other) {
  return one->kind == other->kind && one->x == other->x && one->y == other->y && one->cell == other->cell
    && dunlin__same(one->state, one->state_bytes, other->state, other->state_bytes);
}

/* Room for all objects that there may be, so that nothing moves and nothing fails while they are merged. */
static bool dunlin__reserve_next(dunlin_replica *replica, dunlin__seen *next) {
  const dunlin__seen *now = &replica->seen[replica->current];
  const dunlin__list *staged = &replica->snapshot.staged;
  size_t states = 1, count = now->objects.count + staged->count, at;
  for (at = 0; at < staged->count; at += 1) states += ((const dunlin__staged *)staged->items)[at].state_bytes;
  next->objects.count = next->states.count = replica->changes.count = 0;
  return dunlin__reserve(&replica->allocator, &next->objects, count + 1)
    && dunlin__reserve(&replica->allocator, &next->states, now->states.count + states)
    && dunlin__reserve(&replica->allocator, &replica->changes, count + 1);
}

static void dunlin__note_change(dunlin_replica *replica, const dunlin_object *before, const dunlin_object *after) {
  dunlin_change *change = (dunlin_change *)replica->changes.items + replica->changes.count;
  if (before != NULL && after != NULL && dunlin__is_same_object(before, after)) return;
  change->before = before;
  change->after = after;
  replica->changes.count += 1;
}

/* Merges the present objects with those of the snapshot. Both are in ascending order of ids. */
static void dunlin__merge(dunlin_replica *replica, dunlin__seen *next) {
  const dunlin__snapshot *snapshot = &replica->snapshot;
  const dunlin__list *now = &replica->seen[replica->current].objects;
  const dunlin__staged *staged = (const dunlin__staged *)snapshot->staged.items;
  const dunlin_schema *schema = snapshot->schema != NULL ? snapshot->schema : replica->schema;
  size_t old = 0, new_one = 0, departed = 0;
  while (old < now->count || new_one < snapshot->staged.count) {
    const dunlin_object *before = old < now->count ? (const dunlin_object *)now->items + old : NULL;
    const dunlin_object *after = (const dunlin_object *)next->objects.items + next->objects.count;
    bool is_staged = new_one < snapshot->staged.count && (before == NULL || staged[new_one].id <= before->id);
    if (is_staged) {
      while (new_one + 1 < snapshot->staged.count && staged[new_one + 1].id == staged[new_one].id) new_one += 1;
      if (before != NULL && staged[new_one].id < before->id) before = NULL;
      dunlin__copy(next, dunlin__object_of(&staged[new_one], schema));
      new_one += 1;
    } else if (dunlin__stays(snapshot, before, &departed)) {
      dunlin_object object = *before;
      if (snapshot->schema != NULL) object.has_fields = dunlin__has_form(schema, object.kind, object.state, object.state_bytes);
      dunlin__copy(next, object);
    } else {
      after = NULL;
    }
    old += before != NULL;
    dunlin__note_change(replica, before, after);
  }
}

static dunlin_status dunlin__prepare(dunlin_replica *replica, dunlin__seen *next, const void *bytes, size_t byte_count) {
  dunlin__snapshot *snapshot = &replica->snapshot;
  dunlin_status status = dunlin__read_snapshot(&replica->allocator, snapshot, bytes, byte_count);
  if (status == DUNLIN_OK) status = dunlin__check_head(replica, snapshot);
  if (status == DUNLIN_OK) status = dunlin__check_objects(replica, snapshot);
  if (status != DUNLIN_OK) return status;
  if (!dunlin__reserve_next(replica, next)) return DUNLIN_NO_MEMORY;
  dunlin__sort(&snapshot->staged);
  dunlin__sort(&snapshot->departed);
  dunlin__merge(replica, next);
  return next->objects.count > replica->objects_max || next->states.count > replica->state_bytes_max ? DUNLIN_TOO_LARGE : DUNLIN_OK;
}

static void dunlin__note_updates(dunlin_replica *replica) {
  const dunlin__cell *cells = (const dunlin__cell *)replica->snapshot.cells.items;
  size_t at;
  memset(replica->is_zone_updated, 0, sizeof replica->is_zone_updated);
  for (at = 0; at < replica->snapshot.cells.count; at += 1) {
    /* A cell in full may only have come into view. */
    if (!cells[at].is_full) replica->is_zone_updated[dunlin__zone(&replica->world.grid, replica->world.view, cells[at].cell)] = true;
  }
}

dunlin_status dunlin_replica_apply(dunlin_replica *replica, const void *bytes, size_t byte_count) {
  dunlin__seen *next = &replica->seen[1 - replica->current];
  dunlin__snapshot *snapshot = &replica->snapshot;
  dunlin_status status = dunlin__prepare(replica, next, bytes, byte_count);
  if (status != DUNLIN_OK) {
    dunlin__schema_free(&replica->allocator, snapshot->schema);
    snapshot->schema = NULL;
    /* They point to what has been overwritten. */
    replica->changes.count = replica->world.change_count = 0;
    return status;
  }
  if (snapshot->schema != NULL) {
    dunlin__schema_free(&replica->allocator, replica->schema);
    replica->schema = snapshot->schema;
    snapshot->schema = NULL;
  }
  replica->current = 1 - replica->current;
  replica->world = snapshot->head;
  replica->world.schema = replica->schema;
  replica->world.objects = (const dunlin_object *)next->objects.items;
  replica->world.object_count = next->objects.count;
  replica->world.changes = (const dunlin_change *)replica->changes.items;
  replica->world.change_count = replica->changes.count;
  dunlin__note_updates(replica);
  return DUNLIN_OK;
}

static void dunlin__replica_clear(dunlin_replica *replica) {
  dunlin__schema_free(&replica->allocator, replica->schema);
  replica->schema = NULL;
  replica->seen[0].objects.count = replica->seen[1].objects.count = 0;
  memset(&replica->world, 0, sizeof replica->world);
}

static void dunlin__replica_begin(dunlin_replica *replica, dunlin_allocator allocator, size_t objects_max, size_t state_bytes_max) {
  uint32_t at;
  replica->allocator = allocator;
  replica->objects_max = objects_max == 0 ? 1000000 : objects_max;
  replica->state_bytes_max = state_bytes_max == 0 ? (size_t)256 << 20 : state_bytes_max;
  /* A snapshot may have an object twice. */
  replica->snapshot.items_max = replica->objects_max > UINT32_MAX / 4 ? UINT32_MAX / 2 : 2 * replica->objects_max;
  for (at = 0; at < 2; at += 1) {
    replica->seen[at].objects.item_bytes = sizeof(dunlin_object);
    replica->seen[at].states.item_bytes = 1;
  }
  replica->changes.item_bytes = sizeof(dunlin_change);
  replica->snapshot.own.item_bytes = replica->snapshot.staged.item_bytes = sizeof(dunlin__staged);
  replica->snapshot.cells.item_bytes = sizeof(dunlin__cell);
  replica->snapshot.departed.item_bytes = sizeof(dunlin__departed);
  replica->snapshot.decoded.item_bytes = 1;
}

static void dunlin__replica_end(dunlin_replica *replica) {
  const dunlin_allocator *allocator = &replica->allocator;
  uint32_t at;
  dunlin__replica_clear(replica);
  for (at = 0; at < 2; at += 1) {
    dunlin__release(allocator, &replica->seen[at].objects);
    dunlin__release(allocator, &replica->seen[at].states);
  }
  dunlin__release(allocator, &replica->changes);
  dunlin__release(allocator, &replica->snapshot.own);
  dunlin__release(allocator, &replica->snapshot.staged);
  dunlin__release(allocator, &replica->snapshot.cells);
  dunlin__release(allocator, &replica->snapshot.departed);
  dunlin__release(allocator, &replica->snapshot.decoded);
}

dunlin_replica *dunlin_replica_new(dunlin_allocator allocator, size_t objects_max, size_t state_bytes_max) {
  dunlin_replica *replica = (dunlin_replica *)dunlin__new(&allocator, sizeof *replica);
  if (replica != NULL) dunlin__replica_begin(replica, allocator, objects_max, state_bytes_max);
  return replica;
}

void dunlin_replica_free(dunlin_replica *replica) {
  dunlin_allocator allocator;
  if (replica == NULL) return;
  allocator = replica->allocator;
  dunlin__replica_end(replica);
  dunlin__free(&allocator, replica, sizeof *replica);
}

const dunlin_world *dunlin_replica_world(const dunlin_replica *replica) {
  return &replica->world;
}

const dunlin_object *dunlin_find(const dunlin_world *world, uint32_t id) {
  size_t first = 0, end = world->object_count;
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    if (world->objects[middle].id < id) first = middle + 1;
    else end = middle;
  }
  return first < world->object_count && world->objects[first].id == id ? &world->objects[first] : NULL;
}

/* -- Time and motion ----------------------------------------------------------------------------------------------- */

/* The shortest latency is remembered for at most twice this time, because clocks drift. */
#define DUNLIN__WINDOW_MS 5000.0
/* A larger difference is not latency: a clock was set, or the machine slept. */
#define DUNLIN__CLOCK_JUMP_MS 10000.0

static double dunlin__least(double one, double other) {
  return one < other ? one : other;
}

static double dunlin__between(double number, double min, double max) {
  return number < min ? min : number > max ? max : number;
}

double dunlin_clock_offset_ms(const dunlin_clock *clock) {
  if (clock->has_least && clock->has_least_before) return -dunlin__least(clock->least_ms, clock->least_before_ms);
  return clock->has_least ? -clock->least_ms : clock->has_least_before ? -clock->least_before_ms : 0;
}

double dunlin_clock_observe(dunlin_clock *clock, uint64_t time_us, double now_ms) {
  double way_ms = now_ms - (double)time_us / 1000, late_ms = way_ms + dunlin_clock_offset_ms(clock);
  double passed_ms = now_ms - clock->window_start_ms;
  if (late_ms > DUNLIN__CLOCK_JUMP_MS || late_ms < -DUNLIN__CLOCK_JUMP_MS) clock->has_least = clock->has_least_before = false;
  if (passed_ms >= DUNLIN__WINDOW_MS || passed_ms < 0) {
    clock->has_least_before = clock->has_least && passed_ms < 2 * DUNLIN__WINDOW_MS;
    clock->least_before_ms = clock->least_ms;
    clock->has_least = false;
    clock->window_start_ms = now_ms;
  }
  clock->least_ms = clock->has_least ? dunlin__least(clock->least_ms, way_ms) : way_ms;
  clock->has_least = true;
  return way_ms + dunlin_clock_offset_ms(clock);
}

/* The bounds of the delay. */
#define DUNLIN__DELAY_MIN_MS 10.0
#define DUNLIN__DELAY_MAX_MS 500.0
/* The recent arrivals that determine the delay, the share of them that it covers, and what is added. */
#define DUNLIN__ARRIVALS 120
#define DUNLIN__COVERED 0.97
#define DUNLIN__MARGIN_MS 2.0
#define DUNLIN__SAMPLES_MAX 64
/* All samples of all objects. Enough for 64 samples of some 2,000 objects with 30 fields; beyond it, objects have fewer samples, or are shown where they are. */
#define DUNLIN__SAMPLE_BYTES_MAX ((size_t)64 << 20)
/* The shown time runs at most this much faster or slower than the clock; at a larger difference, it jumps. */
#define DUNLIN__SLEW_MAX 0.1
#define DUNLIN__SHOWN_JUMP_MS 500.0
/* The same for objects that enter or leave a zone. */
#define DUNLIN__ZONE_UPDATES 30
#define DUNLIN__ZONE_SLEW_MAX 0.25
/* A server that limits bandwidth sends far cells when they are this old, and is expected to do so again for some seconds. */
#define DUNLIN__FAR_WAIT_TICKS 13
#define DUNLIN__FAR_LATE_S 2

typedef struct dunlin__sample {
  double at_ms;
  double x;
  double y;
} dunlin__sample;

typedef struct dunlin__track {
  uint32_t id;
  uint32_t kind;
  uint32_t number_count; /* fields that are one number */
  size_t zone; /* of its cell when it changed last */
  bool has_shown;
  double lag_ms; /* how much later than others it is shown */
  double shown_ms;
  dunlin__list samples;
  dunlin__list values; /* of these fields, for each sample */
} dunlin__track;

typedef struct dunlin__delays {
  double values[DUNLIN__ARRIVALS];
  size_t count;
} dunlin__delays;

/* The shown time, and what the server's clock said then. */
typedef struct dunlin__shown {
  bool is_set;
  double time_ms;
  double clock_ms;
} dunlin__shown;

struct dunlin_interpolation {
  dunlin_allocator allocator;
  dunlin__list tracks; /* in ascending order of ids */
  dunlin__delays needs;
  dunlin__delays zone_needs[DUNLIN__ZONES]; /* of the last updates of each, besides the delay; the nearest zone never waits */
  double delay_ms;
  double zone_delays_ms[DUNLIN__ZONES]; /* the second delay */
  double cell_units; /* a longer step is a teleport */
  size_t sample_bytes; /* memory of the samples and values of all tracks */
  uint32_t far_tick; /* of the last snapshot with a far cell */
  uint32_t far_late_tick; /* of the last one that did not have to have one */
  bool has_last;
  double last_ms;
  uint32_t last_view;
  dunlin__shown shown;
};

/* Adds a value, and returns the delay that covers nearly all of the last `max`. */
static double dunlin__cover(dunlin__delays *delays, size_t max, double value) {
  double sorted[DUNLIN__ARRIVALS];
  size_t at, place;
  if (delays->count == max) {
    memmove(delays->values, delays->values + 1, (max - 1) * sizeof(double));
    delays->count -= 1;
  }
  delays->values[delays->count] = value;
  delays->count += 1;
  for (at = 0; at < delays->count; at += 1) {
    for (place = at; place > 0 && sorted[place - 1] > delays->values[at]; place -= 1) sorted[place] = sorted[place - 1];
    sorted[place] = delays->values[at];
  }
  place = (size_t)((double)delays->count * DUNLIN__COVERED);
  return sorted[place < delays->count ? place : delays->count - 1];
}

/* The last tick up to this one at which far cells are due. */
static uint32_t dunlin__far_multiple(const dunlin_world *world, uint32_t tick) {
  return tick - tick % world->grid.far_interval_ticks;
}

/* Ticks in a second of real time at the current rate. */
static double dunlin__ticks_per_second(const dunlin_world *world) {
  return world->grid.ticks_per_second * (world->rate_permille / 1000.0);
}

/* By how many ticks before the base the cells of a zone were sent last. */
static uint32_t dunlin__wait_ticks(const dunlin_world *world, size_t zone) {
  return world->waited >> (4 * zone) & 15;
}

/* Until when an object in this zone, as seen from the last view, had not changed. */
static double dunlin__stood_until(const dunlin_interpolation *interpolation, const dunlin_world *world, size_t zone, double at_ms) {
  double per_second = dunlin__ticks_per_second(world), known_tick = world->base;
  bool is_postponed;
  if (world->base == 0) return at_ms;
  /* After a longer time far cells were sent, but nothing had changed in them. */
  is_postponed = interpolation->far_late_tick > 0 && (double)world->tick - interpolation->far_late_tick < DUNLIN__FAR_LATE_S * per_second
    && (double)world->base - interpolation->far_tick < DUNLIN__FAR_WAIT_TICKS;
  if (world->waited != 0) known_tick -= dunlin__wait_ticks(world, zone);
  else if (zone == DUNLIN__FAR_ZONE) known_tick = is_postponed ? interpolation->far_tick : dunlin__far_multiple(world, world->base);
  if (known_tick == world->base && interpolation->has_last) return dunlin__least(interpolation->last_ms, at_ms);
  return at_ms - ((double)world->tick - known_tick) / per_second * 1000;
}

/* The values of the fields that are one number. */
typedef struct dunlin__numbers {
  uint32_t count;
  double values[DUNLIN_FIELDS_MAX];
} dunlin__numbers;

static void dunlin__numbers_of(const dunlin_world *world, const dunlin_object *object, dunlin__numbers *numbers) {
  dunlin__value values[DUNLIN_FIELDS_MAX];
  const dunlin_kind *kind = object->has_fields ? dunlin_kind_of(world, object->kind) : NULL;
  uint32_t at;
  numbers->count = 0;
  if (kind == NULL || !dunlin__split_state(kind, object->state, object->state_bytes, values)) return;
  for (at = 0; at < kind->field_count; at += 1) {
    if (!dunlin__is_long(&kind->fields[at])) numbers->values[numbers->count++] = (double)values[at].number;
  }
}

static size_t dunlin__track_bytes(const dunlin__track *track) {
  return track->samples.capacity * track->samples.item_bytes + track->values.capacity * track->values.item_bytes;
}

static void dunlin__track_end(dunlin_interpolation *interpolation, dunlin__track *track) {
  interpolation->sample_bytes -= dunlin__track_bytes(track);
  dunlin__release(&interpolation->allocator, &track->samples);
  dunlin__release(&interpolation->allocator, &track->values);
}

static void dunlin__forget_first(dunlin__list *list, size_t count) {
  unsigned char *items = (unsigned char *)list->items;
  if (count == 0) return;
  list->count -= count;
  memmove(items, items + count * list->item_bytes, list->count * list->item_bytes);
}

static void dunlin__forget_samples(dunlin__track *track, size_t count) {
  dunlin__forget_first(&track->samples, count);
  if (track->number_count > 0) dunlin__forget_first(&track->values, count);
}

/* Makes room for one more sample, if need be in place of the oldest ones. False if there is none: the track is empty then. */
static bool dunlin__reserve_sample(dunlin_interpolation *interpolation, dunlin__track *track) {
  size_t capacity = track->samples.capacity < 8 ? 8 : 2 * track->samples.capacity, before = dunlin__track_bytes(track);
  size_t after = capacity * (track->samples.item_bytes + track->number_count * sizeof(double));
  bool is_full = track->samples.count == track->samples.capacity || (track->number_count > 0 && track->values.count == track->values.capacity);
  if (!is_full) return true;
  if (interpolation->sample_bytes - before + after > DUNLIN__SAMPLE_BYTES_MAX) {
    if (track->samples.count > 1) dunlin__forget_samples(track, 1);
    else track->samples.count = track->values.count = 0;
    return track->samples.count > 0;
  }
  if (dunlin__reserve(&interpolation->allocator, &track->samples, track->samples.count + 1)
      && (track->number_count == 0 || dunlin__reserve(&interpolation->allocator, &track->values, track->samples.count + 1))) is_full = false;
  interpolation->sample_bytes += dunlin__track_bytes(track) - before;
  if (is_full) track->samples.count = track->values.count = 0;
  return !is_full;
}

/* Without memory the track is empty: the object is shown where it is. */
static void dunlin__add_sample(dunlin_interpolation *interpolation, dunlin__track *track, const dunlin_object *object, const dunlin__numbers *numbers, double at_ms) {
  dunlin__sample *sample;
  if (numbers->count != track->number_count || object->kind != track->kind) {
    /* Values of another kind are none between which one can interpolate. */
    interpolation->sample_bytes -= track->values.capacity * track->values.item_bytes;
    dunlin__release(&interpolation->allocator, &track->values);
    track->samples.count = 0;
    track->number_count = numbers->count;
    track->kind = object->kind;
    track->values.item_bytes = numbers->count == 0 ? sizeof(double) : numbers->count * sizeof(double);
  }
  if (!dunlin__reserve_sample(interpolation, track)) return;
  sample = (dunlin__sample *)dunlin__push(&interpolation->allocator, &track->samples);
  sample->at_ms = at_ms;
  sample->x = object->x;
  sample->y = object->y;
  if (numbers->count > 0) memcpy(dunlin__push(&interpolation->allocator, &track->values), numbers->values, numbers->count * sizeof(double));
}

static dunlin__track *dunlin__find_track(const dunlin_interpolation *interpolation, uint32_t id) {
  dunlin__track *tracks = (dunlin__track *)interpolation->tracks.items;
  size_t first = 0, end = interpolation->tracks.count;
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    if (tracks[middle].id < id) first = middle + 1;
    else end = middle;
  }
  return first < interpolation->tracks.count && tracks[first].id == id ? &tracks[first] : NULL;
}

static void dunlin__remove_tracks(dunlin_interpolation *interpolation, const dunlin_world *world) {
  dunlin__track *tracks = (dunlin__track *)interpolation->tracks.items;
  size_t at, kept = 0, change = 0;
  for (at = 0; at < interpolation->tracks.count; at += 1) {
    bool is_removed = false;
    for (; change < world->change_count; change += 1) {
      const dunlin_object *before = world->changes[change].before;
      if (before != NULL && before->id > tracks[at].id) break;
      if (before != NULL && before->id == tracks[at].id) is_removed = world->changes[change].after == NULL;
    }
    if (is_removed) dunlin__track_end(interpolation, &tracks[at]);
    else tracks[kept++] = tracks[at];
  }
  interpolation->tracks.count = kept;
}

/* Merges tracks of new objects, from the last to the first. */
static void dunlin__add_tracks(dunlin_interpolation *interpolation, const dunlin_world *world, double at_ms) {
  dunlin__numbers numbers;
  dunlin__track *tracks;
  size_t added = 0, change, old = interpolation->tracks.count, place;
  for (change = 0; change < world->change_count; change += 1) added += world->changes[change].before == NULL;
  if (added == 0 || !dunlin__reserve(&interpolation->allocator, &interpolation->tracks, old + added)) return;
  tracks = (dunlin__track *)interpolation->tracks.items;
  interpolation->tracks.count = place = old + added;
  for (change = world->change_count; change > 0; change -= 1) {
    const dunlin_object *object = world->changes[change - 1].after;
    dunlin__track *track;
    if (world->changes[change - 1].before != NULL) continue;
    while (old > 0 && tracks[old - 1].id > object->id) tracks[--place] = tracks[--old];
    track = &tracks[--place];
    memset(track, 0, sizeof *track);
    track->id = object->id;
    track->kind = object->kind;
    track->samples.item_bytes = sizeof(dunlin__sample);
    track->values.item_bytes = sizeof(double);
    track->zone = dunlin__zone(&world->grid, world->view, object->cell);
    track->lag_ms = interpolation->zone_delays_ms[track->zone];
    dunlin__numbers_of(world, object, &numbers);
    dunlin__add_sample(interpolation, track, object, &numbers, at_ms);
  }
}

/* The numbers before a change. A track with samples has them: its last sample is the object as it was. */
static void dunlin__numbers_before(const dunlin__track *track, const dunlin_world *world, const dunlin_object *before, dunlin__numbers *numbers) {
  if (track->samples.count == 0 || track->kind != before->kind) {
    dunlin__numbers_of(world, before, numbers);
    return;
  }
  numbers->count = track->number_count;
  if (numbers->count > 0) memcpy(numbers->values, (const double *)track->values.items + (track->values.count - 1) * numbers->count, numbers->count * sizeof(double));
}

/* An object whose cell waited for longer than the delay was shown where it was then. It goes on from there. */
static void dunlin__resume(dunlin__track *track) {
  const dunlin__sample *samples = (const dunlin__sample *)track->samples.items;
  double stood_ms, lag_ms;
  if (track->samples.count == 0 || !track->has_shown) return;
  stood_ms = track->shown_ms - track->lag_ms - samples[track->samples.count - 1].at_ms;
  lag_ms = dunlin__least(DUNLIN__DELAY_MAX_MS, track->lag_ms + stood_ms);
  if (lag_ms > track->lag_ms) track->lag_ms = lag_ms;
}

static void dunlin__follow(dunlin_interpolation *interpolation, const dunlin_world *world, const dunlin_change *change, double at_ms) {
  dunlin__numbers before, after;
  dunlin__track *track = dunlin__find_track(interpolation, change->after->id);
  const dunlin__sample *samples;
  double stood_until_ms;
  size_t zone_before;
  if (track == NULL) return;
  dunlin__numbers_before(track, world, change->before, &before);
  dunlin__numbers_of(world, change->after, &after);
  if (change->before->x == change->after->x && change->before->y == change->after->y
      && before.count == after.count && memcmp(before.values, after.values, after.count * sizeof(double)) == 0) return;
  track->zone = dunlin__zone(&world->grid, world->view, change->after->cell);
  zone_before = dunlin__zone(&world->grid, interpolation->last_view, change->before->cell);
  stood_until_ms = dunlin__stood_until(interpolation, world, zone_before, at_ms);
  samples = (const dunlin__sample *)track->samples.items;
  /* The object did not move until the base of this snapshot, or the last update of its zone. */
  if (track->samples.count == 0 || samples[track->samples.count - 1].at_ms < stood_until_ms) {
    dunlin__add_sample(interpolation, track, change->before, &before, stood_until_ms);
  }
  if (dunlin__wait_ticks(world, zone_before) > 0) dunlin__resume(track);
  dunlin__add_sample(interpolation, track, change->after, &after, at_ms);
  if (track->samples.count > DUNLIN__SAMPLES_MAX) dunlin__forget_samples(track, track->samples.count - DUNLIN__SAMPLES_MAX);
}

/* Measures how much longer it is from one update of a zone to the next than between snapshots. */
static void dunlin__measure_zones(dunlin_interpolation *interpolation, const dunlin_replica *replica, double at_ms) {
  const dunlin_world *world = &replica->world;
  size_t zone;
  /* A server that does not say that far cells have waited. */
  bool is_far_late = world->waited == 0 && dunlin__far_multiple(world, world->tick) <= world->base;
  if (replica->is_zone_updated[DUNLIN__FAR_ZONE] && is_far_late) interpolation->far_late_tick = world->tick;
  for (zone = 0; zone < DUNLIN__ZONES; zone += 1) {
    double needed_ms = interpolation->last_ms - dunlin__stood_until(interpolation, world, zone, at_ms);
    if (!replica->is_zone_updated[zone]) continue;
    needed_ms = dunlin__cover(&interpolation->zone_needs[zone], DUNLIN__ZONE_UPDATES, needed_ms < 0 ? 0 : needed_ms);
    interpolation->zone_delays_ms[zone] = dunlin__least(DUNLIN__DELAY_MAX_MS, needed_ms);
  }
}

void dunlin_interpolation_observe(dunlin_interpolation *interpolation, const dunlin_replica *replica, double arrived_ms) {
  const dunlin_world *world = &replica->world;
  double at_ms = (double)world->time_us / 1000;
  size_t at;
  if (world->tick == 0) return;
  interpolation->cell_units = world->grid.cell_units;
  /* Until now the newest known time was that of the last snapshot: this delay would have been long enough. */
  if (interpolation->has_last && world->base != 0) {
    /* What it needs besides the interval of a slowed room is kept, so that it follows the rate at once. */
    double slowed_ms = ((double)DUNLIN__FULL_RATE_PERMILLE / world->rate_permille - 1) * (1000.0 / world->grid.ticks_per_second);
    double needed_ms = dunlin__cover(&interpolation->needs, DUNLIN__ARRIVALS, arrived_ms - interpolation->last_ms - slowed_ms);
    interpolation->delay_ms = dunlin__between(needed_ms + slowed_ms + DUNLIN__MARGIN_MS, DUNLIN__DELAY_MIN_MS, DUNLIN__DELAY_MAX_MS);
  }
  if (interpolation->has_last) dunlin__measure_zones(interpolation, replica, at_ms);
  dunlin__remove_tracks(interpolation, world);
  dunlin__add_tracks(interpolation, world, at_ms);
  for (at = 0; at < world->change_count; at += 1) {
    if (world->changes[at].before != NULL && world->changes[at].after != NULL) dunlin__follow(interpolation, world, &world->changes[at], at_ms);
  }
  if (world->base == 0 || replica->is_zone_updated[DUNLIN__FAR_ZONE]) interpolation->far_tick = world->tick;
  interpolation->last_ms = at_ms;
  interpolation->last_view = world->view;
  interpolation->has_last = true;
}

/* The server's clock is another one: samples of before have no time on it. */
static void dunlin__forget_all_samples(dunlin_interpolation *interpolation) {
  dunlin__track *tracks = (dunlin__track *)interpolation->tracks.items;
  size_t at;
  for (at = 0; at < interpolation->tracks.count; at += 1) {
    dunlin__forget_samples(&tracks[at], tracks[at].samples.count);
    tracks[at].lag_ms = interpolation->zone_delays_ms[tracks[at].zone];
    tracks[at].has_shown = false;
  }
  interpolation->has_last = interpolation->shown.is_set = false;
}

double dunlin_interpolation_advance(dunlin_interpolation *interpolation, double server_ms) {
  double wanted_ms = server_ms - interpolation->delay_ms, ahead_ms = wanted_ms - interpolation->shown.time_ms;
  if (!interpolation->shown.is_set || ahead_ms > DUNLIN__SHOWN_JUMP_MS || ahead_ms < -DUNLIN__SHOWN_JUMP_MS) {
    interpolation->shown.time_ms = wanted_ms;
  } else {
    double passed_ms = server_ms > interpolation->shown.clock_ms ? server_ms - interpolation->shown.clock_ms : 0;
    interpolation->shown.time_ms += passed_ms + dunlin__between(ahead_ms - passed_ms, -DUNLIN__SLEW_MAX * passed_ms, DUNLIN__SLEW_MAX * passed_ms);
  }
  interpolation->shown.is_set = true;
  interpolation->shown.clock_ms = server_ms;
  return interpolation->shown.time_ms;
}

/* The delay of an object changes slowly, so that it does not jump. */
static double dunlin__lag(const dunlin_interpolation *interpolation, dunlin__track *track, double at_ms) {
  double passed_ms = track->has_shown && at_ms > track->shown_ms ? at_ms - track->shown_ms : 0;
  double wanted_ms = interpolation->zone_delays_ms[track->zone] - track->lag_ms;
  track->lag_ms += dunlin__between(wanted_ms, -DUNLIN__ZONE_SLEW_MAX * passed_ms, DUNLIN__ZONE_SLEW_MAX * passed_ms);
  if (!track->has_shown || at_ms > track->shown_ms) track->shown_ms = at_ms;
  track->has_shown = true;
  return track->lag_ms;
}

/* The track of an object, its first sample at or before the shown time. `*share` is the way to the second one, 0 to 1. */
static dunlin__track *dunlin__track_at(dunlin_interpolation *interpolation, uint32_t id, double at_ms, double *share) {
  dunlin__track *track = dunlin__find_track(interpolation, id);
  const dunlin__sample *samples;
  double dx, dy;
  size_t past = 0;
  *share = 0;
  if (track == NULL || track->samples.count == 0) return NULL;
  at_ms -= dunlin__lag(interpolation, track, at_ms);
  samples = (const dunlin__sample *)track->samples.items;
  /* Of those before the shown time, only the last is needed. */
  while (past + 1 < track->samples.count && samples[past + 1].at_ms <= at_ms) past += 1;
  dunlin__forget_samples(track, past);
  if (track->samples.count == 1 || at_ms <= samples[0].at_ms) return track;
  dx = samples[1].x - samples[0].x;
  dy = samples[1].y - samples[0].y;
  if (dx * dx + dy * dy > interpolation->cell_units * interpolation->cell_units) return track;
  *share = (at_ms - samples[0].at_ms) / (samples[1].at_ms - samples[0].at_ms);
  return track;
}

bool dunlin_interpolation_place(dunlin_interpolation *interpolation, uint32_t id, double at_ms, double *x, double *y) {
  double share;
  const dunlin__track *track = dunlin__track_at(interpolation, id, at_ms, &share);
  const dunlin__sample *samples;
  if (track == NULL) return false;
  samples = (const dunlin__sample *)track->samples.items;
  *x = samples[0].x;
  *y = samples[0].y;
  if (share > 0) {
    *x += (samples[1].x - samples[0].x) * share;
    *y += (samples[1].y - samples[0].y) * share;
  }
  return true;
}

double dunlin_interpolation_delay_ms(const dunlin_interpolation *interpolation) {
  return interpolation->delay_ms;
}

size_t dunlin_interpolation_count(const dunlin_interpolation *interpolation) {
  return interpolation->tracks.count;
}

static void dunlin__interpolation_clear(dunlin_interpolation *interpolation) {
  dunlin_allocator allocator = interpolation->allocator;
  dunlin__list tracks = interpolation->tracks;
  size_t at;
  for (at = 0; at < tracks.count; at += 1) dunlin__track_end(interpolation, (dunlin__track *)tracks.items + at);
  tracks.count = 0;
  memset(interpolation, 0, sizeof *interpolation);
  interpolation->allocator = allocator;
  interpolation->tracks = tracks;
  interpolation->tracks.item_bytes = sizeof(dunlin__track);
  interpolation->delay_ms = DUNLIN__DELAY_MIN_MS;
}

dunlin_interpolation *dunlin_interpolation_new(dunlin_allocator allocator) {
  dunlin_interpolation *interpolation = (dunlin_interpolation *)dunlin__new(&allocator, sizeof *interpolation);
  if (interpolation == NULL) return NULL;
  interpolation->allocator = allocator;
  dunlin__interpolation_clear(interpolation);
  return interpolation;
}

static void dunlin__interpolation_end(dunlin_interpolation *interpolation) {
  dunlin__interpolation_clear(interpolation);
  dunlin__release(&interpolation->allocator, &interpolation->tracks);
}

void dunlin_interpolation_free(dunlin_interpolation *interpolation) {
  dunlin_allocator allocator;
  if (interpolation == NULL) return;
  allocator = interpolation->allocator;
  dunlin__interpolation_end(interpolation);
  dunlin__free(&allocator, interpolation, sizeof *interpolation);
}

/* The nearest tick; 0 before the first snapshot. */
static uint32_t dunlin__tick_at(const dunlin_world *world, double server_ms) {
  double tick = world->tick + (server_ms - (double)world->time_us / 1000) * dunlin__ticks_per_second(world) / 1000 + 0.5;
  if (world->tick == 0) return 0;
  /* This way, NaN is 1. */
  return tick >= 1 ? (uint32_t)dunlin__least(tick, 4294967295.0) : 1;
}

/* -- The connection ------------------------------------------------------------------------------------------------ */

#define DUNLIN__OPEN_TIMEOUT_MS 15000.0
#define DUNLIN__PING_MARGIN_MS 10000.0
/* After as many invalid snapshots in a row, the client leaves the room. Good ones count from some time after the join: the first one is often good. */
#define DUNLIN__BAD_SNAPSHOTS_MAX 3
#define DUNLIN__GOOD_AFTER_MS 5000.0
/* A message with several commands is not longer, unless one is. By default, a server accepts messages of 64 KiB. */
#define DUNLIN__BATCH_BYTES_MAX 16384u
#define DUNLIN__SEAT_TOKEN_BYTES_MAX 128
#define DUNLIN__EPOCH_BYTES_MAX 64
#define DUNLIN__TEXT_BYTES_MAX 256
#define DUNLIN__ROUND_TRIP_WEIGHT 0.2

/* The numbers of commands. Their replies have the same, and up to `publish` the next one. */
enum {
  DUNLIN__CONNECT = 4, DUNLIN__SUBSCRIBE = 5, DUNLIN__UNSUBSCRIBE = 6, DUNLIN__PUBLISH = 7, DUNLIN__SEND = 12, DUNLIN__RPC = 13,
  DUNLIN__REFRESH = 14, DUNLIN__SUB_REFRESH = 15
};

enum { DUNLIN__TOKEN_EXPIRED = 109, DUNLIN__EXPIRED = 110 };

typedef enum dunlin__link {
  DUNLIN__OFFLINE,
  DUNLIN__WAITING,   /* for the time of the next connection */
  DUNLIN__ASKING,    /* for a token */
  DUNLIN__CALLING,   /* the game has to open a socket */
  DUNLIN__OPENING,   /* it has been told to */
  DUNLIN__GREETING,  /* for the reply to `connect` */
  DUNLIN__ONLINE
} dunlin__link;

typedef enum dunlin__stay { DUNLIN__AWAY, DUNLIN__JOINING, DUNLIN__JOINED } dunlin__stay;

/* A token that the game is asked for. */
typedef enum dunlin__ask { DUNLIN__NOT_ASKED, DUNLIN__TO_ASK, DUNLIN__ASKED } dunlin__ask;

typedef struct dunlin__tokens {
  dunlin__list token;
  dunlin__ask ask;
  bool has_refresh;
  double refresh_at_ms;
  uint32_t attempts;
} dunlin__tokens;

/* The end of a connection or subscription, or an error. */
typedef struct dunlin__ending {
  bool is_reported;
  bool returns; /* or is temporary */
  uint32_t code;
  double delay_ms;
  char text[DUNLIN__TEXT_BYTES_MAX];
} dunlin__ending;

typedef struct dunlin__request {
  uint32_t id; /* 0: the connection was lost before the reply */
  uint32_t command;
  uint32_t number; /* of a call, or an input */
  uint32_t turn;
  dunlin_room *room;
  double deadline_ms;
} dunlin__request;

typedef struct dunlin__pending {
  uint32_t number;
  size_t byte_count;
  double sent_ms;
} dunlin__pending;

typedef struct dunlin__inputs {
  uint32_t last;
  dunlin__list pending;
  dunlin__list bytes; /* of all pending inputs */
  bool has_round_trip;
  double round_trip_ms;
} dunlin__inputs;

/* The position of a subscription in the events of its channel. */
typedef struct dunlin__position {
  bool was_joined;
  double joined_at_ms;
  bool is_recoverable;
  uint64_t offset;
  size_t epoch_bytes;
  char epoch[DUNLIN__EPOCH_BYTES_MAX];
} dunlin__position;

/* What the game has said of the room. */
typedef struct dunlin__terms {
  bool is_typed;
  bool is_channel;
  bool publishes;
  bool asks_for_tokens;
  dunlin__list channel; /* ends with 0 */
  dunlin__list data;
} dunlin__terms;

/* Another attempt to join. */
typedef struct dunlin__retry {
  bool is_planned;
  double at_ms;
  uint32_t attempts;
} dunlin__retry;

/* What the player sees. */
typedef struct dunlin__sight {
  dunlin_replica replica;
  dunlin_clock clock;
  dunlin_interpolation interpolation;
} dunlin__sight;

struct dunlin_room {
  dunlin_client *client;
  dunlin__terms terms;
  dunlin__stay stay;
  uint32_t turn; /* counts subscriptions, so that a late reply is recognized */
  uint32_t bad_snapshots;
  dunlin__retry retry;
  dunlin__tokens tokens;
  dunlin__position position;
  dunlin__inputs inputs;
  dunlin__ending left;
  dunlin__sight sight;
  char seat_token[DUNLIN__SEAT_TOKEN_BYTES_MAX + 1];
};

/* Frames that have arrived: for each its length, and its bytes. */
typedef struct dunlin__inbox {
  dunlin__list bytes;
  size_t at;
  size_t frame_end;
  dunlin_room *replayed; /* whose recovered publications come next, from this part of the last message */
  size_t replay_at;
  size_t replay_end;
} dunlin__inbox;

typedef struct dunlin__outbox {
  dunlin__list bytes; /* commands, each after its length */
  size_t handed_out;
  dunlin__list request; /* the one that is being written */
  bool has_failed;
} dunlin__outbox;

typedef struct dunlin__heartbeat {
  bool has_deadline;
  bool pongs;
  double deadline_ms;
  double silence_ms; /* 0: the server sends no pings */
} dunlin__heartbeat;

/* The connection, and the next one. */
typedef struct dunlin__line {
  dunlin__link link;
  bool has_to_close;
  uint32_t attempts;
  double online_since_ms;
  double connect_at_ms;
  uint64_t random;
  dunlin__ending lost;
} dunlin__line;

/* The last numbers that were given. */
typedef struct dunlin__ids {
  uint32_t command;
  uint32_t call;
} dunlin__ids;

struct dunlin_client {
  dunlin_options options;
  double now_ms;
  dunlin__list name;
  dunlin__list rooms; /* of pointers */
  dunlin__list requests;
  dunlin__ids ids;
  dunlin__line line;
  dunlin__tokens tokens;
  dunlin__heartbeat heartbeat;
  dunlin__inbox inbox;
  dunlin__outbox outbox;
  dunlin__ending shown; /* the text of the last event */
};

static void dunlin__lose(dunlin_client *client, uint32_t code, const char *text, bool returns);

static dunlin_room *dunlin__room_at(const dunlin_client *client, size_t index) {
  return ((dunlin_room *const *)client->rooms.items)[index];
}

static void dunlin__set_now(dunlin_client *client, double now_ms) {
  /* A clock that goes back, or NaN, stands still. */
  if (now_ms > client->now_ms) client->now_ms = now_ms;
}

/* Copies a text, which is cut between two characters. */
static void dunlin__set_text(dunlin__ending *ending, const char *text, size_t byte_count) {
  size_t kept = byte_count < DUNLIN__TEXT_BYTES_MAX ? byte_count : DUNLIN__TEXT_BYTES_MAX - 1;
  while (kept < byte_count && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) kept -= 1;
  if (kept > 0) memcpy(ending->text, text, kept);
  ending->text[kept] = 0;
}

static bool dunlin__keep(const dunlin_allocator *allocator, dunlin__list *list, const char *text) {
  size_t count = text == NULL ? 0 : strlen(text);
  list->count = 0;
  return dunlin__append(allocator, list, text, count) && dunlin__append(allocator, list, "", 1);
}

/* Full jitter: clients do not come back all at once. */
static double dunlin__delay_ms(dunlin_client *client, uint32_t attempt) {
  double most = client->options.reconnect_min_ms, least = client->options.reconnect_min_ms;
  uint64_t mixed;
  for (; attempt > 0 && most < client->options.reconnect_max_ms; attempt -= 1) most *= 2;
  most = dunlin__least(most, client->options.reconnect_max_ms);
  client->line.random += 0x9e3779b97f4a7c15u;
  mixed = client->line.random;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  mixed ^= mixed >> 31;
  return dunlin__least(client->options.reconnect_max_ms, least + (double)(mixed >> 11) / 9007199254740992.0 * most);
}

/* -- Commands -- */

static dunlin__list *dunlin__begin_request(dunlin_client *client) {
  client->outbox.request.count = 0;
  client->outbox.has_failed = false;
  return &client->outbox.request;
}

static void dunlin__put(dunlin_client *client, const void *bytes, size_t count) {
  if (!dunlin__append(&client->options.allocator, &client->outbox.request, bytes, count)) client->outbox.has_failed = true;
}

static void dunlin__put_number(dunlin_client *client, uint32_t field, uint64_t number) {
  uint8_t bytes[12];
  if (number == 0) return;
  bytes[0] = (uint8_t)(field << 3 | DUNLIN__VARINT);
  dunlin__put(client, bytes, (size_t)(dunlin__write_varint(bytes + 1, number) - bytes));
}

static void dunlin__put_head(dunlin_client *client, uint32_t field, size_t count) {
  uint8_t bytes[12];
  bytes[0] = (uint8_t)(field << 3 | DUNLIN__BYTES);
  dunlin__put(client, bytes, (size_t)(dunlin__write_varint(bytes + 1, count) - bytes));
}

static void dunlin__put_bytes(dunlin_client *client, uint32_t field, const void *bytes, size_t count) {
  if (count == 0) return;
  dunlin__put_head(client, field, count);
  dunlin__put(client, bytes, count);
}

static void dunlin__put_text(dunlin_client *client, uint32_t field, const dunlin__list *text) {
  if (text->count > 0) dunlin__put_bytes(client, field, text->items, text->count - 1);
}

static void dunlin__drop_sent(dunlin_client *client) {
  dunlin__forget_first(&client->outbox.bytes, client->outbox.handed_out);
  client->outbox.handed_out = 0;
}

/* Queues the command with the request that has been written. */
static dunlin_status dunlin__queue(dunlin_client *client, uint32_t id, uint32_t command) {
  const dunlin__list *request = &client->outbox.request;
  dunlin__list *bytes = &client->outbox.bytes;
  size_t length = (id == 0 ? 0 : 1 + dunlin__varint_bytes(id)) + 1 + dunlin__varint_bytes(request->count) + request->count;
  uint8_t *out;
  if (client->outbox.has_failed) return DUNLIN_NO_MEMORY;
  dunlin__drop_sent(client);
  if (bytes->count + dunlin__varint_bytes(length) + length > client->options.unsent_bytes_max) return DUNLIN_TOO_LARGE;
  if (!dunlin__reserve(&client->options.allocator, bytes, bytes->count + length + 10)) return DUNLIN_NO_MEMORY;
  out = dunlin__write_varint((uint8_t *)bytes->items + bytes->count, length);
  if (id != 0) {
    *out++ = 1 << 3 | DUNLIN__VARINT;
    out = dunlin__write_varint(out, id);
  }
  *out++ = (uint8_t)(command << 3 | DUNLIN__BYTES);
  out = dunlin__write_varint(out, request->count);
  if (request->count > 0) memcpy(out, request->items, request->count);
  bytes->count = (size_t)(out - (uint8_t *)bytes->items) + request->count;
  return DUNLIN_OK;
}

/* Queues a command that gets a reply. */
static dunlin_status dunlin__ask_server(dunlin_client *client, uint32_t command, dunlin_room *room, uint32_t number) {
  dunlin_status status;
  dunlin__request *request;
  if (client->requests.count >= DUNLIN_REQUESTS_MAX || client->ids.command == UINT32_MAX) return DUNLIN_TOO_LARGE;
  if (!dunlin__reserve(&client->options.allocator, &client->requests, client->requests.count + 1)) return DUNLIN_NO_MEMORY;
  status = dunlin__queue(client, client->ids.command + 1, command);
  if (status != DUNLIN_OK) return status;
  client->ids.command += 1;
  request = (dunlin__request *)dunlin__push(&client->options.allocator, &client->requests);
  request->id = client->ids.command;
  request->command = command;
  request->number = number;
  request->turn = room == NULL ? 0 : room->turn;
  request->room = room;
  request->deadline_ms = client->now_ms + client->options.reply_timeout_ms;
  return DUNLIN_OK;
}

/* For commands of the library itself: without them, the connection is of no use. */
static void dunlin__ask_or_lose(dunlin_client *client, uint32_t command, dunlin_room *room) {
  if (dunlin__ask_server(client, command, room, 0) != DUNLIN_OK) dunlin__lose(client, 0, "a command does not fit into memory", true);
}

static void dunlin__send_connect(dunlin_client *client) {
  dunlin__begin_request(client);
  dunlin__put_text(client, 1, &client->tokens.token);
  dunlin__put_text(client, 4, &client->name);
  client->line.link = DUNLIN__GREETING;
  dunlin__ask_or_lose(client, DUNLIN__CONNECT, NULL);
}

/* A member of the data of a join. */
static void dunlin__put_member(dunlin_client *client, const char *name, const char *value) {
  if (client->outbox.request.count > 1) dunlin__put(client, ",", 1);
  dunlin__put(client, "\"", 1);
  dunlin__put(client, name, strlen(name));
  dunlin__put(client, "\":\"", 3);
  dunlin__put(client, value, strlen(value));
  dunlin__put(client, "\"", 1);
}

/* Writes the data of the next join: that of the game, with the token of the seat. Data that is no object has no place for it. */
static void dunlin__put_join_data(dunlin_room *room) {
  dunlin_client *client = room->client;
  const dunlin__list *data = &room->terms.data;
  dunlin_json json = dunlin_json_parse(data->items, data->count > 0 ? data->count - 1 : 0);
  bool has_seat = room->seat_token[0] != 0 && !room->terms.is_channel;
  dunlin__walk walk;
  memset(&walk, 0, sizeof walk);
  dunlin__begin_request(client);
  if ((json.text != NULL && !dunlin__json_begins(json, '{')) || (!has_seat && !room->terms.is_typed)) {
    dunlin__put(client, json.text, json.byte_count);
    return;
  }
  dunlin__put(client, "{", 1);
  while (dunlin__walk_on(json, &walk)) {
    if ((has_seat && dunlin__json_is(walk.name, "seat_token")) || (room->terms.is_typed && dunlin__json_is(walk.name, "snapshots"))) continue;
    if (client->outbox.request.count > 1) dunlin__put(client, ",", 1);
    dunlin__put(client, walk.name.text, walk.name.byte_count);
    dunlin__put(client, ":", 1);
    dunlin__put(client, walk.value.text, walk.value.byte_count);
  }
  if (has_seat) dunlin__put_member(client, "seat_token", room->seat_token);
  if (room->terms.is_typed) dunlin__put_member(client, "snapshots", "typed");
  dunlin__put(client, "}", 1);
}

static void dunlin__send_subscribe(dunlin_room *room) {
  dunlin_client *client = room->client;
  dunlin__list data;
  room->turn += 1;
  dunlin__put_join_data(room);
  /* The data stays in memory of its own while the request with it is written. */
  data = client->outbox.request;
  memset(&client->outbox.request, 0, sizeof client->outbox.request);
  client->outbox.request.item_bytes = 1;
  dunlin__put_text(client, 1, &room->terms.channel);
  dunlin__put_text(client, 2, &room->tokens.token);
  if (room->position.is_recoverable) {
    dunlin__put_number(client, 3, 1);
    dunlin__put_bytes(client, 6, room->position.epoch, room->position.epoch_bytes);
    dunlin__put_number(client, 7, room->position.offset);
  }
  dunlin__put_bytes(client, 8, data.items, data.count);
  dunlin__release(&client->options.allocator, &data);
  dunlin__ask_or_lose(client, DUNLIN__SUBSCRIBE, room);
}

static void dunlin__begin_join(dunlin_room *room) {
  room->retry.is_planned = false;
  if (room->terms.asks_for_tokens) room->tokens.ask = DUNLIN__TO_ASK;
  else dunlin__send_subscribe(room);
}

static void dunlin__plan_refresh(dunlin_client *client, dunlin__tokens *tokens, bool asks, const uint32_t *ttl_s) {
  tokens->has_refresh = asks && ttl_s != NULL;
  if (tokens->has_refresh) tokens->refresh_at_ms = client->now_ms + (double)*ttl_s * 1000;
}

static void dunlin__retry_refresh(dunlin_client *client, dunlin__tokens *tokens) {
  tokens->has_refresh = true;
  tokens->refresh_at_ms = client->now_ms + dunlin__delay_ms(client, tokens->attempts);
  if (tokens->attempts < 32) tokens->attempts += 1;
}

static void dunlin__retry_join(dunlin_room *room) {
  room->retry.is_planned = true;
  room->retry.at_ms = room->client->now_ms + dunlin__delay_ms(room->client, room->retry.attempts);
  if (room->retry.attempts < 32) room->retry.attempts += 1;
}

/* -- Ends -- */

static void dunlin__forget_inputs(dunlin__inputs *inputs) {
  inputs->last = 0;
  inputs->pending.count = inputs->bytes.count = 0;
  inputs->has_round_trip = false;
}

static void dunlin__forget_position(dunlin_room *room) {
  memset(&room->position, 0, sizeof room->position);
}

/* Ends a subscription. The replica and the numbers of inputs begin again with the next one. */
static void dunlin__end_stay(dunlin_room *room, bool returns) {
  room->stay = returns ? DUNLIN__JOINING : DUNLIN__AWAY;
  room->turn += 1;
  room->retry.is_planned = room->tokens.has_refresh = false;
  room->tokens.ask = DUNLIN__NOT_ASKED;
  if (room->client->inbox.replayed == room) room->client->inbox.replayed = NULL;
  dunlin__replica_clear(&room->sight.replica);
  dunlin__interpolation_clear(&room->sight.interpolation);
  memset(&room->sight.clock, 0, sizeof room->sight.clock);
  dunlin__forget_inputs(&room->inputs);
}

static void dunlin__report_left(dunlin_room *room, uint32_t code, dunlin_json text, bool returns) {
  dunlin__end_stay(room, returns);
  room->left.is_reported = true;
  room->left.code = code;
  room->left.returns = returns;
  dunlin__set_text(&room->left, text.text, text.byte_count);
}

/* Calls get an answer from dunlin_next; nothing else waits for a lost connection. */
static void dunlin__lose_requests(dunlin_client *client) {
  dunlin__request *requests = (dunlin__request *)client->requests.items;
  size_t at, kept = 0;
  for (at = 0; at < client->requests.count; at += 1) {
    if (requests[at].command != DUNLIN__RPC) continue;
    requests[kept] = requests[at];
    requests[kept].id = 0;
    kept += 1;
  }
  client->requests.count = kept;
  client->ids.command = 0;
}

/* A room has got a snapshot, or a channel its subscription. Before that, the next connection might end in the same way, so delays grow. */
static void dunlin__begin_delays_again(dunlin_room *room) {
  room->client->line.attempts = room->retry.attempts = 0;
}

static void dunlin__lose_for(dunlin_client *client, uint32_t code, dunlin_json reason, bool returns) {
  size_t at;
  if (client->line.link == DUNLIN__ONLINE && client->now_ms - client->line.online_since_ms >= client->options.reconnect_max_ms) client->line.attempts = 0;
  if ((code >= 3500 && code < 4000) || (code >= 4500 && code < 5000)) returns = false;
  client->line.has_to_close = client->line.has_to_close || client->line.link >= DUNLIN__OPENING;
  client->line.link = returns ? DUNLIN__WAITING : DUNLIN__OFFLINE;
  client->line.lost.is_reported = true;
  client->line.lost.code = code;
  client->line.lost.returns = returns;
  client->line.lost.delay_ms = returns ? dunlin__delay_ms(client, client->line.attempts) : 0;
  dunlin__set_text(&client->line.lost, reason.text, reason.byte_count);
  client->line.connect_at_ms = client->now_ms + client->line.lost.delay_ms;
  if (client->line.attempts < 32) client->line.attempts += 1;
  client->tokens.ask = DUNLIN__NOT_ASKED;
  client->tokens.has_refresh = client->heartbeat.has_deadline = false;
  client->inbox.bytes.count = client->inbox.at = client->inbox.frame_end = 0;
  client->inbox.replayed = NULL;
  client->outbox.bytes.count = client->outbox.handed_out = 0;
  dunlin__lose_requests(client);
  for (at = 0; at < client->rooms.count; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    if (room->stay != DUNLIN__AWAY) dunlin__report_left(room, code, reason, returns);
  }
}

static void dunlin__lose(dunlin_client *client, uint32_t code, const char *text, bool returns) {
  dunlin__lose_for(client, code, dunlin__json_of(text, strlen(text)), returns);
}

static void dunlin__begin_connection(dunlin_client *client) {
  client->line.link = client->options.asks_for_tokens ? DUNLIN__ASKING : DUNLIN__CALLING;
  client->tokens.ask = client->options.asks_for_tokens ? DUNLIN__TO_ASK : DUNLIN__NOT_ASKED;
}

/* -- Messages of the server -- */

typedef struct dunlin__error {
  bool is_error;
  uint32_t code;
  dunlin_json text;
  bool is_temporary;
} dunlin__error;

/* A message, whose parts are not read. `result` is the part with the number `result_number`. */
typedef struct dunlin__message {
  uint32_t id;
  uint32_t result_number;
  dunlin__field error;
  dunlin__field push;
  dunlin__field result;
} dunlin__message;

/* What an answer to `connect`, `subscribe`, `refresh` or `sub_refresh` says. */
typedef struct dunlin__answer {
  bool expires;
  bool pongs;
  bool is_recoverable;
  bool has_recovered;
  uint32_t ttl_s;
  uint32_t ping_s;
  uint64_t offset;
  dunlin_json epoch;
  dunlin_json data;
} dunlin__answer;

typedef struct dunlin__publication {
  const uint8_t *bytes;
  size_t byte_count;
  uint64_t offset;
} dunlin__publication;

static bool dunlin__read_message(dunlin__reader *reader, dunlin__message *message) {
  dunlin__field field;
  memset(message, 0, sizeof *message);
  while (dunlin__next_field(reader, &field)) {
    if (field.number == 1) {
      dunlin__take_u32(reader, &field, &message->id);
    } else if (field.number == 2 || (field.number >= 4 && field.number <= 15)) {
      if (!dunlin__is(reader, &field, DUNLIN__BYTES)) return false;
      if (field.number == 2) message->error = field;
      else if (field.number == 4) message->push = field;
      else {
        message->result = field;
        message->result_number = field.number;
      }
    }
  }
  return !reader->has_failed;
}

/* A code, a text, and in an error whether it is temporary, from field `first`. */
static bool dunlin__read_error(const dunlin__field *part, uint32_t first, dunlin__error *error) {
  dunlin__reader reader = dunlin__inner(part);
  dunlin__field field;
  memset(error, 0, sizeof *error);
  error->is_error = true;
  error->text = dunlin__json_of("", 0);
  while (dunlin__next_field(&reader, &field)) {
    if (field.number == first) dunlin__take_u32(&reader, &field, &error->code);
    else if (field.number == first + 1) dunlin__take_text(&reader, &field, &error->text);
    else if (field.number == first + 2) dunlin__take_bool(&reader, &field, &error->is_temporary);
  }
  return !reader.has_failed;
}

/* The error of a reply to this command, or that it has no result. */
static bool dunlin__error_of(const dunlin__message *message, uint32_t command, dunlin__error *error) {
  memset(error, 0, sizeof *error);
  if (message->error.bytes != NULL) return dunlin__read_error(&message->error, 1, error);
  if (message->result.bytes != NULL && message->result_number == (command < DUNLIN__SEND ? command + 1 : command)) return true;
  error->is_error = true;
  error->text = dunlin__json_of("a reply without a result", 24);
  return true;
}

static bool dunlin__read_publication(const dunlin__field *part, dunlin__publication *publication) {
  dunlin__reader reader = dunlin__inner(part);
  dunlin__field field;
  memset(publication, 0, sizeof *publication);
  while (dunlin__next_field(&reader, &field)) {
    if (field.number == 4 && dunlin__is(&reader, &field, DUNLIN__BYTES)) {
      publication->bytes = field.bytes;
      publication->byte_count = field.byte_count;
    } else if (field.number == 6 && dunlin__is(&reader, &field, DUNLIN__VARINT)) {
      publication->offset = field.value;
    }
  }
  return !reader.has_failed;
}

/* `expires` and `ttl` are the fields `first` and the next. */
static bool dunlin__read_answer(const dunlin__field *part, uint32_t command, dunlin__answer *answer) {
  dunlin__reader reader = dunlin__inner(part);
  dunlin__field field;
  uint32_t first = command == DUNLIN__CONNECT || command == DUNLIN__REFRESH ? 3 : 1;
  memset(answer, 0, sizeof *answer);
  while (dunlin__next_field(&reader, &field)) {
    if (field.number == first) dunlin__take_bool(&reader, &field, &answer->expires);
    else if (field.number == first + 1) dunlin__take_u32(&reader, &field, &answer->ttl_s);
    else if (command == DUNLIN__CONNECT && field.number == 7) dunlin__take_u32(&reader, &field, &answer->ping_s);
    else if (command == DUNLIN__CONNECT && field.number == 8) dunlin__take_bool(&reader, &field, &answer->pongs);
    if (command != DUNLIN__SUBSCRIBE) continue;
    switch (field.number) {
      case 3: dunlin__take_bool(&reader, &field, &answer->is_recoverable); break;
      case 6: dunlin__take_text(&reader, &field, &answer->epoch); break;
      case 7: (void)dunlin__is(&reader, &field, DUNLIN__BYTES); break;
      case 8: dunlin__take_bool(&reader, &field, &answer->has_recovered); break;
      case 9: if (dunlin__is(&reader, &field, DUNLIN__VARINT)) answer->offset = field.value; break;
      case 11: if (dunlin__is(&reader, &field, DUNLIN__BYTES)) answer->data = dunlin__json_of((const char *)field.bytes, field.byte_count); break;
      default: break;
    }
  }
  return !reader.has_failed;
}

/* The text of an event ends with 0, so it is kept by the client. */
static void dunlin__set_event_text(dunlin_client *client, dunlin_event *event, const dunlin__error *error) {
  dunlin__set_text(&client->shown, error->text.text, error->text.byte_count);
  event->text = client->shown.text;
  event->code = error->code;
}

static bool dunlin__failed(dunlin_event *event, dunlin_room *room, uint32_t code, const char *text) {
  event->kind = DUNLIN_EVENT_FAILED;
  event->room = room;
  event->code = code;
  event->text = text;
  return true;
}

static bool dunlin__may_retry(const dunlin__error *error, bool asks_for_tokens) {
  return error->is_temporary || (asks_for_tokens && (error->code == DUNLIN__TOKEN_EXPIRED || error->code == DUNLIN__EXPIRED));
}

/* The functions below take a message, and return whether there is an event. */

static bool dunlin__take_connected(dunlin_client *client, const dunlin__message *message, dunlin_event *event) {
  dunlin__error error;
  dunlin__answer answer;
  bool has_joins = false;
  size_t at;
  if (!dunlin__error_of(message, DUNLIN__CONNECT, &error) || (!error.is_error && !dunlin__read_answer(&message->result, DUNLIN__CONNECT, &answer))) {
    dunlin__lose(client, 0, "a malformed reply", true);
    return false;
  }
  if (error.is_error) {
    dunlin__lose_for(client, error.code, error.text, dunlin__may_retry(&error, client->options.asks_for_tokens));
    return false;
  }
  client->line.link = DUNLIN__ONLINE;
  client->line.online_since_ms = client->now_ms;
  client->tokens.attempts = 0;
  client->heartbeat.pongs = answer.pongs;
  client->heartbeat.silence_ms = answer.ping_s == 0 ? 0 : (double)answer.ping_s * 1000 + DUNLIN__PING_MARGIN_MS;
  client->heartbeat.has_deadline = answer.ping_s != 0;
  client->heartbeat.deadline_ms = client->now_ms + client->heartbeat.silence_ms;
  dunlin__plan_refresh(client, &client->tokens, client->options.asks_for_tokens, answer.expires ? &answer.ttl_s : NULL);
  for (at = 0; at < client->rooms.count && client->line.link == DUNLIN__ONLINE; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    has_joins = has_joins || room->stay == DUNLIN__JOINING;
    if (room->stay == DUNLIN__JOINING) dunlin__begin_join(room);
  }
  if (!has_joins) client->line.attempts = 0;
  event->kind = DUNLIN_EVENT_CONNECTED;
  return client->line.link == DUNLIN__ONLINE;
}

static void dunlin__take_seat(dunlin_room *room, const dunlin__answer *answer, dunlin_event *event) {
  dunlin_json data = dunlin_json_parse(answer->data.text, answer->data.byte_count);
  char token[DUNLIN__SEAT_TOKEN_BYTES_MAX + 1];
  size_t count = dunlin_json_text(dunlin_json_member(data, "seat_token"), token, sizeof token), at;
  event->returns = dunlin_json_is_true(dunlin_json_member(data, "seat_resumed"));
  if (count == 0 || count >= sizeof token) return;
  for (at = 0; at < count; at += 1) {
    /* It is written into JSON as it is. */
    if (token[at] <= ' ' || token[at] > '~' || token[at] == '"' || token[at] == '\\') return;
  }
  memcpy(room->seat_token, token, count + 1);
}

static bool dunlin__take_joined(dunlin_room *room, const dunlin__message *message, dunlin_event *event) {
  dunlin_client *client = room->client;
  dunlin__position *position = &room->position;
  dunlin__error error;
  dunlin__answer answer;
  if (!dunlin__error_of(message, DUNLIN__SUBSCRIBE, &error) || (!error.is_error && !dunlin__read_answer(&message->result, DUNLIN__SUBSCRIBE, &answer))) {
    dunlin__lose(client, 0, "a malformed reply", true);
    return false;
  }
  if (error.is_error) {
    if (dunlin__may_retry(&error, room->terms.asks_for_tokens)) {
      dunlin__retry_join(room);
      dunlin__set_event_text(client, event, &error);
      return dunlin__failed(event, room, error.code, event->text);
    }
    dunlin__forget_position(room);
    dunlin__report_left(room, error.code, error.text, false);
    return false;
  }
  room->stay = DUNLIN__JOINED;
  room->tokens.attempts = 0;
  if (room->terms.is_channel) dunlin__begin_delays_again(room);
  event->kind = DUNLIN_EVENT_JOINED;
  event->room = room;
  event->missed = position->was_joined && !answer.has_recovered;
  dunlin__take_seat(room, &answer, event);
  dunlin__plan_refresh(client, &room->tokens, room->terms.asks_for_tokens, answer.expires ? &answer.ttl_s : NULL);
  position->was_joined = true;
  position->joined_at_ms = client->now_ms;
  position->is_recoverable = answer.is_recoverable && answer.epoch.byte_count <= DUNLIN__EPOCH_BYTES_MAX;
  position->epoch_bytes = position->is_recoverable ? answer.epoch.byte_count : 0;
  if (position->epoch_bytes > 0) memcpy(position->epoch, answer.epoch.text, position->epoch_bytes);
  /* After a recovery this is the position that was asked for, and each publication moves it. */
  position->offset = answer.offset;
  client->inbox.replayed = room;
  client->inbox.replay_at = (size_t)(message->result.bytes - (const uint8_t *)client->inbox.bytes.items);
  client->inbox.replay_end = client->inbox.replay_at + message->result.byte_count;
  return true;
}

/* The inputs up to this one are applied, or were dropped. */
static void dunlin__acknowledge(dunlin_room *room, uint32_t ack) {
  dunlin__inputs *inputs = &room->inputs;
  const dunlin__pending *pending = (const dunlin__pending *)inputs->pending.items;
  size_t count = 0, bytes = 0;
  for (; count < inputs->pending.count && pending[count].number <= ack; count += 1) bytes += pending[count].byte_count;
  if (count == 0) return;
  /* The last of them is the one that this snapshot acknowledges. */
  if (pending[count - 1].number == ack) {
    double took_ms = room->client->now_ms - pending[count - 1].sent_ms;
    inputs->round_trip_ms = inputs->has_round_trip ? inputs->round_trip_ms + (took_ms - inputs->round_trip_ms) * DUNLIN__ROUND_TRIP_WEIGHT : took_ms;
    inputs->has_round_trip = true;
  }
  dunlin__forget_first(&inputs->pending, count);
  dunlin__forget_first(&inputs->bytes, bytes);
}

static void dunlin__send_unsubscribe(dunlin_room *room) {
  dunlin__begin_request(room->client);
  dunlin__put_text(room->client, 1, &room->terms.channel);
  dunlin__ask_or_lose(room->client, DUNLIN__UNSUBSCRIBE, room);
}

/* Later snapshots cannot be applied either. Only another join brings a full one. To unsubscribe would give up the seat, so the client
 * connects again, as after a lost connection. */
static bool dunlin__take_bad_snapshot(dunlin_room *room, dunlin_status status, dunlin_event *event) {
  static const char *const texts[] = {"", "a malformed snapshot", "a snapshot with a wrong base", "a snapshot with a wrong cell", "a snapshot that is too large", "no memory for a snapshot"};
  const char *text = texts[status <= DUNLIN_NO_MEMORY ? status : 0];
  /* A lack of memory may pass, and says nothing about the snapshot. */
  if (status != DUNLIN_NO_MEMORY) room->bad_snapshots += 1;
  if (room->bad_snapshots < DUNLIN__BAD_SNAPSHOTS_MAX) {
    dunlin__lose(room->client, 0, text, true);
  } else {
    dunlin__forget_position(room);
    dunlin__report_left(room, 0, dunlin__json_of(text, strlen(text)), false);
    dunlin__send_unsubscribe(room);
  }
  return dunlin__failed(event, room, (uint32_t)status, text);
}

static bool dunlin__take_publication(dunlin_room *room, const dunlin__publication *publication, dunlin_event *event) {
  dunlin_client *client = room->client;
  dunlin_status status;
  dunlin_json document, inner;
  int64_t tick;
  if (publication->offset > 0) room->position.offset = publication->offset;
  event->room = room;
  event->bytes = publication->bytes;
  event->byte_count = publication->byte_count;
  event->offset = publication->offset;
  if (room->terms.is_channel) {
    event->kind = DUNLIN_EVENT_PUBLICATION;
    return true;
  }
  if (publication->offset == 0) {
    event->bytes = NULL;
    event->byte_count = 0;
    status = dunlin_replica_apply(&room->sight.replica, publication->bytes, publication->byte_count);
    if (status != DUNLIN_OK) return dunlin__take_bad_snapshot(room, status, event);
    if (client->now_ms - room->position.joined_at_ms >= DUNLIN__GOOD_AFTER_MS) room->bad_snapshots = 0;
    dunlin__begin_delays_again(room);
    /* The room's new node has a clock of its own. One that is behind would show objects too late for seconds. */
    if (room->sight.replica.world.has_moved) {
      memset(&room->sight.clock, 0, sizeof room->sight.clock);
      dunlin__forget_all_samples(&room->sight.interpolation);
    }
    (void)dunlin_clock_observe(&room->sight.clock, room->sight.replica.world.time_us, client->now_ms);
    dunlin__acknowledge(room, room->sight.replica.world.ack);
    dunlin_interpolation_observe(&room->sight.interpolation, &room->sight.replica, dunlin_server_time_ms(room, client->now_ms));
    event->kind = DUNLIN_EVENT_SNAPSHOT;
    event->tick = room->sight.replica.world.tick;
    return true;
  }
  document = dunlin_json_parse(publication->bytes, publication->byte_count);
  inner = dunlin_json_member(document, "event");
  if (inner.text == NULL
      || !dunlin__json_integer(dunlin_json_member(document, "tick"), 0, UINT32_MAX, &tick)) {
    return dunlin__failed(event, room, DUNLIN_MALFORMED, "an event without its tick");
  }
  event->kind = DUNLIN_EVENT_EVENT;
  event->tick = (uint32_t)tick;
  event->bytes = (const uint8_t *)inner.text;
  event->byte_count = inner.byte_count;
  return true;
}

/* A token was sent for the connection, or for a room. */
static bool dunlin__take_refreshed(dunlin_client *client, const dunlin__request *request, const dunlin__message *message, dunlin_event *event) {
  dunlin_room *room = request->room;
  dunlin__tokens *tokens = room == NULL ? &client->tokens : &room->tokens;
  dunlin__error error;
  dunlin__answer answer;
  if (!dunlin__error_of(message, request->command, &error) || (!error.is_error && !dunlin__read_answer(&message->result, request->command, &answer))) {
    dunlin__lose(client, 0, "a malformed reply", true);
    return false;
  }
  if (!error.is_error) {
    tokens->attempts = 0;
    dunlin__plan_refresh(client, tokens, true, answer.expires ? &answer.ttl_s : NULL);
    return false;
  }
  /* Without a new token, the server ends the subscription when its time is over, and the connection. */
  if (dunlin__may_retry(&error, true)) {
    dunlin__retry_refresh(client, tokens);
  } else if (room == NULL) {
    dunlin__lose_for(client, error.code, error.text, false);
    return false;
  }
  dunlin__set_event_text(client, event, &error);
  return dunlin__failed(event, room, error.code, event->text);
}

static bool dunlin__take_called(dunlin_client *client, const dunlin__request *request, const dunlin__message *message, dunlin_event *event) {
  dunlin__error error;
  dunlin__reader reader = dunlin__inner(&message->result);
  dunlin__field field;
  if (!dunlin__error_of(message, request->command, &error)) {
    dunlin__lose(client, 0, "a malformed reply", true);
    error.is_error = true;
    error.code = 0;
    error.text = dunlin__json_of("a malformed reply", 17);
  }
  event->kind = DUNLIN_EVENT_REPLY;
  event->number = request->number;
  if (error.is_error) {
    dunlin__set_event_text(client, event, &error);
    return true;
  }
  while (dunlin__next_field(&reader, &field)) {
    if (field.number != 1 || !dunlin__is(&reader, &field, DUNLIN__BYTES)) continue;
    event->bytes = field.bytes;
    event->byte_count = field.byte_count;
  }
  return true;
}

static bool dunlin__take_reply(dunlin_client *client, const dunlin__message *message, dunlin_event *event) {
  dunlin__request *requests = (dunlin__request *)client->requests.items;
  dunlin__request request;
  dunlin__error error;
  size_t at;
  for (at = 0; at < client->requests.count && requests[at].id != message->id; at += 1) continue;
  if (at == client->requests.count) return false;
  request = requests[at];
  client->requests.count -= 1;
  memmove(requests + at, requests + at + 1, (client->requests.count - at) * sizeof *requests);
  if (request.command == DUNLIN__CONNECT) return dunlin__take_connected(client, message, event);
  if (request.command == DUNLIN__RPC) return dunlin__take_called(client, &request, message, event);
  if (request.command == DUNLIN__REFRESH) return dunlin__take_refreshed(client, &request, message, event);
  /* The room is freed, or the subscription that this is about has ended. */
  if (request.room == NULL || request.turn != request.room->turn || request.command == DUNLIN__UNSUBSCRIBE) return false;
  if (request.command == DUNLIN__SUBSCRIBE) return request.room->stay == DUNLIN__JOINING && dunlin__take_joined(request.room, message, event);
  if (request.command == DUNLIN__SUB_REFRESH) return dunlin__take_refreshed(client, &request, message, event);
  if (!dunlin__error_of(message, request.command, &error) || !error.is_error) return false;
  event->kind = DUNLIN_EVENT_INPUT_REFUSED;
  event->room = request.room;
  event->number = request.number;
  dunlin__set_event_text(client, event, &error);
  return true;
}

static dunlin_room *dunlin__room_of(const dunlin_client *client, dunlin_json channel) {
  size_t at;
  for (at = 0; channel.byte_count > 0 && at < client->rooms.count; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    if (dunlin__same(room->terms.channel.items, room->terms.channel.count - 1, channel.text, channel.byte_count)) return room;
  }
  return NULL;
}

static bool dunlin__take_push(dunlin_client *client, const dunlin__field *push, dunlin_event *event) {
  dunlin__reader reader = dunlin__inner(push);
  dunlin__field field, pub, unsubscribe, disconnect;
  dunlin__publication publication;
  dunlin__error error;
  dunlin_json channel = dunlin__json_of("", 0);
  dunlin_room *room;
  memset(&pub, 0, sizeof pub);
  unsubscribe = disconnect = pub;
  while (dunlin__next_field(&reader, &field)) {
    if (field.number == 2) dunlin__take_text(&reader, &field, &channel);
    else if (field.number == 4 && dunlin__is(&reader, &field, DUNLIN__BYTES)) pub = field;
    else if (field.number == 7 && dunlin__is(&reader, &field, DUNLIN__BYTES)) unsubscribe = field;
    else if (field.number == 11 && dunlin__is(&reader, &field, DUNLIN__BYTES)) disconnect = field;
  }
  if (reader.has_failed || (pub.bytes != NULL && !dunlin__read_publication(&pub, &publication))
      || (unsubscribe.bytes != NULL && !dunlin__read_error(&unsubscribe, 2, &error)) || (disconnect.bytes != NULL && !dunlin__read_error(&disconnect, 1, &error))) {
    dunlin__lose(client, 0, "a malformed push", true);
    return false;
  }
  room = dunlin__room_of(client, channel);
  if (disconnect.bytes != NULL) {
    dunlin__lose_for(client, error.code, error.text, true);
  } else if (unsubscribe.bytes != NULL && room != NULL && room->stay == DUNLIN__JOINED) {
    /* Before the reply to a subscription, the push is about an earlier one of the channel: the server sends nothing about a subscription before its reply. */
    bool returns = error.code >= 2500;
    if (!returns) dunlin__forget_position(room);
    dunlin__report_left(room, error.code, error.text, returns);
    if (returns) dunlin__retry_join(room);
  } else if (pub.bytes != NULL && room != NULL && room->stay == DUNLIN__JOINED) {
    return dunlin__take_publication(room, &publication, event);
  }
  return false;
}

/* A ping is an empty message, and so is the answer. */
static void dunlin__take_ping(dunlin_client *client) {
  if (!client->heartbeat.pongs || client->line.link != DUNLIN__ONLINE) return;
  dunlin__drop_sent(client);
  if (client->outbox.bytes.count >= client->options.unsent_bytes_max
      || dunlin__push(&client->options.allocator, &client->outbox.bytes) == NULL) {
    dunlin__lose(client, 0, "a command does not fit into memory", true);
  }
}

static bool dunlin__take_message(dunlin_client *client, dunlin__reader message_bytes, dunlin_event *event) {
  dunlin__message message;
  bool is_ping = message_bytes.at == message_bytes.end;
  if (!dunlin__read_message(&message_bytes, &message)) {
    dunlin__lose(client, 0, "a malformed message", true);
    return false;
  }
  if (is_ping) dunlin__take_ping(client);
  else if (message.id != 0) return dunlin__take_reply(client, &message, event);
  else if (message.push.bytes != NULL) return dunlin__take_push(client, &message.push, event);
  return false;
}

/* The next recovered publication. False if there are no more. */
static bool dunlin__replay(dunlin_client *client, dunlin_event *event) {
  dunlin__inbox *inbox = &client->inbox;
  dunlin_room *room = inbox->replayed;
  const uint8_t *bytes = (const uint8_t *)inbox->bytes.items;
  dunlin__publication publication;
  dunlin__reader reader;
  dunlin__field field;
  if (room == NULL) return false;
  reader = dunlin__reader_of(bytes + inbox->replay_at, inbox->replay_end - inbox->replay_at);
  while (inbox->replayed != NULL && dunlin__next_field(&reader, &field)) {
    if (field.number != 7) continue;
    inbox->replay_at = (size_t)(reader.at - bytes);
    if (!dunlin__read_publication(&field, &publication)) {
      dunlin__lose(client, 0, "a malformed publication", true);
      return false;
    }
    if (dunlin__take_publication(room, &publication, event)) return true;
  }
  client->inbox.replayed = NULL;
  return false;
}

/* Takes messages until there is an event or none are left. */
static bool dunlin__take_next(dunlin_client *client, dunlin_event *event) {
  dunlin__inbox *inbox = &client->inbox;
  for (;;) {
    const uint8_t *bytes = (const uint8_t *)inbox->bytes.items;
    dunlin__reader frame;
    uint64_t length;
    if (dunlin__replay(client, event)) return true;
    if (client->line.has_to_close || inbox->at == inbox->bytes.count) return false;
    if (inbox->at == inbox->frame_end) {
      inbox->frame_end = inbox->at + 4 + (size_t)dunlin__little_endian(bytes + inbox->at, 4);
      inbox->at += 4;
      continue;
    }
    frame = dunlin__reader_of(bytes + inbox->at, inbox->frame_end - inbox->at);
    if (!dunlin__read_varint(&frame, &length) || length > (uint64_t)(frame.end - frame.at)) {
      dunlin__lose(client, 0, "a malformed message", true);
      return false;
    }
    inbox->at = (size_t)(frame.at - bytes) + (size_t)length;
    frame.end = frame.at + (size_t)length;
    if (dunlin__take_message(client, frame, event)) return true;
  }
}

/* -- What is due -- */

/* What a lost connection or an ended subscription leaves to be told. */
static bool dunlin__report(dunlin_client *client, dunlin_event *event) {
  const dunlin__request *requests = (const dunlin__request *)client->requests.items;
  size_t at;
  if (client->line.has_to_close) {
    client->line.has_to_close = false;
    event->kind = DUNLIN_EVENT_CLOSE;
    return true;
  }
  for (at = 0; at < client->rooms.count; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    if (!room->left.is_reported) continue;
    room->left.is_reported = false;
    event->kind = DUNLIN_EVENT_LEFT;
    event->room = room;
    event->code = room->left.code;
    event->text = room->left.text;
    event->returns = room->left.returns;
    return true;
  }
  if (client->requests.count > 0 && requests[0].id == 0) {
    event->kind = DUNLIN_EVENT_REPLY;
    event->number = requests[0].number;
    event->text = "the connection was lost before the reply";
    dunlin__forget_first(&client->requests, 1);
    return true;
  }
  if (!client->line.lost.is_reported) return false;
  client->line.lost.is_reported = false;
  event->kind = DUNLIN_EVENT_DISCONNECTED;
  event->code = client->line.lost.code;
  event->text = client->line.lost.text;
  event->returns = client->line.lost.returns;
  event->delay_ms = client->line.lost.delay_ms;
  return true;
}

/* A silent server, and commands without a reply in time. Whatever has arrived is taken before: a game may have been busy for longer. */
static bool dunlin__expire(dunlin_client *client, dunlin_event *event) {
  dunlin__request *requests = (dunlin__request *)client->requests.items;
  size_t at;
  if (client->heartbeat.has_deadline && client->now_ms > client->heartbeat.deadline_ms) {
    dunlin__lose(client, 0, "no message from the server", true);
    return false;
  }
  for (at = 0; at < client->requests.count; at += 1) {
    dunlin__request request = requests[at];
    if (client->now_ms <= request.deadline_ms) continue;
    if (request.command == DUNLIN__CONNECT || request.command == DUNLIN__SUBSCRIBE) {
      dunlin__lose(client, 0, "no reply to a connection or a subscription", true);
      return false;
    }
    client->requests.count -= 1;
    memmove(requests + at, requests + at + 1, (client->requests.count - at) * sizeof *requests);
    at -= 1;
    if (request.command == DUNLIN__REFRESH) dunlin__retry_refresh(client, &client->tokens);
    if (request.command == DUNLIN__SUB_REFRESH && request.room != NULL && request.turn == request.room->turn) dunlin__retry_refresh(client, &request.room->tokens);
    if (request.command != DUNLIN__RPC) continue;
    event->kind = DUNLIN_EVENT_REPLY;
    event->number = request.number;
    event->code = 1;
    event->text = "no reply in time";
    return true;
  }
  return false;
}

static void dunlin__pass_time(dunlin_client *client) {
  size_t at;
  if (client->line.link == DUNLIN__WAITING && client->now_ms >= client->line.connect_at_ms) dunlin__begin_connection(client);
  if (client->tokens.has_refresh && client->now_ms >= client->tokens.refresh_at_ms) {
    client->tokens.has_refresh = false;
    client->tokens.ask = DUNLIN__TO_ASK;
  }
  for (at = 0; at < client->rooms.count && client->line.link == DUNLIN__ONLINE; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    if (room->retry.is_planned && client->now_ms >= room->retry.at_ms) dunlin__begin_join(room);
    if (room->tokens.has_refresh && client->now_ms >= room->tokens.refresh_at_ms) {
      room->tokens.has_refresh = false;
      room->tokens.ask = DUNLIN__TO_ASK;
    }
  }
}

static bool dunlin__ask_for_token(dunlin__tokens *tokens, dunlin_room *room, dunlin_event *event) {
  if (tokens->ask != DUNLIN__TO_ASK) return false;
  tokens->ask = DUNLIN__ASKED;
  event->kind = DUNLIN_EVENT_TOKEN;
  event->room = room;
  return true;
}

/* What the game has to do. */
static bool dunlin__demand(dunlin_client *client, dunlin_event *event) {
  size_t at;
  if (dunlin__ask_for_token(&client->tokens, NULL, event)) return true;
  for (at = 0; at < client->rooms.count; at += 1) {
    dunlin_room *room = dunlin__room_at(client, at);
    if (dunlin__ask_for_token(&room->tokens, room, event)) return true;
  }
  if (client->line.link == DUNLIN__CALLING) {
    client->line.link = DUNLIN__OPENING;
    client->heartbeat.has_deadline = true;
    client->heartbeat.deadline_ms = client->now_ms + DUNLIN__OPEN_TIMEOUT_MS;
    event->kind = DUNLIN_EVENT_OPEN;
    return true;
  }
  if (client->line.link >= DUNLIN__GREETING && client->outbox.bytes.count > 0) {
    const uint8_t *bytes = (const uint8_t *)client->outbox.bytes.items;
    dunlin__reader reader = dunlin__reader_of(bytes, client->outbox.bytes.count);
    uint64_t length;
    while (reader.at < reader.end && dunlin__read_varint(&reader, &length)) {
      size_t end = (size_t)(reader.at - bytes) + (size_t)length;
      if (client->outbox.handed_out > 0 && end > DUNLIN__BATCH_BYTES_MAX) break;
      client->outbox.handed_out = end;
      reader.at = bytes + end;
    }
    event->kind = DUNLIN_EVENT_SEND;
    event->bytes = bytes;
    event->byte_count = client->outbox.handed_out;
    return true;
  }
  return false;
}

bool dunlin_next(dunlin_client *client, double now_ms, dunlin_event *event) {
  memset(event, 0, sizeof *event);
  event->text = "";
  dunlin__set_now(client, now_ms);
  dunlin__drop_sent(client);
  if (dunlin__report(client, event)) return true;
  dunlin__pass_time(client);
  if (dunlin__report(client, event) || dunlin__demand(client, event)) return true;
  if (dunlin__take_next(client, event)) return true;
  /* What the messages have led to. */
  memset(event, 0, sizeof *event);
  event->text = "";
  if (dunlin__expire(client, event)) return true;
  return dunlin__report(client, event) || dunlin__demand(client, event);
}

/* -- What the game calls -- */

dunlin_client *dunlin_client_new(const dunlin_options *options) {
  dunlin_options defaults;
  dunlin_allocator allocator;
  dunlin_client *client;
  memset(&defaults, 0, sizeof defaults);
  if (options == NULL) options = &defaults;
  allocator = options->allocator;
  client = (dunlin_client *)dunlin__new(&allocator, sizeof *client);
  if (client == NULL) return NULL;
  client->options = *options;
  if (!(options->reconnect_min_ms > 0)) client->options.reconnect_min_ms = 500;
  if (!(options->reconnect_max_ms > 0)) client->options.reconnect_max_ms = 20000;
  if (!(options->reply_timeout_ms > 0)) client->options.reply_timeout_ms = 10000;
  if (options->received_bytes_max == 0) client->options.received_bytes_max = (size_t)16 << 20;
  if (client->options.received_bytes_max > UINT32_MAX / 2) client->options.received_bytes_max = UINT32_MAX / 2;
  if (options->unsent_bytes_max == 0) client->options.unsent_bytes_max = (size_t)1 << 20;
  client->line.random = options->seed ^ (uint64_t)(uintptr_t)client;
  client->name.item_bytes = client->tokens.token.item_bytes = 1;
  client->inbox.bytes.item_bytes = client->outbox.bytes.item_bytes = client->outbox.request.item_bytes = 1;
  client->rooms.item_bytes = sizeof(dunlin_room *);
  client->requests.item_bytes = sizeof(dunlin__request);
  if (dunlin__keep(&allocator, &client->name, options->name == NULL ? "c" : options->name)) return client;
  dunlin_client_free(client);
  return NULL;
}

static void dunlin__room_end(dunlin_room *room) {
  const dunlin_allocator allocator = room->client->options.allocator;
  dunlin__replica_end(&room->sight.replica);
  dunlin__interpolation_end(&room->sight.interpolation);
  dunlin__release(&allocator, &room->terms.channel);
  dunlin__release(&allocator, &room->terms.data);
  dunlin__release(&allocator, &room->tokens.token);
  dunlin__release(&allocator, &room->inputs.pending);
  dunlin__release(&allocator, &room->inputs.bytes);
  dunlin__free(&allocator, room, sizeof *room);
}

void dunlin_client_free(dunlin_client *client) {
  dunlin_allocator allocator;
  size_t at;
  if (client == NULL) return;
  allocator = client->options.allocator;
  for (at = 0; at < client->rooms.count; at += 1) dunlin__room_end(dunlin__room_at(client, at));
  dunlin__release(&allocator, &client->name);
  dunlin__release(&allocator, &client->rooms);
  dunlin__release(&allocator, &client->requests);
  dunlin__release(&allocator, &client->tokens.token);
  dunlin__release(&allocator, &client->inbox.bytes);
  dunlin__release(&allocator, &client->outbox.bytes);
  dunlin__release(&allocator, &client->outbox.request);
  dunlin__free(&allocator, client, sizeof *client);
}

void dunlin_connect(dunlin_client *client, double now_ms) {
  dunlin__set_now(client, now_ms);
  if (client->line.link != DUNLIN__OFFLINE) return;
  client->line.attempts = 0;
  dunlin__begin_connection(client);
}

void dunlin_disconnect(dunlin_client *client) {
  if (client->line.link != DUNLIN__OFFLINE) dunlin__lose(client, 0, "disconnected", false);
}

bool dunlin_is_connected(const dunlin_client *client) {
  return client->line.link == DUNLIN__ONLINE;
}

dunlin_status dunlin_set_token(dunlin_client *client, const char *token) {
  dunlin__ask ask = client->tokens.ask;
  bool has_token = token != NULL && token[0] != 0;
  if (has_token && strlen(token) > DUNLIN_DATA_BYTES_MAX) return DUNLIN_TOO_LARGE;
  /* It says nothing about a question that the game has not heard yet. */
  if (!has_token && ask == DUNLIN__TO_ASK) return DUNLIN_OK;
  if (!dunlin__keep(&client->options.allocator, &client->tokens.token, token)) {
    client->tokens.token.count = 0;
    return DUNLIN_NO_MEMORY;
  }
  client->tokens.ask = DUNLIN__NOT_ASKED;
  if (client->line.link == DUNLIN__ASKING && has_token) {
    client->line.link = DUNLIN__CALLING;
  } else if (client->line.link == DUNLIN__ASKING && ask == DUNLIN__ASKED) {
    dunlin__lose(client, 0, "no token", true);
  } else if (client->line.link == DUNLIN__ONLINE && ask != DUNLIN__NOT_ASKED) {
    /* The server ends a connection that refreshes without a token, for good. */
    if (!has_token) {
      dunlin__retry_refresh(client, &client->tokens);
      return DUNLIN_OK;
    }
    dunlin__begin_request(client);
    dunlin__put_text(client, 1, &client->tokens.token);
    dunlin__ask_or_lose(client, DUNLIN__REFRESH, NULL);
  }
  return DUNLIN_OK;
}

void dunlin_opened(dunlin_client *client, double now_ms) {
  dunlin__set_now(client, now_ms);
  if (client->line.link == DUNLIN__OPENING) dunlin__send_connect(client);
}

void dunlin_received(dunlin_client *client, const void *message, size_t byte_count, double now_ms) {
  dunlin__inbox *inbox = &client->inbox;
  uint8_t head[4];
  dunlin__set_now(client, now_ms);
  if (client->line.link < DUNLIN__GREETING || byte_count == 0) return;
  if (client->line.link == DUNLIN__ONLINE) client->heartbeat.deadline_ms = client->now_ms + client->heartbeat.silence_ms;
  /* What is replayed lies in the last frame. */
  if (inbox->replayed == NULL) {
    dunlin__forget_first(&inbox->bytes, inbox->at);
    inbox->frame_end -= inbox->at;
    inbox->at = 0;
  }
  if (byte_count > client->options.received_bytes_max || inbox->bytes.count + 4 + byte_count > client->options.received_bytes_max) {
    dunlin__lose(client, 0, "more has arrived than is processed", true);
    return;
  }
  (void)dunlin__write_integer(head, (int64_t)byte_count, 4);
  if (!dunlin__append(&client->options.allocator, &inbox->bytes, head, 4) || !dunlin__append(&client->options.allocator, &inbox->bytes, message, byte_count)) {
    dunlin__lose(client, 0, "no memory for a message", true);
  }
}

void dunlin_closed(dunlin_client *client, uint32_t code, const char *reason, double now_ms) {
  dunlin__set_now(client, now_ms);
  if (client->line.link < DUNLIN__OPENING) return;
  dunlin__lose(client, code, reason == NULL ? "" : reason, true);
  /* The socket is closed already. */
  client->line.has_to_close = false;
}

static dunlin_status dunlin__check_json(const char *json) {
  size_t count = json == NULL ? 0 : strlen(json);
  if (count > DUNLIN_DATA_BYTES_MAX) return DUNLIN_TOO_LARGE;
  return json == NULL || dunlin_json_parse(json, count).text != NULL ? DUNLIN_OK : DUNLIN_BAD_ARGUMENT;
}

dunlin_status dunlin_call(dunlin_client *client, const char *method, const char *json, uint32_t *number) {
  dunlin_status status = dunlin__check_json(json);
  size_t method_bytes = method == NULL ? 0 : strlen(method);
  if (status != DUNLIN_OK) return status;
  if (method_bytes == 0 || method_bytes > 255 || !dunlin__is_utf8((const uint8_t *)method, method_bytes)) return DUNLIN_BAD_ARGUMENT;
  if (client->line.link != DUNLIN__ONLINE) return DUNLIN_NOT_READY;
  dunlin__begin_request(client);
  if (json != NULL) dunlin__put_bytes(client, 1, json, strlen(json));
  dunlin__put_bytes(client, 2, method, method_bytes);
  status = dunlin__ask_server(client, DUNLIN__RPC, NULL, client->ids.call + 1);
  if (status != DUNLIN_OK) return status;
  client->ids.call += 1;
  if (number != NULL) *number = client->ids.call;
  return DUNLIN_OK;
}

static void dunlin__set_lists(dunlin_room *room) {
  room->terms.channel.item_bytes = room->terms.data.item_bytes = room->tokens.token.item_bytes = room->inputs.bytes.item_bytes = 1;
  room->inputs.pending.item_bytes = sizeof(dunlin__pending);
}

static bool dunlin__are_options_valid(const dunlin_client *client, const dunlin_room_options *options) {
  size_t channel_bytes = options->channel == NULL ? 0 : strlen(options->channel), at;
  if (channel_bytes == 0 || channel_bytes > 255 || !dunlin__is_utf8((const uint8_t *)options->channel, channel_bytes)) return false;
  if (client->rooms.count == DUNLIN_ROOMS_MAX || dunlin__room_of(client, dunlin__json_of(options->channel, channel_bytes)) != NULL) return false;
  if (dunlin__check_json(options->data) != DUNLIN_OK) return false;
  if (options->is_typed && options->data != NULL && !dunlin__json_begins(dunlin_json_parse(options->data, strlen(options->data)), '{')) return false;
  if (options->seat_token == NULL) return true;
  for (at = 0; options->seat_token[at] != 0; at += 1) {
    char character = options->seat_token[at];
    if (at == DUNLIN__SEAT_TOKEN_BYTES_MAX || character <= ' ' || character > '~' || character == '"' || character == '\\') return false;
  }
  return true;
}

dunlin_room *dunlin_room_new(dunlin_client *client, const dunlin_room_options *options) {
  const dunlin_allocator *allocator = client == NULL ? NULL : &client->options.allocator;
  dunlin_room *room;
  if (client == NULL || options == NULL || !dunlin__are_options_valid(client, options) || !dunlin__reserve(allocator, &client->rooms, client->rooms.count + 1)) return NULL;
  room = (dunlin_room *)dunlin__new(allocator, sizeof *room);
  if (room == NULL) return NULL;
  room->client = client;
  dunlin__set_lists(room);
  room->terms.is_typed = options->is_typed;
  room->terms.is_channel = options->is_channel;
  room->terms.publishes = options->publishes;
  room->terms.asks_for_tokens = options->asks_for_tokens;
  dunlin__replica_begin(&room->sight.replica, *allocator, options->objects_max, options->state_bytes_max);
  room->sight.interpolation.allocator = *allocator;
  dunlin__interpolation_clear(&room->sight.interpolation);
  if (options->seat_token != NULL) memcpy(room->seat_token, options->seat_token, strlen(options->seat_token) + 1);
  if (!dunlin__keep(allocator, &room->terms.channel, options->channel) || (options->data != NULL && !dunlin__keep(allocator, &room->terms.data, options->data))) {
    dunlin__room_end(room);
    return NULL;
  }
  ((dunlin_room **)client->rooms.items)[client->rooms.count] = room;
  client->rooms.count += 1;
  return room;
}

void dunlin_room_free(dunlin_room *room) {
  dunlin_client *client;
  dunlin__request *requests;
  size_t at;
  if (room == NULL) return;
  client = room->client;
  dunlin_leave(room);
  requests = (dunlin__request *)client->requests.items;
  for (at = 0; at < client->requests.count; at += 1) {
    if (requests[at].room == room) requests[at].room = NULL;
  }
  for (at = 0; dunlin__room_at(client, at) != room; at += 1) continue;
  client->rooms.count -= 1;
  memmove((dunlin_room **)client->rooms.items + at, (dunlin_room **)client->rooms.items + at + 1, (client->rooms.count - at) * sizeof room);
  dunlin__room_end(room);
}

void dunlin_join(dunlin_room *room) {
  if (room->stay != DUNLIN__AWAY) return;
  room->stay = DUNLIN__JOINING;
  room->retry.attempts = room->bad_snapshots = 0;
  if (room->client->line.link == DUNLIN__ONLINE) dunlin__begin_join(room);
}

void dunlin_leave(dunlin_room *room) {
  if (room->stay == DUNLIN__AWAY) return;
  dunlin__end_stay(room, false);
  dunlin__forget_position(room);
  room->left.is_reported = false;
  if (room->client->line.link == DUNLIN__ONLINE) dunlin__send_unsubscribe(room);
}

bool dunlin_is_joined(const dunlin_room *room) {
  return room->stay == DUNLIN__JOINED;
}

const char *dunlin_room_channel(const dunlin_room *room) {
  return (const char *)room->terms.channel.items;
}

const char *dunlin_room_seat_token(const dunlin_room *room) {
  return room->seat_token;
}

dunlin_status dunlin_room_set_token(dunlin_room *room, const char *token) {
  dunlin_client *client = room->client;
  dunlin__ask ask = room->tokens.ask;
  bool has_token = token != NULL && token[0] != 0;
  if (has_token && strlen(token) > DUNLIN_DATA_BYTES_MAX) return DUNLIN_TOO_LARGE;
  /* It says nothing about a question that the game has not heard yet. */
  if (!has_token && ask == DUNLIN__TO_ASK) return DUNLIN_OK;
  if (!dunlin__keep(&client->options.allocator, &room->tokens.token, token)) {
    room->tokens.token.count = 0;
    return DUNLIN_NO_MEMORY;
  }
  room->tokens.ask = DUNLIN__NOT_ASKED;
  if (ask == DUNLIN__NOT_ASKED || client->line.link != DUNLIN__ONLINE) return DUNLIN_OK;
  if (room->stay == DUNLIN__JOINING && has_token) {
    dunlin__send_subscribe(room);
  } else if (room->stay == DUNLIN__JOINING) {
    dunlin__retry_join(room);
  } else if (room->stay == DUNLIN__JOINED && has_token) {
    dunlin__begin_request(client);
    dunlin__put_text(client, 1, &room->terms.channel);
    dunlin__put_text(client, 2, &room->tokens.token);
    dunlin__ask_or_lose(client, DUNLIN__SUB_REFRESH, room);
  } else if (room->stay == DUNLIN__JOINED) {
    dunlin__retry_refresh(client, &room->tokens);
  }
  return DUNLIN_OK;
}

/* Memory for another input, after the oldest were dropped for it. */
static bool dunlin__reserve_input(dunlin_room *room, size_t byte_count) {
  const dunlin_allocator *allocator = &room->client->options.allocator;
  dunlin__inputs *inputs = &room->inputs;
  size_t count = inputs->pending.count + 1, bytes = inputs->bytes.count + byte_count;
  return dunlin__reserve(allocator, &inputs->pending, count < DUNLIN_PENDING_MAX ? count : DUNLIN_PENDING_MAX)
    && dunlin__reserve(allocator, &inputs->bytes, bytes < DUNLIN_PENDING_BYTES_MAX ? bytes : DUNLIN_PENDING_BYTES_MAX);
}

/* Keeps an input until a snapshot acknowledges it. There is memory for it. */
static void dunlin__keep_input(dunlin_room *room, const void *data, size_t byte_count) {
  const dunlin_allocator *allocator = &room->client->options.allocator;
  dunlin__inputs *inputs = &room->inputs;
  dunlin__pending *pending;
  while (inputs->pending.count > 0 && (inputs->pending.count == DUNLIN_PENDING_MAX || inputs->bytes.count + byte_count > DUNLIN_PENDING_BYTES_MAX)) {
    dunlin__forget_first(&inputs->bytes, ((const dunlin__pending *)inputs->pending.items)->byte_count);
    dunlin__forget_first(&inputs->pending, 1);
  }
  (void)dunlin__append(allocator, &inputs->bytes, data, byte_count);
  pending = (dunlin__pending *)dunlin__push(allocator, &inputs->pending);
  pending->number = inputs->last + 1;
  pending->byte_count = byte_count;
  pending->sent_ms = room->client->now_ms;
}

dunlin_status dunlin_input(dunlin_room *room, const void *data, size_t byte_count, uint32_t *number) {
  dunlin_client *client = room->client;
  dunlin__inputs *inputs = &room->inputs;
  uint32_t next = inputs->last + 1;
  size_t channel_bytes = room->terms.channel.count - 1;
  dunlin_status status;
  if (room->stay != DUNLIN__JOINED || room->terms.is_channel) return DUNLIN_NOT_READY;
  if (byte_count > DUNLIN_DATA_BYTES_MAX || next == 0) return DUNLIN_TOO_LARGE;
  dunlin__begin_request(client);
  if (room->terms.publishes) dunlin__put_bytes(client, 1, room->terms.channel.items, channel_bytes);
  dunlin__put_head(client, room->terms.publishes ? 2 : 1, dunlin__input_bytes(next, byte_count, room->terms.publishes ? 0 : channel_bytes));
  dunlin__put_number(client, 1, next);
  dunlin__put_bytes(client, 2, data, byte_count);
  if (!room->terms.publishes) dunlin__put_bytes(client, 3, room->terms.channel.items, channel_bytes);
  /* An input that is not sent must not drop one that is. */
  if (!dunlin__reserve_input(room, byte_count)) return DUNLIN_NO_MEMORY;
  status = room->terms.publishes ? dunlin__ask_server(client, DUNLIN__PUBLISH, room, next) : dunlin__queue(client, 0, DUNLIN__SEND);
  if (status != DUNLIN_OK) return status;
  dunlin__keep_input(room, data, byte_count);
  inputs->last = next;
  if (number != NULL) *number = next;
  return DUNLIN_OK;
}

size_t dunlin_pending_count(const dunlin_room *room) {
  return room->inputs.pending.count;
}

bool dunlin_pending_at(const dunlin_room *room, size_t index, dunlin_pending_input *input) {
  const dunlin__pending *pending = (const dunlin__pending *)room->inputs.pending.items;
  size_t at, start = 0;
  if (index >= room->inputs.pending.count) return false;
  for (at = 0; at < index; at += 1) start += pending[at].byte_count;
  input->number = pending[index].number;
  input->sent_ms = pending[index].sent_ms;
  input->byte_count = pending[index].byte_count;
  input->data = input->byte_count == 0 ? NULL : (const uint8_t *)room->inputs.bytes.items + start;
  return true;
}

double dunlin_round_trip_ms(const dunlin_room *room) {
  return room->inputs.has_round_trip ? room->inputs.round_trip_ms : -1;
}

const dunlin_world *dunlin_room_world(const dunlin_room *room) {
  return &room->sight.replica.world;
}

double dunlin_server_time_ms(const dunlin_room *room, double now_ms) {
  return now_ms + dunlin_clock_offset_ms(&room->sight.clock);
}

double dunlin_tick_now(const dunlin_room *room, double now_ms) {
  const dunlin_world *world = &room->sight.replica.world;
  return world->tick + (dunlin_server_time_ms(room, now_ms) - (double)world->time_us / 1000) * dunlin__ticks_per_second(world) / 1000;
}

double dunlin_shown_ms(dunlin_room *room, double now_ms) {
  return dunlin_interpolation_advance(&room->sight.interpolation, dunlin_server_time_ms(room, now_ms));
}

bool dunlin_place(dunlin_room *room, uint32_t id, double shown_ms, double *x, double *y) {
  const dunlin_object *object = dunlin_find(&room->sight.replica.world, id);
  if (object == NULL) return false;
  if (dunlin_interpolation_place(&room->sight.interpolation, id, shown_ms, x, y)) return true;
  *x = object->x;
  *y = object->y;
  return true;
}

/* A field that is one number, at a time; false if its earlier values are not known. */
static bool dunlin__number_at(dunlin_room *room, const dunlin_object *object, int index, double at_ms, double *number) {
  const dunlin_kind *kind = dunlin_kind_of(&room->sight.replica.world, object->kind);
  const dunlin_field *field;
  const dunlin__track *track;
  const double *values;
  double share, difference, turn;
  size_t place = 0;
  int at;
  if (kind == NULL || index < 0 || (uint32_t)index >= kind->field_count || dunlin__is_long(&kind->fields[index])) return false;
  field = &kind->fields[index];
  for (at = 0; at < index; at += 1) place += !dunlin__is_long(&kind->fields[at]);
  track = dunlin__track_at(&room->sight.interpolation, object->id, at_ms, &share);
  if (track == NULL || track->kind != object->kind || place >= track->number_count) return false;
  values = (const double *)track->values.items;
  *number = values[place];
  if (share > 0 && field->type == DUNLIN_INTEGER && field->motion != DUNLIN_STEP) {
    difference = values[track->number_count + place] - values[place];
    turn = (double)(field->range.max - field->range.min) + 1;
    if (field->motion == DUNLIN_ANGLE && difference > turn / 2) difference -= turn;
    /* Half a turn goes up, in either direction. */
    if (field->motion == DUNLIN_ANGLE && difference <= -turn / 2) difference += turn;
    *number += difference * share;
    if (field->motion == DUNLIN_ANGLE && *number < (double)field->range.min) *number += turn;
    if (field->motion == DUNLIN_ANGLE && *number >= (double)field->range.max + 1) *number -= turn;
  }
  *number /= field->per_unit;
  return true;
}

double dunlin_shown_field(dunlin_room *room, uint32_t id, int index, double shown_ms) {
  const dunlin_world *world = &room->sight.replica.world;
  const dunlin_object *object = dunlin_find(world, id);
  double number;
  if (object == NULL || !object->has_fields) return 0;
  if (dunlin__number_at(room, object, index, shown_ms, &number)) return number;
  return dunlin_field_number(world, object, index);
}

uint32_t dunlin_tick_at(const dunlin_room *room, double shown_ms) {
  return dunlin__tick_at(&room->sight.replica.world, shown_ms);
}

#ifdef __cplusplus
}
#endif

#endif /* DUNLIN_ROOM_IMPLEMENTATION */
