// The size limit of files, in the machine's own /tmp.
#include "own.h"
#define main main_of_limits
#include "limits.c"
#undef main

static void allocating(void) {
    section("fallocate");
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, RLIM_INFINITY}));
    int fd = MUST(open("allocated", O_CREAT | O_RDWR, 0600));
    CALL(fallocate(fd, 0, 0, 900));
    CALL(fallocate(fd, 0, 500, 501));
    CALL(fallocate(fd, 0, 500, 500));
    CALL(lseek(fd, 0, SEEK_END));
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 9) return main_of_limits();
    (void)argv;
    own_enter("/tmp");
    file_size();
    allocating();
    return 0;
}
