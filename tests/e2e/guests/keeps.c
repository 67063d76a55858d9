// A server that remembers: GET /count, /hold (never answered), /spin, /nap (before it spins), /exit. It serves all clients
// at once, and waits for nothing else.
#include "server.h"

#include <poll.h>

enum { kMax = 64 };

int main(int argc, char **argv) {
    (void)argc;
    signal(SIGPIPE, SIG_IGN);
    struct pollfd fds[kMax] = {{listen_on(atoi(argv[1])), POLLIN, 0}};
    int clients = 1, count = 0;
    for (;;) {
        poll(fds, (nfds_t)clients, -1);
        for (int i = clients - 1; i > 0; --i) {
            if (!fds[i].revents) continue;
            char head[4096];
            const ssize_t bytes = read(fds[i].fd, head, sizeof head - 1);
            head[bytes > 0 ? bytes : 0] = 0;
            if (strstr(head, " /hold ")) continue;
            if (strstr(head, " /nap ")) poll(NULL, 0, 50);
            if (strstr(head, " /spin ") || strstr(head, " /nap ")) for (;;) {} // clang removes loops with a condition
            if (strstr(head, " /exit ")) return 3;
            if (bytes > 0) {
                char text[128], number[16];
                const int digits = snprintf(number, sizeof number, "%d\n", ++count);
                snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
                         digits, number);
                if (write(fds[i].fd, text, strlen(text)) < 0) perror("write");
            }
            close(fds[i].fd);
            fds[i] = fds[--clients];
        }
        if (fds[0].revents && clients < kMax)
            fds[clients++] = (struct pollfd){accept(fds[0].fd, NULL, NULL), POLLIN, 0};
    }
}
