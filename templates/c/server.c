// A small HTTP server: one request a connection, as each gets a clean machine anyway.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 8080, MAX_HEAD = 8192 };

static void send_all(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n <= 0) return;
        data += n;
        length -= (size_t)n;
    }
}

static void reply(int fd, const char *status, const char *body) {
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     status, strlen(body));
    send_all(fd, head, (size_t)n);
    send_all(fd, body, strlen(body));
}

static void serve(int fd) {
    char request[MAX_HEAD + 1];
    size_t length = 0;
    request[0] = 0;
    while (!strstr(request, "\r\n\r\n")) {
        ssize_t n = length < MAX_HEAD ? read(fd, request + length, MAX_HEAD - length) : 0;
        if (n <= 0) return;
        length += (size_t)n;
        request[length] = 0;
    }
    char target[1024], body[1200];
    if (sscanf(request, "GET %1023s HTTP/1.", target) != 1 || (strcmp(target, "/") != 0 && strncmp(target, "/?", 2) != 0)) {
        reply(fd, "404 Not Found", "not found\n");
        return;
    }
    const char *name = strncmp(target, "/?name=", 7) == 0 ? target + 7 : "world";
    snprintf(body, sizeof body, "Hello %s from C\n", name);
    reply(fd, "200 OK", body);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, SOMAXCONN) < 0) {
        perror("cannot listen");
        return EXIT_FAILURE;
    }
    printf("listening on %d\n", PORT);
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        serve(fd);
        close(fd);
    }
}
