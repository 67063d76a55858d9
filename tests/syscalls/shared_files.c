// Shared mappings and the file behind them: one content, whoever changes it; past its end; rights; seals.
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

static char *map(int fd, size_t bytes, int protection, off_t offset) {
    return (char *)MUST(mmap(NULL, bytes, protection, MAP_SHARED, fd, offset));
}

// What write() puts into a file shows in every mapping of it, and the other way round.
static void one_content(void) {
    section("one content");
    int fd = make("one", 5 * PAGE), other = MUST(open("one", O_RDWR)), reader = MUST(open("one", O_RDONLY));
    volatile char *p = map(fd, 5 * PAGE, PROT_READ, 0), *q = map(other, 2 * PAGE, PROT_READ | PROT_WRITE, PAGE);
    volatile char *r = map(reader, PAGE, PROT_READ, 0);
    CHECK(p[0] == 'a' && r[0] == 'a');
    CALL(pwrite(other, "new", 3, 0));
    CHECK(p[0] == 'n' && r[0] == 'n');
    q[3] = 'Q';
    CHECK(p[PAGE + 3] == 'Q' && at(reader, PAGE + 3) == 'Q');
    char buffer[8] = "";
    CALL(pread(reader, buffer, 4, PAGE + 2));
    CHECK(buffer[1] == 'Q');
    CALL(lseek(fd, 4 * PAGE, SEEK_SET));
    CALL(read(fd, (void *)(q + PAGE), 10)); // into the file itself
    CHECK(p[2 * PAGE] == p[4 * PAGE]);
    CALL(write(fd, (void *)q, 4)); // from the file itself
    CHECK(p[4 * PAGE + 10 + 3] == 'Q');
    int appender = MUST(open("one", O_RDWR | O_APPEND));
    volatile char *s = map(appender, 6 * PAGE, PROT_READ | PROT_WRITE, 0);
    s[5] = 'S';
    CHECK(p[5] == 'S');
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 5 * PAGE);
    CALL(write(appender, "more", 4));
    CHECK(s[5 * PAGE] == 'm' && s[5 * PAGE + 4] == 0);
    CALL(munmap((void *)s, 6 * PAGE));
    CALL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    CHECK(p[0] == 0 && p[PAGE + 3] == 'Q');
    CALL(madvise((void *)q, PAGE, MADV_DONTNEED));
    CHECK(q[3] == 'Q');
    CALL(madvise((void *)q, PAGE, MADV_REMOVE));
    CHECK(q[3] == 0 && at(fd, PAGE + 3) == 0 && q[PAGE] != 0);
    CALL(madvise((void *)p, PAGE, MADV_REMOVE));
    close(fd), close(other), close(reader), close(appender);
    q[9] = 'z'; // without any descriptor
    CHECK(p[PAGE + 9] == 'z');
    CALL(unlink("one"));
    q[10] = 'y';
    CHECK(p[PAGE + 10] == 'y');
    CALL(munmap((void *)p, 5 * PAGE) | munmap((void *)q, 2 * PAGE) | munmap((void *)r, PAGE));
}

static void past_the_end(void) {
    section("past the end");
    int fd = make("end", PAGE + 10);
    char *p = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
    try_read("in the last page", p + PAGE + 4000);
    CHECK(p[PAGE + 10] == 0);
    try_read("behind it", p + 2 * PAGE);
    try_write("behind it, write", p + 3 * PAGE);
    char byte;
    CALL(pread(fd, p + 2 * PAGE, 1, 0));
    CALL(pwrite(fd, p + 2 * PAGE, 1, 0));
    CALL(syscall(SYS_clock_getres, CLOCK_MONOTONIC, p + 2 * PAGE));
    CALL(syscall(SYS_openat, AT_FDCWD, p + 2 * PAGE, O_RDONLY, 0));
    CALL(ftruncate(fd, 3 * PAGE));
    try_write("after it has grown", p + 2 * PAGE + 5);
    CHECK(at(fd, 2 * PAGE + 5) == 1);
    CALL(ftruncate(fd, 100));
    try_read("what is left", p + 50);
    try_read("what was cut off", p + 2 * PAGE + 5);
    CALL(pread(fd, &byte, 1, 200));
    CALL(pread(fd, p + 2 * PAGE, 1, 0));
    CALL(syscall(SYS_stat, p + PAGE, p));
    CALL(ftruncate(fd, 3 * PAGE));
    CHECK(p[2 * PAGE + 5] == 0 && p[99] != 0 && p[100] == 0);
    CALL(truncate("end", 0));
    try_read("cut off by name", p);
    close(MUST(open("end", O_WRONLY | O_TRUNC)));
    try_write("cut off by open", p + PAGE);
    CALL(munmap(p, 4 * PAGE));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100 * PAGE) != MAP_FAILED);
    close(fd);
}

static void rights(void) {
    section("rights");
    int fd = make("rights", 2 * PAGE), reader = MUST(open("rights", O_RDONLY)), writer = MUST(open("rights", O_WRONLY));
    CALL(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0));
    CALL(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, writer, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, MUST(open("rights", O_PATH)), 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, MUST(open(".", O_RDONLY)), 0));
    int ends[2];
    MUST(pipe(ends));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ends[0], 0));
    char *p = map(reader, 2 * PAGE, PROT_READ, 0);
    CALL(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
    try_write("read-only", p);
    CALL(mprotect(p, PAGE, PROT_NONE));
    try_read("no access", p);
    CALL(mprotect(p, PAGE, PROT_READ));
    try_read("readable again", p);
    CALL(munmap(p, 2 * PAGE));
    p = map(fd, 2 * PAGE, PROT_READ, 0);
    CALL(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE));
    try_write("writable now", p + PAGE);
    try_write("its neighbour", p);
    CHECK(at(fd, PAGE) == 1);
    CALL(mprotect(p + PAGE, PAGE, PROT_READ));
    try_write("no longer", p + PAGE);
    CALL(munmap(p, 2 * PAGE));
    char *q = (char *)MUST(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0));
    q[0] = 'p';
    CHECK(at(fd, 0) == 'a' && q[0] == 'p');
    CALL(munmap(q, 2 * PAGE));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE, fd, 0) != MAP_FAILED);
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 0x800000, fd, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_GROWSDOWN, fd, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, -PAGE));
    close(fd), close(reader), close(writer);
}

static void moving(void) {
    section("moving");
    int fd = make("moving", 6 * PAGE);
    char *p = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, PAGE);
    p[7] = 'm';
    char *q = mremap(p, 2 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[7] == 'm' && q[4 * PAGE] == at(fd, 5 * PAGE));
    char *target = (char *)MUST(mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p = mremap(q, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    CHECK(p == target && p[7] == 'm');
    p[8] = 'n';
    CHECK(at(fd, PAGE + 8) == 'n');
    CALL(mremap(p, 5 * PAGE, PAGE, 0) == p);
    CHECK(p[8] == 'n');
    CALL(munmap(target, 8 * PAGE));
    p = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
    CALL(munmap(p + PAGE, PAGE));
    p[0] = 'x', p[2 * PAGE] = 'y';
    CHECK(at(fd, 0) == 'x' && at(fd, 2 * PAGE) == 'y');
    CHECK(mmap(p, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 2 * PAGE) == p && p[0] == 'y');
    CALL(munmap(p, 4 * PAGE));
    CALL(madvise(map(fd, PAGE, PROT_READ, 0), PAGE, MADV_WIPEONFORK));
    close(fd);
}

static void syncing(void) {
    section("msync");
    int fd = make("sync", 3 * PAGE);
    char *p = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
    p[0] = 's';
    CALL(msync(p, 3 * PAGE, MS_SYNC));
    CALL(msync(p, 3 * PAGE, MS_ASYNC));
    CALL(msync(p, 3 * PAGE, MS_SYNC | MS_INVALIDATE));
    CALL(msync(p, 3 * PAGE, MS_SYNC | MS_ASYNC));
    CALL(msync(p, 3 * PAGE, 8));
    CALL(msync(p + 1, PAGE, MS_SYNC));
    CALL(msync(p, 0, MS_SYNC));
    CALL(msync(p, 1, 0));
    CALL(munmap(p + PAGE, PAGE));
    CALL(msync(p, 3 * PAGE, MS_SYNC));
    CALL(msync(p + PAGE, PAGE, MS_ASYNC));
    CALL(msync(p, (size_t)-PAGE, MS_SYNC));
    close(fd);
}

static void memory_files(void) {
    section("memory files");
    int fd = MUST(memfd_create("m", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CALL(ftruncate(fd, 4 * PAGE));
    char *p = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
    p[PAGE] = '1';
    CHECK(at(fd, PAGE) == '1');
    CALL(pwrite(fd, "22", 2, 3 * PAGE));
    CHECK(p[3 * PAGE + 1] == '2');
    char *q = map(fd, PAGE, PROT_READ, 3 * PAGE);
    p[3 * PAGE + 2] = '3';
    CHECK(q[2] == '3');
    CALL(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    CALL(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    CALL(ftruncate(fd, PAGE));
    CALL(munmap(p, 4 * PAGE));
    CALL(munmap(q, PAGE));
    CALL(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    CALL(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CALL(pwrite(fd, "n", 1, 0));
    q = (char *)MUST(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    CHECK(q[PAGE] == '1');
    close(fd);
    fd = MUST(memfd_create("n", 0));
    p = (char *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    try_write("an empty one", p);
    CALL(ftruncate(fd, 1));
    try_write("one byte", p);
    close(fd);
    try_write("closed", p);
    int zero = MUST(open("/dev/zero", O_RDWR));
    p = (char *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0));
    p[0] = 'z';
    CHECK(p[0] == 'z');
}

// More than the machine has windows for at once comes and goes.
static void large(void) {
    section("large");
    int fd = MUST(open("large", O_RDWR | O_CREAT | O_TRUNC, 0600));
    const size_t step = 8 << 20, count = 700;
    CALL(ftruncate(fd, (off_t)(step * count)));
    volatile char *p = map(fd, step * count, PROT_READ | PROT_WRITE, 0);
    for (size_t i = 0; i < count; i++) p[i * step + i] = (char)(i + 1);
    size_t good = 0;
    for (size_t i = 0; i < count; i++) good += p[i * step + i] == (char)(i + 1) && at(fd, (off_t)(i * step + i)) == (char)(i + 1);
    CHECK(good == count);
    CALL(munmap((void *)p, step * count));
    unlink("large");
    close(fd);
}

int main(void) {
    fault_catch();
    one_content();
    past_the_end();
    rights();
    moving();
    syncing();
    memory_files();
    large();
}
