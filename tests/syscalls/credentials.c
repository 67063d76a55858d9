// Who a program is and may become. Run by root, all of it happens; by anybody else, the refusals are compared.
#include "transcript.h"

#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>

static void say_ids(void) {
    uid_t r, e, s;
    gid_t rg, eg, sg;
    MUST(getresuid(&r, &e, &s));
    MUST(getresgid(&rg, &eg, &sg));
    SAY("uid %d %d %d, gid %d %d %d", (int)r, (int)e, (int)s, (int)rg, (int)eg, (int)sg);
    CHECK(getuid() == r && geteuid() == e && getgid() == rg && getegid() == eg);
}

struct Sets {
    unsigned effective, permitted, inheritable;
};

static struct Sets capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    MUST(syscall(SYS_capget, &header, data));
    return (struct Sets){data[0].effective, data[0].permitted, data[0].inheritable};
}

static void say_power(void) { // which of them a root has depends on where it runs: one that all have stands for them
    const unsigned one = 1u << CAP_SETUID;
    struct Sets sets = capabilities();
    SAY("capability to set ids: effective %d, permitted %d, inheritable %d", !!(sets.effective & one), !!(sets.permitted & one),
        !!(sets.inheritable & one));
}

static long set_capabilities(int pid, unsigned effective, unsigned permitted, unsigned inheritable) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[2] = {{effective, permitted, inheritable}, {0, 0, 0}};
    return syscall(SYS_capset, &header, data);
}

static void groups(void) {
    section("groups");
    gid_t some[] = {300, 100, 200, 100}, got[8] = {0};
    CALL(setgroups(4, some));
    CALL(getgroups(0, NULL) >= 0);
    CALL(getgroups(-1, got));
    if (getuid() == 0) {
        CALL(getgroups(3, got));
        CALL(getgroups(8, got));
        SAY("%d %d %d %d", (int)got[0], (int)got[1], (int)got[2], (int)got[3]);
        CALL(syscall(SYS_getgroups, 8, 1L));
        CALL(syscall(SYS_setgroups, 2, 1L));
    }
    CALL(syscall(SYS_setgroups, 65537, some));
    CALL(setgroups(0, NULL));
    CALL(getgroups(8, got) == 0 || getuid() != 0);
}

static void user_ids(void) {
    section("user ids");
    CALL(syscall(SYS_setuid, -1));
    CALL(syscall(SYS_setgid, -1));
    CALL(setresgid(10, 11, 12));
    CALL(setregid(-1, -1));
    CALL(setregid(-1, 13));
    CALL(setegid(10));
    CALL(setresuid(-1, 1000, -1));
    if (getuid() == 0) say_ids();
    say_power();
    CALL(setgid(20));
    CALL(setuid(77));
    CALL(seteuid(0));
    say_power();
    CALL(setreuid(5, 6));
    if (getuid() != geteuid()) say_ids();
    CALL(setuid(5));
    CALL(setreuid(6, 5));
    CALL(setreuid(0, 0));
    CALL(setresuid(7, -1, -1));
    CALL(setresuid(6, 6, 6));
    CALL(setresuid(0, -1, -1));
}

static void *become(void *none) {
    CALL(syscall(SYS_setresuid, 1000, 1000, 1000));
    CALL(syscall(SYS_setuid, 0));
    return none;
}

static void threads(void) {
    section("a thread of its own id");
    pthread_t thread;
    pthread_create(&thread, NULL, become, NULL);
    pthread_join(thread, NULL);
    CHECK(getuid() != 1000 || getuid() == geteuid());
    CALL(setuid(getuid()));
}

static void file_ids(void) {
    section("ids for files");
    const int was = setfsuid(-1), group = setfsgid(-1);
    CHECK(was == (int)geteuid() && group == (int)getegid());
    setfsuid(1234);
    setfsgid(1235);
    SAY("%d %d", setfsuid(-1) == 1234, setfsgid(-1) == 1235);
    struct Sets sets = capabilities();
    SAY("capability to change owners: %d", !!(sets.effective & 1u << CAP_CHOWN));
    setfsuid(was);
    setfsgid(group);
    sets = capabilities();
    SAY("capability to change owners: %d", !!(sets.effective & 1u << CAP_CHOWN));
    CHECK(setfsuid(-1) == was);
}

static void keep(void) {
    section("capabilities kept");
    CALL(prctl(PR_GET_KEEPCAPS));
    CALL(prctl(PR_SET_KEEPCAPS, 2));
    CALL(prctl(PR_SET_KEEPCAPS, 1));
    CALL(prctl(PR_GET_KEEPCAPS));
    CALL(setresuid(1000, 1000, 1000));
    say_power();
    CALL(set_capabilities(0, 1u << CAP_SETUID, 1u << CAP_SETUID | 1u << CAP_CHOWN, 0));
    say_power();
    CALL(setresuid(2000, 2000, 2000));
    CALL(set_capabilities(0, 1u << CAP_SETUID | 1u << CAP_SETGID, 1u << CAP_SETUID, 0));
    CALL(set_capabilities(0, 0, 1u << CAP_SETUID | 1u << CAP_SETGID, 0));
    CALL(set_capabilities(0, 0, 0, 1u << CAP_SETPCAP));
    CALL(set_capabilities(0, 0, 0, 0));
    say_power();
    CALL(setresuid(0, 0, 0));
    CALL(set_capabilities(1, 0, 0, 0));
}

static void bad_headers(void) {
    section("wrong headers");
    struct __user_cap_header_struct header = {0x777, 0};
    struct __user_cap_data_struct data[2];
    CALL(syscall(SYS_capget, &header, data));
    CHECK(header.version == _LINUX_CAPABILITY_VERSION_3);
    header.version = 0x777;
    CALL(syscall(SYS_capget, &header, NULL));
    header.version = _LINUX_CAPABILITY_VERSION_1;
    CALL(syscall(SYS_capget, &header, data));
    header.pid = -1;
    CALL(syscall(SYS_capget, &header, data));
    header.pid = 0x3fffff;
    CALL(syscall(SYS_capget, &header, data));
    CALL(syscall(SYS_capset, &header, data));
    header.pid = 0;
    CALL(syscall(SYS_capset, &header, 1L));
    CALL(syscall(SYS_capget, &header, 1L));
    CALL(syscall(SYS_capget, 1L, data));
    CALL(syscall(SYS_capset, 1L, data));
}

static void promises(void) {
    section("prctl");
    CALL(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    CALL(prctl(PR_CAPBSET_READ, 64));
    CALL(prctl(PR_CAPBSET_DROP, CAP_KILL));
    CALL(prctl(PR_CAPBSET_READ, CAP_KILL) == (getuid() != 0));
    CALL(prctl(PR_CAPBSET_DROP, 64) == -1);
    CALL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
    CALL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
    CALL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 1, 0));
    CALL(prctl(PR_CAP_AMBIENT, 9, CAP_CHOWN, 0, 0));
    CALL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    CALL(prctl(PR_GET_SECUREBITS));
    CALL(prctl(PR_SET_SECUREBITS, 1 << 20));
    CALL(prctl(PR_SET_SECUREBITS, 1 << 4 | 1 << 5));
    CALL(prctl(PR_SET_KEEPCAPS, 0));
    CALL(prctl(PR_SET_SECUREBITS, 0));
    CALL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    CALL(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0));
    CALL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CALL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int value = -1;
    CALL(prctl(PR_SET_PDEATHSIG, 15));
    CALL(prctl(PR_GET_PDEATHSIG, &value));
    SAY("%d", value);
    CALL(prctl(PR_SET_PDEATHSIG, 99));
    CALL(prctl(PR_SET_PDEATHSIG, 0));
    CALL(prctl(PR_SET_CHILD_SUBREAPER, 1));
    CALL(prctl(PR_GET_CHILD_SUBREAPER, &value));
    SAY("%d", value);
    CALL(prctl(PR_SET_DUMPABLE, 0));
    CALL(prctl(PR_GET_DUMPABLE));
    CALL(prctl(PR_SET_DUMPABLE, 7));
    CALL(prctl(PR_GET_TIMERSLACK));
    CALL(prctl(PR_SET_TIMERSLACK, 1000));
    CALL(prctl(PR_GET_TIMERSLACK));
    CALL(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    CALL(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    CALL(prctl(PR_GET_PDEATHSIG, 1L));
}

static void sessions(void) {
    section("groups of processes");
    CALL(getpgid(0x3fffff));
    CALL(getsid(0x3fffff));
    CALL(setpgid(0x3fffff, 0));
    CALL(setpgid(0, -1));
    CALL(setpgid(0, 0x3fffff));
    CHECK(getpgid(0) == getpgrp() && getsid(getpid()) == getsid(0));
    CHECK(setsid() == getpid());
    CHECK(getpgrp() == getpid() && getsid(0) == getpid());
    CALL(setsid());
    CALL(setpgid(0, 0));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    sessions();
    groups();
    threads();
    file_ids();
    promises();
    bad_headers();
    keep();
    user_ids();
}
