// Who may do what in the machine's own /tmp: supplementary groups, and capabilities in place of user 0. Natively it needs
// root; without, it says so and ends.
#include "own.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>

enum { kChown = 1 << CAP_CHOWN, kOverride = 1 << CAP_DAC_OVERRIDE, kOwner = 1 << CAP_FOWNER, kSetId = 1 << CAP_FSETID };
enum { kIds = 1 << CAP_SETUID | 1 << CAP_SETGID };

// Exactly these capabilities are in effect, besides those that change ids.
static void only(uint32_t capabilities) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    MUST(syscall(SYS_capget, &header, sets));
    sets[0].effective = capabilities | kIds, sets[1].effective = 0;
    MUST(syscall(SYS_capset, &header, sets));
}

static void all(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    MUST(syscall(SYS_capget, &header, sets));
    for (int i = 0; i < 2; i++) sets[i].effective = sets[i].permitted;
    MUST(syscall(SYS_capset, &header, sets));
}

// File access as this user and group, without capabilities of files (only `capabilities`).
static void as(uid_t user, gid_t group, uint32_t capabilities) {
    all();
    setfsgid(group);
    setfsuid(user);
    only(capabilities);
}

static void back(void) {
    all();
    setfsuid(0);
    setfsgid(0);
    all();
}

static void make(const char *name, uid_t user, gid_t group, mode_t mode) {
    const int fd = MUST(open(name, O_RDWR | O_CREAT, 0600));
    MUST(fchown(fd, user, group));
    MUST(fchmod(fd, mode));
    close(fd);
}

static void folder(const char *name, uid_t user, gid_t group, mode_t mode) {
    MUST(mkdir(name, 0700));
    MUST(chown(name, user, group));
    MUST(chmod(name, mode));
}

static long try(const char *name, int flags) {
    const int fd = open(name, flags, 0600), error = errno;
    if (fd < 0) return errno = error, -1;
    return close(fd);
}

static void mode_of(const char *name) {
    struct stat s;
    MUST(stat(name, &s));
    SAY("%s: %04o of %d:%d", name, (unsigned)s.st_mode & 07777, (int)s.st_uid, (int)s.st_gid);
}

static void groups(void) {
    section("supplementary groups");
    const gid_t list[] = {500, 600};
    MUST(setgroups(2, list));
    make("of-group", 1, 600, 0640);
    make("of-other", 1, 700, 0640);
    make("not-group", 1, 500, 0604);
    folder("shared", 1, 500, 02770);
    as(1000, 1000, 0);
    CALL(try("of-group", O_RDONLY));
    CALL(try("of-group", O_RDWR));
    CALL(try("of-other", O_RDONLY));
    CALL(try("not-group", O_RDONLY)); // the group's bits decide, although others may
    CALL(try("shared/mine", O_RDWR | O_CREAT));
    mode_of("shared/mine");
    CALL(try("mine", O_RDWR | O_CREAT));
    back();
    MUST(chmod(".", 0777));
    as(1000, 1000, 0);
    CALL(try("mine", O_RDWR | O_CREAT));
    CALL(chown("mine", -1, 500));
    CALL(chown("mine", -1, 700));
    CALL(chown("mine", 0, -1));
    CALL(chown("mine", 1000, 600));
    CALL(chmod("mine", 02755));
    mode_of("mine");
    CALL(chown("mine", -1, 1000));
    mode_of("mine");
    back();
    MUST(chown("mine", 1000, 700));
    as(1000, 1000, 0);
    CALL(chmod("mine", 02755)); // of a group that is not the caller's: without the set-group-ID bit
    mode_of("mine");
    as(1000, 1000, kSetId);
    CALL(chmod("mine", 02755));
    mode_of("mine");
    CALL(chmod("of-group", 0666));
    back();
}

static void without_override(void) {
    section("user 0 without CAP_DAC_OVERRIDE");
    make("closed", 1000, 1000, 0);
    make("program", 1000, 1000, 0010);
    folder("locked", 1000, 1000, 0);
    make("locked/in", 0, 0, 0600);
    as(0, 0, 0);
    CALL(try("closed", O_RDONLY));
    CALL(try("locked/in", O_RDONLY));
    CALL(try("locked/new", O_RDWR | O_CREAT));
    CALL(faccessat(AT_FDCWD, "closed", R_OK, AT_EACCESS));
    CALL(truncate("closed", 0));
    CALL(chdir("locked"));
    CALL(unlink("locked/in"));
    back();
    CALL(try("closed", O_RDWR));
    CALL(try("locked/in", O_RDWR));

    section("another user with CAP_DAC_OVERRIDE");
    as(1001, 1001, kOverride);
    CALL(try("closed", O_RDWR));
    CALL(try("locked/in", O_RDWR));
    CALL(try("locked/new", O_RDWR | O_CREAT));
    CALL(unlink("locked/new"));
    CALL(faccessat(AT_FDCWD, "closed", X_OK, AT_EACCESS));
    CALL(faccessat(AT_FDCWD, "program", X_OK, AT_EACCESS));
    CALL(chmod("closed", 0600));
    CALL(utimensat(AT_FDCWD, "closed", NULL, 0));
    back();
}

static void owner(void) {
    section("CAP_FOWNER");
    make("theirs", 1000, 1000, 0666);
    folder("sticky", 1000, 1000, 01777);
    make("sticky/theirs", 1000, 1000, 0666);
    make("sticky/another", 1000, 1000, 0666);
    const struct timespec times[2] = {{5, 0}, {6, 0}};
    for (int round = 0; round < 2; round++) {
        const uid_t user = round ? 1001 : 0; // user 0 without it, another user with it
        SAY("as %d", (int)user);
        as(user, user, round ? kOwner : 0);
        CALL(chmod("theirs", 0646));
        CALL(utimensat(AT_FDCWD, "theirs", times, 0));
        CALL(utimensat(AT_FDCWD, "theirs", NULL, 0));
        CALL(try("theirs", O_RDONLY | O_NOATIME));
        CALL(rename("sticky/another", "sticky/renamed"));
        CALL(unlink("sticky/theirs"));
        CALL(chown("theirs", user, -1));
        back();
    }

    section("CAP_CHOWN");
    for (int round = 0; round < 2; round++) {
        const uid_t user = round ? 1001 : 0;
        SAY("as %d", (int)user);
        as(user, user, round ? kChown : 0);
        CALL(chown("theirs", 1002, 1002));
        mode_of("theirs");
        back();
    }
}

static void put(const char *name) {
    const int fd = MUST(open(name, O_WRONLY));
    CALL(write(fd, "x", 1));
    close(fd);
    mode_of(name);
}

static void set_ids(void) {
    section("set-ID bits");
    make("executed", 1000, 500, 06755);
    make("locked-once", 1000, 500, 06745);
    make("of-others", 1000, 700, 06745);
    put("executed");
    as(0, 0, kOverride);
    put("executed");
    put("locked-once");
    put("of-others");
    back();
    MUST(chmod("executed", 06755));
    MUST(chmod("locked-once", 06745));
    CALL(chown("executed", 1001, -1));
    mode_of("executed");
    CALL(chown("locked-once", 1001, -1));
    mode_of("locked-once");
    as(1000, 1000, 0);
    CALL(chown("shared/mine", -1, -1));
    CALL(try("shared/executed", O_RDWR | O_CREAT));
    CALL(open("shared/set", O_RDWR | O_CREAT | O_EXCL, 02775) >= 0);
    mode_of("shared/set");
    back();
    MUST(setgroups(0, NULL));
    MUST(chmod("shared", 02777));
    as(1000, 1000, 0);
    CALL(open("shared/set-by-other", O_RDWR | O_CREAT | O_EXCL, 02775) >= 0);
    mode_of("shared/set-by-other");
    CALL(mkdir("shared/folder", 0755));
    mode_of("shared/folder");
    back();
}

int main(void) {
    own_enter("/tmp");
    if (geteuid() != 0) {
        SAY("not root");
        return 0;
    }
    umask(0);
    MUST(chmod(".", 0755));
    groups();
    without_override();
    owner();
    set_ids();
    return 0;
}
