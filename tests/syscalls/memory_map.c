// mmap, munmap, mprotect, mremap, madvise, brk on anonymous memory.
#include "fault.h"

#include <sys/mman.h>

enum { PAGE = 4096 };

static char *map(size_t pages, int protection) {
    return (char *)MUST(mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void protecting(void) {
    section("mprotect");
    char *p = map(4, PROT_READ | PROT_WRITE);
    CHECK(p[0] == 0 && p[3 * PAGE + 5] == 0);
    memset(p, 'x', 4 * PAGE);
    CALL(mprotect(p + PAGE, PAGE, PROT_READ));
    try_read("read-only, read", p + PAGE + 7);
    try_write("read-only, write", p + PAGE + 7);
    try_write("its neighbour, write", p + 2 * PAGE);
    CALL(mprotect(p + PAGE, PAGE, PROT_NONE));
    try_read("no access after it was written, read", p + PAGE);
    try_write("no access after it was written, write", p + PAGE + 4095);
    CALL(mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE));
    CHECK(p[PAGE] == 'x' && p[PAGE + 7] == 'x');
    try_write("writable again", p + PAGE);
    CALL(mprotect(p, 4 * PAGE, PROT_READ));
    for (int i = 0; i < 3; i++) try_write("again and again", p + i * PAGE);
    CALL(mprotect(p + 1, PAGE, PROT_READ));
    CALL(mprotect(p, 0, PROT_READ));
    CALL(munmap(p + 2 * PAGE, PAGE));
    CALL(mprotect(p, 4 * PAGE, PROT_READ));
    TRY("jump into data", p, ((void (*)(void))p)());
    CALL(munmap(p, 4 * PAGE));
}

static void unmapping(void) {
    section("munmap");
    char *p = map(5, PROT_READ | PROT_WRITE);
    memset(p, 'y', 5 * PAGE);
    CALL(munmap(p + PAGE, 3 * PAGE));
    try_read("the hole", p + 2 * PAGE);
    CHECK(p[0] == 'y' && p[4 * PAGE] == 'y');
    CHECK(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + PAGE);
    CHECK(p[PAGE] == 0);
    CHECK(mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    CHECK(p[0] == 0);
    CALL(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    CHECK(mmap(p + 2 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
          p + 2 * PAGE);
    CALL(munmap(p + 1, PAGE));
    CALL(munmap(p, 0));
    CALL(munmap(p, 5 * PAGE));
    CALL(munmap(p, 5 * PAGE));
    try_write("after all is gone", p);
    TRY("null pointer", NULL, *(volatile char *)8 = 1);
    CALL(fault_info.si_addr == (void *)8);
    TRY("non-canonical address", NULL, (void)*(volatile char *)0x800000000000dead);
}

static void invalid(void) {
    section("invalid mmap");
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    CALL(mmap(NULL, 0, PROT_READ, flags, -1, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0));
    CALL(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0));
    CALL(mmap((void *)1, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0));
    CALL(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE, 0, 1));
    CALL(mmap(NULL, (size_t)1 << 62, PROT_READ, flags, -1, 0));
    // Beyond every address, also where the CPU has five levels of page tables.
    CALL(mmap((void *)((1ul << 56) - PAGE), 2 * PAGE, PROT_READ, flags | MAP_FIXED, -1, 0));
    CALL(munmap((void *)(1ul << 56), PAGE));
}

static void remapping(void) {
    section("mremap");
    char *p = map(3, PROT_READ | PROT_WRITE);
    p[0] = 'a', p[2 * PAGE] = 'c';
    char *q = mremap(p, 3 * PAGE, 500 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[0] == 'a' && q[2 * PAGE] == 'c' && q[3 * PAGE] == 0);
    q[499 * PAGE] = 'z';
    CHECK(mremap(q, 500 * PAGE, PAGE, 0) == q);
    try_read("cut off", q + PAGE);
    char *room = map(10, PROT_NONE);
    CHECK(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 5 * PAGE) == room + 5 * PAGE);
    CHECK(room[5 * PAGE] == 'a');
    try_read("moved away", q);
    try_read("before the target", room + 4 * PAGE);
    CALL(mremap(room + 4 * PAGE, PAGE, 2 * PAGE, 0));
    CALL(mremap(room + 1, PAGE, PAGE, 0));
    CALL(mremap(room, PAGE, 0, 0));
    CALL(mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    CALL(munmap(room, 10 * PAGE));
}

static void advising(void) {
    section("madvise");
    char *p = map(4, PROT_READ | PROT_WRITE);
    memset(p, 'm', 4 * PAGE);
    CALL(madvise(p + PAGE, 2 * PAGE, MADV_DONTNEED));
    CHECK(p[0] == 'm' && p[PAGE] == 0 && p[2 * PAGE + 9] == 0 && p[3 * PAGE] == 'm');
    p[PAGE] = 'n';
    CHECK(p[PAGE] == 'n' && p[PAGE + 1] == 0);
    CALL(madvise(p, PAGE, MADV_WILLNEED));
    CALL(madvise(p, PAGE, MADV_NOHUGEPAGE));
    CALL(madvise(p, PAGE, MADV_WIPEONFORK));
    CALL(madvise(p, PAGE, MADV_KEEPONFORK));
    CALL(madvise(p, PAGE, MADV_DONTFORK));
    CALL(madvise(p, PAGE, MADV_DONTDUMP));
    CALL(madvise(p, PAGE, MADV_FREE));
    CALL(madvise(p, PAGE, 12345));
    CALL(madvise(p + 1, PAGE, MADV_DONTNEED));
    CALL(munmap(p + PAGE, PAGE));
    CALL(madvise(p, 4 * PAGE, MADV_DONTNEED));
    CHECK(p[3 * PAGE] == 0);
    CALL(munmap(p, 4 * PAGE));
}

static void executable(void) {
    section("code");
    static const unsigned char add[] = {0x8d, 0x04, 0x37, 0xc3};  // lea (%rdi,%rsi),%eax; ret
    static const unsigned char sub[] = {0x89, 0xf8, 0x29, 0xf0, 0xc3};
    unsigned char *p = (unsigned char *)map(1, PROT_READ | PROT_WRITE);
    memcpy(p, add, sizeof add);
    CALL(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
    CALL(((int (*)(int, int))p)(40, 2));
    CALL(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
    TRY("no longer executable", p, ((int (*)(int, int))p)(40, 2));
    memcpy(p, sub, sizeof sub);
    CALL(mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
    CALL(((int (*)(int, int))p)(40, 2));
    memcpy(p, add, sizeof add);
    CALL(((int (*)(int, int))p)(40, 2));
    CALL(munmap(p, PAGE));
}

static void large(void) {
    section("large and sparse");
    size_t size = 32ul << 30;
    char *p = (char *)MUST(mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    CALL(mprotect(p + (20ul << 30), 64 << 20, PROT_READ | PROT_WRITE));
    for (size_t at = 20ul << 30; at < (20ul << 30) + (64 << 20); at += 1 << 20) p[at] = 's';
    CHECK(p[(20ul << 30) + (63 << 20)] == 's');
    try_read("outside", p);
    CALL(munmap(p, size));
    size = 64 << 20;
    p = map(size / PAGE, PROT_READ | PROT_WRITE);
    for (size_t at = 0; at < size; at += PAGE) p[at] = (char)(at >> 12);
    int wrong = 0;
    for (size_t at = 0; at < size; at += PAGE) wrong += p[at] != (char)(at >> 12);
    CHECK(wrong == 0);
    CALL(munmap(p, size));
}

static void program_break(void) {
    section("brk");
    char *start = sbrk(0);
    CHECK(sbrk(100000) == start);
    memset(start, 'b', 100000);
    CHECK(start[99999] == 'b');
    CHECK(brk(start) == 0 && sbrk(0) == start);
    CHECK((char *)syscall(SYS_brk, NULL) == start);
    CHECK((char *)syscall(SYS_brk, (char *)PAGE) == start);
    CHECK(sbrk(PAGE * 30) == start && start[PAGE * 2] == 0);
}

static int deep(int n) {
    volatile char here[8192];
    here[0] = (char)n;
    return n == 0 ? 0 : deep(n - 1) + 1 + here[0] * 0;
}

int main(void) {
    fault_catch();
    protecting();
    unmapping();
    invalid();
    remapping();
    advising();
    executable();
    large();
    program_break();
    section("stack");
    CALL(deep(700));
}
