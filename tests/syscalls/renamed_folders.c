// Folder descriptors and the current folder follow their folder through renames; open flags; descriptors by way of /proc/self/fd.
#include "transcript.h"

#include <sys/stat.h>
#include <sys/vfs.h>

static void renamed(void) {
    section("renamed folders");
    MUST(mkdir("a", 0700));
    int dir = MUST(open("a", O_RDONLY | O_DIRECTORY));
    MUST(close(MUST(openat(dir, "x", O_CREAT | O_WRONLY, 0600))));
    CALL(rename("a", "b"));
    CALL(close(MUST(openat(dir, "x", O_RDONLY))));
    MUST(mkdir("a", 0700));
    MUST(close(MUST(open("a/evil", O_CREAT | O_WRONLY, 0600))));
    CALL(openat(dir, "evil", O_RDONLY));
    CALL(unlinkat(dir, "evil", 0));
    CALL(mkdirat(dir, "inner", 0700));
    CALL(chdir("b"));
    CALL(rename("../b", "../c"));
    CALL(close(MUST(open("x", O_RDONLY))));
    char cwd[4096] = "";
    CHECK(getcwd(cwd, sizeof cwd) && strcmp(strrchr(cwd, '/'), "/c") == 0);
    CALL(unlink("x"));
    CALL(rmdir("inner"));
    CALL(rmdir("../c"));
    CALL(getcwd(cwd, sizeof cwd) == NULL ? -1 : 0);
    CALL(open("x", O_CREAT | O_WRONLY, 0600));
    CALL(openat(dir, "x", O_CREAT | O_WRONLY, 0600));
    CALL(fchdir(dir));
    CALL(chdir("/"));
}

static void flags(const char *folder) {
    section("flags");
    MUST(chdir(folder));
    MUST(close(MUST(open("f", O_CREAT | O_WRONLY, 0600))));
    MUST(symlink(".", "l"));
    int fd = CALL(open("f", 3));
    char c = 0;
    CALL(read(fd, &c, 1));
    CALL(write(fd, &c, 1));
    CALL(close(fd));
    fd = CALL(open(".", O_TMPFILE | O_RDWR, 0600));
    CALL(write(fd, "x", 1));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CALL(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    struct stat st;
    CALL(stat("named", &st));
    SAY("size %ld, %d names", (long)st.st_size, (int)st.st_nlink);
    CALL(close(fd));
    CALL(open(".", O_TMPFILE | O_RDONLY, 0600));
    CALL(mkfifo("fifo", 0600));
    CALL(stat("fifo", &st));
    SAY("mode %o", st.st_mode);
    CALL(fstatat(AT_FDCWD, "l/", &st, AT_SYMLINK_NOFOLLOW));
    CHECK(S_ISDIR(st.st_mode));
    CALL(pwrite(MUST(open("/dev/null", O_WRONLY)), "x", 1, 100));
}

static void pipes(void) {
    section("pipes by /proc/self/fd");
    int ends[2];
    MUST(pipe(ends));
    struct stat a, b;
    fstat(ends[0], &a);
    fstat(ends[1], &b);
    CHECK(a.st_ino == b.st_ino);
    char path[64], text[64] = "", want[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    snprintf(want, sizeof want, "pipe:[%lu]", (unsigned long)a.st_ino);
    CHECK(readlink(path, text, sizeof text - 1) > 0 && strcmp(text, want) == 0);
    int again = (int)MUST(open(path, O_WRONLY));
    CALL(write(again, "abc", 3));
    CALL(read(ends[0], text, 10));
    CALL(close(ends[1]));
    say_ready("reader", ends[0]);
    CALL(close(again));
    say_ready("reader", ends[0]);
    CALL(fcntl(ends[0], F_SETPIPE_SZ, 1 << 20));
    CALL(readlink("/proc/self/fd/999", text, sizeof text));
    struct statfs fs;
    CALL(fstatfs(ends[0], &fs));
    CHECK(lstat("/proc/self", &a) == 0 && S_ISLNK(a.st_mode));
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    CHECK(atoi(text) == getpid());
    CHECK(access("/proc/self/fd/0", F_OK) == 0 && access("/proc/thread-self/fd", F_OK) == 0);
}

int main(void) {
    char folder[4096];
    if (!getcwd(folder, sizeof folder)) return 1;
    renamed();
    flags(folder);
    pipes();
    return 0;
}
