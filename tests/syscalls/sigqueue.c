// Queued signals with values, and signals that are waited for.
#include "transcript.h"

static void with_info(int signal, siginfo_t *info, void *context) {
    (void)context;
    SAY("  handler of %d: code %d, value %d, from us %d", signal, info->si_code, info->si_value.sival_int,
        info->si_pid == getpid());
}

static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, a);
    sigaddset(&set, b);
    return set;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGRTMIN + 1, &action, NULL));
    MUST(sigaction(SIGUSR1, &action, NULL));
    sigset_t set = set_of(SIGRTMIN + 1, SIGUSR1);
    union sigval value;
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 1; i <= 3; i++) {
        value.sival_int = i * 11;
        if (CALL(sigqueue(getpid(), SIGRTMIN + 1, value)) < 0) return 1;
    }
    CALL(kill(getpid(), SIGUSR1));
    siginfo_t info;
    CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_code == SI_USER && info.si_pid == getpid());
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_code == SI_QUEUE && info.si_value.sival_int == 11);
    CALL(sigprocmask(SIG_UNBLOCK, &set, NULL));
    set = set_of(SIGUSR2, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct timespec soon = {0, 20000000}, wrong = {0, -1};
    int64_t start = now_ms();
    CALL(sigtimedwait(&set, &info, &soon));
    CHECK(now_ms() - start >= 19);
    CALL(sigtimedwait(&set, &info, &wrong));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

