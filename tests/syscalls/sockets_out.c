// Outbound connections and datagrams. The argument is the port of an echo server (TCP and UDP) on 127.0.0.1.
#include "transcript.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static char b[200000], echoed[200000];

static struct sockaddr_in at(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int connected(int fd, int port) {
    struct sockaddr_in address = at(port);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

static int closed_port(void) {
    struct sockaddr_in address = at(0);
    socklen_t length = sizeof address;
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
    MUST(getsockname(fd, (struct sockaddr *)&address, &length));
    close(fd);
    return ntohs(address.sin_port);
}

static long error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    return error;
}

static void blocking(int port) {
    section("TCP, blocking");
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int fd = CALL(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CALL(send(fd, "x", 1, MSG_NOSIGNAL));
    CALL(getpeername(fd, (struct sockaddr *)&address, &length));
    CALL(connected(fd, port));
    CALL(connected(fd, port));
    CALL(getpeername(fd, (struct sockaddr *)&address, &length));
    CHECK(address.sin_port == htons((uint16_t)port) && length == sizeof address);
    CALL(getsockname(fd, (struct sockaddr *)&address, &length));
    CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && address.sin_port != 0);
    CALL(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
    CALL(write(fd, "hello", 5));
    CALL(recv(fd, b, 5, MSG_WAITALL));
    SAY("'%.5s'", b);
    for (size_t i = 0; i < sizeof b; i++) b[i] = (char)(i * 7);
    CALL(send(fd, b, sizeof b, 0));
    CALL(recv(fd, echoed, sizeof echoed, MSG_WAITALL));
    CHECK(memcmp(b, echoed, sizeof b) == 0);
    CALL(shutdown(fd, SHUT_WR));
    CALL(read(fd, b, 10));
    CALL(close(fd));
    fd = CALL(socket(AF_INET, SOCK_STREAM, 0));
    CALL(connected(fd, closed_port()));
    CALL(close(fd));
    CALL(socket(AF_INET, 77, 0) < 0);
    CALL(connected(1, port));
    CALL(connected(99, port));
}

static void non_blocking(int port) {
    section("TCP, non-blocking");
    int fd = CALL(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    CALL(connected(fd, port));
    struct pollfd p = {fd, POLLOUT, 0};
    CALL(poll(&p, 1, 10000));
    CALL(error_of(fd));
    CALL(recv(fd, b, 10, 0));
    CALL(send(fd, "again", 5, 0));
    p.events = POLLIN;
    CALL(poll(&p, 1, 10000));
    CALL(recv(fd, b, 10, 0));
    CALL(close(fd));
    fd = CALL(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    CALL(connected(fd, closed_port()));
    p = (struct pollfd){fd, POLLOUT, 0};
    CALL(poll(&p, 1, 10000));
    CHECK(p.revents & POLLERR);
    CALL(error_of(fd) == ECONNREFUSED);
    CALL(error_of(fd));
    CALL(close(fd));
}

static void datagrams(int port) {
    section("UDP");
    struct sockaddr_in address = at(port), from;
    socklen_t length = sizeof from;
    int fd = CALL(socket(AF_INET, SOCK_DGRAM, 0));
    CALL(sendto(fd, "datagram", 8, 0, (struct sockaddr *)&address, sizeof address));
    CALL(recvfrom(fd, b, 100, 0, (struct sockaddr *)&from, &length));
    CHECK(from.sin_port == address.sin_port && length == sizeof from);
    CALL(connected(fd, port));
    CALL(send(fd, "connected", 9, 0));
    CALL(recv(fd, b, 3, 0));
    SAY("'%.3s'", b);
    CALL(recv(fd, b, 3, MSG_DONTWAIT));
    CALL(close(fd));
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 7;
    blocking(port);
    non_blocking(port);
    datagrams(port);
}
