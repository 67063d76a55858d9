// calls PORT STORE [early]: asks the storage program at STORE (a port or a path). A request is one line, its commands
// separated by ';'. It sends each command over one connection, made for the request, and answers with the answers, one a
// line. Commands of its own:
//   raw BYTES   sends BYTES, hexadecimal, and expects no answer      wait     waits for ever for an answer
//   spin        computes for ever                                    exit     ends the program
//   echo N      sends N bytes and answers "same" if they come back   flood N  sends N bytes and reads nothing
//   times N X   the command X N times; answers the last answer       again    goes on over a new connection
//   early       over the connection that it made at its start (argument `early`)
//   leave       does not close the connection at the end
//   where       the addresses of the connection's two ends
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/un.h>

#include "tests/e2e/guests/server.h"

static const char *store;
static int at = -1, early = -1, leaves;

static int connect_to(void) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons(atoi(store)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int is_unix = store[0] == '/' || store[0] == '@' || store[0] == '.';
    strncpy(un.sun_path, store, sizeof un.sun_path - 1);
    socklen_t bytes = sizeof un;
    if (store[0] == '@') un.sun_path[0] = 0, bytes = (socklen_t)(sizeof(sa_family_t) + strlen(store));
    int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    if (connect(fd, is_unix ? (void *)&un : (void *)&inet, is_unix ? bytes : sizeof inet) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int send_all(const char *bytes, size_t n) {
    while (n) {
        ssize_t sent = send(at, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 0;
}

static int receive_line(char *out, size_t room) {
    size_t n = 0;
    while (n < room - 1) {
        ssize_t got = recv(at, out + n, 1, 0);
        if (got <= 0) return -1;
        if (out[n] == '\n') break;
        ++n;
    }
    out[n] = 0;
    return 0;
}

static const char *failure(void) { return errno ? strerror(errno) : "closed"; }

static void echo(long bytes, char *out, size_t room) {
    static char block[1 << 16], back[1 << 16];
    char head[64];
    long sent = 0, got = 0, same = 1;
    send_all(head, (size_t)snprintf(head, sizeof head, "echo %ld\n", bytes));
    while (got < bytes) {
        struct pollfd p = {at, (short)(POLLIN | (sent < bytes ? POLLOUT : 0)), 0};
        if (poll(&p, 1, 20000) != 1) break;
        if (p.revents & POLLOUT) {
            size_t n = (size_t)(bytes - sent) < sizeof block ? (size_t)(bytes - sent) : sizeof block;
            for (size_t i = 0; i < n; ++i) block[i] = (char)((sent + (long)i) * 31 % 251);
            ssize_t done = send(at, block, n, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (done > 0) sent += done;
        }
        if (p.revents & (POLLIN | POLLHUP)) {
            ssize_t n = recv(at, back, sizeof back, 0);
            if (n <= 0) break;
            for (ssize_t i = 0; i < n; ++i) same &= back[i] == (char)((got + i) * 31 % 251);
            got += n;
        }
    }
    snprintf(out, room, "%s %ld", got == bytes && same ? "same" : "different", got);
}

static void where(char *out, size_t room) {
    struct sockaddr_in here = {0}, there = {0};
    socklen_t bytes = sizeof here;
    getsockname(at, (void *)&here, &bytes);
    bytes = sizeof there;
    getpeername(at, (void *)&there, &bytes);
    snprintf(out, room, "%d %d", ntohs(here.sin_port), ntohs(there.sin_port));
}

static void ask(const char *command, char *out, size_t room) {
    char line[1100];
    errno = 0;
    if (send_all(line, (size_t)snprintf(line, sizeof line, "%s\n", command)) || receive_line(out, room))
        snprintf(out, room, "failed: %s", failure());
}

static void run(char *command, char *out, size_t room) {
    long n;
    int skip;
    if (!strcmp(command, "early")) {
        at = early;
        snprintf(out, room, "early");
        return;
    }
    if (!strcmp(command, "leave")) {
        leaves = 1;
        snprintf(out, room, "leave");
        return;
    }
    if (at < 0 || !strcmp(command, "again")) {
        errno = 0;
        at = connect_to();
    }
    if (at < 0) snprintf(out, room, "cannot connect: %s", failure());
    else if (!strcmp(command, "again")) snprintf(out, room, "again");
    else if (!strcmp(command, "where")) where(out, room);
    else if (!strcmp(command, "exit")) exit(7);
    else if (!strcmp(command, "spin")) for (;;) *(volatile char *)out = 0;
    else if (sscanf(command, "echo %ld", &n) == 1) echo(n, out, room);
    else if (sscanf(command, "times %ld %n", &n, &skip) == 1) while (n-- > 0) ask(command + skip, out, room);
    else if (!strcmp(command, "wait")) { if (receive_line(out, room)) snprintf(out, room, "failed: %s", failure()); }
    else if (sscanf(command, "flood %ld", &n) == 1) {
        static char block[1 << 16];
        memset(block, 'x', sizeof block);
        errno = 0;
        while (n > 0 && !send_all(block, sizeof block)) n -= (long)sizeof block;
        snprintf(out, room, n > 0 ? "failed: %s" : "sent", failure());
    } else if (!strncmp(command, "raw ", 4)) {
        char byte;
        for (const char *hex = command + 4; sscanf(hex, "%2hhx", (unsigned char *)&byte) == 1; hex += 2) send_all(&byte, 1);
        snprintf(out, room, "sent");
    } else ask(command, out, room);
}

static void reply(const char *line, char *out, size_t room) {
    char copy[1024], *rest = copy;
    strcpy(copy, line);
    at = -1, leaves = 0;
    for (char *command; (command = strsep(&rest, ";"));) {
        size_t n = strlen(out);
        run(command, out + n, room - n - 1);
        strcat(out, "\n");
    }
    if (at >= 0 && at != early && !leaves) close(at);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    store = argv[2];
    int listener = listen_on(atoi(argv[1]));
    if (argc > 3) early = at = connect_to();
    serve(listener, reply);
}
