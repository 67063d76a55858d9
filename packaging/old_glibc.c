// What we and GCC 12's static libraries take from a glibc newer than 2.31, for the binary that runs on that
// (scripts/release.sh). Hidden: libraries that are loaded later get the C library's own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

// 2.32: whether std::shared_ptr may count without atomic instructions. Never.
char __libc_single_threaded = 0;

// 2.34. The kernel has it since 5.9; before that our callers get ENOSYS, as from glibc.
int close_range(unsigned first, unsigned last, int flags) {
    return (int)syscall(SYS_close_range, first, last, flags);
}

// 2.36: std::random_device.
uint32_t arc4random(void) {
    uint32_t value;
    while (getrandom(&value, sizeof value, 0) != sizeof value)
        if (errno != EINTR) abort();
    return value;
}

// 2.35: the unwind tables of the object that holds an address.
struct search {
    uintptr_t address;
    struct dl_find_object* found;
};

static int look(struct dl_phdr_info* object, size_t size, void* argument) {
    (void)size;
    struct search* search = argument;
    const ElfW(Phdr)* holds = NULL;
    const ElfW(Phdr)* eh_frame = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr)* part = &object->dlpi_phdr[i];
        const uintptr_t offset = search->address - (object->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD && offset < part->p_memsz) holds = part;
        if (part->p_type == PT_GNU_EH_FRAME) eh_frame = part;
    }
    if (!holds) return 0;
    if (!eh_frame) return 2;
    search->found->dlfo_map_start = (void*)(object->dlpi_addr + holds->p_vaddr);
    search->found->dlfo_map_end = (void*)(object->dlpi_addr + holds->p_vaddr + holds->p_memsz);
    search->found->dlfo_eh_frame = (void*)(object->dlpi_addr + eh_frame->p_vaddr);
    return 1;
}

int _dl_find_object(void* address, struct dl_find_object* found) {
    *found = (struct dl_find_object){0};
    struct search search = {(uintptr_t)address, found};
    return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
