#!/usr/bin/env python3
"""What memory a warm function takes, just after its last request and at rest, and what a request to one at rest waits.

    bench/memory.py [--programs c-epoll=400 node-http=100] [--rest 10] [--also OTHER-KVMSERVER] [--json FILE]

So many functions of one snapshot are asked once, and once more; then they rest. "all" is by how much the host's
MemAvailable has fallen for each, KiB, the other rows are parts of it by /proc/meminfo. A file's pages in memory count as
available: what functions have of the cache's copies is not in these figures, and is there once for all of them.
Then each is asked once more. Needs an idle host, build/ and its functions.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import cold
import common

BEFORE = 5  # functions that are asked first: what all share is there before the others are measured
SETTLE = 4  # seconds beside the time until they rest: the kernel frees some of it behind
PARTS = {"AnonPages": "own pages", "Shmem": "images", "PageTables": "page tables", "SecPageTables": "KVM's page tables",
         "KernelStack": "kernel stacks", "SUnreclaim": "kernel slabs", "SReclaimable": "reclaimable slabs"}


def memory():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    values = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    return {"all": -values["MemAvailable"], **{text: values.get(name, 0) for name, text in PARTS.items()}}


def settled():
    """The memory once it stays the same: a thousand machines that begin to rest take a while."""
    while True:
        before = memory()["all"]
        time.sleep(SETTLE)
        now = memory()
        if abs(now["all"] - before) < 2048:
            return now


def spread(times):
    tenths = statistics.quantiles(times, n=10)
    return {"median": statistics.median(times), "tenth": tenths[0], "nine_tenths": tenths[-1]}


def measure(binary, folder, program, count, rest):
    """Of one program: KiB for each function, and ms."""
    path = cold.snapshot(folder, program, ["--warmup", "auto"] if program != "c-epoll" else ["--level", "1"])
    daemon = cold.Daemon(binary, folder / "daemon", ["--idle", "36000", "--rest", str(rest)])
    try:
        names = [f"f{number}" for number in range(count + BEFORE)]
        for name in names:
            daemon.deploy(name, path)
        for name in names[:BEFORE]:
            daemon.ask(name)
        time.sleep(rest)
        before, names, ms = settled(), names[BEFORE:], {}
        ms["cold"] = spread([daemon.ask(name) for name in names])
        asked = memory()
        ms["warm"] = spread([daemon.ask(name) for name in names])
        time.sleep(rest)
        rested = settled()
        ms["after a rest"] = spread([daemon.ask(name) for name in names])
        return {"functions": count, "ms": ms,
                "kib": {row: {"asked": (asked[row] - before[row]) / count, "at rest": (rested[row] - before[row]) / count} for row in before}}
    finally:
        daemon.end()


def tell(program, result):
    print(f"{program}, {result['functions']} functions, KiB each:{'just asked':>20}{'at rest':>10}")
    for row, each in result["kib"].items():
        print(f"  {row:40}{each['asked']:12.0f}{each['at rest']:10.0f}")
    for when, ms in result["ms"].items():
        print(f"  {when + ', ms':40}{ms['median']:12.2f} ({ms['tenth']:.2f} to {ms['nine_tenths']:.2f})", flush=True)


def programs_of(words):
    for word in words:
        name, _, count = word.partition("=")
        if not count.isdigit() or int(count) < 2:
            raise common.Failure(f"--programs: {word}: give a program and a number of functions, as c-epoll=400")
        yield name, int(count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", default=["c-epoll=400", "node-http=100"])
    parser.add_argument("--rest", type=float, default=10, help="seconds until a machine rests")
    parser.add_argument("--also", nargs="*", default=[], type=pathlib.Path)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = []
    for program, count in programs_of(options.programs):
        for binary in [cold.KVMSERVER, *options.also]:
            with tempfile.TemporaryDirectory(prefix="kvmserver-memory-", dir="/var/tmp") as folder:
                result = measure(binary, pathlib.Path(folder), program, count, options.rest)
            if options.also:
                print(binary)
            tell(program, result)
            results.append({"program": program, "binary": str(binary), **result})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"host": common.host(str(cold.KVMSERVER)), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"memory: {failure}")
