// A server of one reply a connection, one connection after the other.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 128) < 0) {
        fprintf(stderr, "cannot listen on %d: %s\n", port, strerror(errno));
        exit(1);
    }
    return fd;
}

// Serves for ever: reads one line, answers with what `reply` leaves in its buffer.
static inline void serve(int listener, void (*reply)(const char *line, char *out, size_t size)) {
    static char line[1024], out[65536];
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        size_t n = 0;
        ssize_t got;
        while (n < sizeof line - 1 && (n == 0 || line[n - 1] != '\n') &&
               (got = read(fd, line + n, sizeof line - 1 - n)) > 0)
            n += (size_t)got;
        line[n ? n - 1 : 0] = 0;
        out[0] = 0;
        reply(line, out, sizeof out);
        if (write(fd, out, strlen(out)) < 0) perror("write");
        close(fd);
    }
}
