// Answers what its process looks like, then changes all of it. Served by pristine machines, every
// reply is the same.
//   dirty PORT FILE...    FILE is opened before the first connection and read from; it holds 100 bytes or more
#include "server.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <xmmintrin.h>

static int file, events, timer, epoll, fds[2], pair[2];
static char *page, *guarded, bss[200000], data[100000] = {1};
static volatile int ticks, stop;
static pthread_t thread;
static __thread int own = 5;

static void tick(int signal) { (void)signal, ticks++; }
static void *idle(void *unused) {
    while (!stop) pause();
    return unused;
}

static unsigned long sum(const char *p, size_t n) {
    unsigned long total = 5381;
    for (size_t i = 0; i < n; i++) total = total * 33 + (unsigned char)p[i];
    return total;
}

static int lowest(void) {
    int fd = dup(0);
    close(fd);
    return fd;
}

static void describe(char *out, size_t size) {
    char cwd[4096] = "?", name[17] = "", c = 0;
    struct sigaction usr1;
    sigset_t mask;
    stack_t stack;
    struct rlimit files;
    struct itimerval alarm_in;
    struct itimerspec timer_in;
    uint64_t count = 0;
    sigaction(SIGUSR1, NULL, &usr1);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigaltstack(NULL, &stack);
    getrlimit(RLIMIT_NOFILE, &files);
    getitimer(ITIMER_REAL, &alarm_in);
    timerfd_gettime(timer, &timer_in);
    prctl(PR_GET_NAME, name);
    mode_t old = umask(0);
    umask(old);
    long piped = read(fds[0], &c, 1), paired = recv(pair[0], &c, 1, MSG_DONTWAIT);
    long counted = read(events, &count, 8);
    snprintf(out, size,
             "cwd %s, name %s, umask %o, lowest fd %d, offset %ld, flags %x, usr1 %d, mask %d, stack %d, files %lu, "
             "alarm %d, timer %d, pipe %ld, pair %ld, eventfd %ld, break %ld, bss %lx, data %lx, page %lx, guarded %d, "
             "own %d, ticks %d, mxcsr %x, rounding %d, env %s, heap %d\n",
             getcwd(cwd, sizeof cwd) ? cwd : "?", name, old, lowest(), (long)lseek(file, 0, SEEK_CUR),
             fcntl(fds[0], F_GETFL), usr1.sa_handler == SIG_DFL, sigismember(&mask, SIGUSR2), stack.ss_flags,
             (unsigned long)files.rlim_cur, alarm_in.it_value.tv_sec > 0, timer_in.it_value.tv_sec > 0, piped, paired,
             counted, (long)((char *)sbrk(0) - bss) & 0xfff, sum(bss, sizeof bss), sum(data, sizeof data), sum(page, 4096),
             mprotect(guarded, 4096, PROT_NONE), own, ticks, _mm_getcsr() & 0xffc0, fegetround(),
             getenv("DIRTY") ? "set" : "unset", epoll_ctl(epoll, EPOLL_CTL_DEL, pair[1], NULL));
}

static void soil(void) {
    char part[50];
    struct sigaction action = {.sa_handler = tick};
    sigset_t mask;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    if (chdir("/") < 0 || read(file, part, sizeof part) < 0) perror("soil");
    prctl(PR_SET_NAME, "soiled");
    umask(0777);
    for (int i = 0; i < 20; i++) open("/dev/null", O_RDONLY);
    fcntl(fds[0], F_SETFL, 0);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    raise(SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    raise(SIGUSR2);
    sigaltstack(&stack, NULL);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){200, 200});
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {1000, 0}}, NULL);
    timerfd_settime(timer, 0, &(struct itimerspec){.it_value = {1000, 0}}, NULL);
    if (write(fds[1], "left", 4) < 0 || write(pair[1], "over", 4) < 0 || write(events, &(uint64_t){9}, 8) < 0)
        perror("soil");
    sbrk(123 * 4096 + 77);
    memset(bss, 3, sizeof bss);
    memset(data, 4, sizeof data);
    memset(page, 5, 4096);
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
    munmap(guarded, 4096);
    for (int i = 0; i < 50; i++) memset(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 6, 65536);
    own = 99;
    fesetround(FE_UPWARD);
    _mm_setcsr(_mm_getcsr() | 0x8040);
    setenv("DIRTY", "yes", 1);
    epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], &(struct epoll_event){.events = EPOLLIN});
    pthread_create(&thread, NULL, idle, NULL);
    close(file);
    close(timer);
    memset(alloca(100000), 7, 100000);
}

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    describe(out, size);
    soil();
}

int main(int argc, char **argv) {
    if (argc < 3 || (file = open(argv[2], O_RDONLY)) < 0) return 2;
    char part[10];
    if (read(file, part, sizeof part) != sizeof part) return 3;
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guarded = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 2, 4096);
    events = eventfd(0, EFD_NONBLOCK);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    epoll = epoll_create1(0);
    if (pipe2(fds, O_NONBLOCK) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return 4;
    serve(listen_on(atoi(argv[1])), reply);
}
