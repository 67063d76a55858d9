// Answers what shared mappings show that were made at its start: a file that it writes to, one that it only reads, files in
// memory with and without a descriptor, a System V segment. "data X", "memory X", "closed X", "segment X" write X there first;
// "open" opens the file that is only read for writing, and writes to it. "many N" maps the first page of that file N times, and
// "files N" a page of each of N files beside it; the reply is how many that were. "hog" and
// "refill N" take all the memory that they can have in files.
#include "server.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

enum { PAGE = 4096 };
static char *data, *only_read, *memory, *closed, *segment;
static int data_fd, memory_fd;
static const char *read_path;

static char *map(int fd, int protection) {
    char *p = mmap(NULL, PAGE, protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static int memory_file(const char *content) {
    int fd = memfd_create(content, 0);
    if (ftruncate(fd, PAGE) < 0 || pwrite(fd, content, strlen(content), 0) < 0) exit(1);
    return fd;
}

static int map_many(int n) {
    int fd = open(read_path, O_RDONLY), made = 0;
    while (made < n && mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED) made++;
    close(fd);
    return made;
}

static int map_files(int n) {
    int made = 0;
    for (char path[200]; made < n; made++) {
        snprintf(path, sizeof path, "%s.%d", read_path, made);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        unlink(path);
        if (p == MAP_FAILED) {
            if (errno == ENFILE) break;
            return -1;
        }
    }
    return made;
}

// Files in memory, each full and kept by a mapping alone, until there is no room: MiB.
static int hog(void) {
    static char piece[1 << 20];
    int made = 0;
    memset(piece, 'x', sizeof piece);
    for (int room = 1, files = 0; room && files < 100; files++) {
        int fd = memfd_create("hog", 0);
        for (int i = 0; i < 8 && room; i++) {
            room = pwrite(fd, piece, sizeof piece, (off_t)i << 20) == sizeof piece;
            made += room;
        }
        if (mmap(NULL, PAGE, PROT_READ, files & 1 ? MAP_PRIVATE : MAP_SHARED, fd, 0) == MAP_FAILED) return -1;
        close(fd);
    }
    return made;
}

// Pages that were punched, or cut off, are counted again when they are touched.
static int refill(int cut) {
    enum { BYTES = 16 << 20 };
    int fd = memfd_create("refilled", 0);
    if (ftruncate(fd, BYTES) < 0) return -1;
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return -2;
    memset(p, 'x', BYTES);
    if (cut == 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES)) return -3;
    if (cut == 1 && (ftruncate(fd, 0) || ftruncate(fd, BYTES))) return -4;
    if (cut == 2 && madvise(p, BYTES, MADV_REMOVE)) return -5;
    int made = hog();
    if (made < 16) return made;
    memset(p, 'x', BYTES);
    return made;
}

static void reply(const char *line, char *out, size_t size) {
    if (!strncmp(line, "hog", 3) || !strncmp(line, "refill ", 7)) {
        snprintf(out, size, "made=%d\n", line[0] == 'h' ? hog() : refill(atoi(line + 7)));
        return;
    }
    if (!strncmp(line, "many ", 5) || !strncmp(line, "files ", 6)) {
        int made = line[0] == 'm' ? map_many(atoi(line + 5)) : map_files(atoi(line + 6));
        snprintf(out, size, "made=%d\n", made);
        return;
    }
    const struct { const char *name; char *at; } places[] = {
        {"data ", data}, {"memory ", memory}, {"closed ", closed}, {"segment ", segment}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!strncmp(line, places[i].name, strlen(places[i].name)))
            strcpy(places[i].at, line + strlen(places[i].name));
    if (!strcmp(line, "open")) {
        int fd = open(read_path, O_WRONLY);
        if (fd < 0 || pwrite(fd, "within", 7, 0) < 0) perror("open");
        close(fd);
    }
    char file[64] = "", held[64] = "";
    if (pread(data_fd, file, sizeof file - 1, 0) < 0 || pread(memory_fd, held, sizeof held - 1, 0) < 0) perror("pread");
    snprintf(out, size, "data=%s file=%s read=%s memory=%s held=%s closed=%s segment=%s\n", data, file, only_read, memory,
             held, closed, segment);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    data_fd = open(argv[2], O_RDWR);
    read_path = argv[3];
    data = map(data_fd, PROT_READ | PROT_WRITE);
    int fd = open(read_path, O_RDONLY);
    only_read = map(fd, PROT_READ);
    memory = map(memory_fd = memory_file("memory"), PROT_READ | PROT_WRITE);
    int gone = memory_file("closed");
    closed = map(gone, PROT_READ | PROT_WRITE);
    close(gone);
    segment = shmat(shmget(IPC_PRIVATE, PAGE, 0600), NULL, 0);
    if (segment == (char *)-1) return 3;
    strcpy(segment, "segment");
    if (only_read[0] == 0 || data[0] == 0) return 4;
    serve(listen_on(atoi(argv[1])), reply);
}
