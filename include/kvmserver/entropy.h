/* A buffer that kvmserver fills with fresh random bytes before every invocation.
 *
 * Programs that keep random state of their own (a seeded generator, a pool of random bytes) would draw the same values
 * in every invocation, because each begins with the memory of the snapshot. Such a program places one of these, and
 * seeds its generator from it whenever the bytes have changed:
 *
 *     static struct { struct kvmserver_entropy head; unsigned char random[32]; } region;
 *     kvmserver_entropy_place(&region.head, sizeof(region.random));    // once, at the start
 *     ...
 *     if (memcmp(region.random, seen, 32) != 0) { memcpy(seen, region.random, 32); seed(my_generator, seen); }
 *
 * Or it lets the state itself be filled, where any bytes are a valid state. Outside of kvmserver nothing happens: the bytes
 * stay as they are, so fill them yourself at first. The memory must be writable, aligned to 8 bytes, and stay where it is.
 * The mark must not stand in memory by accident: it is the SHA-256 of "kvmserver entropy region, version 1", and this
 * header keeps it in disguise. At most 1 MiB a region. The same from Node and Python: docs/UNIQUENESS.md.
 *
 * This file is in the public domain (CC0). C99 and C++. */
#ifndef KVMSERVER_ENTROPY_H
#define KVMSERVER_ENTROPY_H
#include <stdint.h>

struct kvmserver_entropy {
    uint8_t mark[32];
    uint32_t bytes;    /* that follow and are to be filled: 1 to 1,048,576; little-endian */
    uint32_t reserved; /* 0 */
};

static inline void kvmserver_entropy_place(struct kvmserver_entropy *region, uint32_t bytes) {
    static const uint8_t disguised[32] = {0xaf, 0xd2, 0x82, 0x7a, 0x9b, 0x77, 0x55, 0x67, 0xf9, 0x83, 0xa0,
                                          0xbd, 0xb9, 0x4d, 0xae, 0x9a, 0xd7, 0x90, 0xcf, 0xc4, 0xee, 0x12,
                                          0x85, 0x57, 0xd7, 0x70, 0x05, 0xff, 0xd4, 0x43, 0x6c, 0x5a};
    volatile uint8_t *mark = region->mark;
    for (int i = 0; i < 32; ++i)
        mark[i] = (uint8_t)(disguised[i] ^ 0x5a);
    region->bytes = bytes;
    region->reserved = 0;
}

#endif
