// What a request changes outside of its machine's memory: attributes of a file in memory that was there before, and
// sockets that it binds. Requests: "look" tells what there is to see, then changes it; "bind", "bind-crash" and
// "bind-in" bind and listen, and end.
#include "server.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static int memory, sealed;

static size_t tell(int fd, char *out, size_t room) {
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &x) < 0) return (size_t)snprintf(out, room, "statx: %d\n", errno);
    struct stat s;
    fstat(fd, &s);
    return (size_t)snprintf(
        out, room, "%o %u:%u %lld bytes, read %lld.%09u, written %lld.%09u, changed %lld.%09u, inode %d, seals %x\n",
        x.stx_mode, x.stx_uid, x.stx_gid, (long long)x.stx_size, (long long)x.stx_atime.tv_sec, x.stx_atime.tv_nsec,
        (long long)x.stx_mtime.tv_sec, x.stx_mtime.tv_nsec, (long long)x.stx_ctime.tv_sec, x.stx_ctime.tv_nsec,
        s.st_ino == x.stx_ino, (unsigned)fcntl(fd, F_GET_SEALS));
}

static ino_t inode(void) {
    struct stat s;
    fstat(memory, &s);
    return s.st_ino;
}

static void change(void) {
    char byte;
    const struct timespec times[2] = {{12345, 0}, {54321, 0}};
    if (pread(memory, &byte, 1, 0) != 1) perror("pread");
    if (futimens(memory, times) < 0) perror("futimens");
    if (fchmod(memory, 0123) < 0) perror("fchmod");
    if (fchown(memory, getuid(), getgid()) < 0) perror("fchown");
    if (fcntl(memory, F_ADD_SEALS, F_SEAL_GROW) < 0) perror("seal");
}

static void bind_some(void) {
    for (int i = 0; i < 100; ++i) {
        const int type = i % 3 == 2 ? SOCK_DGRAM : SOCK_STREAM;
        const int fd = socket(i % 2 ? AF_INET6 : AF_INET, type, 0);
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        if (i % 2 ? bind(fd, (struct sockaddr *)&v6, sizeof v6) : bind(fd, (struct sockaddr *)&v4, sizeof v4))
            perror("bind");
        if (i % 3 == 0 && listen(fd, 5)) perror("listen");
    }
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0kvmserver-leftover"};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&name, sizeof name) || listen(fd, 5)) perror("bind unix");
}

static void reply(const char *line, char *out, size_t room) {
    if (strncmp(line, "bind", 4) == 0) {
        bind_some();
        if (strcmp(line, "bind-crash") == 0) abort();
        if (strcmp(line, "bind-in") == 0) __asm__ volatile("in %%dx, %%eax" ::"d"(0x5a0) : "eax");
        snprintf(out, room, "bound\n");
        return;
    }
    size_t n = tell(memory, out, room);
    n += tell(sealed, out + n, room - n);
    const ino_t before = inode();
    change();
    n += (size_t)snprintf(out + n, room - n, "then %s, the same file: %d\n",
                          pwrite(memory, "x", 1, 5) < 0 ? "sealed" : "open", inode() == before);
    snprintf(out + n, room - n, "%s\n", pwrite(sealed, "x", 1, 0) < 0 ? "sealed" : "open");
}

int main(int argc, char **argv) {
    const struct timespec times[2] = {{1000, 1}, {2000, 2}};
    memory = memfd_create("memory", MFD_ALLOW_SEALING);
    sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    if (write(memory, "hello", 5) != 5 || write(sealed, "hello", 5) != 5 || fchmod(memory, 0640) ||
        futimens(memory, times) || fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK))
        return 1;
    serve(listen_on(atoi(argv[argc - 1])), reply);
}
