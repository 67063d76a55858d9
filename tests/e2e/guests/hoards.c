// A program that takes all the memory that it can get, each path in another way: GET /WAY. What it could take so far is
// in the reply, if there is one. "/" takes none.
#define _GNU_SOURCE
#include "server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/stat.h>

enum { kMiB = 1 << 20, kMax = 2048 }; // MiB of each way
static char block[kMiB];
static char *before; // memory that was written at the start
static size_t before_bytes;
static long taken; // bytes

static void touch(void) {
    for (int i = 0; i < kMax; ++i) {
        char *at = mmap(NULL, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return;
        memset(at, i | 1, kMiB);
        taken += kMiB;
    }
}

// Pages of the image become the request's own.
static void rewrite(void) {
    memset(before, 2, before_bytes);
    taken += (long)before_bytes;
    touch();
}

static void fill(int fd) {
    for (ssize_t n; taken < (long)kMax * kMiB && (n = write(fd, block, sizeof block)) > 0;) taken += n;
}

static void memory_file(void) { fill(memfd_create("m", 0)); }

// Each is mapped and closed: who counts descriptors only does not see it.
static void mapped_memory_files(void) {
    for (int i = 0; i < 256; ++i) {
        const long before = taken;
        const int fd = memfd_create("m", 0);
        for (int k = 0; k < 8 && write(fd, block, sizeof block) > 0; ++k) taken += kMiB;
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        if (taken == before) return;
    }
}

static void files_of_tmp(void) {
    for (int i = 0; i < 64; ++i) {
        char name[64];
        snprintf(name, sizeof name, "/tmp/hoard-%d", i);
        const int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) return;
        for (int k = 0; k < 32 && write(fd, block, sizeof block) == kMiB; ++k) taken += kMiB;
        close(fd);
    }
}

static void names_of_tmp(void) {
    char name[300] = "/tmp/";
    memset(name + 5, 'n', 240);
    for (int i = 0; i < 1000000; ++i) {
        snprintf(name + 245, 16, "%d", i);
        const int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) return;
        close(fd);
        taken += 256;
    }
}

static void mapped_shm(void) {
    const int fd = open("/dev/shm/hoard", O_CREAT | O_RDWR, 0600);
    for (long at = 0; at < (long)kMax * kMiB; at += kMiB) {
        if (ftruncate(fd, at + kMiB) < 0) return;
        char *p = mmap(NULL, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
        if (p == MAP_FAILED) return;
        memset(p, 1, kMiB);
        munmap(p, kMiB);
        taken += kMiB;
    }
}

static void system_v(void) {
    for (int i = 0; i < 512; ++i) {
        const int id = shmget(IPC_PRIVATE, 4 * kMiB, IPC_CREAT | 0600);
        char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
        if (at == (char *)-1) return;
        memset(at, 1, 4 * kMiB);
        shmdt(at);
        taken += 4 * kMiB;
    }
}

static void messages(void) {
    static struct { long type; char text[8192]; } message = {.type = 1};
    for (int q = 0; q < 1000; ++q) {
        const int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        if (id < 0) return;
        while (msgsnd(id, &message, sizeof message.text, IPC_NOWAIT) == 0) taken += sizeof message.text;
    }
}

static void pipes(void) {
    for (int i = 0; i < 2000; ++i) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) < 0) return;
        fcntl(ends[1], F_SETPIPE_SZ, kMiB);
        for (ssize_t n; (n = write(ends[1], block, sizeof block)) > 0;) taken += n;
    }
}

static void pairs(void) {
    for (int i = 0; i < 1000; ++i) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0) return;
        const int bytes = 64 * kMiB;
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        for (ssize_t n; (n = write(ends[0], block, sizeof block)) > 0;) taken += n;
    }
}

static void connections(void) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1000)) return;
    getsockname(listener, (struct sockaddr *)&address, &length);
    for (int i = 0; i < 480; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), bytes = 64 * kMiB;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        if (fd < 0 || (connect(fd, (struct sockaddr *)&address, length) && errno != EINPROGRESS)) return;
        const int other = accept(listener, NULL, NULL);
        setsockopt(other, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        for (ssize_t n; (n = write(fd, block, sizeof block)) > 0;) taken += n;
    }
}

// As many separate regions as there can be, which somebody must keep a list of.
static void regions(void) {
    for (int i = 0; i < 1000000; ++i) {
        const int access = i % 2 ? PROT_READ : PROT_NONE;
        if (mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return;
        taken += 64;
    }
}

// A page here and there: each needs tables of its own.
static void sparse(void) {
    for (long i = 0; i < 60000; ++i) {
        char *at = mmap((void *)(0x100000000000 + (i << 30)), 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return;
        *at = 1;
        taken += 3 * 4096;
    }
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    char stack[64 << 10];
    memset(stack, 1, sizeof stack);
    for (;;) pause();
}

static void threads(void) {
    for (int i = 0; i < 20000; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL)) return;
        taken += 64 << 10;
    }
}

static void watches(void) {
    int events[500];
    for (int i = 0; i < 500; ++i) events[i] = eventfd(0, EFD_NONBLOCK);
    for (int e = 0; e < 500; ++e) {
        const int poll = epoll_create1(0);
        if (poll < 0) return;
        for (int i = 0; i < 500; ++i) {
            struct epoll_event event = {.events = EPOLLIN};
            if (epoll_ctl(poll, EPOLL_CTL_ADD, events[i], &event) == 0) taken += 128;
        }
    }
}

static void print(void) {
    memset(block, 'x', sizeof block);
    for (size_t i = 79; i < sizeof block; i += 80) block[i] = '\n';
    for (int i = 0; i < 8 && write(STDOUT_FILENO, block, sizeof block) > 0; ++i) taken += kMiB;
}

static void answer(int client) {
    for (int i = 0; i < 64; ++i)
        if (write(client, block, sizeof block) < 0) return;
}

static const struct { const char *name; void (*take)(void); } kWays[] = {
    {"touch", touch}, {"rewrite", rewrite}, {"memfd", memory_file}, {"mapped-memfds", mapped_memory_files}, {"tmp", files_of_tmp},
    {"names", names_of_tmp}, {"shm", mapped_shm}, {"system-v", system_v}, {"messages", messages}, {"pipes", pipes},
    {"pairs", pairs}, {"connections", connections}, {"regions", regions}, {"sparse", sparse}, {"threads", threads},
    {"watches", watches}, {"print", print},
};

// hoards [MIB] PORT
int main(int argc, char **argv) {
    before_bytes = argc > 2 ? (size_t)atoi(argv[1]) * kMiB : 0;
    before = malloc(before_bytes + 1);
    memset(before, 1, before_bytes);
    signal(SIGPIPE, SIG_IGN);
    const int listener = listen_on(atoi(argv[argc - 1]));
    for (;;) {
        static char head[8192];
        const int client = accept(listener, NULL, NULL);
        if (client < 0) continue;
        size_t n = 0;
        ssize_t got;
        while (n < sizeof head - 1 && (got = read(client, head + n, sizeof head - 1 - n)) > 0) {
            head[n += (size_t)got] = 0;
            if (strstr(head, "\r\n\r\n")) break;
        }
        char way[32] = "";
        sscanf(head, "GET /%31[^ ]", way);
        if (strcmp(way, "answer") == 0) {
            dprintf(client, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", 64 * kMiB);
            answer(client);
        } else {
            for (size_t i = 0; i < sizeof kWays / sizeof *kWays; ++i)
                if (strcmp(way, kWays[i].name) == 0) kWays[i].take();
            char text[64];
            const int bytes = snprintf(text, sizeof text, "%ld\n", taken);
            dprintf(client, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", bytes, text);
        }
        close(client);
    }
}
