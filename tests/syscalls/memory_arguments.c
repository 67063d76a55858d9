// What mmap and its relatives are asked for that they must refuse, or must obey.
#include "fault.h"

#include <sys/mman.h>

enum { PAGE = 4096 };
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static void where(void) {
    section("where");
    char *p = (char *)MUST(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_32BIT, -1, 0));
    CHECK((uintptr_t)p + (64 << 20) <= 1ul << 31);
    memset(p, 'b', 1 << 20);
    char *q = (char *)MUST(mmap(NULL, 64 << 20, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    CHECK((uintptr_t)q + (64 << 20) <= 1ul << 31 && q != p);
    CALL(munmap(p, 64 << 20) | munmap(q, 64 << 20));
    CALL(mmap(NULL, (size_t)3 << 30, PROT_NONE, ANONYMOUS | MAP_32BIT | MAP_NORESERVE, -1, 0));
    p = (char *)MUST(mmap(NULL, 3 * PAGE, PROT_READ, ANONYMOUS, -1, 0));
    CALL(mmap(p + PAGE, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    CALL(mmap(p + 2 * PAGE, 2 * PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    CALL(mmap(p + 1, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    CHECK(mmap(p + 1, PAGE, PROT_READ, ANONYMOUS, -1, 0) != p);
    CALL(munmap(p, 3 * PAGE));
    CHECK(mmap(p, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p);
    CALL(munmap(p, PAGE));
}

static void kinds(void) {
    section("kinds");
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0));
    CALL(mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_HUGETLB, -1, 0));
    int fd = MUST(open("/etc/passwd", O_RDONLY));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_HUGETLB, fd, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, -PAGE));
    close(fd);
    // Reserving costs nothing.
    char *p = (char *)MUST(mmap(NULL, (size_t)8 << 40, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0));
    CALL(mprotect(p + ((size_t)5 << 40), PAGE, PROT_READ | PROT_WRITE));
    try_write("part of it", p + ((size_t)5 << 40));
    try_write("the rest", p + ((size_t)4 << 40));
    CALL(munmap(p, (size_t)8 << 40));
}

static void growing(void) {
    section("growing down");
    // A hole below it, which nothing else takes.
    char *room = (char *)MUST(mmap(NULL, 8 << 20, PROT_NONE, ANONYMOUS, -1, 0));
    CALL(munmap(room, 8 << 20));
    char *p = (char *)MUST(mmap(room + (8 << 20) - PAGE, PAGE, PROT_READ | PROT_WRITE,
                                ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0));
    try_write("in it", p);
    try_write("below it", p - 5);
    try_write("further below", p - 20 * PAGE);
    CALL(mprotect(p, PAGE, PROT_READ | PROT_GROWSDOWN));
    CALL(mprotect(p, PAGE, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP));
    char *q = (char *)MUST(mmap(NULL, PAGE, PROT_READ, ANONYMOUS, -1, 0));
    CALL(mprotect(q, PAGE, PROT_READ | PROT_GROWSDOWN));
    CALL(mprotect(q, PAGE, PROT_READ | PROT_GROWSUP));
}

static void locking(void) {
    section("mlock");
    char *p = (char *)MUST(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0));
    CALL(mlock(p + 5, PAGE));
    CALL(munlock(p, 3 * PAGE));
    CALL(mlock(p, 0));
    CALL(munmap(p + PAGE, PAGE));
    CALL(mlock(p, 3 * PAGE));
    CALL(munlock(p, 3 * PAGE));
    CALL(mlock((void *)0x10000000, PAGE));
    CALL(mlock(p, (size_t)-1));
    CALL(mlock2(p, PAGE, 1));
    CALL(mlock2(p, PAGE, 2));
    CALL(mlockall(0));
    CALL(mlockall(64));
    CALL(mlockall(4));
    CALL(munlockall());
    section("madvise");
    CALL(madvise(p + 1, PAGE, MADV_DONTNEED));
    CALL(madvise(p, 3 * PAGE, MADV_DONTNEED));
    CALL(madvise(p, PAGE, 9999));
    CALL(madvise(p, PAGE, MADV_REMOVE));
    CALL(madvise(p, 0, MADV_DONTNEED));
    char *shared = (char *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    shared[0] = 's';
    CALL(madvise(shared, PAGE, MADV_WIPEONFORK));
    CALL(madvise(shared, PAGE, MADV_DONTNEED));
    CHECK(shared[0] == 's');
    CALL(madvise(shared, PAGE, MADV_REMOVE));
    CHECK(shared[0] == 0);
    munmap(p + PAGE, PAGE); // the mapping above may have come to lie there
    section("mremap");
    CALL(mremap(p + 1, PAGE, PAGE, 0));
    CALL(mremap(p, PAGE, 0, 0));
    CALL(mremap(p, PAGE, PAGE, 64));
    CALL(mremap(p, PAGE, PAGE, MREMAP_FIXED, p + 2 * PAGE));
    CALL(mremap(p, PAGE, 2 * PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, p));
    CALL(mremap(p + PAGE, PAGE, PAGE, MREMAP_MAYMOVE));
    unsigned char resident[3];
    section("mincore");
    CALL(mincore(p + 1, PAGE, resident));
    CALL(mincore(p, 3 * PAGE, resident));
    CALL(mincore(p, PAGE, (void *)8));
}

int main(void) {
    fault_catch();
    where();
    kinds();
    growing();
    locking();
}
