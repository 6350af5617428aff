/* Plays on the real server, over a WebSocket of its own.
 *
 *   play ADDRESS play plain|typed send|publish    a treasure hunt of two players, and a third that takes over a seat
 *   play ADDRESS tokens TOKEN TOKEN               of one user: the first ends within seconds, the second does not */
#define _POSIX_C_SOURCE 200809L
#define DUNLIN_ROOM_IMPLEMENTATION
#include "../../../clients/c/dunlin_room.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "websocket.h"

enum { PLAYERS_MAX = 4, NUMBERS_MAX = 16 };

static const double DEADLINE_MS = 120000;
/* By this tick of its room, the server has sent two pings and ended connections that did not answer the first (server.json). */
static const uint32_t ANSWERED_TICK = 1750;

typedef struct player {
  const char *name;
  dunlin_client *client;
  dunlin_room *room;
  websocket socket;
  const char *const *tokens; /* the next that is asked for; NULL is the last */
  uint32_t counts[DUNLIN_EVENT_FAILED + 1];
  dunlin_event last[DUNLIN_EVENT_FAILED + 1]; /* of each kind, without what it points to */
  char text[256]; /* of the last event that has one */
  uint32_t welcomed; /* the id in the event `welcome` */
} player;

/* All that happens in one part of the test. */
typedef struct stage {
  const char *address;
  const char *channel;
  player players[PLAYERS_MAX];
  size_t count;
} stage;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1000 + (double)now.tv_nsec / 1e6;
}

static void fail(const player *one, const char *what) {
  const dunlin_world *world = dunlin_room_world(one->room);
  fprintf(stderr, "%s, %s: %s; tick %u, ack %u, avatar %u, %zu objects; left %u (%u), disconnected %u (%u), failed %u (%u); \"%s\"\n",
    dunlin_room_channel(one->room), one->name, what, world->tick, world->ack, world->avatar, world->object_count, one->counts[DUNLIN_EVENT_LEFT],
    one->last[DUNLIN_EVENT_LEFT].code, one->counts[DUNLIN_EVENT_DISCONNECTED], one->last[DUNLIN_EVENT_DISCONNECTED].code,
    one->counts[DUNLIN_EVENT_FAILED], one->last[DUNLIN_EVENT_FAILED].code, one->text);
  exit(1);
}

static void take(stage *on, player *one, const dunlin_event *event) {
  one->counts[event->kind] += 1;
  one->last[event->kind] = *event;
  if (event->text[0] != 0) snprintf(one->text, sizeof one->text, "%s", event->text);
  switch (event->kind) {
    case DUNLIN_EVENT_OPEN:
      if (websocket_open(&one->socket, on->address, DUNLIN_SUBPROTOCOL)) dunlin_opened(one->client, now_ms());
      else dunlin_closed(one->client, 1006, "no connection", now_ms());
      break;
    case DUNLIN_EVENT_SEND:
      if (!websocket_send(&one->socket, event->bytes, event->byte_count)) dunlin_closed(one->client, 1006, "it cannot be sent", now_ms());
      break;
    case DUNLIN_EVENT_CLOSE: websocket_drop(&one->socket); break;
    case DUNLIN_EVENT_TOKEN:
      dunlin_set_token(one->client, *one->tokens);
      if (*one->tokens != NULL) one->tokens += 1;
      break;
    case DUNLIN_EVENT_EVENT: {
      dunlin_json welcome = dunlin_json_member(dunlin_json_parse(event->bytes, event->byte_count), "welcome");
      if (welcome.text != NULL) one->welcomed = (uint32_t)dunlin_json_number(dunlin_json_member(welcome, "player"), 0);
      break;
    }
    default: break;
  }
}

static void step(stage *on) {
  struct pollfd files[PLAYERS_MAX];
  size_t at;
  for (at = 0; at < on->count; at += 1) {
    files[at].fd = on->players[at].socket.file;
    files[at].events = POLLIN;
  }
  poll(files, on->count, 5);
  for (at = 0; at < on->count; at += 1) {
    player *one = &on->players[at];
    const uint8_t *message;
    size_t byte_count;
    uint32_t code;
    dunlin_event event;
    websocket_read(&one->socket);
    while (websocket_take(&one->socket, &message, &byte_count, &code)) dunlin_received(one->client, message, byte_count, now_ms());
    if (code != 0) dunlin_closed(one->client, code, NULL, now_ms());
    while (dunlin_next(one->client, now_ms(), &event)) take(on, one, &event);
  }
}

/* Plays on until a condition holds. */
#define UNTIL(on, one, condition) do { \
    double deadline_ms = now_ms() + DEADLINE_MS; \
    while (!(condition)) { \
      if (now_ms() > deadline_ms) fail((one), #condition); \
      step(on); \
    } \
  } while (0)

#define CHECK(one, condition) do { if (!(condition)) fail((one), #condition); } while (0)

static const dunlin_object *object(const player *one, uint32_t id) {
  return dunlin_find(dunlin_room_world(one->room), id);
}

static uint32_t avatar(const player *one) {
  return dunlin_room_world(one->room)->avatar;
}

static player *add(stage *on, const char *name, const dunlin_room_options *given, const char *const *tokens) {
  player *one = &on->players[on->count];
  dunlin_options options;
  dunlin_room_options room = *given;
  char data[64];
  memset(one, 0, sizeof *one);
  memset(&options, 0, sizeof options);
  options.reconnect_min_ms = 50;
  options.reconnect_max_ms = 500;
  options.asks_for_tokens = tokens != NULL;
  on->count += 1;
  one->name = name;
  one->tokens = tokens;
  one->socket.file = -1;
  one->client = dunlin_client_new(&options);
  snprintf(data, sizeof data, "{\"name\": \"%s\"}", name);
  room.channel = on->channel;
  room.data = data;
  one->room = dunlin_room_new(one->client, &room);
  if (one->room == NULL) exit(1);
  dunlin_join(one->room);
  dunlin_connect(one->client, now_ms());
  UNTIL(on, one, object(one, avatar(one)) != NULL);
  return one;
}

static void end(stage *on) {
  size_t at;
  for (at = 0; at < on->count; at += 1) {
    websocket_drop(&on->players[at].socket);
    dunlin_client_free(on->players[at].client);
  }
}

static void walk(stage *on, player *one, int dx, uint32_t *number) {
  uint8_t data[3];
  data[0] = 0;
  data[1] = (uint8_t)dx;
  data[2] = 0;
  CHECK(one, dunlin_input(one->room, data, 3, number) == DUNLIN_OK);
  CHECK(one, dunlin_pending_count(one->room) >= 1);
  UNTIL(on, one, dunlin_room_world(one->room)->ack == *number);
  CHECK(one, dunlin_pending_count(one->room) == 0 && dunlin_round_trip_ms(one->room) >= 0);
}

/* In a typed room the velocity is a field; in another there are no fields. */
static void check_fields(player *one, bool is_typed, int dx) {
  const dunlin_world *world = dunlin_room_world(one->room);
  const dunlin_object *own = object(one, world->avatar);
  CHECK(one, (world->schema != NULL) == is_typed && own->has_fields == is_typed);
  if (is_typed) CHECK(one, dunlin_field_integer_of(world, own, "vx") == dx && dunlin_field_index(dunlin_kind_of(world, own->kind), "no such") == -1);
}

static void walk_and_see(stage *on, bool is_typed) {
  player *ada = &on->players[0], *bob = &on->players[1];
  const dunlin_world *world = dunlin_room_world(ada->room);
  uint32_t start, number;
  int dx = object(ada, avatar(ada))->x < world->grid.columns * world->grid.cell_units / 2 ? 100 : -100;
  double shown_ms, x, y;
  walk(on, ada, dx, &number);
  check_fields(ada, is_typed, dx);
  start = object(ada, avatar(ada))->x;
  UNTIL(on, ada, dx > 0 ? object(ada, avatar(ada))->x > start + 200 : object(ada, avatar(ada))->x + 200 < start);
  walk(on, ada, 0, &number);
  UNTIL(on, bob, object(bob, avatar(ada)) != NULL && object(bob, avatar(ada))->x == object(ada, avatar(ada))->x);
  UNTIL(on, bob, (shown_ms = dunlin_shown_ms(bob->room, now_ms()), dunlin_place(bob->room, avatar(ada), shown_ms, &x, &y)) && x == object(bob, avatar(ada))->x);
  CHECK(bob, dunlin_tick_at(bob->room, shown_ms) <= dunlin_tick_now(bob->room, now_ms()) + 1);
}

static void lose_and_return(stage *on) {
  player *ada = &on->players[0];
  uint32_t before = avatar(ada), number;
  websocket_drop(&ada->socket);
  dunlin_closed(ada->client, 1006, NULL, now_ms());
  UNTIL(on, ada, ada->counts[DUNLIN_EVENT_DISCONNECTED] == 1 && ada->counts[DUNLIN_EVENT_LEFT] == 1);
  CHECK(ada, ada->last[DUNLIN_EVENT_LEFT].returns && ada->last[DUNLIN_EVENT_DISCONNECTED].returns && ada->last[DUNLIN_EVENT_DISCONNECTED].delay_ms >= 50);
  CHECK(ada, dunlin_room_world(ada->room)->object_count == 0 && !dunlin_is_joined(ada->room));
  UNTIL(on, ada, object(ada, avatar(ada)) != NULL);
  CHECK(ada, avatar(ada) == before && ada->counts[DUNLIN_EVENT_JOINED] == 2 && ada->last[DUNLIN_EVENT_JOINED].returns && !ada->last[DUNLIN_EVENT_JOINED].missed);
  walk(on, ada, 0, &number);
  CHECK(ada, number == 1);
}

static void ask(stage *on, bool publishes) {
  static const uint8_t long_input[2000] = {0};
  player *ada = &on->players[0];
  uint32_t call, number;
  CHECK(ada, dunlin_call(ada->client, "dunlin.other", "{}", &call) == DUNLIN_OK);
  UNTIL(on, ada, ada->counts[DUNLIN_EVENT_REPLY] == 1);
  CHECK(ada, ada->last[DUNLIN_EVENT_REPLY].number == call && ada->last[DUNLIN_EVENT_REPLY].code == 103); /* for users without an id */
  CHECK(ada, dunlin_input(ada->room, long_input, sizeof long_input, &number) == DUNLIN_OK);
  if (!publishes) return;
  UNTIL(on, ada, ada->counts[DUNLIN_EVENT_INPUT_REFUSED] == 1);
  CHECK(ada, ada->last[DUNLIN_EVENT_INPUT_REFUSED].number == number && ada->last[DUNLIN_EVENT_INPUT_REFUSED].code == 107);
}

/* Another client takes over Ada's seat, and leaves it. */
static void take_over(stage *on, bool is_typed) {
  player *ada = &on->players[0], *bob = &on->players[1], *eve;
  dunlin_room_options options;
  uint32_t before = avatar(ada);
  memset(&options, 0, sizeof options);
  options.is_typed = is_typed;
  options.seat_token = dunlin_room_seat_token(ada->room);
  eve = add(on, "Eve", &options, NULL);
  CHECK(eve, avatar(eve) == before && eve->last[DUNLIN_EVENT_JOINED].returns);
  UNTIL(on, ada, ada->counts[DUNLIN_EVENT_LEFT] == 2);
  CHECK(ada, ada->last[DUNLIN_EVENT_LEFT].code == 2011 && !ada->last[DUNLIN_EVENT_LEFT].returns && dunlin_is_connected(ada->client));
  dunlin_leave(eve->room);
  UNTIL(on, bob, object(bob, before) == NULL);
}

static void play(const char *address, bool is_typed, bool publishes) {
  stage on;
  dunlin_room_options options;
  char channel[64];
  player *ada, *bob;
  memset(&on, 0, sizeof on);
  memset(&options, 0, sizeof options);
  snprintf(channel, sizeof channel, "arena:c-%ld-%d-%d", (long)getpid(), is_typed, publishes);
  on.address = address;
  on.channel = channel;
  options.is_typed = is_typed;
  options.publishes = publishes;
  ada = add(&on, "Ada", &options, NULL);
  bob = add(&on, "Bob", &options, NULL);
  UNTIL(&on, ada, ada->welcomed == avatar(ada));
  UNTIL(&on, bob, object(bob, avatar(ada)) != NULL);
  walk_and_see(&on, is_typed);
  UNTIL(&on, ada, dunlin_room_world(ada->room)->tick > ANSWERED_TICK);
  CHECK(ada, ada->counts[DUNLIN_EVENT_DISCONNECTED] == 0 && bob->counts[DUNLIN_EVENT_DISCONNECTED] == 0);
  lose_and_return(&on);
  walk_and_see(&on, is_typed);
  ask(&on, publishes);
  take_over(&on, is_typed);
  CHECK(bob, bob->counts[DUNLIN_EVENT_FAILED] == 0 && ada->counts[DUNLIN_EVENT_FAILED] == 0);
  end(&on);
  printf("play in C, %s, %s: passed\n", is_typed ? "typed" : "plain", publishes ? "publish" : "send");
}

/* A connection whose token ends within seconds lives on with another one. */
static void refresh(const char *address, const char *const *tokens) {
  stage on;
  dunlin_room_options options;
  player *ada;
  uint32_t tick;
  memset(&on, 0, sizeof on);
  memset(&options, 0, sizeof options);
  on.address = address;
  on.channel = "arena:c-tokens";
  ada = add(&on, "Ada", &options, tokens);
  UNTIL(&on, ada, ada->counts[DUNLIN_EVENT_TOKEN] == 2);
  /* The server ends a connection without a new token eight seconds after its end (server.json). */
  tick = dunlin_room_world(ada->room)->tick;
  UNTIL(&on, ada, dunlin_room_world(ada->room)->tick > tick + 12 * 60);
  CHECK(ada, ada->counts[DUNLIN_EVENT_DISCONNECTED] == 0 && ada->counts[DUNLIN_EVENT_FAILED] == 0);
  end(&on);
  printf("tokens in C: passed\n");
}

int main(int count, char **arguments) {
  if (count == 5 && strcmp(arguments[2], "play") == 0) {
    play(arguments[1], strcmp(arguments[3], "typed") == 0, strcmp(arguments[4], "publish") == 0);
  } else if (count == 5 && strcmp(arguments[2], "tokens") == 0) {
    refresh(arguments[1], (const char *const *)arguments + 3);
  } else {
    fprintf(stderr, "play ADDRESS play plain|typed send|publish\nplay ADDRESS tokens TOKEN TOKEN\n");
    return 2;
  }
  return 0;
}
