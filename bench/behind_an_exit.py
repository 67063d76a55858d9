#!/usr/bin/env python3
"""What leaving the machine once a request does to a program, beside the exit's own time: bare servers that lose the same.

    bench/behind_an_exit.py [--programs c-epoll-dynamic,node-http] [--rounds 8]

Bare, bare without branch predictions (two IBPBs a request), bare with an empty TLB (after each epoll_wait), both, and `run`, all on
one CPU, alternating in one run; least and median p50 in us, a new connection each and kept ones. The TLB is emptied by two calls of
mprotect on 64 pages, whose own cost shows with the C program. For programs that wait by glibc's epoll_wait or epoll_pwait, as Node.

Needs build/ (scripts/build.sh, scripts/functions.sh), bench/load (scripts/bench.sh builds it) and cc.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common

# Starts a program that may not keep its branch predictions over a change of tasks; the kernel then empties them at each.
NO_PREDICTIONS = r"""
#include <linux/prctl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    if (prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, PR_SPEC_FORCE_DISABLE, 0, 0)) perror("prctl");
    else execvp(words[1], words + 1);
    return 1;
}
"""

# For LD_PRELOAD. A change of the rights of more than 33 pages empties the TLB (Linux arch/x86/mm/tlb.c, tlb_single_page_flush_ceiling).
NO_TLB = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
enum { kBytes = 64 * 4096 };
static void empty(void) {
    static char *area;
    if (!area) area = memset(mmap(0, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, kBytes);
    mprotect(area, kBytes, PROT_READ);
    mprotect(area, kBytes, PROT_READ | PROT_WRITE);
}
int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    const int n = real(fd, events, most, timeout);
    empty();
    return n;
}
int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    static int (*real)(int, struct epoll_event *, int, int, const sigset_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_pwait");
    const int n = real(fd, events, most, timeout, mask);
    empty();
    return n;
}
"""


def compiled(folder, name, source, *options):
    path = folder / name
    subprocess.run(["cc", "-O1", "-x", "c", "-o", path, *options, "-"], input=source.encode(), check=True)
    return str(path)


def measure(program, variants, rounds, cpu):
    figures = {}
    with contextlib.ExitStack() as stack:
        servers = []
        for name, prefix in variants:
            port = common.free_port()
            server = common.Server(name, [*prefix, *common.words(program, port)], port, common.environment(program), program["cwd"])
            stack.enter_context(server).wait_ready().place({cpu})
            servers.append((name, port))
        for turn in range(rounds + 1):  # the first one warms up
            for i in range(len(servers)):
                name, port = servers[(i + turn) % len(servers)]
                for mode in ([], ["--keep-alive"]):
                    said = subprocess.run(["taskset", "-c", str(cpu), common.LOAD, str(port), *mode, "--seconds", "0.4"],
                                          check=True, capture_output=True, text=True).stdout
                    if turn:
                        figures.setdefault((name, bool(mode)), []).append(json.loads(said)["p50_us"])
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="c-epoll-dynamic,node-http")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    common.need(common.LOAD, "scripts/bench.sh builds it")
    common.need(common.KVMSERVER, "scripts/build.sh builds it")
    known = common.programs()
    cpu = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        start = [compiled(pathlib.Path(folder), "no_predictions", NO_PREDICTIONS)]
        preload = ["env", "LD_PRELOAD=" + compiled(pathlib.Path(folder), "no_tlb.so", NO_TLB, "-shared", "-fPIC", "-ldl")]
        variants = [("bare", []), ("without predictions", start), ("without TLB", preload), ("without both", [*preload, *start]),
                    ("run", [str(common.KVMSERVER), "run", "--allow-all"])]  # fmt: skip
        for name in options.programs.split(","):
            if name not in known:
                raise common.Failure(f"--programs: no {name}; there are {', '.join(sorted(known))}")
            figures = measure(known[name], variants, options.rounds, cpu)
            print(f"\n{name:22}{'new: least':>12}{'median':>10}{'kept: least':>14}{'median':>10}")
            for variant, _ in variants:
                new, kept = figures[variant, False], figures[variant, True]
                print(f"{variant:22}{min(new):12.1f}{statistics.median(new):10.1f}{min(kept):14.1f}{statistics.median(kept):10.1f}")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"behind_an_exit.py: {failure}")
