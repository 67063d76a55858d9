// For programs that run in a folder of the machine's own, /tmp or /dev/shm in memory: natively one of the host's.
#pragma once
#include "transcript.h"

#include <ftw.h>
#include <sys/stat.h>

static char own_folder[64];

static int own_remove(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void own_leave(void) {
    if (chdir("/") == 0) nftw(own_folder, own_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void own_enter(const char *parent) {
    snprintf(own_folder, sizeof own_folder, "%s/own-XXXXXX", parent);
    if (!mkdtemp(own_folder) || chdir(own_folder)) exit(99);
    atexit(own_leave);
}
