/* The vectors of schema/vectors/room in the form of lines.py, and recorded snapshots. */
#include "check.h"

#include <time.h>

enum { TEXT_BYTES = 1 << 16 };

/* What a vector is played with. */
typedef struct stage {
  dunlin_replica *replica;
  dunlin_interpolation *interpolation;
  dunlin_clock clock;
  char *shown; /* a replica as lines */
  size_t shown_bytes;
  test_memory *used; /* if allocations fail */
  char name[128];
} stage;

static void append(stage *on, const char *text) {
  size_t count = strlen(text);
  on->shown = (char *)realloc(on->shown, on->shown_bytes + count + 1);
  CHECK(on->shown != NULL, "memory of the test");
  memcpy(on->shown + on->shown_bytes, text, count + 1);
  on->shown_bytes += count;
}

static void append_hex(stage *on, const uint8_t *bytes, size_t count) {
  char digits[3];
  size_t at;
  for (at = 0; at < count; at += 1) {
    sprintf(digits, "%02x", bytes[at]);
    append(on, digits);
  }
}

static bool is_near(double one, double other) {
  return one - other < 1e-6 && other - one < 1e-6;
}

static void append_value(stage *on, const dunlin_world *world, const dunlin_object *object, int index) {
  const dunlin_field *field = &dunlin_kind_of(world, object->kind)->fields[index];
  char text[64];
  size_t at, count;
  append(on, " ");
  append(on, field->name);
  append(on, "=");
  if (field->type == DUNLIN_CHOICE) {
    append(on, dunlin_field_choice(world, object, index));
  } else if (field->type == DUNLIN_TEXT) {
    const char *value = dunlin_field_text(world, object, index, &count);
    char *ended = (char *)calloc(count + 1, 1);
    CHECK(ended != NULL, "memory of the test");
    memcpy(ended, value, count);
    append(on, ended);
    free(ended);
  } else if (field->type == DUNLIN_LIST) {
    for (at = 0; at < dunlin_field_count(world, object, index); at += 1) {
      sprintf(text, "%s%ld", at == 0 ? "" : ",", (long)dunlin_field_element(world, object, index, at));
      append(on, text);
    }
  } else {
    sprintf(text, "%ld", (long)dunlin_field_integer_of(world, object, field->name));
    append(on, text);
    CHECK(is_near(dunlin_field_number(world, object, index) * field->per_unit, (double)dunlin_field_integer(world, object, index)), on->name);
  }
}

/* Fields in the order of their names. */
static void append_fields(stage *on, const dunlin_world *world, const dunlin_object *object) {
  const dunlin_kind *kind = dunlin_kind_of(world, object->kind);
  const char *last = "";
  uint32_t at, left;
  if (!object->has_fields) append(on, " none");
  for (left = object->has_fields ? kind->field_count : 0; left > 0; left -= 1) {
    const char *next = NULL;
    for (at = 0; at < kind->field_count; at += 1) {
      const char *name = kind->fields[at].name;
      if (strcmp(name, last) > 0 && (next == NULL || strcmp(name, next) < 0)) next = name;
    }
    append_value(on, world, object, dunlin_field_index(kind, next));
    last = next;
  }
}

/* The replica in the form of the lines, or in that of recordings. */
static void show(stage *on, const char *prefix, const char *nothing, bool has_grid) {
  const dunlin_world *world = dunlin_replica_world(on->replica);
  const dunlin_grid *grid = &world->grid;
  char text[256];
  size_t at;
  on->shown_bytes = 0;
  sprintf(text, "%s%u %llu %u %u %u", prefix, world->tick, (unsigned long long)world->time_us, world->ack, world->avatar, world->view);
  append(on, text);
  sprintf(text, " %u %u,%u,%u,%u", world->rate_permille, world->waited & 15, world->waited >> 4 & 15, world->waited >> 8 & 15, world->waited >> 12 & 15);
  if (has_grid) append(on, text);
  append(on, "\n");
  sprintf(text, "%s%u %u %u %u %u %u %u\n", prefix, grid->columns, grid->rows, grid->cell_units, grid->near_cells, grid->far_cells, grid->far_interval_ticks, grid->ticks_per_second);
  if (has_grid) append(on, text);
  for (at = 0; at < world->object_count; at += 1) {
    const dunlin_object *one = &world->objects[at];
    sprintf(text, "%s%u %u %u %u ", prefix, one->id, one->kind, one->x, one->y);
    append(on, text);
    if (!has_grid) {
      if (one->cell == DUNLIN_NO_CELL) append(on, "- ");
      else sprintf(text, "%u ", one->cell), append(on, text);
    }
    append_hex(on, one->state, one->state_bytes);
    if (one->state_bytes == 0) append(on, nothing);
    if (has_grid) {
      if (one->cell == DUNLIN_NO_CELL) append(on, " -");
      else sprintf(text, " %u", one->cell), append(on, text);
      if (world->schema != NULL) append_fields(on, world, one);
    }
    append(on, "\n");
  }
}

static const char *const STATUSES[] = {"ok", "Malformed", "WrongBase", "WrongCell", "TooLarge", "NoMemory"};

/* Objects in ascending order; the changes lead from those before to those now. */
static void check_changes(const stage *on, uint32_t count_before) {
  const dunlin_world *world = dunlin_replica_world(on->replica);
  size_t at, added = 0, removed = 0;
  for (at = 1; at < world->object_count; at += 1) CHECK(world->objects[at - 1].id < world->objects[at].id, on->name);
  for (at = 0; at < world->change_count; at += 1) {
    const dunlin_change *change = &world->changes[at];
    CHECK(change->before != NULL || change->after != NULL, on->name);
    added += change->before == NULL;
    removed += change->after == NULL;
    if (change->after != NULL) CHECK(dunlin_find(world, change->after->id) == change->after, on->name);
    else CHECK(dunlin_find(world, change->before->id) == NULL, on->name);
  }
  CHECK(world->object_count == count_before + added - removed, on->name);
}

static void begin(stage *on, const char *line, dunlin_allocator allocator) {
  size_t count = strcspn(line, "\n");
  dunlin_replica_free(on->replica);
  dunlin_interpolation_free(on->interpolation);
  memset(&on->clock, 0, sizeof on->clock);
  do on->replica = dunlin_replica_new(allocator, 0, 0); while (on->replica == NULL && on->used != NULL);
  on->interpolation = dunlin_interpolation_new(allocator);
  free(on->shown);
  on->shown = NULL;
  count = count < sizeof on->name ? count : sizeof on->name - 1;
  memcpy(on->name, line, count);
  on->name[count] = 0;
}

static void apply(stage *on, const char *line) {
  size_t byte_count;
  uint8_t *bytes = test_unhex(line, &byte_count);
  uint32_t before = (uint32_t)dunlin_replica_world(on->replica)->object_count;
  dunlin_status status = dunlin_replica_apply(on->replica, bytes, byte_count);
  const char *wanted = strchr(line, ' ') + 1;
  if (on->used != NULL && status == DUNLIN_NO_MEMORY) {
    char *shown = on->shown;
    on->shown = NULL;
    show(on, "is ", "-", true);
    CHECK(shown == NULL || strcmp(shown, on->shown) == 0, on->name);
    free(shown);
    status = dunlin_replica_apply(on->replica, bytes, byte_count);
  }
  free(bytes);
  if (strncmp(wanted, STATUSES[status], strlen(STATUSES[status])) != 0) fprintf(stderr, "%s: %s\n", on->name, STATUSES[status]);
  CHECK(strncmp(wanted, STATUSES[status], strlen(STATUSES[status])) == 0, on->name);
  if (status == DUNLIN_OK) check_changes(on, before);
  show(on, "is ", "-", true);
}

static void input(const stage *on, const char *line) {
  unsigned long number = strtoul(line, NULL, 10);
  const char *data = strchr(line, ' ') + 1, *room = strchr(data, ' ') + 1, *wanted = strchr(room, ' ') + 1;
  size_t data_bytes, room_bytes, wanted_bytes, count;
  uint8_t *data_block = test_unhex(data, &data_bytes), *room_block = test_unhex(room, &room_bytes), *wanted_block = test_unhex(wanted, &wanted_bytes);
  char *room_text = (char *)calloc(room_bytes + 1, 1);
  uint8_t *out = (uint8_t *)malloc(wanted_bytes + 1);
  dunlin_pending_input given;
  CHECK(out != NULL && room_text != NULL, "memory of the test");
  memcpy(room_text, room_block, room_bytes);
  memset(&given, 0, sizeof given);
  given.number = (uint32_t)number;
  given.data = data_block;
  given.byte_count = data_bytes;
  count = dunlin_write_input(&given, room_text, out, 0);
  CHECK(count == wanted_bytes, on->name);
  count = dunlin_write_input(&given, room_text, out, wanted_bytes);
  CHECK(count == wanted_bytes && memcmp(out, wanted_block, count) == 0, on->name);
  free(data_block);
  free(room_block);
  free(wanted_block);
  free(room_text);
  free(out);
}

/* A step of movement.json. `dunlin_tick_at` needs a room: scripted.c. */
static void move(stage *on, const char *word, const char *line) {
  double given[4] = {0, 0, 0, 0}, x, y;
  char *end = (char *)line;
  size_t count = 0, byte_count;
  uint8_t *bytes = NULL;
  if (strncmp(word, "arrive", 6) == 0) {
    bytes = test_unhex(line, &byte_count);
    CHECK(dunlin_replica_apply(on->replica, bytes, byte_count) == DUNLIN_OK, on->name);
    free(bytes);
    end = strchr(end, ' ');
  }
  if (strncmp(word, "tick_at", 7) == 0) return;
  while (*end != '\n' && count < 4) given[count++] = strtod(end, &end);
  if (strncmp(word, "observe", 7) == 0) {
    CHECK(is_near(dunlin_clock_observe(&on->clock, (uint64_t)given[0], given[1]), given[2]), on->name);
    CHECK(is_near(dunlin_clock_offset_ms(&on->clock), given[3]), on->name);
  } else if (bytes != NULL) {
    dunlin_interpolation_observe(on->interpolation, on->replica, given[0]);
    CHECK(is_near(dunlin_interpolation_delay_ms(on->interpolation), given[1]), on->name);
    CHECK((double)dunlin_interpolation_count(on->interpolation) == given[2], on->name);
  } else if (strncmp(word, "advance", 7) == 0) {
    CHECK(is_near(dunlin_interpolation_advance(on->interpolation, given[0]), given[1]), on->name);
  } else {
    bool is_placed = dunlin_interpolation_place(on->interpolation, (uint32_t)given[0], given[1], &x, &y);
    CHECK(is_placed == (count == 4), on->name);
    CHECK(!is_placed || (is_near(x, given[2]) && is_near(y, given[3])), on->name);
  }
}

/* Returns how many snapshots, inputs and steps there are. */
static size_t play(stage *on, const char *lines, dunlin_allocator allocator) {
  size_t count = 0, at = 0;
  const char *line;
  for (line = lines; *line != 0; line = strchr(line, '\n') + 1) {
    size_t length = strcspn(line, "\n") + 1;
    if (strncmp(line, "new ", 4) == 0) {
      begin(on, line + 4, allocator);
    } else if (strncmp(line, "is ", 3) == 0) {
      CHECK(at + length <= on->shown_bytes && memcmp(on->shown + at, line, length) == 0, on->name);
      at += length;
    } else if (strncmp(line, "end", 3) == 0) {
      CHECK(at == on->shown_bytes, on->name);
    } else {
      const char *rest = strchr(line, ' ') + 1;
      count += 1;
      at = 0;
      if (strncmp(line, "apply ", 6) == 0) apply(on, rest);
      else if (strncmp(line, "input ", 6) == 0) input(on, rest);
      else move(on, line, rest);
    }
  }
  return count;
}

static void end(stage *on) {
  dunlin_replica_free(on->replica);
  dunlin_interpolation_free(on->interpolation);
  free(on->shown);
}

void vectors(const char *lines) {
  stage on;
  test_memory used;
  size_t count;
  memset(&on, 0, sizeof on);
  count = play(&on, lines, test_allocator(&used));
  end(&on);
  CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
  CHECK(count > 1000, "vectors");
  printf("vectors: %lu passed, 0 failed\n", (unsigned long)count);
}

static uint32_t crc32_of(const char *text, size_t count) {
  uint32_t crc = 0xffffffff, bit;
  size_t at;
  for (at = 0; at < count; at += 1) {
    crc ^= (uint8_t)text[at];
    for (bit = 0; bit < 8; bit += 1) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

static uint32_t number_at(const char *bytes) {
  const uint8_t *at = (const uint8_t *)bytes;
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

enum { CLIENTS_MAX = 256, HEAD_BYTES = 10 };

void recording(const char *path) {
  static const char magic[] = "dunlin-snapshots-1\n";
  static dunlin_replica *replicas[CLIENTS_MAX];
  size_t byte_count, at = sizeof magic - 1, snapshots = 0, refused = 0;
  char *bytes = test_read_file(path, &byte_count);
  stage on;
  test_memory used;
  dunlin_allocator allocator = test_allocator(&used);
  memset(&on, 0, sizeof on);
  CHECK(byte_count > at && memcmp(bytes, magic, at) == 0, path);
  while (at < byte_count) {
    uint32_t client = number_at(bytes + at), kind = (uint8_t)bytes[at + 4], is_applied = (uint8_t)bytes[at + 5], length = number_at(bytes + at + 6);
    const char *snapshot = bytes + at + HEAD_BYTES;
    CHECK(client < CLIENTS_MAX, "a client");
    at += HEAD_BYTES + length + 4;
    if (kind == 0) {
      dunlin_replica_free(replicas[client]);
      replicas[client] = dunlin_replica_new(allocator, 0, 0);
    } else if (kind == 2) {
      dunlin_status status = dunlin_replica_apply(replicas[client], snapshot, length);
      CHECK(status == (is_applied ? DUNLIN_OK : DUNLIN_WRONG_BASE), "a snapshot is applied as in Rust");
      on.replica = replicas[client];
      show(&on, "", "", false);
      if (crc32_of(on.shown, on.shown_bytes) != number_at(snapshot + length)) fprintf(stderr, "%s", on.shown);
      CHECK(crc32_of(on.shown, on.shown_bytes) == number_at(snapshot + length), "a snapshot is shown as in Rust");
      snapshots += 1;
      refused += !is_applied;
    }
  }
  for (at = 0; at < CLIENTS_MAX; at += 1) dunlin_replica_free(replicas[at]);
  free(on.shown);
  free(bytes);
  CHECK(snapshots > 0 && refused > 0, "snapshots that are applied, and others");
  CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
  printf("recording: %lu snapshots in Protobuf are shown as in Rust, of which %lu were refused\n", (unsigned long)snapshots, (unsigned long)refused);
}

/* Plays a vector again and again: allocation 1 fails, then 2, until none fails. The replica must be unchanged after each failure. */
static size_t fail_vector(const char *line) {
  size_t failures = 0, at;
  const char *next = strstr(line, "\nnew ");
  size_t length = next == NULL ? strlen(line) : (size_t)(next + 1 - line);
  char *vector = (char *)calloc(length + 1, 1);
  CHECK(vector != NULL, "memory of the test");
  memcpy(vector, line, length);
  for (at = 1; at > 0; at += 1) {
    test_memory used;
    dunlin_allocator allocator = test_allocator(&used);
    stage on;
    memset(&on, 0, sizeof on);
    on.used = &used;
    used.fails_at = at;
    (void)play(&on, vector, allocator);
    end(&on);
    CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
    if (used.calls < at) break;
    failures += 1;
  }
  free(vector);
  return failures;
}

void memory(const char *lines) {
  size_t failures = 0;
  const char *line;
  for (line = lines; *line != 0; line = strchr(line, '\n') + 1) {
    const char *step = strchr(line, '\n') + 1;
    if (strncmp(line, "new ", 4) != 0 || strncmp(step, "apply ", 6) != 0) continue;
    failures += fail_vector(line);
  }
  CHECK(failures > 1000, "allocations");
  printf("vectors: %lu failing allocations changed nothing\n", (unsigned long)failures);
}

enum { SNAPSHOTS_MAX = 1024 };

typedef struct snapshot {
  size_t vector;
  uint8_t *bytes;
  size_t byte_count;
} snapshot;

static size_t snapshots_of(const char *lines, snapshot *snapshots) {
  const char *line;
  size_t vector = 0, count = 0;
  for (line = lines; *line != 0; line = strchr(line, '\n') + 1) {
    if (strncmp(line, "new ", 4) == 0) vector += 1;
    if (strncmp(line, "apply ", 6) != 0 && strncmp(line, "arrive ", 7) != 0) continue;
    CHECK(count < SNAPSHOTS_MAX, "snapshots");
    snapshots[count].vector = vector;
    snapshots[count].bytes = test_unhex(strchr(line, ' ') + 1, &snapshots[count].byte_count);
    count += 1;
  }
  return count;
}

/* Applies a snapshot, mostly a damaged one. */
static bool try_snapshot(stage *on, test_random *random, const snapshot *of) {
  uint32_t mutations = test_next(random, 4), before = (uint32_t)dunlin_replica_world(on->replica)->object_count;
  size_t byte_count = of->byte_count;
  uint8_t *bytes = (uint8_t *)malloc(byte_count == 0 ? 1 : byte_count);
  char *shown;
  double x, y;
  bool is_taken;
  CHECK(bytes != NULL, "memory of the test");
  memcpy(bytes, of->bytes, byte_count);
  for (; mutations > 0; mutations -= 1) bytes = test_mutate(random, bytes, &byte_count);
  show(on, "", "", true);
  shown = on->shown;
  on->shown = NULL;
  is_taken = dunlin_replica_apply(on->replica, bytes, byte_count) == DUNLIN_OK;
  free(bytes);
  show(on, "", "", true);
  if (is_taken) {
    check_changes(on, before);
    dunlin_interpolation_observe(on->interpolation, on->replica, (double)test_next(random, 1u << 30));
    (void)dunlin_interpolation_place(on->interpolation, 1 + test_next(random, 8), (double)test_next(random, 1u << 30), &x, &y);
  } else {
    CHECK(strcmp(shown, on->shown) == 0, "a snapshot that is refused changes nothing");
  }
  free(shown);
  return is_taken;
}

void fuzz(const char *lines, double seconds) {
  static snapshot snapshots[SNAPSHOTS_MAX];
  size_t count = snapshots_of(lines, snapshots), tried = 0, taken = 0, at;
  clock_t start = clock();
  test_memory used;
  dunlin_allocator allocator = test_allocator(&used);
  test_random random;
  stage on;
  memset(&on, 0, sizeof on);
  random.state = 1;
  while ((double)(clock() - start) < seconds * CLOCKS_PER_SEC) {
    size_t first = test_next(&random, (uint32_t)count);
    while (first > 0 && snapshots[first - 1].vector == snapshots[first].vector) first -= 1;
    begin(&on, "mutations\n", allocator);
    for (at = first; at < count && at < first + 8 && snapshots[at].vector == snapshots[first].vector; at += 1) {
      taken += try_snapshot(&on, &random, &snapshots[at]);
      tried += 1;
    }
  }
  end(&on);
  for (at = 0; at < count; at += 1) free(snapshots[at].bytes);
  CHECK(used.blocks == 0 && used.bytes == 0, "all memory is freed");
  CHECK(taken > 0 && taken < tried, "some are taken");
  printf("vectors: %lu mutated snapshots, of which %lu were taken\n", (unsigned long)tried, (unsigned long)taken);
}
