// The standard streams: what comes in is told on both of the others.
#include "transcript.h"

#include <sys/stat.h>
#include <sys/uio.h>

int main(void) {
    char b[100];
    ssize_t n;
    struct stat st;
    CALL(isatty(0));
    CALL(fstat(0, &st));
    CALL(lseek(0, 0, SEEK_CUR));
    while ((n = read(0, b, sizeof b)) > 0) {
        MUST(write(1, b, (size_t)n));
        MUST(write(2, b, (size_t)n));
    }
    SAY("end of input: %zd", n);
    int copy = CALL(dup(1));
    CALL(write(copy, "by a copy\n", 10));
    struct iovec parts[] = {{"two ", 4}, {"parts\n", 6}};
    CALL(writev(2, parts, 2));
    CALL(read(0, b, 0));
    CALL(close(0));
    CALL(read(0, b, 1));
    CALL(open("/dev/null", O_RDONLY));
    char *much = malloc(300000);
    memset(much, '.', 300000);
    much[299999] = '\n';
    size_t sent = 0;
    while (sent < 300000) sent += (size_t)MUST(write(1, much + sent, 300000 - sent));
    CALL(fflush(stdout));
    fprintf(stderr, "the end\n");
}
