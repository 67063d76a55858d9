// greets PORT: says how many clients it has had to each that connects, then what that client says.
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int t = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(t, (void *)&a, sizeof a) || listen(t, 9)) {
        perror("bind");
        return 1;
    }
    for (int count = 1;; ++count) {
        int s = accept(t, 0, 0);
        if (s < 0) continue;
        char in[100];
        ssize_t n = snprintf(in, sizeof in, "%d ready\n", count);
        if (write(s, in, (size_t)n) == n)
            while ((n = read(s, in, sizeof in)) > 0 && write(s, in, (size_t)n) == n) {}
        close(s);
    }
}
