// datagrams PORT: answers over UDP and TCP at one port of the loopback with how many it has answered, and what was said.
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int u = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_STREAM, 0), one = 1, count = 0;
    setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(u, (void *)&a, sizeof a) || bind(t, (void *)&a, sizeof a) || listen(t, 9)) {
        perror("bind");
        return 1;
    }
    for (;;) {
        struct pollfd p[2] = {{u, POLLIN, 0}, {t, POLLIN, 0}};
        struct sockaddr_in from;
        socklen_t n = sizeof from;
        char in[3000], out[3100];
        poll(p, 2, -1);
        if (p[0].revents & POLLIN) {
            ssize_t got = recvfrom(u, in, sizeof in, MSG_DONTWAIT, (void *)&from, &n);
            if (got < 0) continue;
            int bytes = snprintf(out, sizeof out, "%d %.*s", ++count, (int)got, in);
            sendto(u, out, (size_t)bytes, 0, (void *)&from, n);
        }
        if (p[1].revents & POLLIN) {
            int s = accept(t, 0, 0);
            if (s < 0) continue;
            int bytes = snprintf(out, sizeof out, "%d", ++count);
            if (read(s, in, sizeof in) > 0 && write(s, out, (size_t)bytes) < 0) return 1;
            close(s);
        }
    }
}
