#!/usr/bin/env python3
"""What the walls around functions cost, and what a function that takes all it can get costs its neighbour.

    bench/tenants.py [--rounds 15] [--binary FILE] [--json FILE]

Two daemons on stores of their own, alternating in one run: one with the walls of this host (--jail=auto --cgroup=auto), one
without any (--jail=off --cgroup=off). Printed for each are medians and the ratio within the rounds:

    invocation   p50 of requests to functions/c-epoll, a new connection each
    cold start   from a request to its reply where the function has no process, the least of each round
    memory       private memory of a function's process (Private_* of smaps_rollup)

Then, of the daemon with walls, p99 of a neighbour's requests alone, beside a process that only computes (which is no
function: what one busy processor costs here), and while tests/e2e/guests/hoards.c takes memory in each of its ways, one
after the other, within 32 MiB: once with that function and its client on a processor of their own, so that only what
kvmserver and the kernel share is seen, and once where all share all processors, as the kernel's scheduler will. Needs
build/ with its tests (scripts/build.sh), scripts/bench.sh's load, and runs best as root on a machine on which nothing else
does.
"""
import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common

WALLS = {"with walls": ["--jail=auto", "--cgroup=auto"], "without": ["--jail=off", "--cgroup=off"]}
WAYS = ["touch", "rewrite", "memfd", "mapped-memfds", "tmp", "names", "shm", "system-v", "messages", "pipes", "pairs",
        "connections", "regions", "sparse", "threads", "watches", "print", "answer"]  # fmt: skip
COMPUTES = "(a process that only computes)"  # no function: what one busy processor costs on this machine


class Daemon:
    def __init__(self, binary, folder, snapshots, options):
        self.binary, self.port, self.store = binary, common.free_port(), folder / "store"
        for name, (snapshot, *more) in snapshots.items():
            done = subprocess.run([binary, "deploy", snapshot, "--name", name, "-q", "--store", self.store, *more], capture_output=True, text=True)
            if done.returncode:
                raise common.Failure(f"deploy {name}: {done.stderr.strip()}")
        self.process = subprocess.Popen([binary, "serve", "--store", self.store, "--listen", f"127.0.0.1:{self.port}", "--idle", "0.2",
                                         "--threads", "1", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if "Serving" not in self.process.stdout.readline():
            raise common.Failure("the daemon does not serve")

    def ask(self, name, path="/"):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(client):
            client.request("GET", path, None, {"Host": f"{name}.localhost"})
            reply = client.getresponse()
            return reply.status, reply.read()

    def processes(self):
        """Of functions, by title; spare ones are not among them."""
        found = {}
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(OSError, IndexError):  # it has just ended
                    title = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[2].strip()
                    if title != "spare":
                        found[title] = int(pid)
        return found

    def spares(self):
        pids = [pid for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir() for pid in (task / "children").read_text().split()]
        return len(pids) - len(self.processes())

    def stop(self):
        self.process.terminate()
        self.process.wait()


def load(options, port, seconds, path="/"):
    done = subprocess.run([options.load, str(port), "--seconds", str(seconds), "--path", path], capture_output=True, text=True)
    if done.returncode:
        raise common.Failure(f"load: {done.stderr.strip()}")
    return json.loads(done.stdout)


def cold(daemon):
    """Seconds, once its process is gone and two others wait."""
    while daemon.processes() or daemon.spares() != 2:
        time.sleep(0.01)
    begin = time.perf_counter()
    status, _ = daemon.ask("cold")
    taken = time.perf_counter() - begin
    if status != 200:
        raise common.Failure(f"a cold request was answered with {status}")
    return taken


def private_kib(pid):
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def memory(daemon):
    daemon.ask("cold")
    return private_kib(daemon.processes()["cold v1"])


def in_rounds(options, daemons, measure):
    """Medians, and the median of the ratio within each round."""
    values = {name: [] for name in daemons}
    for number in range(options.rounds):
        order = list(daemons) if number % 2 else list(daemons)[::-1]
        for name in order:
            values[name].append(measure(daemons[name]))
    first, second = values
    ratio = statistics.median(a / b for a, b in zip(values[first], values[second]))
    return {name: statistics.median(numbers) for name, numbers in values.items()}, ratio, {name: min(numbers) for name, numbers in values.items()}


def compute():
    while True:
        pass


def hoard(daemon, way):
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):  # it is ended amid a reply
            daemon.ask("hoards", f"/{way}")


def pin(processes, processor):
    """All their threads, to one processor, or (None) to all."""
    for pid in processes:
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), range(os.cpu_count()) if processor is None else {processor})


@contextlib.contextmanager
def beside(daemon, way, apart):
    """What goes on meanwhile, in a process of its own and past its first start; apart, on another processor than all else."""
    process = multiprocessing.Process(target=compute) if way == COMPUTES else multiprocessing.Process(target=hoard, args=(daemon, way))
    process.start()
    try:
        while way != COMPUTES and "hoards v1" not in daemon.processes():
            time.sleep(0.01)
        time.sleep(0.2)
        pin([process.pid, *(pid for title, pid in daemon.processes().items() if title == "hoards v1")], 1 if apart else None)
        yield
    finally:
        process.kill()
        process.join()


def neighbour(options, daemon, told, apart):
    """p99 of 'hot' beside each way of 'hoards', over that alone just before."""
    alone, ratios = [], {}
    for _ in range(options.rounds):
        for way in [COMPUTES, *WAYS]:
            load(options, daemon.port, 0.1)  # its process is there
            pin([os.getpid(), daemon.process.pid, daemon.processes()["hot v1"]], 0 if apart else None)
            alone.append(load(options, daemon.port, 0.4)["p99_us"])
            with beside(daemon, way, apart):
                ratios.setdefault(way, []).append(load(options, daemon.port, 0.4)["p99_us"] / alone[-1])
    pin([os.getpid(), daemon.process.pid], None)
    base, spread = statistics.median(alone), statistics.quantiles(alone, n=10)
    where = "on another processor" if apart else "on the same processors"
    told[f"neighbour, {where}"] = {"alone p99 us": base, "ratios": {way: statistics.median(values) for way, values in ratios.items()}}
    print(f"\nneighbour's p99, alone {base:.0f} us (a tenth of the rounds below {spread[0]:.0f}, a tenth above {spread[-1]:.0f}); {where}")
    print("beside a function that takes all it can within 32 MiB, medians of the ratios within the rounds:")
    for way, values in ratios.items():
        print(f"  {way:30} x {statistics.median(values):.2f}   (least {min(values):.2f}, most {max(values):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    parser.add_argument("--load", default=str(common.LOAD))
    parser.add_argument("--no-neighbour", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    common.need(options.load, "cmake -S bench/load -B build/bench/load && cmake --build build/bench/load")
    hoards = common.BUILD / "tests/e2e/hoards"
    common.need(hoards, "scripts/build.sh builds it")
    program = common.programs(options.functions)["c-epoll"]
    told = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def snapshot(name, argv, *more):
            file = folder / f"{name}.snap"
            done = subprocess.run([options.binary, "snapshot", "--allow-all", "-o", file, *more, *argv], capture_output=True, text=True)
            if done.returncode:
                raise common.Failure(f"snapshot {name}: {done.stderr.strip()}")
            return file

        made = snapshot("c", common.words(program, common.free_port()))
        small = snapshot("hoards", [str(hoards), "4", str(common.free_port())], "--max-main-memory", "32", "--max-request-memory", "32")
        snapshots = {"hot": (made, "--route", "localhost"), "cold": (made,), "hoards": (small,)}
        daemons = {}
        for name, walls in WALLS.items():
            (folder / name).mkdir()
            daemons[name] = Daemon(options.binary, folder / name, snapshots, walls)
            stack.callback(daemons[name].stop)
            daemons[name].ask("cold")  # its snapshot is known
        for what, unit, measure in (("invocation", "us", lambda daemon: load(options, daemon.port, 0.4)["p50_us"]),
                                    ("cold start", "ms", lambda daemon: cold(daemon) * 1000),
                                    ("memory", "KiB", memory)):
            medians, ratio, least = in_rounds(options, daemons, measure)
            told[what] = {"medians": medians, "least": least, "ratio": ratio}
            print(f"{what:11}", *(f"{name} {value:9.2f} {unit} (least {least[name]:.2f})  " for name, value in medians.items()), f"ratio {ratio:.3f}", flush=True)
        if not options.no_neighbour:
            for apart in (True, False) if os.cpu_count() > 1 else (False,):
                neighbour(options, daemons["with walls"], told, apart)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"tenants: {failure}")
