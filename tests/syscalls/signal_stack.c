// The alternate signal stack, and running out of the ordinary one.
#include "transcript.h"

#include <pthread.h>
#include <setjmp.h>
#include <ucontext.h>

static char stack[128 << 10];
static sigjmp_buf out;

static int on_stack(const void *p) { return (const char *)p >= stack && (const char *)p < stack + sizeof stack; }

static void where(int signal) {
    stack_t now, other = {.ss_flags = SS_DISABLE};
    sigaltstack(NULL, &now);
    SAY("  %s: on the alternate stack %d, flags %d", sigabbrev_np(signal), on_stack(&now), now.ss_flags);
    if (now.ss_flags == SS_ONSTACK) CALL(sigaltstack(&other, NULL));
    if (signal == SIGUSR1) raise(SIGUSR2);
}

static void overflown(int signal, siginfo_t *info, void *context) {
    int local;
    long distance = (char *)info->si_addr - (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
    SAY("  %s: on the alternate stack %d, near the stack pointer %d", sigabbrev_np(signal), on_stack(&local),
        distance > -65536 && distance < 65536);
    siglongjmp(out, 1);
}

static void on(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(signal, &action, NULL));
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static int forever(int n) {
    volatile char here[4096];
    here[0] = (char)n;
    return forever(n + 1) + here[0];
}

static void *run_out(void *unused) {
    (void)unused;
    struct sigaction action = {.sa_sigaction = overflown, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    MUST(sigaction(SIGSEGV, &action, NULL));
    stack_t mine = {.ss_sp = stack, .ss_size = sizeof stack};
    MUST(sigaltstack(&mine, NULL));
    for (int i = 0; i < 2; i++)
        if (sigsetjmp(out, 1) == 0) forever(0);
    SAY("survived");
    return NULL;
}

int main(void) {
    stack_t mine = {.ss_sp = stack, .ss_size = sizeof stack}, old;
    CALL(sigaltstack(NULL, &old));
    CHECK(old.ss_flags == SS_DISABLE);
    on(SIGUSR1, where, SA_ONSTACK);
    on(SIGUSR2, where, 0);
    section("none is set");
    CALL(raise(SIGUSR1));
    section("one is set");
    CALL(sigaltstack(&mine, &old));
    CALL(raise(SIGUSR1));
    CALL(raise(SIGUSR2));
    section("wrong ones");
    CALL(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = 100}, NULL));
    CALL(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = 77}, NULL));
    CALL(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, &old));
    CHECK(old.ss_sp == stack && old.ss_size == sizeof stack);
    section("stack overflow");
    run_out(NULL);
    MUST(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    section("stack overflow in a thread");
    pthread_t thread;
    pthread_create(&thread, NULL, run_out, NULL);
    pthread_join(thread, NULL);
}
