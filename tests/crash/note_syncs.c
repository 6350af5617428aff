/* Preloaded into the server: notes how many bytes of each file are synced, for what a loss of power leaves of it. A note is
   a line with size and path, in the file that CRASH_SYNC_NOTES names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(int synced, off_t size) {
    char link[64], path[3072], line[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", synced);
    ssize_t length = readlink(link, path, sizeof path - 1);
    const char *notes = getenv("CRASH_SYNC_NOTES");
    if (length < 0 || notes == NULL) return;
    path[length] = 0;
    int file = open(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    int written = snprintf(line, sizeof line, "%lld %s\n", (long long)size, path);
    if (write(file, line, written) != written) abort();
    close(file);
}

static int sync_and_note(const char *name, int file) {
    struct stat before;
    /* What is written while the sync runs may be left out of it. */
    int is_regular = fstat(file, &before) == 0 && S_ISREG(before.st_mode);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(file);
    if (result == 0 && is_regular) note(file, before.st_size);
    return result;
}

int fsync(int file) { return sync_and_note("fsync", file); }
int fdatasync(int file) { return sync_and_note("fdatasync", file); }
