// families PORT: listens at [::]:PORT, tries 0.0.0.0:PORT before and after it closes that, with and without IPV6_V6ONLY, and
// answers with the errors.
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int listening(int family, int port, int only, int *error) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int s = socket(family, SOCK_STREAM, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    int failed = family == AF_INET ? bind(s, (void *)&a, sizeof a) : bind(s, (void *)&b, sizeof b);
    *error = failed || listen(s, 9) ? errno : 0;
    return s;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int port = atoi(argv[1]), e[4];
    int both = listening(AF_INET6, port, 0, &e[0]);
    close(listening(AF_INET, port, 0, &e[1]));
    close(both);
    int six = listening(AF_INET6, port, 1, &e[2]), four = listening(AF_INET, port, 0, &e[3]);
    (void)six;
    for (;;) {
        int s = accept(four, 0, 0);
        if (s < 0) continue;
        char in[3000], out[100];
        int bytes = snprintf(out, sizeof out, "%d %d %d %d", e[0], e[1], e[2], e[3]);
        if (read(s, in, sizeof in) > 0 && write(s, out, (size_t)bytes) < 0) return 1;
        close(s);
    }
}
