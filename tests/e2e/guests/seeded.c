// Answers an id from a generator of its own (xorshift64*), seeded at the start. With "marked" its state is an entropy region.
#include "server.h"

#include <sys/random.h>

#include "include/kvmserver/entropy.h"

static struct {
    struct kvmserver_entropy head;
    uint64_t state;
} region;

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    region.state ^= region.state >> 12;
    region.state ^= region.state << 25;
    region.state ^= region.state >> 27;
    snprintf(out, size, "session=%016lx\n", (unsigned long)(region.state * 0x2545f4914f6cdd1d));
}

int main(int argc, char **argv) {
    if (getrandom(&region.state, sizeof region.state, 0) < 0) return 1;
    if (argc > 2 && strcmp(argv[2], "marked") == 0) kvmserver_entropy_place(&region.head, sizeof region.state);
    serve(listen_on(argc > 1 ? atoi(argv[1]) : 8080), reply);
}
