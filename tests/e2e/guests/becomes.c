// Tells who it is and which timers, queues and limits it has, then changes all of it. Served by pristine machines, every reply is the same.
//   becomes PORT FILE    FILE may be changed; it becomes another's before the first connection
#include "server.h"

#include <grp.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

static const char *file;
static timer_t timer;
static mqd_t queue;
static int signals;
static volatile int ticks;

static void tick(int signal) { (void)signal, ticks++; }

static timer_t make_timer(int signal, long seconds, long interval_ns) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec spec = {{0, interval_ns}, {seconds, interval_ns}};
    timer_t made;
    if (timer_create(CLOCK_MONOTONIC, &event, &made) != 0 || timer_settime(made, 0, &spec, NULL) != 0) exit(5);
    return made;
}

static void describe(char *out, size_t size) {
    uid_t r, e, s;
    gid_t groups[8];
    struct itimerspec left = {0};
    struct itimerval prof;
    struct mq_attr attr = {0};
    struct signalfd_siginfo info = {0};
    struct rlimit files;
    struct stat st = {0};
    getresuid(&r, &e, &s);
    const int count = getgroups(8, groups);
    const int gone = timer_gettime(timer, &left);
    getitimer(ITIMER_PROF, &prof);
    getrlimit(RLIMIT_NOFILE, &files);
    stat(file, &st);
    mq_getattr(queue, &attr);
    const mqd_t by_name = mq_open("/becomes", O_RDWR);
    if (by_name != -1) mq_close(by_name);
    const long got = read(signals, &info, sizeof info);
    snprintf(out, size,
             "uid %d %d %d, groups %d, file of %d, timer %d %d, prof %d, messages %ld, named %d, signal %ld %u, files %lu, nice %d, policy %d, "
             "personality %d, leader %d, keeps %d, ticks %d, own time %d\n",
             (int)r, (int)e, (int)s, count, (int)st.st_uid, gone, left.it_value.tv_sec > 0, prof.it_value.tv_sec > 0, attr.mq_curmsgs,
             by_name != -1, got, info.ssi_signo, (unsigned long)files.rlim_cur, getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
             personality(0xffffffff), getsid(0) == getpid(), prctl(PR_GET_KEEPCAPS), ticks, clock() >= 0);
}

static void change(void) {
    signal(SIGRTMIN + 1, tick);
    signal(SIGPROF, tick);
    timer_delete(timer);
    make_timer(SIGRTMIN + 1, 0, 1000000);
    make_timer(SIGRTMIN + 1, 1000, 0);
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 10000}, {0, 10000}}, NULL);
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){{0, 0}, {1000, 0}}, NULL);
    char text[64];
    if (mq_receive(queue, text, sizeof text, NULL) < 0) perror("mq_receive");
    mq_unlink("/becomes");
    struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 16};
    mq_send(mq_open("/another", O_RDWR | O_CREAT, 0600, &attr), "left", 4, 0);
    kill(getpid(), SIGUSR1);
    sigset_t all;
    sigfillset(&all);
    signalfd(signals, &all, 0);
    signalfd(-1, &all, 0);
    setpriority(PRIO_PROCESS, 0, 17);
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){77, 77});
    personality(ADDR_NO_RANDOMIZE);
    setsid();
    if (chown(file, 4711, 4712) < 0 && geteuid() == 0) perror("chown");
    prctl(PR_SET_KEEPCAPS, 1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(9, 9, 9) < 0 || setresuid(8, 8, 8) < 0)) perror("setresuid");
    while (ticks < 3) {
    }
}

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    describe(out, size);
    change();
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    file = argv[2];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if ((signals = signalfd(-1, &set, SFD_NONBLOCK)) < 0) return 3;
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1});
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 32};
    if ((queue = mq_open("/becomes", O_RDWR | O_CREAT, 0600, &attr)) < 0 || mq_send(queue, "kept", 4, 1) < 0) return 4;
    timer = make_timer(SIGRTMIN, 100000, 0);
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {1000, 0}}, NULL);
    if (geteuid() == 0 && (chown(file, 1234, -1) < 0 || setgroups(2, (gid_t[]){5, 6}) < 0)) return 6;
    serve(listen_on(atoi(argv[1])), reply);
}
