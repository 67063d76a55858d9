#!/usr/bin/env python3
"""How soon a function answers whose snapshot is only in a bucket, and how much of it has come by then.

    bench/bucket_start.py [--program node-http] [--mbit 400] [--rounds 10] [--json FILE]

An S3 service on this host, behind a proxy that lets through so many Mbit/s, and a daemon with `serve --chunks`. In each
round the disk forgets the chunks of the function and their unpacked copies. Then a client asks for the first time. Once
it is answered, the bytes that came from the bucket are read from the metrics. In turn with that, the same with the
chunks on the disk.
The figures are medians. The service and the daemon share this host, so the bytes tell more than the times. Needs
build/, its functions, and what `scripts/setup.sh --tests` puts there.
"""
import argparse
import contextlib
import json
import pathlib
import shutil
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

FETCHED = "kvmserver_chunk_store_fetched_bytes_total "


def fetched(store):
    with contextlib.closing(admin.UnixConnection(store.path / "admin.sock")) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return int(next(line.removeprefix(FETCHED) for line in text.splitlines() if line.startswith(FETCHED)))


def ask(daemon):
    begin = time.perf_counter()
    reply = daemon.ask("app", patience=60)
    if reply.status != 200:
        raise common.Failure(f"the function answers {reply}")
    return (time.perf_counter() - begin) * 1000


def measure(options, folder, ends):
    snapshot = folder / "app.snap"
    program = common.programs()[options.program]
    argv = [word.replace("{port}", str(harness.free_port())) for word in program["argv"]]
    subprocess.run([common.KVMSERVER, "snapshot", "--allow-all", "-o", snapshot, *argv], check=True, capture_output=True, cwd=program["cwd"])
    s3 = bucket.S3(folder / "s3")
    ends.callback(s3.stop)
    store, cache = serving.Store(folder), folder / "cache"
    gate = ends.enter_context(contextlib.closing(bucket.Gate(s3)))
    gate.bytes_per_s = options.mbit * 1e6 / 8
    daemon = serving.Daemon(store, "--chunks", gate.url(), "--idle", "2", env={**bucket.ENVIRONMENT, "XDG_CACHE_HOME": str(cache)})
    ends.callback(daemon.close)
    store.deploy(snapshot, "app")
    ask(daemon)
    chunks = list((store.path / "chunks").glob("??/*"))
    rounds = []
    for _ in range(options.rounds):
        one = {}
        for where in ("disk", "bucket"):
            harness.wait_until(lambda: not daemon.processes(), "its process ends")
            shutil.rmtree(cache, ignore_errors=True)
            if where == "bucket":
                for chunk in chunks:
                    chunk.unlink()
            before, begin = fetched(store), time.perf_counter()
            one[f"{where}_ms"] = ask(daemon)
        one["bytes"] = fetched(store) - before
        harness.wait_until(lambda: all(chunk.exists() for chunk in chunks), "all have come")
        one["all_ms"] = (time.perf_counter() - begin) * 1000
        one["all_bytes"] = sum(chunk.stat().st_size for chunk in chunks)
        rounds.append(one)
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]} | {"chunks": len(chunks)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default="node-http")
    parser.add_argument("--mbit", type=float, default=400)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmserver-bucket-") as folder, contextlib.ExitStack() as ends:
        result = {**measure(options, pathlib.Path(folder), ends), "host": common.host(common.KVMSERVER)}
    print("{0}, {5:g} Mbit/s: first answer after {1[bucket_ms]:.0f} ms with {2:.1f} of {3:.1f} MB ({4:.0f}%); all {1[chunks]} chunks after {1[all_ms]:.0f} ms; "
          "from the disk {1[disk_ms]:.0f} ms".format(options.program, result, result["bytes"] / 1e6, result["all_bytes"] / 1e6,
                                                     100 * result["bytes"] / result["all_bytes"], options.mbit))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"bench/bucket_start.py: {failure}")
