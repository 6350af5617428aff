/* Tests of clients/c without a server.
 *
 *   check recording FILE             snapshots that record_snapshots wrote
 *   check vectors SECONDS LINES      what lines.py has written; then with allocations that fail, and with mutations for these seconds
 *   check scripted SECONDS           a scripted server; then the same */
#define DUNLIN_ROOM_IMPLEMENTATION
#include "check.h"

static void *resize(void *context, void *block, size_t before, size_t after) {
  test_memory *memory = (test_memory *)context;
  void *resized = NULL;
  if (after > 0) {
    memory->calls += 1;
    if (memory->calls == memory->fails_at) return NULL;
    /* Another block each time, so that the sanitizer finds pointers into the old one. */
    resized = malloc(after);
    CHECK(resized != NULL, "memory of the test");
    if (block != NULL) memcpy(resized, block, before < after ? before : after);
  }
  free(block);
  memory->bytes = memory->bytes - before + after;
  if (block == NULL) memory->blocks += 1;
  if (after == 0) memory->blocks -= 1;
  return resized;
}

dunlin_allocator test_allocator(test_memory *memory) {
  dunlin_allocator allocator;
  memset(memory, 0, sizeof *memory);
  allocator.resize = resize;
  allocator.context = memory;
  return allocator;
}

uint32_t test_next(test_random *random, uint32_t below) {
  uint64_t mixed;
  random->state += 0x9e3779b97f4a7c15u;
  mixed = random->state;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)((mixed ^ mixed >> 31) % below);
}

char *test_read_file(const char *path, size_t *byte_count) {
  FILE *file = fopen(path, "rb");
  char *bytes;
  long size;
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0, path);
  size = ftell(file);
  rewind(file);
  bytes = (char *)malloc((size_t)size + 1);
  CHECK(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size, path);
  bytes[size] = 0;
  fclose(file);
  *byte_count = (size_t)size;
  return bytes;
}

static uint8_t *block(size_t byte_count) {
  uint8_t *bytes = (uint8_t *)malloc(byte_count == 0 ? 1 : byte_count);
  CHECK(bytes != NULL, "memory of the test");
  return bytes;
}

static uint32_t digit(char of) {
  return (uint32_t)(of <= '9' ? of - '0' : of - 'a' + 10);
}

uint8_t *test_unhex(const char *digits, size_t *byte_count) {
  size_t count = digits[0] == '-' ? 0 : strcspn(digits, " \n") / 2, at;
  uint8_t *bytes = block(count);
  for (at = 0; at < count; at += 1) bytes[at] = (uint8_t)(digit(digits[2 * at]) << 4 | digit(digits[2 * at + 1]));
  *byte_count = count;
  return bytes;
}

uint8_t *test_mutate(test_random *random, uint8_t *bytes, size_t *byte_count) {
  static const uint8_t numbers[] = {0, 1, 0x7f, 0x80, 0xff};
  size_t count = *byte_count, place = count == 0 ? 0 : test_next(random, (uint32_t)count), length, to;
  uint8_t *other = block(count + 16);
  memcpy(other, bytes, count);
  switch (count == 0 ? 4 : test_next(random, 6)) {
    case 0: other[place] ^= (uint8_t)(1u << test_next(random, 8)); break;
    case 1: other[place] = numbers[test_next(random, 5)]; break;
    case 2: count = place; break;
    case 3:
      length = test_next(random, (uint32_t)(count - place)) + 1;
      memmove(other + place, other + place + length, count - place - length);
      count -= length;
      break;
    case 4:
      memmove(other + place + 10, other + place, count - place);
      for (to = 0; to < 10; to += 1) other[place + to] = (uint8_t)test_next(random, 256);
      count += 10;
      break;
    default:
      length = test_next(random, (uint32_t)(count - place)) + 1;
      to = test_next(random, (uint32_t)(count - length + 1));
      memmove(other + to, bytes + place, length);
      break;
  }
  free(bytes);
  bytes = block(count);
  memcpy(bytes, other, count);
  free(other);
  *byte_count = count;
  return bytes;
}

int main(int count, char **arguments) {
  size_t byte_count;
  char *lines;
  if (count == 4 && strcmp(arguments[1], "vectors") == 0) {
    lines = test_read_file(arguments[3], &byte_count);
    vectors(lines);
    memory(lines);
    fuzz(lines, strtod(arguments[2], NULL));
    free(lines);
  } else if (count == 3 && strcmp(arguments[1], "recording") == 0) {
    recording(arguments[2]);
  } else if (count == 3 && strcmp(arguments[1], "scripted") == 0) {
    scripted();
    scripted_memory();
    scripted_fuzz(strtod(arguments[2], NULL));
  } else {
    fprintf(stderr, "check recording FILE | vectors SECONDS LINES | scripted SECONDS\n");
    return 2;
  }
  return 0;
}
