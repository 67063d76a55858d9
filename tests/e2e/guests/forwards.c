// forwards PORT BACKEND: passes datagrams on to BACKEND, and its replies back with how many it has passed, by one socket that it has
// opened at its start, as DNS forwarders do. It listens over TCP at the same port, and answers nothing there.
#include "server.h"

#include <poll.h>

static struct sockaddr_in at(const char *port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct sockaddr_in here = at(argv[1]), there = at(argv[2]), client = {0};
    const int listener = listen_on(atoi(argv[1]));
    int serving = socket(AF_INET, SOCK_DGRAM, 0), asking = socket(AF_INET, SOCK_DGRAM, 0), passed = 0;
    if (bind(serving, (void *)&here, sizeof here) || connect(asking, (void *)&there, sizeof there)) {
        perror("bind");
        return 1;
    }
    for (;;) {
        struct pollfd p[3] = {{serving, POLLIN, 0}, {asking, POLLIN, 0}, {listener, POLLIN, 0}};
        char in[1000], out[1100];
        socklen_t bytes = sizeof client;
        poll(p, 3, -1);
        if (p[0].revents & POLLIN) {
            ssize_t got = recvfrom(serving, in, sizeof in, MSG_DONTWAIT, (void *)&client, &bytes);
            if (got > 0 && send(asking, in, (size_t)got, 0) < 0) perror("send");
        }
        if (p[1].revents & POLLIN) {
            ssize_t got = recv(asking, in, sizeof in, MSG_DONTWAIT);
            if (got <= 0) continue;
            int length = snprintf(out, sizeof out, "%d %.*s", ++passed, (int)got, in);
            sendto(serving, out, (size_t)length, 0, (void *)&client, sizeof client);
        }
    }
}
