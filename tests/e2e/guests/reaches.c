// reaches PORT [UDP-PORT]: an HTTP server that tries what a request's path says and answers how it went: GET
// /read/etc/hosts, /write/srv/x, /stat/srv, /connect/1.2.3.4:80, /bind/PORT (a datagram socket on 127.0.0.1), /receive
// (what came to UDP-PORT, bound before the first request), /listen/PORT (and connect to it), /abstract/NAME, /loopback
// (whether it is there and up), /spin, /crash, /touch/MIB.
#include "server.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

static int opened(const char* path, int flags) {
    char c;
    int fd = open(path, flags, 0600);
    if (fd < 0)
        return -1;
    ssize_t n = flags == O_RDONLY ? read(fd, &c, 1) : write(fd, "w", 1);
    int error = errno;
    close(fd);
    errno = error;
    return n < 0 ? -1 : 0;
}

static int connected(char* where) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    char* port = strrchr(where, ':');
    if (!port)
        return errno = EINVAL, -1;
    *port++ = 0;
    int is_four = inet_pton(AF_INET, where, &four.sin_addr) == 1;
    if (!is_four && inet_pton(AF_INET6, where, &six.sin6_addr) != 1)
        return errno = EINVAL, -1;
    four.sin_port = six.sin6_port = htons((uint16_t)atoi(port));
    int fd = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    int done = is_four ? connect(fd, (struct sockaddr*)&four, sizeof four)
                       : connect(fd, (struct sockaddr*)&six, sizeof six);
    int error = errno;
    close(fd);
    errno = error;
    return done;
}

static struct sockaddr_in at_loopback(const char* port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int close_after(int done, int one, int other) {
    int error = errno;
    close(one);
    close(other);
    errno = error;
    return done;
}

static int datagrams = -1; // bound before the first request

static int bound(const char* port) {
    struct sockaddr_in four = at_loopback(port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return close_after(bind(fd, (struct sockaddr*)&four, sizeof four), fd, -1);
}

static int listened(const char* port) {
    struct sockaddr_in four = at_loopback(port);
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    int done = bind(server, (struct sockaddr*)&four, sizeof four) || listen(server, 1) ||
                       connect(client, (struct sockaddr*)&four, sizeof four)
                   ? -1
                   : 0;
    return close_after(done, server, client);
}

static int has_loopback(void) {
    struct ifaddrs* all;
    int found = 0;
    if (getifaddrs(&all) < 0)
        return -1;
    for (struct ifaddrs* i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) && strcmp(i->ifa_name, "lo") == 0)
            found |= ((struct sockaddr_in*)i->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    freeifaddrs(all);
    errno = ENODEV;
    return found ? 0 : -1;
}

static int connected_abstract(const char* name) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strncpy(un.sun_path + 1, name, sizeof un.sun_path - 2);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int done = connect(fd, (struct sockaddr*)&un,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
    int error = errno;
    close(fd);
    errno = error;
    return done;
}

__attribute__((noinline)) void where_it_crashes(void) { *(volatile int*)8 = 1; }

static int tried(char* path) {
    struct stat st;
    if (strcmp(path, "/") == 0)
        return 0;
    char* rest = strchr(path + 1, '/');
    const char* what = path + 1;
    char* name = rest ? rest + 1 : "";
    if (strncmp(what, "read/", 5) == 0)
        return opened(rest, O_RDONLY);
    if (strncmp(what, "write/", 6) == 0)
        return opened(rest, O_WRONLY | O_CREAT);
    if (strncmp(what, "stat/", 5) == 0)
        return stat(rest, &st);
    if (strncmp(what, "connect/", 8) == 0)
        return connected(name);
    if (strncmp(what, "bind/", 5) == 0)
        return bound(name);
    if (strncmp(what, "receive", 7) == 0) {
        char c;
        return recv(datagrams, &c, 1, MSG_DONTWAIT) < 0 ? -1 : 0;
    }
    if (strncmp(what, "listen/", 7) == 0)
        return listened(name);
    if (strncmp(what, "loopback", 8) == 0)
        return has_loopback();
    if (strncmp(what, "abstract/", 9) == 0)
        return connected_abstract(name);
    if (strncmp(what, "crash", 5) == 0)
        where_it_crashes();
    if (strncmp(what, "spin", 4) == 0)
        for (volatile int i = 0;; i++) {
        }
    if (strncmp(what, "touch/", 6) == 0) {
        size_t bytes = (size_t)atoi(name) << 20;
        char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return -1;
        for (size_t at = 0; at < bytes; at += 4096)
            memory[at] = 1;
        return munmap(memory, bytes);
    }
    errno = ENOTSUP;
    return -1;
}

int main(int argc, char** argv) {
    int listener = listen_on(atoi(argv[argc > 1 ? 1 : 0]));
    if (argc > 2) {
        struct sockaddr_in four = at_loopback(argv[2]);
        datagrams = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(datagrams, (struct sockaddr*)&four, sizeof four) < 0) {
            perror("bind");
            return 1;
        }
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        static char head[8192], out[512];
        size_t n = 0;
        ssize_t got;
        while (n < sizeof head - 1 && !strstr(head, "\r\n\r\n") &&
               (got = read(fd, head + n, sizeof head - 1 - n)) > 0)
            head[n += (size_t)got] = 0;
        char* path = strchr(head, ' ');
        char* end = path ? strchr(++path, ' ') : NULL;
        const char* answer = "EINVAL";
        if (end) {
            *end = 0;
            answer = tried(path) == 0 ? "ok" : strerrorname_np(errno);
        }
        int size = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                            strlen(answer), answer);
        if (write(fd, out, (size_t)size) < 0)
            perror("write");
        close(fd);
    }
}
