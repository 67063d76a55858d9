#!/usr/bin/env python3
"""The samples that people would deploy: snapshot size, cold start, a hot request with a reset each, beside the bare process.

    bench/samples.py [--rounds 10] [--burst 30] [--starts 7] [--requests 1000] [--json FILE] [sample...]

Cold start: from the start of the process to the first reply; kvmserver's snapshot is unpacked in its cache already. Hot: a new
connection each, bare and `snaprun -e` alternating in bursts; the client is Python's and costs both the same. Then --requests
requests each, all replies checked, by `snaprun -e --check-reset` and by `serve`. Prints a Markdown table; exits 1 when
anything was wrong. Needs build/ (scripts/build.sh, scripts/functions.sh --more).
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common
from common import Failure, Server

sys.path.insert(0, str(common.ROOT / "functions"))
import samples  # noqa: E402


def path_of_tools():
    """/usr/bin before the shims of version managers, which are shell scripts."""
    return "/usr/bin:/bin:" + os.environ["PATH"]


class Sample:
    def __init__(self, name, options, scratch):
        self.name, self.options, self.scratch = name, options, scratch
        self.folder, self.questions = samples.BUILT / name, samples.SAMPLES[name]
        self.snap, self.cache = f"{scratch}/{name}.snap", ["--cache", f"{scratch}/cache"]
        if not (self.folder / "built").exists():
            raise Failure(f"{name} is not built: scripts/functions.sh {name}")

    def bare(self):
        port = common.free_port()
        argv, environment = samples.bare(self.name, port, self.scratch)
        return Server(f"{self.name}, bare,", argv, port, environment, self.folder)

    def restored(self, *options):
        port = common.free_port()
        argv = [self.options.binary, "snaprun", "-e", *options, *self.cache, "--listen", f"127.0.0.1:{port}", self.snap]
        return Server(f"{self.name}, snaprun -e,", argv, port, None, "/")

    def make_snapshot(self):
        """Of the manifest in its folder, as deploy makes it."""
        command = [self.options.binary, "snapshot", *self.cache, "-o", self.snap]
        done = subprocess.run(command, cwd=self.folder, env={**os.environ, "PATH": path_of_tools()}, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"{self.name}: kvmserver snapshot ended with status {done.returncode}: {done.stderr.strip()[-500:]}")

    def first_reply(self, start):
        begun = time.perf_counter()
        with start() as server:
            samples.wait_ready(server.port, server.process)
            self.questions[0].ask(server.port)
            return (time.perf_counter() - begun) * 1000

    def burst(self, server, question):
        taken = []
        for _ in range(self.options.burst):
            begun = time.perf_counter()
            reply = question.fetch(server.port)
            taken.append((time.perf_counter() - begun) * 1000)
            question.check(reply)
        return taken

    def hot(self):
        """Medians in ms, bare and restored."""
        with self.bare().wait_ready() as bare, self.restored().wait_ready() as restored:
            taken = {bare: [], restored: []}
            for round_ in range(self.options.rounds + 1):
                for server, found in taken.items():
                    burst = self.burst(server, self.questions[0])
                    if round_:  # the first warms the bare program
                        found += burst
            return [statistics.median(found) for found in taken.values()]

    def many_with_checked_resets(self):
        with self.restored("--check-reset").wait_ready() as server:
            for number in range(self.options.requests):
                self.questions[number % len(self.questions)].ask(server.port)
            server.stop()
            if "reset differs" in server.said():
                raise server.failed("was not reset to its image")

    def many_served(self):
        store, port = f"{self.scratch}/store-{self.name}", common.free_port()
        subprocess.run([self.options.binary, "deploy", self.snap, "--name", self.name, "--store", store], check=True, capture_output=True)
        argv = [self.options.binary, "serve", "--store", store, "--listen", f"127.0.0.1:{port}"]
        with Server(f"{self.name}, serve,", argv, port, None, "/") as server:
            samples.wait_ready(port, server.process)
            for number in range(self.options.requests):
                self.questions[number % len(self.questions)].ask(port, f"{self.name}.localhost")

    def measure(self):
        self.make_snapshot()
        result = {"sample": self.name, "snapshot_mb": os.stat(self.snap).st_size / 1e6}
        starts = {"bare": [], "snaprun": []}
        for number in range(self.options.starts + 1):
            times = {"bare": self.first_reply(self.bare), "snaprun": self.first_reply(self.restored)}
            if number:  # the first reads files and unpacks
                for how, taken in times.items():
                    starts[how].append(taken)
        result |= {f"cold_{how}_ms": statistics.median(taken) for how, taken in starts.items()}
        result["hot_bare_ms"], result["hot_snaprun_ms"] = self.hot()
        self.many_with_checked_resets()
        self.many_served()
        return result


HEAD = ["sample", "snapshot MB", "cold bare ms", "cold ms", "hot bare ms", "hot ms", "x bare"]


def row(result):
    figures = [result[key] for key in ("snapshot_mb", "cold_bare_ms", "cold_snaprun_ms", "hot_bare_ms", "hot_snaprun_ms")]
    ratio = result["hot_snaprun_ms"] / result["hot_bare_ms"]
    return [result["sample"], f"{figures[0]:.0f}", *(f"{ms:.0f}" for ms in figures[1:3]), *(f"{ms:.2f}" for ms in figures[3:]), f"{ratio:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--burst", type=int, default=30)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("samples", nargs="*", default=list(samples.SAMPLES))
    options = parser.parse_args()
    unknown = set(options.samples) - set(samples.SAMPLES)
    if unknown:
        raise Failure(f"no such sample: {', '.join(sorted(unknown))}; there are {', '.join(samples.SAMPLES)}")
    os.environ["PATH"] = path_of_tools()
    about, results, failed = common.host(options.binary), [], False
    print(f"{datetime.date.today()}, {about['kvm']} host, {about['cpus']} x {about['cpu']}, Linux {about['kernel']}, {about['commit']}; "
          f"{options.requests} requests each checked\n")
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="kvmserver-bench-") as scratch:
        for name in options.samples:
            try:
                results.append(Sample(name, options, scratch).measure())
                print("| " + " | ".join(row(results[-1])) + " |", flush=True)
            except (AssertionError, Failure, OSError) as error:
                failed = True
                print(f"samples: {name}: {error}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"host": about, "results": results}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"samples: {failure}")
