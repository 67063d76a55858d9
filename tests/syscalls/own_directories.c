// The same as directories.c, in the machine's own /tmp.
#include "own.h"
#define main main_of_directories
#include "directories.c"
#undef main

int main(void) {
    own_enter("/tmp");
    main_of_directories();
    return 0;
}
