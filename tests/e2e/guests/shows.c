// shows PORT: an HTTP server that answers each request with the file of that path, or why it cannot.
#include "server.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    signal(SIGPIPE, SIG_IGN);
    for (int listener = listen_on(atoi(argv[1]));;) {
        static char in[8192], text[4096], out[8192];
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        size_t n = 0;
        ssize_t got;
        while (n < sizeof in - 1 && (got = read(fd, in + n, sizeof in - 1 - n)) > 0) {
            n += (size_t)got;
            in[n] = 0;
            if (strstr(in, "\r\n\r\n")) break;
        }
        strtok(in, " ");
        const char *path = strtok(NULL, " ");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file < 0 || (got = read(file, text, sizeof text - 1)) < 0) {
            got = snprintf(text, sizeof text, "%s", strerror(errno));
        }
        if (file >= 0) close(file);
        text[got] = 0;
        int length = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zd\r\n\r\n%s", got, text);
        if (write(fd, out, (size_t)length) < 0) perror("write");
        close(fd);
    }
}
