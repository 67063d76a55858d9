// User attributes of files in the machine's own folders. Natively tmpfs has them since Linux 6.6.
#include "own.h"

#include <sys/xattr.h>

static char buffer[4096];

static void attributes(void) {
    section("attributes");
    int fd = MUST(open("marked", O_RDWR | O_CREAT, 0600));
    if (fsetxattr(fd, "user.probe", "", 0, 0) == 0) fremovexattr(fd, "user.probe");
    CALL(getxattr("marked", "user.none", buffer, 10));
    CALL(setxattr("marked", "user.colour", "blue", 4, XATTR_CREATE));
    CALL(setxattr("marked", "user.colour", "blue", 4, XATTR_CREATE));
    CALL(fsetxattr(fd, "user.none", "blue", 4, XATTR_REPLACE));
    CALL(fgetxattr(fd, "user.colour", NULL, 0));
    CALL(fgetxattr(fd, "user.colour", buffer, 2));
    CALL(fgetxattr(fd, "user.colour", buffer, 10));
    CHECK(memcmp(buffer, "blue", 4) == 0);
    CALL(flistxattr(fd, buffer, sizeof buffer));
    CHECK(strcmp(buffer, "user.colour") == 0);
    CALL(removexattr("marked", "user.colour"));
    CALL(removexattr("marked", "user.colour"));
    CALL(getxattr("missing", "user.colour", buffer, 10));
    CALL(setxattr("marked", "nonsense", "x", 1, 0));
    close(fd);
}

int main(void) {
    own_enter("/tmp");
    attributes();
    return 0;
}
