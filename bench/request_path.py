#!/usr/bin/env python3
"""What the way of a request costs, in two binaries that alternate in one run: this build's and one of before.

    bench/request_path.py --before FILE [--programs rust-tokio,c-epoll] [--rounds 15] [--threads 2] [--json FILE]

Each binary runs `serve` (a store of its own, one function) and `snaprun -e --http`, all with the same snapshot. In each
round every server has a burst of requests over kept connections, one and sixteen, and over new ones, in an order that turns
from round to round. Printed are medians, and the median of the ratios within the rounds: requests a second (higher is
better), and p50 in microseconds. Needs build/ (scripts/build.sh, scripts/functions.sh) and scripts/bench.sh's load.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common

LOADS = {"kept, 1": ["--keep-alive"], "kept, 16": ["--keep-alive", "--connections", "16"], "new, 1": [], "new, 16": ["--connections", "16"]}


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise common.Failure(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def servers(stack, options, program, folder, binary, which):
    env = common.environment(program)
    snapshot = folder / "program.snap"
    if not snapshot.exists():
        run(options.before, "snapshot", "--allow-all", "-w", "100", "-o", snapshot, *common.words(program, common.free_port()))
    store = folder / f"store-{which}"
    run(binary, "deploy", snapshot, "--name", "bench", "-q", "--store", store, "--route", "127.0.0.1", "--route", "localhost")
    port = common.free_port()
    serve = common.Server(f"serve ({which})", [binary, "serve", "--store", store, "--listen", f"127.0.0.1:{port}", "-t", str(options.threads)], port, env, "/")
    yield "serve", stack.enter_context(serve).wait_ready()
    port = common.free_port()
    words = [binary, "snaprun", "-e", "--http", "-t", options.threads, "--allow-all", "--listen", f"127.0.0.1:{port}", snapshot]
    http = common.Server(f"--http ({which})", words, port, env, "/")
    yield "--http", stack.enter_context(http).wait_ready()


def measure(options, server, load):
    said = json.loads(run(options.load, server.port, "--seconds", options.seconds, *LOADS[load]))
    if said.get("failed"):
        raise common.Failure(f"{server.name}: {said['failed']} requests failed")
    return said


def compare(options, program, told):
    values = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        binaries = {"before": options.before, "now": options.binary}
        running = [((mode, which), server) for which, binary in binaries.items()
                   for mode, server in servers(stack, options, program, folder, binary, which)]
        for number in range(options.rounds):
            for load in LOADS:
                turn = number % len(running)
                for key, server in running[turn:] + running[:turn]:
                    values.setdefault((load, *key), []).append(measure(options, server, load))
    for load in LOADS:
        for mode in ("serve", "--http"):
            before, now = values[load, mode, "before"], values[load, mode, "now"]
            line = {}
            for figure in ("requests_per_second", "p50_us", "p99_us"):
                line[figure] = [statistics.median(one[figure] for one in side) for side in (before, now)]
                line[figure].append(statistics.median(b[figure] / a[figure] for a, b in zip(before, now)))
            told[f"{program['name']}, {mode}, {load}"] = line
            shown = "   ".join(f"{name} {a:8.0f} {b:8.0f} x{ratio:.2f}" for name, (a, b, ratio) in
                               zip(("requests/s", "p50 us", "p99 us"), line.values()))
            print(f"{program['name']:12} {mode:7} {load:9} {shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True)
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--programs", default="rust-tokio,c-epoll")
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    parser.add_argument("--load", default=str(common.LOAD))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    common.need(options.load, "cmake -S bench/load -B build/bench/load && cmake --build build/bench/load")
    common.need(options.before, "--before is the binary to compare with")
    known = common.programs(options.functions)
    told = {}
    for name in options.programs.split(","):
        compare(options, known[name], told)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"request_path: {failure}")
