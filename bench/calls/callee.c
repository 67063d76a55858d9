#include "bench/calls/callee.h"

#include "include/tinykvm/guest.h"

int count(void) { return bench_count(); }
size_t page(const char *name, char *out, size_t room) { return bench_page(name, out, room); }

int main(void) { return (int)tinykvm_ready(); }
