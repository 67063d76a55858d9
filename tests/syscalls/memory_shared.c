// Shared mappings of files and of memory that has a descriptor.
#include "transcript.h"

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

static void shared_file(void) {
    section("shared");
    int fd = make("shared", 2 * PAGE);
    char *p = (char *)MUST(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    p[10] = 'S';
    p[PAGE] = 'T';
    CALL(msync(p, 2 * PAGE, MS_SYNC));
    CHECK(at(fd, 10) == 'S' && at(fd, PAGE) == 'T');
    CALL(msync(p + 1, PAGE, MS_SYNC));
    p[11] = 'U';
    CALL(munmap(p, 2 * PAGE));
    CHECK(at(fd, 11) == 'U');
    p = (char *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
    CHECK(p[11] == 'U');
    CALL(munmap(p, PAGE));
    CALL(close(fd));
}

static void memory_file(void) {
    section("memfd");
    int fd = CALL(memfd_create("name", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CALL(ftruncate(fd, 2 * PAGE));
    char *p = (char *)MUST(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    p[7] = 'm';
    CHECK(at(fd, 7) == 'm');
    CALL(pwrite(fd, "w", 1, 8));
    CALL(msync(p, 2 * PAGE, MS_SYNC));
    struct stat st;
    CALL(fstat(fd, &st));
    CHECK(st.st_size == 2 * PAGE && S_ISREG(st.st_mode));
    CALL(munmap(p, 2 * PAGE));
    CALL(close(fd));
}

int main(void) {
    shared_file();
    memory_file();
}
