#!/usr/bin/env python3
"""What a cluster adds to changes, how soon another daemon has them, and what it serves.

    bench/cluster.py [--rounds 40] [--seconds 3] [--connections 8,64] [--programs c-epoll,node-http] [--json FILE]

Four daemons: one with its store alone, and three of a cluster (`serve --cluster`) with etcd and an S3 service on this
host. In turn each of the first two gets a variable of a function set, and then a version deployed whose chunks are
there, by the command line. The figures are medians, and their ratios of one run. Then the time from the end of a change
through one daemon until the other one answers with its etag.

Then wrk asks 12 functions of each program through HAProxy, with packaging/cluster/haproxy.cfg: before one daemon of the
cluster, and before three, in turns of --seconds, with few and with many connections. The ratio is the median of the
turns'. The context switches of the whole host are counted. All share this host, so more than with one cannot be
expected. Needs build/, its functions, and what `scripts/setup.sh --tests` puts there; an idle host is best.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common

sys.path.insert(0, str(common.ROOT / "tests" / "e2e"))
import admin  # noqa: E402
import bucket  # noqa: E402
import harness  # noqa: E402
import serving  # noqa: E402
from etcd import Etcd  # noqa: E402
from haproxy import HAProxy  # noqa: E402

KINDS = ("alone", "cluster")
FUNCTIONS, TURNS = 12, 6
SCRIPT = """
function request() return wrk.format("GET", "/count", {Host = "%s" .. math.random(0, %d) .. ".localhost"}) end
function done(summary) io.write(string.format('{"requests": %%d, "us": %%d, "failed": %%d}', summary.requests,
    summary.duration, summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout)) end
"""


def timed(action):
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def etag(store):
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/v1/functions/hello")
        return json.loads(connection.getresponse().read())["etag"]


def switches():
    return next(int(line.split()[1]) for line in pathlib.Path("/proc/stat").read_text().splitlines() if line.startswith("ctxt "))


def asked(port, script, connections, seconds):
    """Requests per second, and context switches for each."""
    words = ["wrk", "-t1", "--timeout", "20s", f"-c{connections}", f"-d{seconds}s", "-s", script,
             f"http://127.0.0.1:{port}/"]  # fmt: skip
    before = switches()
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    made = switches() - before
    counted = json.loads(done.stdout[done.stdout.index("{"):])
    if counted["failed"]:
        raise common.Failure(f"{counted['failed']} requests failed: {done.stdout}")
    return counted["requests"] / counted["us"] * 1e6, made / counted["requests"]


def throughput(options, folder, snapshots, nodes, ends):
    """`nodes`: stores and their daemons, with the ports of their APIs."""
    balancers = {}
    for count in (1, 3):
        (folder / f"haproxy-{count}").mkdir()
        balancers[count] = HAProxy(folder / f"haproxy-{count}", [(daemon.port, api) for _, daemon, api in nodes[:count]])
        ends.callback(balancers[count].close)
    results = []
    for program, snapshot in snapshots.items():
        results += of_program(options, folder, program, snapshot, nodes, balancers)
    return results


def of_program(options, folder, program, snapshot, nodes, balancers):
    functions = [f"{program}{number}" for number in range(FUNCTIONS)]
    for function in functions:
        nodes[0][0].deploy(snapshot, function)
    for _, daemon, _ in nodes:
        for function in functions:
            harness.wait_until(lambda d=daemon, f=function: d.ask(f).status == 200, "all is served")
    script = folder / "ask.lua"
    script.write_text(SCRIPT % (program, FUNCTIONS - 1))
    for connections in options.connections:
        measured = {1: [], 3: []}
        for turn in range(TURNS + 1):
            for count in (1, 3) if turn % 2 else (3, 1):
                one_turn = asked(balancers[count].port, script, connections, options.seconds)
                if turn:  # the first one warms up
                    measured[count].append(one_turn)
        (one, one_switches), (three, three_switches) = (map(statistics.median, zip(*rates)) for rates in measured.values())
        ratio = statistics.median(after / before for (before, _), (after, _) in zip(*measured.values()))
        yield {"program": program, "connections": connections, "one_per_s": one, "three_per_s": three, "ratio": ratio,
               "one_switches": one_switches, "three_switches": three_switches}  # fmt: skip


def measure(options, folder, ends):
    snapshots = {}
    for name in options.programs:
        snapshots[name] = folder / f"{name}.snap"
        program = common.programs()[name]
        argv = [word.replace("{port}", str(harness.free_port())) for word in program["argv"]]
        words = [common.KVMSERVER, "snapshot", "--allow-all", "-o", snapshots[name], *argv]
        subprocess.run(words, check=True, capture_output=True, cwd=program["cwd"])
    snapshot = snapshots[options.programs[0]]
    s3 = bucket.S3(folder / "s3")
    ends.callback(s3.stop)
    etcd = ends.enter_context(Etcd())
    key = folder / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    shared = ["--cluster", etcd.address, "--cluster-key", str(key), "--chunks", s3.url()]
    stores, nodes = {}, []
    for name, words in (("alone", []), ("cluster", shared), ("other", shared), ("third", shared)):
        (folder / name).mkdir()
        stores[name] = serving.Store(folder / name)
        api = harness.free_port()
        daemon = serving.Daemon(stores[name], *words, "--admin", f"127.0.0.1:{api}", env=bucket.ENVIRONMENT)
        ends.callback(daemon.close)
        if words:
            nodes.append((stores[name], daemon, api))
    for kind in KINDS:
        stores[kind].deploy(snapshot, "hello")
    taken = {(kind, what): [] for kind in KINDS for what in ("env", "deploy")}
    behind = []
    for number in range(options.rounds):
        for kind in KINDS:
            store = stores[kind]
            taken[kind, "env"].append(timed(lambda s=store: s.ok("env", "set", "hello", f"N={number}")))
            if kind == "cluster":
                wanted = etag(store)
                behind.append(timed(lambda w=wanted: harness.wait_until(lambda: etag(stores["other"]) == w, "it has it")))
            taken[kind, "deploy"].append(timed(lambda s=store: s.deploy(snapshot, "hello")))
    result = {"rounds": options.rounds, "behind_ms": statistics.median(behind), "behind_most_ms": max(behind)}
    for what in ("env", "deploy"):
        alone, cluster = (statistics.median(taken[kind, what]) for kind in KINDS)
        result[what] = {"alone_ms": alone, "cluster_ms": cluster, "ratio": cluster / alone}
    result["throughput"] = throughput(options, folder, snapshots, nodes, ends)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", default="8,64")
    parser.add_argument("--programs", default="c-epoll,node-http")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.programs = options.programs.split(",")
    options.connections = [int(number) for number in options.connections.split(",")]
    with tempfile.TemporaryDirectory(prefix="kvmserver-cluster-") as folder, contextlib.ExitStack() as ends:
        result = {**measure(options, pathlib.Path(folder), ends), "host": common.host(common.KVMSERVER)}
    for what in ("env", "deploy"):
        print("{0}: alone {1[alone_ms]:.1f} ms, in a cluster {1[cluster_ms]:.1f} ms: {1[ratio]:.2f} times".format(what, result[what]))
    print(f"another daemon has it {result['behind_ms']:.1f} ms after the change, {result['behind_most_ms']:.1f} ms at most")
    for each in result["throughput"]:
        print("{0[program]} through HAProxy, {0[connections]} connections: one daemon {0[one_per_s]:.0f} requests/s, "
              "three {0[three_per_s]:.0f}: {0[ratio]:.2f} times; "
              "context switches for each {0[one_switches]:.1f} and {0[three_switches]:.1f}".format(each))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"bench/cluster.py: {failure}")
