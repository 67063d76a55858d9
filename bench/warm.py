#!/usr/bin/env python3
"""What a function that has served a request and waits for the next one costs in memory.

    bench/warm.py [--functions 200] [--programs c-epoll] [--also OTHER-KVMSERVER]

Counts all of it: by how much MemAvailable of the host falls, divided by the number of functions. Beside it, what a
process of them shares with no other (Private_Dirty), by kind of mapping. The functions have the same snapshot. An idle
host is needed: what others take meanwhile counts, too. Needs build/ and its functions.
"""
import argparse
import collections
import pathlib
import re
import statistics
import tempfile
import time

import cold

SETTLE = 8  # seconds until copies in the cache and spare processes are made, and the kernel has freed what it will


def available():
    """MiB of the host."""
    return int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) / 1024


def private(pid):
    """KiB by kind of mapping."""
    kinds, kind = collections.Counter(), ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+\s*(.*)", line)
        if mapping:
            path = mapping.group(2)
            kind = ("guest memory" if "kvmserver-image" in path or "anon_inode:kvm" in path else
                    "program and libraries" if path.startswith("/") else "heap, stacks and other")
        elif line.startswith("Private_Dirty:"):
            kinds[kind] += int(line.split()[1])
    return kinds


def processes(daemon):
    """Those that serve a function."""
    found = []
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if words[1] == "--function-process" and not words[2].startswith("spare"):
                found.append(int(child))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--programs", nargs="+", default=["c-epoll"])
    parser.add_argument("--also", nargs="*", default=[], type=pathlib.Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmserver-warm-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        for program in chosen.programs:
            path = cold.snapshot(folder, program)
            for i, binary in enumerate([cold.KVMSERVER, *chosen.also]):
                daemon = cold.Daemon(binary, folder / f"{program}-{i}", ["--idle", "3600"])
                try:
                    for j in range(chosen.functions + 1):
                        daemon.deploy(f"f{j}", path)
                    daemon.ask("f0")
                    time.sleep(SETTLE)
                    before = available()
                    for j in range(1, chosen.functions + 1):
                        daemon.ask(f"f{j}")
                    time.sleep(SETTLE)
                    each = (before - available()) / chosen.functions
                    kinds = [private(pid) for pid in processes(daemon)]
                    parts = {kind: statistics.median(k[kind] for k in kinds) for kind in kinds[0]}
                    text = ", ".join(f"{kind} {kib:.0f}" for kind, kib in parts.items())
                    print(f"{program}: {each:.2f} MiB a function; KiB of a process alone: {text}  {binary}")
                finally:
                    daemon.end()


if __name__ == "__main__":
    main()
