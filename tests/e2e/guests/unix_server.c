// unix_server PATH: an HTTP server at a Unix socket, which says where it thinks that it is.
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, argv[1], sizeof a.sun_path - 1);
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(argv[1]);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 5)) {
        perror("listen");
        return 1;
    }
    if (chmod(argv[1], 0640)) perror("chmod");
    for (int count = 1;; count++) {
        struct sockaddr_un own = {0}, peer = {0};
        socklen_t n = sizeof own, m = sizeof peer;
        char in[4096], body[200], out[400];
        int s = accept(l, (void *)&peer, &m);
        if (s < 0) return 1;
        if (read(s, in, sizeof in) > 0) {
            getsockname(s, (void *)&own, &n);
            int bytes = snprintf(body, sizeof body, "request %d at %s of family %d from family %d\n", count, own.sun_path, own.sun_family, peer.sun_family);
            bytes = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", bytes, body);
            if (write(s, out, (size_t)bytes) != bytes) return 1;
        }
        close(s);
    }
}
