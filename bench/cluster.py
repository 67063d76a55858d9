#!/usr/bin/env python3
"""What a cluster adds to changes, and how soon another daemon has them.

    bench/cluster.py [--rounds 40] [--json FILE]

Three daemons: one with its store alone, and two of a cluster (`serve --cluster`) with etcd and an S3 service on this
host. In turn each of the first two gets a variable of a function set, and then a version deployed whose chunks are
there, by the command line. The figures are medians, and their ratios of one run. Then the time from the end of a change
through one daemon until the other one answers with its etag. Needs build/, its functions, and what
`scripts/setup.sh --tests` puts there; an idle host is best.
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

KINDS = ("alone", "cluster")


def timed(action):
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def etag(store):
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/v1/functions/hello")
        return json.loads(connection.getresponse().read())["etag"]


def measure(options, folder, ends):
    snapshot = folder / "app.snap"
    program = common.programs()["c-epoll"]
    argv = [word.replace("{port}", str(harness.free_port())) for word in program["argv"]]
    subprocess.run([common.KVMSERVER, "snapshot", "--allow-all", "-o", snapshot, *argv], check=True, capture_output=True)
    s3 = bucket.S3(folder / "s3")
    ends.callback(s3.stop)
    etcd = ends.enter_context(Etcd())
    key = folder / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    shared = ["--cluster", etcd.address, "--cluster-key", str(key), "--chunks", s3.url()]
    stores = {}
    for name, words in (("alone", []), ("cluster", shared), ("other", shared)):
        (folder / name).mkdir()
        stores[name] = serving.Store(folder / name)
        daemon = serving.Daemon(stores[name], *words, env=bucket.ENVIRONMENT)
        ends.callback(daemon.close)
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
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmserver-cluster-") as folder, contextlib.ExitStack() as ends:
        result = {**measure(options, pathlib.Path(folder), ends), "host": common.host(common.KVMSERVER)}
    for what in ("env", "deploy"):
        print("{0}: alone {1[alone_ms]:.1f} ms, in a cluster {1[cluster_ms]:.1f} ms: {1[ratio]:.2f} times".format(what, result[what]))
    print(f"another daemon has it {result['behind_ms']:.1f} ms after the change, {result['behind_most_ms']:.1f} ms at most")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"bench/cluster.py: {failure}")
