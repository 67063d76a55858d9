/* What a tenant gives us. Its functions are called by name; it need not be trusted. */
#include <stdio.h>
#include <tinykvm/guest.h>

enum { WEATHER = 1 }; /* of the host's functions */

static int visitors;

/* Writes a greeting, and returns its length. */
size_t greet(const char *name, char *out, size_t room) {
    char weather[32] = "";
    tinykvm_call_host(WEATHER, (long)weather, sizeof weather, 0, 0, 0);
    return (size_t)snprintf(out, room, "Hello %s, visitor number %d. It is %s.", name, ++visitors, weather);
}

int divide(int a, int b) { return a / b; }

void think(void) {
    for (;;)
        ;
}

int main(void) {
    visitors = 41;          /* a slow start, which is paid for once */
    tinykvm_ready();        /* in a machine this does not return */
    puts("This program is run by embed.");
    return 1;
}
