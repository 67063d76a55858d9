// Mapped files: private, past their end, rights; mincore, mlock.
#include "fault.h"

#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096 };

static int make(const char *path, size_t size) {
    int fd = MUST(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (char)('a' + i / 100 % 26);
    MUST(write(fd, bytes, size));
    free(bytes);
    return fd;
}

static char at(int fd, off_t offset) {
    char c = 0;
    MUST(pread(fd, &c, 1, offset));
    return c;
}

static void private_file(void) {
    section("private");
    int fd = make("private", 3 * PAGE + 100);
    char *p = (char *)MUST(mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    CHECK(p[0] == 'a' && p[100] == 'b' && p[3 * PAGE + 99] == at(fd, 3 * PAGE + 99));
    CHECK(p[3 * PAGE + 100] == 0 && p[4 * PAGE - 1] == 0);
    p[0] = 'X';
    CHECK(p[0] == 'X' && p[1] == 'a' && at(fd, 0) == 'a');
    try_read("a page past the end", p + 4 * PAGE);
    char *q = (char *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE));
    CHECK(q[0] == at(fd, PAGE) && q[PAGE - 1] == at(fd, 2 * PAGE - 1));
    try_write("read-only", q);
    CALL(close(fd));
    CHECK(p[2 * PAGE] == q[0] + (2 * PAGE / 100 % 26 - PAGE / 100 % 26));
    CALL(madvise(p, PAGE, MADV_DONTNEED));
    CHECK(p[0] == 'a');
    char *r = mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    CHECK(r != MAP_FAILED && r[PAGE] == p[2 * PAGE]);
    CALL(munmap(p, 5 * PAGE));
    CALL(munmap(r, 2 * PAGE));
}

static void rights(void) {
    section("rights of the descriptor");
    int fd = MUST(open("private", O_RDONLY));
    CALL(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    CALL(close(fd));
    fd = MUST(open("private", O_WRONLY));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    CALL(close(fd));
    fd = MUST(open(".", O_RDONLY));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    CALL(close(fd));
    int pipe_fds[2];
    MUST(pipe(pipe_fds));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, pipe_fds[0], 0));
    CALL(close(pipe_fds[0]));
    CALL(close(pipe_fds[1]));
}

static void others(void) {
    section("mincore, mlock, shared anonymous memory");
    char *p = (char *)MUST(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    CHECK(p[0] == 0);
    p[0] = 1;
    unsigned char present[2] = {0, 0};
    CALL(mincore(p, PAGE, present));
    CHECK(present[0] & 1);
    CALL(mincore(p + 1, PAGE, present));
    CALL(mlock(p, PAGE));
    CALL(munlock(p, PAGE));
    CALL(munmap(p, 2 * PAGE));
    CALL(mincore(p, PAGE, present));
    p = (char *)MUST(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    CHECK(p[3 * PAGE] == 0);
    CALL(munmap(p, 4 * PAGE));
}

int main(void) {
    fault_catch();
    private_file();
    rights();
    others();
}
