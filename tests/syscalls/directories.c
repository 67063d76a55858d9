// Names: folders, links, renames, the current folder, listings.
#include "transcript.h"

#include <dirent.h>
#include <sys/stat.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void say_listing(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) {
        SAY("opendir %s: %s", path, strerrorname_np(errno));
        return;
    }
    char *names[300];
    size_t n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char text[300];
        snprintf(text, sizeof text, "%s%s", e->d_name, e->d_type == DT_DIR ? "/" : e->d_type == DT_LNK ? "@" : "");
        names[n++] = strdup(text);
    }
    closedir(dir);
    qsort(names, n, sizeof *names, by_name);
    printf("%s:", path);
    for (size_t i = 0; i < n && i < 10; i++) printf(" %s", names[i]);
    SAY(" (%zu)", n);
}

static void folders(void) {
    section("folders");
    CALL(mkdir("d", 0755));
    CALL(mkdir("d", 0755));
    CALL(mkdir("missing/d", 0755));
    CALL(close(MUST(open("d/file", O_WRONLY | O_CREAT, 0600))));
    CALL(rmdir("d"));
    CALL(rmdir("d/file"));
    CALL(rmdir("missing"));
    CALL(unlink("d"));
    int dir = CALL(open("d", O_RDONLY | O_DIRECTORY));
    char c;
    CALL(read(dir, &c, 1));
    CALL(mkdirat(dir, "e", 0700));
    CALL(close(MUST(openat(dir, "e/deep", O_WRONLY | O_CREAT, 0600))));
    say_listing("d");
    say_listing("d/e");
    CALL(unlinkat(dir, "e", 0));
    CALL(unlinkat(dir, "e", AT_REMOVEDIR));
    CALL(unlinkat(dir, "e/deep", 0));
    CALL(unlinkat(dir, "e", AT_REMOVEDIR));
    say_listing("d");
    say_listing("missing");
    CALL(close(dir));
    MUST(mkdir("many", 0700));
    for (int i = 0; i < 250; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/a-rather-long-name-%03d", i);
        close(MUST(open(name, O_WRONLY | O_CREAT, 0600)));
    }
    say_listing("many");
    struct stat st;
    CALL(stat("d", &st));
    SAY("mode %o", st.st_mode);
}

static void rewinding(void) {
    section("getdents in small steps, rewound");
    int dir = MUST(open("many", O_RDONLY | O_DIRECTORY));
    char entries[256];
    for (int round = 0; round < 2; round++) {
        int count = 0;
        long n;
        while ((n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0)
            for (long at = 0; at < n; at += ((struct dirent64 *)(entries + at))->d_reclen) count++;
        SAY("%d entries, then %ld", count, n);
        CALL(lseek(dir, 0, SEEK_SET));
    }
    CALL(syscall(SYS_getdents64, dir, entries, 10L));
    CALL(syscall(SYS_getdents64, 1, entries, sizeof entries));
    close(dir);
}

static void links(void) {
    section("links");
    struct stat st;
    char target[32];
    CALL(link("d/file", "hard"));
    CALL(stat("hard", &st));
    SAY("%ld links", (long)st.st_nlink);
    CALL(link("d/file", "hard"));
    CALL(link("d", "hard2"));
    CALL(symlink("d/file", "soft"));
    CALL(symlink("d/file", "soft"));
    SAY("readlink %ld '%.6s'", (long)readlink("soft", target, sizeof target), target);
    CALL(readlink("soft", target, 3));
    CALL(readlink("hard", target, sizeof target));
    CALL(readlink("missing", target, sizeof target));
    CALL(lstat("soft", &st));
    CHECK(S_ISLNK(st.st_mode));
    CALL(stat("soft", &st));
    CHECK(S_ISREG(st.st_mode));
    CALL(open("soft", O_RDONLY | O_NOFOLLOW));
    CALL(symlink("loop", "loop"));
    CALL(open("loop", O_RDONLY));
    CALL(symlink("nowhere", "dangling"));
    CALL(open("dangling", O_RDONLY));
    CALL(stat("dangling", &st));
    CALL(open("dangling", O_WRONLY | O_CREAT | O_EXCL, 0600));
    CALL(unlink("dangling"));
    CALL(unlink("dangling"));
    CALL(faccessat(AT_FDCWD, "loop", F_OK, AT_SYMLINK_NOFOLLOW));
}

static void renames(void) {
    section("renames");
    CALL(rename("hard", "moved"));
    CALL(rename("hard", "moved"));
    CALL(rename("moved", "d"));
    CALL(rename("d", "d/inside"));
    CALL(renameat2(AT_FDCWD, "moved", AT_FDCWD, "soft", RENAME_NOREPLACE));
    CALL(renameat(AT_FDCWD, "moved", AT_FDCWD, "d/moved"));
    say_listing("d");
    int fd = MUST(open("d/moved", O_RDWR));
    CALL(unlink("d/moved"));
    CALL(write(fd, "still here", 10));
    char c = 0;
    CALL(pread(fd, &c, 1, 6));
    CHECK(c == 'h');
    CALL(close(fd));
}

static void current(void) {
    section("current folder");
    char start[4096], now[4096];
    CHECK(getcwd(start, sizeof start) == start);
    CALL(syscall(SYS_getcwd, now, 2L));
    CALL(chdir("d"));
    CALL(access("file", F_OK));
    CHECK(getcwd(now, sizeof now) && strcmp(now + strlen(start), "/d") == 0);
    CALL(chdir("missing"));
    CALL(chdir("file"));
    CALL(chdir(".."));
    int dir = MUST(open("d", O_RDONLY));
    CALL(fchdir(dir));
    CALL(access("file", F_OK));
    CALL(chdir(start));
    CALL(fchdir(0));
    CALL(fchdir(99));
    close(dir);
    char longest[5000];
    memset(longest, 'x', sizeof longest);
    longest[300] = 0;
    CALL(open(longest, O_RDONLY));
    longest[300] = 'x';
    longest[4999] = 0;
    CALL(open(longest, O_RDONLY));
}

int main(void) {
    umask(022);
    folders();
    rewinding();
    links();
    renames();
    current();
    return 0;
}
