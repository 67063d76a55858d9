// What a program sees of a client that goes away while it is answered: one line on stdout for each connection.
#include "server.h"

#include <poll.h>
#include <sys/epoll.h>

static char block[256 << 10];

static const char *name(ssize_t result) {
    static char text[4][32];
    static int next;
    char *out = text[next++ % 4];
    if (result >= 0)
        snprintf(out, sizeof text[0], "%zd", result);
    else
        snprintf(out, sizeof text[0], "%s", errno == EAGAIN ? "EAGAIN" : errno == ECONNRESET ? "ECONNRESET" : errno == EPIPE ? "EPIPE" : "?");
    return out;
}

// As event loops do: a short write is a full buffer, and then only an edge tells of room. False: there is an error.
static int fill(int fd) {
    ssize_t n;
    do
        n = send(fd, block, sizeof block, MSG_NOSIGNAL);
    while (n == sizeof block);
    return n >= 0 || errno == EAGAIN;
}

static void answer(int fd, const char *line) {
    const int read_first = strstr(line, "read") != NULL;
    char byte;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    const int epoll = epoll_create1(0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    int well = fill(fd);
    printf("%s: full\n", line);
    fflush(stdout);
    const char *first = "";
    while (well) {
        if (epoll_wait(epoll, &event, 1, 5000) != 1) {
            printf("%s: no edge\n", line);
            fflush(stdout);
            break;
        }
        if (read_first) {
            const ssize_t n = recv(fd, &byte, 1, 0);
            if (n < 0 && errno == EAGAIN)
                continue;
            first = name(n);
            well = 0;
        } else if (!(well = fill(fd)))
            first = name(-1);
    }
    int error = -1;
    socklen_t size = sizeof error;
    struct pollfd state = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    const char *received = name(recv(fd, &byte, 1, 0)), *sent = name(send(fd, "x", 1, MSG_NOSIGNAL));
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    poll(&state, 1, 0);
    printf("%s: first %s, then recv %s, send %s, SO_ERROR %d, poll %#x\n", line, first, received, sent, error, (unsigned)state.revents);
    fflush(stdout);
    close(epoll);
}

int main(int argc, char **argv) {
    const int listener = listen_on(argc > 1 ? atoi(argv[1]) : 8080);
    for (;;) {
        char line[64] = "";
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        const ssize_t n = read(fd, line, sizeof line - 1);
        line[n > 0 ? n - 1 : 0] = 0;
        if (strstr(line, "hello"))
            send(fd, "hello\n", 6, MSG_NOSIGNAL);
        else if (n > 0)
            answer(fd, line);
        close(fd);
    }
}
