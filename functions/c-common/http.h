// A small HTTP/1.1 connection, shared by the C servers. It knows nothing of how its caller waits:
// http_step() answers what has arrived and says what to wait for next. It works on blocking
// sockets too, where it simply never has to wait.
#pragma once
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum http_want { HTTP_READ, HTTP_WRITE, HTTP_CLOSE };

enum {
    HTTP_MAX_HEAD = 16 << 10,
    HTTP_MAX_BODY = 20 << 20,
    HTTP_KEEP = 64 << 10,  // a larger buffer is given back once it is empty; replies waiting beyond this stop parsing
};

struct http_buffer {
    char *data;
    size_t len, cap;
};

struct http_conn {
    int fd;
    struct http_buffer in, out;
    size_t sent;    // of out
    int continued;  // "100 Continue" was sent for the request being read
    int closing;    // nothing more is read; close when out is empty
};

static unsigned long http_count;

static void http_reserve(struct http_buffer *b, size_t more) {
    if (b->len + more <= b->cap) return;
    size_t cap = b->cap ? b->cap : HTTP_MAX_HEAD;
    while (cap < b->len + more) cap *= 2;
    b->data = realloc(b->data, cap);
    if (!b->data) abort();
    b->cap = cap;
}

static void http_drop(struct http_buffer *b, size_t n) {
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    if (b->len == 0 && b->cap > HTTP_KEEP) {
        free(b->data);
        *b = (struct http_buffer){0};
    }
}

static void http_append(struct http_buffer *b, const void *data, size_t n) {
    http_reserve(b, n);
    memcpy(b->data + b->len, data, n);
    b->len += n;
}

// Appends the head of a reply; the caller appends `length` bytes of body.
static void http_reply(struct http_conn *c, const char *status, size_t length) {
    char head[256];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n%s\r\n",
                     status, length, c->closing ? "Connection: close\r\n" : "");
    http_append(&c->out, head, (size_t)n);
}

static void http_reply_text(struct http_conn *c, const char *status, const char *text) {
    http_reply(c, status, strlen(text));
    http_append(&c->out, text, strlen(text));
}

static void http_refuse(struct http_conn *c, const char *status) {
    c->closing = 1;
    http_reply_text(c, status, "");
}

static void http_route(struct http_conn *c, const char *method, const char *path, const char *body, size_t length) {
    int get = strcmp(method, "GET") == 0;
    size_t n;
    int end = 0;
    if (get && strcmp(path, "/") == 0) {
        http_reply_text(c, "200 OK", "Hello from C\n");
    } else if (get && strcmp(path, "/count") == 0) {
        char text[32];
        snprintf(text, sizeof text, "%lu\n", ++http_count);
        http_reply_text(c, "200 OK", text);
    } else if (strcmp(method, "POST") == 0 && strcmp(path, "/echo") == 0) {
        http_reply(c, "200 OK", length);
        http_append(&c->out, body, length);
    } else if (get && sscanf(path, "/bytes/%9zu%n", &n, &end) == 1 && path[end] == 0) {
        http_reply(c, "200 OK", n);
        http_reserve(&c->out, n);
        for (size_t i = 0; i < n; i++) c->out.data[c->out.len + i] = (char)('a' + i % 26);
        c->out.len += n;
    } else if (get && strcmp(path, "/spin") == 0) {
        for (volatile int forever = 1; forever;) {
        }
    } else if (get && strcmp(path, "/crash") == 0) {
        *(volatile int *)0 = 0;
    } else {
        http_reply_text(c, "404 Not Found", "not found\n");
    }
}

// The value of a header in a NUL-terminated head, or NULL. It ends at '\r'.
static const char *http_header(const char *head, const char *name) {
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            line += n + 1;
            return line + strspn(line, " \t");
        }
    }
    return NULL;
}

// Answers the first request in the buffer; 0 when it is not complete yet.
static int http_request(struct http_conn *c) {
    const char *blank = c->in.len ? memmem(c->in.data, c->in.len, "\r\n\r\n", 4) : NULL;
    size_t head_len = blank ? (size_t)(blank - c->in.data) + 4 : 0;
    if (!blank && c->in.len < HTTP_MAX_HEAD) return 0;
    if (!blank || head_len > HTTP_MAX_HEAD) return http_refuse(c, "431 Request Header Fields Too Large"), 1;

    char head[HTTP_MAX_HEAD + 1], method[16], path[1024], minor;
    memcpy(head, c->in.data, head_len);
    head[head_len] = 0;
    if (sscanf(head, "%15s %1023s HTTP/1.%c", method, path, &minor) != 3) return http_refuse(c, "400 Bad Request"), 1;
    if (http_header(head, "Transfer-Encoding")) return http_refuse(c, "411 Length Required"), 1;

    size_t length = 0;
    const char *value = http_header(head, "Content-Length");
    if (value) {
        char *end;
        length = strtoul(value, &end, 10);
        if (*value < '0' || *value > '9' || *end != '\r') return http_refuse(c, "400 Bad Request"), 1;
    }
    if (length > HTTP_MAX_BODY) return http_refuse(c, "413 Content Too Large"), 1;
    if (c->in.len < head_len + length) {
        value = http_header(head, "Expect");
        if (value && !c->continued && strncasecmp(value, "100-continue", 12) == 0) {
            http_append(&c->out, "HTTP/1.1 100 Continue\r\n\r\n", 25);
            c->continued = 1;
        }
        http_reserve(&c->in, head_len + length - c->in.len);
        return 0;
    }

    value = http_header(head, "Connection");
    if (value ? strncasecmp(value, "close", 5) == 0 : minor == '0') c->closing = 1;
    http_route(c, method, path, c->in.data + head_len, length);
    http_drop(&c->in, head_len + length);
    c->continued = 0;
    return 1;
}

// One record with its buffers is kept ready, so that a usual request allocates nothing.
static struct http_conn *http_spare;

static inline struct http_conn *http_open(int fd) {
    struct http_conn *c = http_spare ? http_spare : calloc(1, sizeof *c);
    if (!c) abort();
    http_spare = NULL;
    http_reserve(&c->in, HTTP_MAX_HEAD);
    http_reserve(&c->out, HTTP_MAX_HEAD);
    c->fd = fd;
    return c;
}

static inline void http_close(struct http_conn *c) {
    if (c->fd >= 0) close(c->fd);
    if (!http_spare && c->in.cap <= HTTP_KEEP && c->out.cap <= HTTP_KEEP) {
        c->in.len = c->out.len = c->sent = 0;
        c->continued = c->closing = 0;
        http_spare = c;
        return;
    }
    free(c->in.data);
    free(c->out.data);
    free(c);
}

// Call it when the socket is ready for what the last call wanted (HTTP_READ at first). It reads at
// most once, so a busy client does not hold up the others.
static inline enum http_want http_step(struct http_conn *c, enum http_want ready) {
    if (ready == HTTP_READ) {
        http_reserve(&c->in, 4096);
        ssize_t n = read(c->fd, c->in.data + c->in.len, c->in.cap - c->in.len);
        if (n == 0) return HTTP_CLOSE;
        if (n < 0) return errno == EAGAIN || errno == EINTR ? HTTP_READ : HTTP_CLOSE;
        c->in.len += (size_t)n;
    }
    for (;;) {
        while (!c->closing && c->out.len < HTTP_KEEP && http_request(c)) {
        }
        if (c->out.len == 0) return c->closing ? HTTP_CLOSE : HTTP_READ;
        while (c->sent < c->out.len) {
            ssize_t n = write(c->fd, c->out.data + c->sent, c->out.len - c->sent);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return errno == EAGAIN ? HTTP_WRITE : HTTP_CLOSE;
            c->sent += (size_t)n;
        }
        http_drop(&c->out, c->sent);
        c->sent = 0;
    }
}

// A listening socket on 127.0.0.1, at the port that the first argument names. Says so on stdout.
static inline int http_listen(int argc, char **argv, int socket_flags) {
    int port = argc > 1 ? atoi(argv[1]) : 8080;
    signal(SIGPIPE, SIG_IGN);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | socket_flags, 0);
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0) {
        perror("cannot listen");
        exit(1);
    }
    http_close(http_open(-1)); // the spare record
    printf("listening on %d\n", port);
    fflush(stdout);
    return fd;
}

static inline int http_accept(int listener, int flags) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | flags);
    int one = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}
