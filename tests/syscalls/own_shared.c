// Shared mappings of the machine's own files.
#include "own.h"

#include <sys/mman.h>

static char buffer[4096];

int main(void) {
    shm_unlink("/kvmserver-own-shared");
    int fd = CALL(shm_open("/kvmserver-own-shared", O_RDWR | O_CREAT | O_EXCL, 0600));
    CALL(ftruncate(fd, 8192));
    CALL(pwrite(fd, "hello", 5, 4096));
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        SAY("failed: %s", strerrorname_np(errno));
        shm_unlink("/kvmserver-own-shared");
        return 1;
    }
    CHECK(strcmp(shared + 4096, "hello") == 0);
    CALL(pwrite(fd, "J", 1, 4096));
    CHECK(strcmp(shared + 4096, "Jello") == 0);
    strcpy(shared, "through the mapping");
    CALL(pread(fd, buffer, 20, 0));
    CHECK(strcmp(buffer, "through the mapping") == 0);
    struct stat grown;
    CALL(pwrite(fd, "x", 1, 10000));
    CALL(fstat(fd, &grown));
    SAY("size %ld", (long)grown.st_size);
    CALL(lseek(fd, 0, SEEK_END));
    int again = CALL(shm_open("/kvmserver-own-shared", O_RDWR, 0600));
    CALL(pread(again, buffer, 5, 4096));
    CALL(ftruncate(again, 4096));
    CALL(pread(fd, buffer, 5, 4096));
    CALL(fallocate(again, 0, 0, 8192));
    CALL(pread(fd, buffer, 5, 4096));
    CHECK(buffer[0] == 0 && shared[4096] == 0);
    CALL(close(again));
    CALL(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open("/tmp", O_RDONLY), 0) == MAP_FAILED && errno == ENODEV);
    CALL(shm_unlink("/kvmserver-own-shared"));
    CALL(shm_open("/kvmserver-own-shared", O_RDWR, 0600));
    shared[1] = 'T';
    CALL(pread(fd, buffer, 3, 0));
    CHECK(buffer[1] == 'T');
    CALL(munmap(shared, 8192));
    CALL(close(fd));
    return 0;
}
