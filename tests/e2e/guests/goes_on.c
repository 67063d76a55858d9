// goes_on PORT SECONDS: answers "said" to whoever sends something, and computes for so long before it waits again.
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 5)) return 1;
    for (;;) {
        char b[64];
        int s = accept(l, 0, 0);
        if (read(s, b, sizeof b) <= 0) {
            close(s);
            continue;
        }
        if (write(s, "said", 4) != 4) return 1;
        if (b[0] == 'c') close(s);
        for (double end = now() + atof(argv[2]); now() < end;) {
        }
        if (b[0] != 'c') close(s);
    }
}
