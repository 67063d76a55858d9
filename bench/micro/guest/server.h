// The least HTTP server: one connection at a time, whose request is a path of words and numbers.
#pragma once
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline int listen_somewhere(void) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(8080)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 16) < 0) {
        perror("listen");
        exit(1);
    }
    return listener;
}

// Reads "GET /WORD/NUMBER HTTP/1.1"; what is missing is "" and 0.
static inline void read_request(int connection, char word[16], unsigned long *number) {
    char text[1024];
    const ssize_t bytes = read(connection, text, sizeof(text) - 1);
    text[bytes > 0 ? bytes : 0] = 0;
    word[0] = 0;
    *number = 0;
    sscanf(text, "GET /%15[a-z]/%lu", word, number);
}

static inline void reply_and_close(int connection, unsigned long value) {
    char body[32], text[128];
    const int length = snprintf(body, sizeof(body), "%lu", value);
    const int bytes = snprintf(text, sizeof(text),
                               "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", length, body);
    (void)!write(connection, text, (size_t)bytes);
    close(connection);
}

static inline unsigned long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long)now.tv_sec * 1000000000ul + (unsigned long)now.tv_nsec;
}
