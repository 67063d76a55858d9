// Touches memory and tells the signal that came of it.
#pragma once
#include "transcript.h"

#include <setjmp.h>

static sigjmp_buf fault_return;
static siginfo_t fault_info;

static inline void fault_handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_info = *info;
    siglongjmp(fault_return, 1);
}

static inline void fault_catch(void) {
    struct sigaction action = {.sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO};
    int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) MUST(sigaction(signals[i], &action, NULL));
}

// Runs the code and prints "what: ok", or the signal; `where` is the address it should name.
#define TRY(what, where, code)                                             \
    do {                                                                   \
        if (sigsetjmp(fault_return, 1) == 0) {                             \
            code;                                                          \
            SAY("%s: ok", what);                                           \
        } else {                                                           \
            fault_say(what, (const volatile void *)(where));               \
        }                                                                  \
    } while (0)

static inline void fault_say(const char *what, const volatile void *where) {
    SAY("%s: SIG%s code %d%s", what, sigabbrev_np(fault_info.si_signo), fault_info.si_code,
        !where ? "" : fault_info.si_addr == where ? ", at the address" : ", at ANOTHER address");
}

static inline void try_read(const char *what, const volatile char *p) { TRY(what, p, (void)*p); }
static inline void try_write(const char *what, volatile char *p) { TRY(what, p, *p = 1); }
