// The same as directories.c, in the machine's own /tmp.
#include "own.h"
#define main main_of_directories
#include "directories.c"
#undef main

// Names that only the host resolves to a folder of the machine's own.
static void from_the_root(void) {
    section("relative to /");
    char a[100], b[100], c[100];
    snprintf(a, sizeof a, "%s/a", own_folder + 1);
    snprintf(b, sizeof b, "%s/b", own_folder + 1);
    snprintf(c, sizeof c, "%s/c", own_folder);
    CALL(chdir("/"));
    int fd = MUST(open(a, O_CREAT | O_WRONLY, 0600));
    CALL(write(fd, "kept", 4));
    CALL(close(fd));
    CALL(rename(a, b));
    CALL(rename(a, b));
    CALL(link(b, a));
    CALL(link(b, a));
    CALL(rename(b, c)); // one name relative, one absolute
    CALL(rename(c, b));
    CALL(linkat(AT_FDCWD, b, AT_FDCWD, c, AT_SYMLINK_FOLLOW));
    CALL(access(c, F_OK));
    CALL(unlink(a));
    CALL(unlink(b));
    CALL(unlink(c));
    CALL(chdir(own_folder));
}

int main(void) {
    own_enter("/tmp");
    main_of_directories();
    from_the_root();
    return 0;
}
