/* Counts its visitors. Whether it remembers them is its host's choice. */
#include "tenant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int visitors;

size_t on_get(const char *path, char *page, size_t room) {
    if (strcmp(path, "/crash") == 0)
        abort();
    if (strcmp(path, "/loop") == 0)
        for (;;)
            ;
    return (size_t)snprintf(page, room, "visitor %d of %s\n", ++visitors, path);
}

int main(void) { return (int)tinykvm_ready(); }
