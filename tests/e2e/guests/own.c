// Answers what its own /tmp holds, then changes all of it. Served by pristine machines, every reply is the same.
//   own PORT      and "fill" as the line: writes until there is no room, and answers the errno
#include "server.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int kept, watch;
static char *shared;

static void describe(char *out, size_t size) {
    char text[64] = "", events[512];
    struct stat st;
    int names = 0;
    DIR *dir = opendir("/tmp");
    while (dir && readdir(dir)) names++;
    if (dir) closedir(dir);
    fstat(kept, &st);
    ssize_t n = pread(kept, text, sizeof text - 1, 0);
    int fd = open("/tmp/boot/link", O_RDONLY);
    char linked[64] = "";
    ssize_t m = read(fd, linked, sizeof linked - 1);
    close(fd);
    snprintf(out, size, "%d names; %ld bytes: %.*s; %d names of it; by the link %ld: %.*s; shared %s; %ld of events; below 1 MiB: %d\n", names,
             (long)st.st_size, (int)n, text, (int)st.st_nlink, (long)m, (int)m, linked, shared, (long)read(watch, events, sizeof events),
             access("/tmp/large", F_OK));
}

static void change(void) {
    char name[64];
    snprintf(name, sizeof name, "/tmp/made-%d", getpid());
    if (mkdir(name, 0700) || symlink("nowhere", "/tmp/another") || rename("/tmp/boot/file", "/tmp/boot/renamed")) perror("change");
    int fd = open("/tmp/large", O_RDWR | O_CREAT, 0600);
    static char block[100000];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 30; i++)
        if (write(fd, block, sizeof block) != sizeof block) perror("write");
    close(fd);
    if (pwrite(kept, "changed!", 8, 0) != 8 || ftruncate(kept, 9000) || fchmod(kept, 0)) perror("change");
    strcpy(shared, "changed");
    unlink("/tmp/boot/link");
}

static void reply(const char *line, char *out, size_t size) {
    if (strncmp(line, "fill", 4) == 0) {
        static char block[1 << 20];
        memset(block, 'y', sizeof block);
        int fd = open("/tmp/filler", O_WRONLY | O_CREAT, 0600), written = 0;
        while (write(fd, block, sizeof block) > 0) written++;
        snprintf(out, size, "%s after %d MiB\n", strerrorname_np(errno), written);
        return;
    }
    describe(out, size);
    change();
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    if (mkdir("/tmp/boot", 0700) || symlink("file", "/tmp/boot/link")) return 3;
    kept = open("/tmp/boot/file", O_RDWR | O_CREAT, 0600);
    if (write(kept, "from the boot", 13) != 13) return 4;
    int fd = open("/dev/shm/shared", O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 5;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) shared = malloc(4096);
    strcpy(shared, "pristine");
    watch = inotify_init1(IN_NONBLOCK);
    if (inotify_add_watch(watch, "/tmp", IN_CREATE) < 0) return 7;
    serve(listen_on(atoi(argv[1])), reply);
}
