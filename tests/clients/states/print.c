/* Prints what is read from each line of the standard input, as write_sources.rs does. */

#include <stdio.h>
#include <stdlib.h>

#include "states.h"

static unsigned char *bytes_of(const char *word, size_t *count) {
    unsigned char *bytes;
    size_t at;
    *count = strcmp(word, "empty") == 0 ? 0 : strlen(word) / 2;
    /* Exactly as long as the state, so that the sanitizer sees each byte that is read behind it. */
    bytes = (unsigned char *)malloc(*count + (*count == 0));
    if (bytes == NULL) exit(1);
    for (at = 0; at < *count; at += 1) {
        unsigned int byte;
        if (sscanf(word + 2 * at, "%2x", &byte) != 1) exit(1);
        bytes[at] = (unsigned char)byte;
    }
    return bytes;
}

static void print_text(const char *name, const char *text, size_t count) {
    size_t at;
    printf("%s=", name);
    for (at = 0; at < count; at += 1) printf("%02x", (unsigned int)(unsigned char)text[at]);
}

#define PRINT_LIST(name, numbers, count) \
    do { \
        size_t at; \
        printf(name "="); \
        for (at = 0; at < (count); at += 1) printf(at == 0 ? "%d" : ",%d", (int)(numbers)[at]); \
    } while (0)

static const char *const LIGHTS[] = {"Red", "Amber", "DarkGreen"};

static void print_walker(const state_test_walker *one) {
    printf("heading=%.1f score=%.1f is_on=%d light=%s ", one->heading, one->score, one->is_on, LIGHTS[one->light]);
    printf("target=%lu wide=%lu deep=%ld ", (unsigned long)one->target, (unsigned long)one->wide, (long)one->deep);
    print_text("name", one->name, one->name_bytes);
}

static void print_bag(const state_test_bag *one) {
    print_text("label", one->label, one->label_bytes);
    PRINT_LIST(" pair", one->pair, one->pair_count);
    printf(" amount=%d", one->amount);
    PRINT_LIST(" items", one->items, one->items_count);
}

static void print_log(const state_test_log *one) {
    PRINT_LIST("numbers", one->numbers, one->numbers_count);
    PRINT_LIST(" long", one->long_, one->long__count);
    printf(" class=%d", one->class_);
}

static void print_between(const char *first, const char *second, double share) {
    size_t count;
    state_test_walker from, to, one;
    unsigned char *bytes = bytes_of(first, &count);
    int is_right = state_test_walker_read(bytes, count, &from);
    free(bytes);
    bytes = bytes_of(second, &count);
    is_right &= state_test_walker_read(bytes, count, &to);
    free(bytes);
    if (!is_right) exit(1);
    one = state_test_walker_between(&from, &to, share);
    printf("heading=%.2f score=%.2f light=%s", one.heading, one.score, LIGHTS[one.light]);
}

static void print_state(int kind, const char *word) {
    size_t count;
    unsigned char *bytes = bytes_of(word, &count);
    state_test_walker walker;
    state_test_bag bag;
    state_test_log log;
    if (kind == STATE_TEST_WALKER_KIND && state_test_walker_read(bytes, count, &walker)) print_walker(&walker);
    else if (kind == STATE_TEST_BAG_KIND && state_test_bag_read(bytes, count, &bag)) print_bag(&bag);
    else if (kind == STATE_TEST_LOG_KIND && state_test_log_read(bytes, count, &log)) print_log(&log);
    else printf("-");
    free(bytes);
}

int main(void) {
    static char line[16384];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[4] = {NULL, NULL, NULL, NULL};
        size_t count = 0;
        char *word;
        line[strcspn(line, "\n")] = 0;
        printf("%s ", line);
        for (word = strtok(line, " "); word != NULL && count < 4; word = strtok(NULL, " ")) words[count++] = word;
        if (count == 4) print_between(words[1], words[2], atof(words[3]));
        else if (count == 2) print_state(atoi(words[0]), words[1]);
        else return 1;
        printf("\n");
    }
    return 0;
}
