#!/usr/bin/env python3
"""How the time of a start and the memory of a function change with the number of functions that live on one host.

    bench/density.py [--points 100,1000,2000,4000,6000,8000] [--daemons 1] [--starts 50] [--rest 10] [--json FILE]
                     [--chart FILE]

Functions of one C program (functions/c-epoll) are deployed to one daemon, each is asked once, and all stay alive; their
machines rest after --rest seconds (0: never). With --daemons, each has its part of them: a process may have so many
open files, and a function takes 7 of its daemon. At each point the last starts before it are timed: from connect until
the reply is there, one after the other, each after a pause in which the daemon makes the next spare process; "in a row"
are those before, without a pause. Memory is by how much MemAvailable of the host has fallen since the daemon rested,
divided by the number of functions, once all rest. An idle host is needed. Stops at a point when less than an eighth of
the host's memory is available, and says so.

--chart draws the starts as the figure of the LightVM paper (Manco et al., SOSP 2017, "My VM is lighter (and safer)
than your container") does; its daytime unikernel takes 2.3 ms at first and 4.1 ms as the 8,000th. Needs build/ and its
functions, and matplotlib for the chart.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import time

import common
import many

PAUSE = 0.12  # seconds: a spare process takes some 10 ms of CPU
SETTLE = 5  # seconds until the kernel has freed what it will
LIGHTVM = {"functions": [1, 8000], "ms": [2.3, 4.1]}


def memory():
    """Available and total MiB of the host."""
    lines = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return [int(lines[name].split()[0]) / 1024 for name in ("MemAvailable", "MemTotal")]


def point(daemons, begin, end, starts, before, rest):
    """The functions [begin, end) start, the last ones timed. `daemons`: and how many functions each has."""
    daemons, each = daemons

    def ask(number):
        daemons[number // each].ask(many.name_of(number % each))

    in_a_row = many.ms(lambda: [ask(number) for number in range(begin, end - starts)])
    taken = []
    for number in range(end - starts, end):
        time.sleep(PAUSE)
        taken.append(many.ms(lambda n=number: ask(n)))
    time.sleep(rest + SETTLE)
    tenths = statistics.quantiles(taken, n=10)
    return {"functions": end, "median_ms": statistics.median(taken), "tenth_ms": tenths[0], "nine_tenths_ms": tenths[-1],
            "in_a_row_ms": in_a_row / max(end - starts - begin, 1), "mib_each": (before - memory()[0]) / end}


def measure(options, folder):
    options.snapshots = 1
    snapshots, each = many.snapshots(options, folder), -(-options.points[-1] // options.daemons)
    results, begin, daemons = [], 0, []
    with contextlib.ExitStack() as ends:
        for number in range(options.daemons):
            store = folder / f"store{number}"
            many.fill(options, store, snapshots, each)
            daemons.append(many.Daemon(options, store, "--idle=36000", f"--rest={options.rest}", "--threads=1"))
            ends.callback(daemons[-1].stop)
        for daemon in daemons:
            daemon.settled_cpu()
        time.sleep(SETTLE)
        before = memory()[0]
        print(f"{'functions':>10} {'median':>8} {'tenth':>8} {'nine tenths':>12} {'in a row':>9} {'MiB each':>9}   (ms)", flush=True)
        for end in options.points:
            available, total = memory()
            if results and available - (end - begin) * results[-1]["mib_each"] < total / 8:
                print(f"# not {end}: the host has {available:.0f} MiB left", flush=True)
                break
            try:
                results.append(point((daemons, each), begin, end, min(options.starts, end - begin), before, options.rest))
            except common.Failure as failure:  # a limit of the host, such as open files
                if not results:
                    raise
                print(f"# not {end}: {failure}", flush=True)
                break
            told, begin = results[-1], end
            print(f"{end:10} {told['median_ms']:8.2f} {told['tenth_ms']:8.2f} {told['nine_tenths_ms']:12.2f} {told['in_a_row_ms']:9.2f} {told['mib_each']:9.2f}", flush=True)
    return results


def draw(results, path):
    import charts

    plt = charts.plt
    charts.style()
    figure, axis = plt.subplots(figsize=(6, 3.2))
    numbers = [result["functions"] for result in results]
    axis.fill_between(numbers, [r["tenth_ms"] for r in results], [r["nine_tenths_ms"] for r in results], color="#c6dbef", label="from a tenth to nine tenths")
    axis.plot(numbers, [r["median_ms"] for r in results], color="#08519c", marker="o", label="kvmserver, first reply of a cold function")
    axis.plot(LIGHTVM["functions"], LIGHTVM["ms"], color="#8c8c8c", linestyle="--", label="LightVM, creation and boot (other hardware)")
    axis.set_xlabel("functions alive")
    axis.set_ylabel("ms")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    path = pathlib.Path(path)
    charts.save(figure, path.parent, path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="100,1000,2000,4000,6000,8000", help="numbers of functions alive")
    parser.add_argument("--daemons", type=int, default=1, help="that share the functions")
    parser.add_argument("--starts", type=int, default=50, help="timed before each point")
    parser.add_argument("--rest", type=float, default=10, help="seconds until an idle machine gives its memory back")
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--functions", dest="functions", default=str(common.FUNCTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--chart", metavar="FILE.svg")
    options = parser.parse_args()
    options.points = sorted(set(map(int, options.points.split(","))))
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, pathlib.Path(folder))
    first, last = results[0], results[-1]
    ratio = last["median_ms"] / first["median_ms"]
    print(f"the {last['functions']}th start takes {ratio:.2f} times as long as the {first['functions']}th")
    if options.json:
        document = {"host": common.host(options.binary), "results": results, "ratio": ratio, "lightvm": LIGHTVM}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    if options.chart:
        draw(results, options.chart)


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"density: {failure}")
