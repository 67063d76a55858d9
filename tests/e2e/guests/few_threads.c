// For LD_PRELOAD: a host that lets a process start THREADS threads and no more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*), void* argument) {
    static atomic_int started;
    const char* most = getenv("THREADS");
    if (most && atomic_fetch_add(&started, 1) >= atoi(most)) return EAGAIN;
    int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    *(void**)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, begin, argument);
}
