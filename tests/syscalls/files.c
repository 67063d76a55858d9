// Regular files: open flags, reading, writing, positions, sizes, metadata.
#include "transcript.h"

#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char buffer[256];

static void say_contents(const char *path) {
    int fd = MUST(open(path, O_RDONLY));
    ssize_t n = MUST(read(fd, buffer, sizeof buffer - 1));
    buffer[n] = 0;
    SAY("%s holds '%s'", path, buffer);
    close(fd);
}

static void opening(void) {
    section("open");
    CALL(open("missing", O_RDONLY));
    int fd = CALL(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    CALL(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    CALL(write(fd, "hello world", 11));
    CALL(close(fd));
    CALL(close(fd));
    CALL(open("a", O_RDONLY | O_DIRECTORY));
    CALL(open("a/b", O_RDONLY));
    CALL(open("", O_RDONLY));
    CALL(open(".", O_RDWR));
    CALL(open("missing/b", O_RDWR | O_CREAT, 0600));
    fd = CALL(open("a", O_WRONLY | O_APPEND));
    CALL(write(fd, "!", 1));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(write(fd, "?", 1));
    CALL(read(fd, buffer, 1));
    CALL(close(fd));
    say_contents("a");
    fd = CALL(open("a", O_RDONLY));
    CALL(write(fd, "x", 1));
    CALL(close(fd));
    fd = CALL(open("t", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    CALL(write(fd, "12345", 5));
    CALL(close(fd));
    fd = CALL(open("t", O_WRONLY | O_TRUNC));
    CALL(close(fd));
    say_contents("t");
    fd = CALL(openat(AT_FDCWD, "a", O_RDONLY | O_CLOEXEC));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CALL(openat(fd, "b", O_RDONLY));
    CALL(close(fd));
    CALL(openat(77, "a", O_RDONLY));
    fd = CALL(open("a", O_PATH));
    CALL(read(fd, buffer, 1));
    CALL(close(fd));
}

static void positions(void) {
    section("positions");
    int fd = CALL(open("a", O_RDWR));
    CALL(lseek(fd, 6, SEEK_SET));
    CALL(read(fd, buffer, 5));
    CHECK(memcmp(buffer, "world", 5) == 0);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, -1, SEEK_CUR));
    CALL(lseek(fd, -100, SEEK_CUR));
    CALL(lseek(fd, 0, SEEK_END));
    CALL(read(fd, buffer, 5));
    CALL(lseek(fd, 0, 77));
    CALL(pread(fd, buffer, 5, 6));
    CHECK(memcmp(buffer, "world", 5) == 0);
    CALL(pread(fd, buffer, 5, -1));
    CALL(pread(fd, buffer, 5, 1000));
    CALL(pwrite(fd, "W", 1, 6));
    CALL(pwrite(fd, "W", 1, -1));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, 20, SEEK_SET));
    CALL(write(fd, "far", 3));
    CALL(pread(fd, buffer, 23, 0));
    CHECK(memcmp(buffer, "hello World!?\0\0\0\0\0\0\0far", 23) == 0);
    int other = CALL(dup(fd));
    CALL(lseek(other, 3, SEEK_SET));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(other));
    CALL(lseek(fd, 1, SEEK_CUR));
    CALL(close(fd));
}

static void vectors(void) {
    section("vectors");
    char one[4] = "", two[8] = "";
    struct iovec in[] = {{"ab", 2}, {"", 0}, {"cdef", 4}};
    struct iovec out[] = {{one, 3}, {two, 7}};
    int fd = CALL(open("v", O_RDWR | O_CREAT, 0600));
    CALL(writev(fd, in, 3));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(readv(fd, out, 2));
    SAY("'%s' '%s'", one, two);
    CALL(preadv(fd, out, 2, 2));
    SAY("'%s' '%s'", one, two);
    CALL(pwritev(fd, in, 3, 3));
    CALL(readv(fd, out, 0));
    CALL(readv(fd, out, 2));
    CALL(readv(fd, out, -1));
    CALL(readv(fd, out, 5000));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(read(fd, buffer, 0));
    CALL(write(fd, "", 0));
    CALL(close(fd));
}

static void sizes(void) {
    section("sizes and metadata");
    struct stat st;
    int fd = CALL(open("s", O_RDWR | O_CREAT, 0666));
    CALL(ftruncate(fd, 5000));
    CALL(fstat(fd, &st));
    SAY("%ld bytes, mode %o, %ld link", (long)st.st_size, st.st_mode, (long)st.st_nlink);
    CHECK(st.st_uid == getuid() && st.st_gid == getgid() && st.st_blksize == 4096);
    CALL(ftruncate(fd, 3));
    CALL(ftruncate(fd, -1));
    CALL(truncate("s", 7));
    CALL(truncate("missing", 7));
    CALL(stat("s", &st));
    SAY("%ld bytes", (long)st.st_size);
    CALL(stat("missing", &st));
    CALL(fstat(99, &st));
    CALL(fallocate(fd, 0, 0, 100));
    CALL(fstat(fd, &st));
    SAY("%ld bytes", (long)st.st_size);
    CALL(fchmod(fd, 0600));
    CALL(chmod("s", 0644));
    CALL(fstatat(AT_FDCWD, "s", &st, 0));
    SAY("mode %o", st.st_mode);
    CALL(fstatat(fd, "", &st, AT_EMPTY_PATH));
    CALL(fstatat(fd, "", &st, 0));
    struct statx sx;
    CALL(statx(AT_FDCWD, "s", 0, STATX_BASIC_STATS, &sx));
    SAY("%ld bytes, mode %o", (long)sx.stx_size, sx.stx_mode);
    CALL(statx(AT_FDCWD, "missing", 0, STATX_BASIC_STATS, &sx));
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    CALL(futimens(fd, times));
    CALL(fstat(fd, &st));
    SAY("accessed %ld.%09ld, modified %ld.%09ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec,
        st.st_mtim.tv_nsec);
    CALL(access("s", R_OK | W_OK));
    CALL(access("missing", F_OK));
    CALL(access("s", 0777));
    CALL(faccessat(AT_FDCWD, "s", F_OK, 0));
    CALL(fsync(fd));
    CALL(fdatasync(fd));
    CALL(fsync(99));
    CALL(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    CALL(flock(fd, LOCK_EX | LOCK_NB));
    CALL(flock(fd, LOCK_UN));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CALL(fcntl(fd, F_SETLK, &lock));
    CALL(fcntl(fd, F_GETLK, &lock));
    CHECK(lock.l_type == F_UNLCK);
    CALL(close(fd));
}

static void copies(void) {
    section("sendfile");
    int in = CALL(open("a", O_RDONLY)), out = CALL(open("c", O_RDWR | O_CREAT | O_TRUNC, 0600));
    CALL(sendfile(out, in, NULL, 5));
    CALL(lseek(in, 0, SEEK_CUR));
    off_t offset = 6;
    CALL(sendfile(out, in, &offset, 5));
    SAY("offset %ld, position %ld", (long)offset, (long)lseek(in, 0, SEEK_CUR));
    say_contents("c");
    CALL(close(in));
    CALL(close(out));
}

int main(void) {
    umask(022);
    opening();
    positions();
    vectors();
    sizes();
    copies();
}
