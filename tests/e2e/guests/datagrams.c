// datagrams PORT: answers over UDP and TCP at one port of the loopback with how many it has answered, and what was said.
// What begins with "lost" it receives in a mapped page that its file no longer has, and answers with the errno.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char *lost_page(void) {
    int fd = memfd_create("page", 0);
    if (fd < 0 || ftruncate(fd, 4096)) return 0;
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) return 0;
    page[0] = 1;
    return ftruncate(fd, 0) == 0 ? page : 0;
}

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
            ssize_t got = recvfrom(u, in, sizeof in, MSG_DONTWAIT | MSG_PEEK, (void *)&from, &n);
            if (got < 0) continue;
            if (got >= 4 && memcmp(in, "lost", 4) == 0) {
                char *page = lost_page();
                got = page ? recvfrom(u, page, 4096, MSG_DONTWAIT, 0, 0) : 0;
                strcpy(in, got < 0 ? strerrorname_np(errno) : "received");
                got = (ssize_t)strlen(in);
            } else if (recvfrom(u, in, sizeof in, MSG_DONTWAIT, 0, 0) < 0) {
                continue;
            }
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
