// sendfile and copy_file_range where they could go wrong: counts, targets that append, a file to itself.
#include "transcript.h"

#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

static int with(const char *name, const char *text) {
    int fd = (int)MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
    MUST(write(fd, text, strlen(text)));
    MUST(lseek(fd, 0, SEEK_SET));
    return fd;
}

static long long size_of(int fd) {
    struct stat s;
    MUST(fstat(fd, &s));
    return s.st_size;
}

static void arguments(void) {
    section("arguments");
    int f = with("f", "hello"), g = with("g", ""), p[2];
    off_t at = 0, behind = 5, negative = -1;
    CALL(sendfile(g, f, NULL, (size_t)-1));
    CALL(sendfile(g, f, &negative, 5));
    CALL(sendfile(g, f, (off_t *)8, 5));
    CALL(sendfile(99, f, NULL, 5));
    CALL(sendfile(g, 99, NULL, 5));
    CALL(sendfile(g, f, NULL, 0));
    CALL(sendfile(g, f, &behind, 5));
    CALL(sendfile(g, f, &at, 3));
    CHECK(at == 3);
    MUST(fcntl(g, F_SETFL, O_APPEND));
    CALL(sendfile(g, f, NULL, 5));
    MUST(pipe(p));
    CALL(sendfile(g, p[0], NULL, 5));
    CALL(sendfile(p[0], f, NULL, 5));
    CALL(sendfile(p[1], f, NULL, 5));
    close(p[0]), close(p[1]), close(f), close(g);
}

// What it returns depends on the kernel; that it returns at all, and that no more was copied than asked for, does not.
static void to_itself(void) {
    section("to itself");
    int f = with("f", "0123456789");
    MUST(lseek(f, 10, SEEK_SET));
    off_t at = 0;
    alarm(20);
    ssize_t n = sendfile(f, f, &at, 65536);
    CHECK(n > 0 && n <= 65536 && size_of(f) == 10 + n);
    MUST(ftruncate(f, 10));
    loff_t in = 0, out = 5;
    CALL(copy_file_range(f, &in, f, &out, 10, 0));
    in = 0, out = 10;
    CALL(copy_file_range(f, &in, f, &out, 100, 0));
    CHECK(size_of(f) == 20 && in == 10 && out == 20);
    alarm(0);
    close(f);
}

int main(void) {
    arguments();
    to_itself();
    return 0;
}
