// The ways out of a machine that odd_exits.c offers, and what they share.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

struct OddKind {
    const char *name;
    void (*leave)(void); // where it comes back the machine ends by UD2
};
extern const struct OddKind odd_kinds[]; // the last has no name
extern char odd_page[4096];
