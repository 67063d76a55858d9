// asks PORT BACKEND: asks BACKEND over UDP by sockets opened at the start, one free and one connected, and answers over TCP
// "FREE CONNECTED EARLY", what it was told and how often poll said that a socket was readable before it had asked.
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in at(const char *port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int told(int s) {
    char in[100] = "";
    struct pollfd p = {s, POLLIN, 0};
    return poll(&p, 1, 5000) == 1 && recv(s, in, sizeof in - 1, 0) > 0 ? atoi(in) : -1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct sockaddr_in here = at(argv[1]), there = at(argv[2]), any = at("0");
    int open = socket(AF_INET, SOCK_DGRAM, 0), connected = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_STREAM, 0), one = 1, early = 0;
    setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(open, (void *)&any, sizeof any) || connect(connected, (void *)&there, sizeof there) || bind(t, (void *)&here, sizeof here) || listen(t, 9)) {
        perror("bind");
        return 1;
    }
    for (;;) {
        struct pollfd p[3] = {{open, POLLIN, 0}, {connected, POLLIN, 0}, {t, POLLIN, 0}};
        poll(p, 3, -1);
        early += (p[0].revents | p[1].revents) != 0;
        if (early > 1000) return 1; // spins
        if (!(p[2].revents & POLLIN)) continue;
        int s = accept(t, 0, 0);
        if (s < 0) continue;
        char in[3000], out[100];
        if (read(s, in, sizeof in) > 0) {
            sendto(open, "a", 1, 0, (void *)&there, sizeof there);
            int first = told(open);
            send(connected, "b", 1, 0);
            int bytes = snprintf(out, sizeof out, "%d %d %d", first, told(connected), early);
            if (write(s, out, (size_t)bytes) < 0) return 1;
        }
        close(s);
    }
}
