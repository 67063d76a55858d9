// stores PORT|PATH|never: a storage program that keeps one number and one text for all its connections, with one thread
// and epoll. A command is a line, as is its answer:
//   add N    adds N, answers the number       get      answers it
//   who      the port of the peer             clients  how many connections are open
//   keep X   keeps the text X, answers "ok"   text     answers it
//   echo N   answers the N bytes that follow  mute     reads nothing more from this connection
//   open P   whether it may read the file P: "open" or why not
//   exit N   ends with this status            crash    by a signal
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROOM = 1 << 16, MOST = 1024 };

struct client {
    char in[ROOM], *out;
    size_t in_bytes, out_at, out_bytes, out_room, echo; // echo: so many bytes are still to come back
    int open, mute, peer;
};

static struct client clients[MOST];
static long number;
static int count;
static char text[ROOM] = "nothing";

static void put(struct client *c, const char *bytes, size_t n) {
    if (c->out_bytes + n > c->out_room) {
        c->out_room = (c->out_bytes + n) * 2;
        c->out = realloc(c->out, c->out_room);
        if (!c->out) abort();
    }
    memcpy(c->out + c->out_bytes, bytes, n);
    c->out_bytes += n;
}

static void command(struct client *c, char *line) {
    char answer[ROOM + 32];
    if (!strncmp(line, "add ", 4)) number += atol(line + 4);
    if (!strncmp(line, "add ", 4) || !strcmp(line, "get")) snprintf(answer, sizeof answer, "%ld\n", number);
    else if (!strcmp(line, "who")) snprintf(answer, sizeof answer, "%d\n", c->peer);
    else if (!strcmp(line, "clients")) snprintf(answer, sizeof answer, "%d\n", count);
    else if (!strcmp(line, "text")) snprintf(answer, sizeof answer, "%s\n", text);
    else if (!strncmp(line, "keep ", 5)) strcpy(text, line + 5), strcpy(answer, "ok\n");
    else if (!strncmp(line, "echo ", 5)) c->echo = (size_t)atol(line + 5), answer[0] = 0;
    else if (!strcmp(line, "mute")) c->mute = 1, answer[0] = 0;
    else if (!strncmp(line, "open ", 5)) {
        int fd = open(line + 5, O_RDONLY);
        snprintf(answer, sizeof answer, "%s\n", fd < 0 ? strerror(errno) : "open");
        if (fd >= 0) close(fd);
    }
    else if (!strncmp(line, "exit ", 5)) exit(atoi(line + 5));
    else if (!strcmp(line, "crash")) *(volatile int *)16 = 1;
    else strcpy(answer, "what?\n");
    put(c, answer, strlen(answer));
}

// False: the client has gone.
static int serve(int fd, struct client *c, int readable) {
    for (;;) {
        while (c->out_at < c->out_bytes) {
            ssize_t n = send(fd, c->out + c->out_at, c->out_bytes - c->out_at, MSG_NOSIGNAL);
            if (n < 0) return errno == EAGAIN;
            c->out_at += (size_t)n;
        }
        c->out_at = c->out_bytes = 0;
        if (!readable || c->mute) return 1;
        ssize_t n = read(fd, c->in + c->in_bytes, sizeof c->in - c->in_bytes);
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return 0;
        c->in_bytes += (size_t)n;
        size_t at = 0;
        for (;;) {
            size_t left = c->in_bytes - at, echo = c->echo < left ? c->echo : left;
            put(c, c->in + at, echo);
            c->echo -= echo;
            at += echo;
            char *end = memchr(c->in + at, '\n', c->in_bytes - at);
            if (!end) break;
            *end = 0;
            char *line = c->in + at;
            at = (size_t)(end + 1 - c->in);
            command(c, line);
        }
        if (at == 0 && c->in_bytes == sizeof c->in) return 0; // a line of that length
        memmove(c->in, c->in + at, c->in_bytes - at);
        c->in_bytes -= at;
    }
}

static int listener_at(const char *where) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons(atoi(where)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int is_unix = where[0] == '/' || where[0] == '@';
    strncpy(un.sun_path, where, sizeof un.sun_path - 1);
    socklen_t bytes = sizeof un;
    if (where[0] == '@') un.sun_path[0] = 0, bytes = (socklen_t)(sizeof(sa_family_t) + strlen(where));
    int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, is_unix ? (void *)&un : (void *)&inet, is_unix ? bytes : sizeof inet) || listen(fd, 511)) {
        perror(where);
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    if (!strcmp(argv[1], "never")) pause();
    int listener = listener_at(argv[1]), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
        int fd = event.data.fd;
        if (fd == listener) {
            struct sockaddr_in peer = {0};
            socklen_t bytes = sizeof peer;
            fd = accept4(listener, (void *)&peer, &bytes, SOCK_NONBLOCK);
            if (fd < 0 || fd >= MOST) continue;
            clients[fd].open = 1;
            clients[fd].peer = ntohs(peer.sin_port);
            ++count;
            struct epoll_event both = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = fd};
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &both);
            event.events = EPOLLIN;
        }
        struct client *c = &clients[fd];
        if (!c->open || serve(fd, c, 1)) continue;
        free(c->out);
        memset(c, 0, sizeof *c);
        --count;
        close(fd);
    }
}
