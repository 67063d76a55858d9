// HTTP replies that begin, go on and end in every way that a program may choose; the path says which.
#include "server.h"

#include <netinet/tcp.h>

static char in[256 << 10];
static size_t used;

// The request's head and `body` bytes of what follows. Less when the client has ended before.
static size_t read_until(int fd, size_t body) {
    for (;;) {
        const char *end = memmem(in, used, "\r\n\r\n", 4);
        if (end && used >= (size_t)(end + 4 - in) + body) return used;
        const ssize_t n = read(fd, in + used, sizeof in - used);
        if (n <= 0) return used;
        used += (size_t)n;
    }
}

static void say(int fd, const char *text) {
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) perror("send");
}

static int path_is(const char *path) { return memmem(in, used < 64 ? used : 64, path, strlen(path)) != NULL; }

static void answer(int fd) {
    char text[128];
    read_until(fd, 0);
    const char *length = memmem(in, used, "Content-Length: ", 16);
    const size_t body = length ? strtoul(length + 16, NULL, 10) : 0;
    if (path_is("/size ")) {  // how much of it came
        const size_t got = read_until(fd, body);
        const int n = snprintf(text, sizeof text, "%zu", got);
        dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, text);
    } else if (path_is("/busy ")) {  // the same without ever waiting for it
        printf("busy\n");
        fflush(stdout);
        while (used < (size_t)((const char *)memmem(in, used, "\r\n\r\n", 4) + 4 - in) + body) {
            const ssize_t n = recv(fd, in + used, sizeof in - used, MSG_DONTWAIT);
            if (n == 0) return;
            if (n > 0) used += (size_t)n;
        }
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbusy");
    } else if (path_is("/early ")) {  // before the body was read, which then never is
        say(fd, "HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno");
    } else if (path_is("/talk ")) {  // the second part when the body's second part has come
        say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        read_until(fd, body);
        say(fd, "3\r\ntwo\r\n0\r\n\r\n");
    } else if (path_is("/until-close ")) {
        say(fd, "HTTP/1.1 200 OK\r\n\r\nall of it");
    } else if (path_is("/reset ")) {
        const struct linger now = {1, 0};
        say(fd, "HTTP/1.1 200 OK\r\n\r\nnot all");
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    } else if (path_is("/half ")) {  // ends its side, and stays until the client has ended too
        say(fd, "HTTP/1.1 200 OK\r\n\r\nhalf");
        shutdown(fd, SHUT_WR);
        while (read(fd, in, sizeof in) > 0) {
        }
    } else if (path_is("/cut ")) {  // less than it promised
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
    } else if (path_is("/wait ")) {  // for the client to go away
        printf("waiting\n");
        fflush(stdout);
        while (read(fd, in, sizeof in) > 0) {
        }
        printf("the client has gone\n");
        fflush(stdout);
    } else if (path_is("/die ")) {  // in the middle of its reply
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
        abort();
    } else if (!path_is("/silent ")) {
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
}

int main(int argc, char **argv) {
    const int listener = listen_on(argc > 1 ? atoi(argv[1]) : 8080), on = 1;
    printf("listening on %s\n", argc > 1 ? argv[1] : "8080");
    fflush(stdout);
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        used = 0;
        answer(fd);
        close(fd);
    }
}
