/* What the tests of the client in C share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../clients/c/dunlin_room.h"

#define CHECK(condition, what) do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, (what), #condition); \
      exit(1); \
    } \
  } while (0)

/* An allocator that counts what is in use, and returns NULL at one call. */
typedef struct test_memory {
  size_t bytes;
  size_t blocks;
  size_t calls;
  size_t fails_at; /* 0: never */
} test_memory;

dunlin_allocator test_allocator(test_memory *memory);

/* Numbers from a seed. */
typedef struct test_random {
  uint64_t state;
} test_random;

uint32_t test_next(test_random *random, uint32_t below);

/* A file as a whole, with a 0 after it. */
char *test_read_file(const char *path, size_t *byte_count);
/* Bytes from hexadecimal digits, which end with a space, a line feed or 0; `-` is none. The result is a block of exactly this size, so
 * that the sanitizer finds reads behind it. */
uint8_t *test_unhex(const char *digits, size_t *byte_count);
/* Takes changes of bytes at random: bits, cuts, copies and large numbers. Returns another block. */
uint8_t *test_mutate(test_random *random, uint8_t *bytes, size_t *byte_count);

/* The modes of the program. */
void vectors(const char *lines);
void recording(const char *path);
void fuzz(const char *lines, double seconds);
void memory(const char *lines);
void scripted(void);
void scripted_memory(void);
void scripted_fuzz(double seconds);

#endif
