// What the machine's own folders have beside files and folders: unnamed files, named pipes, holes, watches; /dev/shm.
#include "own.h"

#include <pthread.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static char buffer[4096];

static void unnamed(void) {
    section("O_TMPFILE");
    CALL(open(".", O_TMPFILE | O_RDONLY, 0600));
    int fd = CALL(open(".", O_TMPFILE | O_RDWR, 0640));
    CALL(write(fd, "content", 7));
    struct stat st;
    CALL(fstat(fd, &st));
    SAY("mode %o, %d names", st.st_mode, (int)st.st_nlink);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CALL(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    CALL(fstat(fd, &st));
    SAY("%d names", (int)st.st_nlink);
    int again = CALL(open(path, O_RDONLY));
    CALL(read(again, buffer, sizeof buffer));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(again));
    CALL(close(fd));
    CALL(open("missing", O_TMPFILE | O_RDWR, 0600));
    CALL(open("named", O_TMPFILE | O_RDWR, 0600));
}

static void *writes(void *arg) {
    (void)arg;
    int fd = open("fifo", O_WRONLY);
    if (write(fd, "through", 7) != 7) abort();
    close(fd);
    return NULL;
}

static void named_pipes(void) {
    section("named pipes");
    CALL(mkfifo("fifo", 0600));
    CALL(mkfifo("fifo", 0600));
    struct stat st;
    CALL(stat("fifo", &st));
    SAY("mode %o", st.st_mode);
    CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    int fd = CALL(open("fifo", O_RDONLY | O_NONBLOCK));
    CALL(read(fd, buffer, 10));
    say_ready("reader", fd);
    int out = CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    CALL(read(fd, buffer, 10));
    CALL(write(out, "abc", 3));
    say_ready("reader", fd);
    CALL(read(fd, buffer, 10));
    CALL(close(out));
    say_ready("reader", fd);
    CALL(read(fd, buffer, 10));
    CALL(close(fd));
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, writes, NULL));
    fd = (int)MUST(open("fifo", O_RDONLY)); // its number depends on who comes first
    CALL(read(fd, buffer, 7));
    pthread_join(thread, NULL);
    CALL(read(fd, buffer, 7));
    CALL(close(fd));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(unlink("fifo"));
}

static void holes(void) {
    section("holes");
    int fd = CALL(open("sparse", O_RDWR | O_CREAT, 0600));
    CALL(pwrite(fd, "x", 1, 1 << 20));
    struct stat st;
    CALL(fstat(fd, &st));
    SAY("size %ld, %s blocks", (long)st.st_size, st.st_blocks <= 16 ? "few" : "many");
    CALL(pread(fd, buffer, 10, 4096));
    CHECK(memcmp(buffer, "\0\0\0\0\0\0\0\0\0\0", 10) == 0);
    CALL(lseek(fd, 0, SEEK_HOLE));
    CALL(lseek(fd, 0, SEEK_DATA) >> 12);
    CALL(lseek(fd, 2 << 20, SEEK_DATA));
    CALL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4096));
    CALL(pread(fd, buffer, 10, 1 << 20));
    CHECK(buffer[0] == 0);
    CALL(fallocate(fd, 0, 0, 3 << 20));
    CALL(fallocate(fd, 0, -1, 10));
    CALL(fallocate(fd, 0, 0, 0));
    CALL(fstat(fd, &st));
    SAY("size %ld", (long)st.st_size);
    CALL(ftruncate(fd, 5000));
    CALL(pwrite(fd, "yy", 2, 4999));
    CALL(ftruncate(fd, 4999));
    CALL(ftruncate(fd, 6000));
    CALL(pread(fd, buffer, 2, 4999));
    CHECK(buffer[0] == 0 && buffer[1] == 0);
    CALL(ftruncate(fd, -1));
    CALL(truncate(".", 0));
    CALL(close(fd));
}

static void times_and_modes(void) {
    section("times and modes");
    umask(027);
    int fd = MUST(open("dated", O_RDWR | O_CREAT, 0666));
    struct stat st;
    MUST(fstat(fd, &st));
    SAY("mode %o", st.st_mode);
    struct timespec times[2] = {{1000, 5}, {2000, 999999999}};
    CALL(futimens(fd, times));
    MUST(fstat(fd, &st));
    SAY("%ld.%09ld %ld.%09ld", st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = UTIME_NOW;
    CALL(utimensat(AT_FDCWD, "dated", times, 0));
    MUST(fstat(fd, &st));
    CHECK(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec > 1000000);
    times[0].tv_nsec = 1000000000;
    CALL(utimensat(AT_FDCWD, "dated", times, 0));
    CALL(chmod("dated", 04711));
    MUST(fstat(fd, &st));
    SAY("mode %o", st.st_mode);
    CALL(mkdir("folder", 0777));
    MUST(stat("folder", &st));
    SAY("mode %o, %d links", st.st_mode, (int)st.st_nlink);
    struct statfs fs;
    CALL(fstatfs(fd, &fs));
    SAY("names of up to %ld", (long)fs.f_namelen);
    umask(022);
    close(fd);
}

static void say_events(int fd) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0) SAY("read: %s", strerrorname_np(errno));
    for (ssize_t at = 0; at < n;) {
        struct inotify_event *e = (struct inotify_event *)(buffer + at);
        SAY("watch %d: %x %s%s", e->wd, e->mask, e->len ? e->name : "(itself)", e->cookie ? ", moved" : "");
        at += (ssize_t)(sizeof *e + e->len);
    }
}

static void watches(void) {
    section("inotify");
    CALL(inotify_init1(77));
    int fd = CALL(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    CALL(read(fd, buffer, sizeof buffer));
    MUST(mkdir("watched", 0700));
    CALL(inotify_add_watch(fd, "watched", IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE | IN_DELETE_SELF));
    CALL(inotify_add_watch(fd, "missing", IN_CREATE));
    CALL(inotify_add_watch(fd, "watched", 0));
    CALL(inotify_add_watch(0, "watched", IN_CREATE));
    say_ready("inotify", fd);
    int file = MUST(open("watched/a", O_WRONLY | O_CREAT, 0600));
    MUST(write(file, "x", 1));
    MUST(close(file));
    int ready = 0;
    CALL(ioctl(fd, FIONREAD, &ready));
    SAY("%d bytes", ready);
    say_ready("inotify", fd);
    CALL(read(fd, buffer, 10));
    say_events(fd);
    MUST(rename("watched/a", "watched/b"));
    MUST(mkdir("watched/inner", 0700));
    MUST(rmdir("watched/inner"));
    MUST(unlink("watched/b"));
    say_events(fd);
    MUST(rmdir("watched"));
    say_events(fd);
    CALL(inotify_rm_watch(fd, 1));
    close(fd);
}

static void shared_memory(void) {
    section("/dev/shm");
    shm_unlink("/kvmserver-own-test");
    int fd = CALL(shm_open("/kvmserver-own-test", O_RDWR | O_CREAT | O_EXCL, 0600));
    CALL(ftruncate(fd, 8192));
    CALL(pwrite(fd, "hello", 5, 4096));
    char *seen = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(seen != MAP_FAILED && strcmp(seen + 4096, "hello") == 0);
    CALL(shm_unlink("/kvmserver-own-test"));
    CALL(shm_open("/kvmserver-own-test", O_RDWR, 0600));
    CALL(close(fd));
    struct stat st;
    CALL(stat("/dev/shm/..", &st));
    CALL(stat("/tmp/../tmp/.", &st));
    SAY("mode %o", st.st_mode);
}

static void mistakes(void) {
    section("mistakes");
    char *bad = (char *)8;
    CALL(open(bad, O_RDONLY));
    CALL(mkdir(bad, 0700));
    CALL(symlink(bad, "link"));
    CALL(symlink("target", bad));
    CALL(rename("named", bad));
    int fd = MUST(open("named", O_RDWR));
    CALL(write(fd, bad, 10));
    CALL(read(fd, bad, 3));
    CALL(syscall(SYS_fstat, fd, bad));
    CALL(syscall(SYS_utimensat, fd, 0, bad, 0));
    CALL(getxattr("named", bad, buffer, 1));
    CALL(fcntl(fd, F_SETLK, bad));
    close(fd);
    memset(buffer, 'n', 300);
    buffer[300] = 0;
    CALL(open(strcpy(malloc(400), buffer), O_CREAT | O_RDWR, 0600));
    memset(buffer, '/', sizeof buffer);
    buffer[sizeof buffer - 1] = 0;
    static char longer[5000];
    memset(longer, 'a', sizeof longer - 1);
    CALL(open(longer, O_RDONLY));
    CALL(rename("named", "named/below"));
    CALL(rename("folder", "folder/below"));
    CALL(rename("missing", "other"));
    CALL(rmdir("."));
    CALL(unlink("folder"));
    CALL(link("folder", "second"));
    CALL(symlink("loop", "loop"));
    CALL(open("loop", O_RDONLY));
    CALL(open("loop", O_RDONLY | O_NOFOLLOW));
    CALL(mknod("device", S_IFCHR | 0600, 0x103) == -1 && errno == EINVAL);
    CALL(syscall(SYS_renameat2, AT_FDCWD, "named", AT_FDCWD, "dated", 1));
    CALL(syscall(SYS_renameat2, AT_FDCWD, "named", AT_FDCWD, "dated", 2));
    CALL(syscall(SYS_renameat2, AT_FDCWD, "named", AT_FDCWD, "dated", 3));
}

int main(void) {
    own_enter("/tmp");
    unnamed();
    named_pipes();
    holes();
    times_and_modes();
    watches();
    shared_memory();
    mistakes();
    return 0;
}
