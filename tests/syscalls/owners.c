// Owners and modes of what a program makes.
#include "transcript.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>

static void say(const char *name) {
    struct stat plain, link, opened;
    struct statx more;
    MUST(stat(name, &plain));
    MUST(lstat(name, &link));
    MUST(statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &more));
    int fd = open(name, O_RDONLY);
    if (fd >= 0) {
        MUST(fstat(fd, &opened));
        CHECK(opened.st_uid == plain.st_uid && opened.st_gid == plain.st_gid);
        close(fd);
    }
    CHECK(more.stx_uid == plain.st_uid && more.stx_gid == plain.st_gid);
    SAY("%s: mode %o, owner %d, group %d; itself %d, %d", name, plain.st_mode & 07777, (int)plain.st_uid, (int)plain.st_gid,
        (int)link.st_uid, (int)link.st_gid);
}

static void masks(void) {
    section("modes");
    const mode_t some[] = {0, 022, 077, 0777, 0137};
    for (int i = 0; i < 5; i++) {
        umask(some[i]);
        char name[32];
        struct stat st;
        sprintf(name, "folder%d", i);
        CALL(mkdir(name, 01777));
        MUST(stat(name, &st));
        SAY("%o", st.st_mode & 07777);
        sprintf(name, "file%d", i);
        close(MUST(open(name, O_CREAT | O_WRONLY, 0666)));
        MUST(stat(name, &st));
        SAY("%o", st.st_mode & 07777);
        sprintf(name, "other%d", i);
        close(MUST(creat(name, 0777)));
        MUST(stat(name, &st));
        SAY("%o", st.st_mode & 07777);
    }
    umask(0);
    close(MUST(open("file1", O_CREAT | O_WRONLY, 0666))); // is there: keeps its mode
    struct stat st;
    MUST(stat("file1", &st));
    SAY("%o", st.st_mode & 07777);
}

static void owners(void) {
    section("owners");
    int fd = MUST(open("mine", O_CREAT | O_RDWR, 0644));
    CALL(symlink("mine", "link"));
    CALL(chown("mine", 65534, -1));
    say("mine");
    CALL(chown("link", -1, 12));
    CALL(lchown("link", 13, 14));
    say("link");
    CALL(fchown(fd, 15, 16));
    say("mine");
    CALL(fchownat(AT_FDCWD, "link", 17, 18, AT_SYMLINK_NOFOLLOW));
    CALL(fchownat(fd, "", 19, 20, AT_EMPTY_PATH));
    say("link");
    CALL(rename("mine", "renamed"));
    say("renamed");
    CALL(unlink("renamed"));
    close(fd);
    close(MUST(open("fresh", O_CREAT | O_RDWR, 0644)));
    struct stat st;
    MUST(stat("fresh", &st));
    CHECK(st.st_uid == getuid() && st.st_gid == getgid());
    CALL(chown("fresh", -1, -1));
    CALL(chown("fresh", getuid(), getgid()));
    section("wrong");
    CALL(chown("nowhere", 1, 1));
    CALL(chown("", 1, 1));
    CALL(chown("fresh/x", 1, 1));
    CALL(syscall(SYS_chown, 0L, 1, 1));
    CALL(syscall(SYS_chown, 1L, 1, 1));
    CALL(syscall(SYS_lchown, 1L, 1, 1));
    CALL(fchown(99, 1, 1));
    CALL(fchownat(99, "fresh", 1, 1, 0));
    CALL(fchownat(AT_FDCWD, "fresh", 1, 1, 0x40));
    CALL(fchownat(AT_FDCWD, "", 1, 1, 0));
    fd = MUST(open("fresh", O_PATH));
    CALL(fchown(fd, 1, 1));
    close(fd);
}

static void as_other(void) {
    section("as another");
    umask(022);
    MUST(chmod(".", 0777));
    close(MUST(open("root's", O_CREAT | O_RDWR, 0666)));
    CALL(setresgid(1000, 1000, 1000));
    CALL(setresuid(1000, 1000, 1000));
    prctl(PR_SET_DUMPABLE, 1);
    CALL(chown("root's", 1000, -1));
    int fd = CALL(open("own", O_CREAT | O_RDWR, 0640));
    close(fd);
    say("own");
    fd = CALL(open("own", O_CREAT | O_RDWR, 0640));
    close(fd);
    CALL(open("own", O_CREAT | O_EXCL | O_RDWR, 0640));
    CALL(mkdir("own folder", 0700));
    say("own folder");
    CALL(symlink("own", "own link"));
    struct stat st;
    MUST(lstat("own link", &st));
    SAY("%d %d", (int)st.st_uid, (int)st.st_gid);
    CALL(chown("own", 1000, 1000));
    CALL(chown("own", 0, -1));
    CALL(chown("own", -1, 5));
    CALL(chown("own", 1001, -1));
    struct stat root;
    MUST(stat("root's", &root));
    CHECK(root.st_uid != 1000 || getuid() != 1000);
}

int main(void) {
    masks();
    owners();
    if (getuid() == 0) as_other();
}
