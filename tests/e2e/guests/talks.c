// talks PORT NAME: waits for lines, and answers each with a line. "count": NAME, how many clients it has had, and how many
// lines this one has sent.
#include "server.h"

#include <arpa/inet.h>

static void put(int fd, const char *text) {
    if (write(fd, text, strlen(text)) < 0) perror("write");
}

static void addresses(int fd, char *out, size_t size) {
    struct sockaddr_in peer, mine;
    socklen_t n = sizeof peer, m = sizeof mine;
    if (getpeername(fd, (struct sockaddr *)&peer, &n) < 0 || getsockname(fd, (struct sockaddr *)&mine, &m) < 0) exit(1);
    char a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &peer.sin_addr, a, sizeof a);
    inet_ntop(AF_INET, &mine.sin_addr, b, sizeof b);
    snprintf(out, size, "%s:%d %s\n", a, ntohs(peer.sin_port), b);
}

// Answers the line. Returns 0 if the connection is to be closed.
static int answer(int fd, char *line, const char *name, int count, int lines) {
    static char out[65536];
    int port;
    long bytes;
    if (strcmp(line, "count") == 0) {
        snprintf(out, sizeof out, "%s %d %d\n", name, count, lines);
    } else if (strcmp(line, "addresses") == 0) {
        addresses(fd, out, sizeof out);
    } else if (sscanf(line, "listen %d", &port) == 1) {
        int other = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        snprintf(out, sizeof out, "%s\n",
                 bind(other, (struct sockaddr *)&any, sizeof any) || listen(other, 1) ? strerror(errno) : "listens");
    } else if (sscanf(line, "bytes %ld", &bytes) == 1) {
        memset(out, 'x', sizeof out);
        for (long n; bytes > 0 && (n = write(fd, out, bytes < 65536 ? (size_t)bytes : 65536)) > 0;) bytes -= n;
        return 0;
    } else if (strcmp(line, "bye") == 0 || strncmp(line, "GET ", 4) == 0) { // the trial of a snapshot speaks HTTP
        return 0;
    } else if (strcmp(line, "die") == 0) {
        exit(3);
    } else if (strcmp(line, "spin") == 0) {
        for (volatile int forever = 1; forever;) {
        }
    } else if (strcmp(line, "print") == 0) {
        printf("a line of %s\n", name);
        fflush(stdout);
        snprintf(out, sizeof out, "printed\n");
    } else {
        snprintf(out, sizeof out, "%s\n", line);
    }
    put(fd, out);
    return 1;
}

int main(int argc, char **argv) {
    const int listener = listen_on(atoi(argv[1]));
    const char *name = argc > 2 ? argv[2] : "talks";
    for (int count = 1;; ++count) {
        const int fd = accept(listener, NULL, NULL);
        FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
        char line[1000];
        for (int lines = 1; in && fgets(line, sizeof line, in); ++lines) {
            line[strcspn(line, "\n")] = 0;
            if (!answer(fd, line, name, count, lines)) break;
        }
        if (in) {
            put(fd, "end\n"); // also after a client that has only closed its sending side
            fclose(in);
        }
    }
}
