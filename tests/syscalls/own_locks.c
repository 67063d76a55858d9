// The same as locks.c, in the machine's own /tmp.
#include "own.h"
#define main main_of_locks
#include "locks.c"
#undef main

int main(void) {
    own_enter("/tmp");
    main_of_locks();
    return 0;
}
