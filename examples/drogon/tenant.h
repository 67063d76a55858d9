/* What a tenant of this server has: one function. */
#include <stddef.h>
#include <tinykvm/guest.h>

/* Writes the page of this path to `page`, which has `room` bytes. Returns its length. */
size_t on_get(const char *path, char *page, size_t room);
