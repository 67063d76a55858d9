/* For programs that run in a machine of the tinykvm library, and whose functions its host calls.
 *
 *     #include <tinykvm/guest.h>
 *     int add(int a, int b) { return a + b; }
 *     int main(void) {
 *         prepare();
 *         return tinykvm_ready();    // in a machine this does not return: the host now calls add()
 *     }
 *
 * The program needs no library. Its symbol table must have the functions: do not strip it, or export them (-rdynamic).
 * Everywhere else, with kvmserver too, both calls return -ENOSYS (-38).
 *
 * This file is in the public domain (CC0). C99 and C++, for x86-64. */
#ifndef TINYKVM_GUEST_H
#define TINYKVM_GUEST_H

static inline long tinykvm_system_call_(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* The calling thread is ready: from now on it runs the functions that the host calls, on its own stack. Does not return
 * in a machine. -EBUSY (-16): a function is being called, or another thread is ready. */
static inline long tinykvm_ready(void) { return tinykvm_system_call_(960, 0, 0, 0, 0, 0, 0); }

/* Calls the function that the host has registered for `number`, with up to five integers or addresses. Returns what it
 * returns; -ENOSYS (-38): there is none. */
static inline long tinykvm_call_host(unsigned number, long a, long b, long c, long d, long e) {
    return tinykvm_system_call_(961, (long)number, a, b, c, d, e);
}

#endif
