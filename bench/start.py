#!/usr/bin/env python3
"""From the start of the process to its first reply: the bare program and `snaprun`, alternating in one run.

    bench/start.py [--rounds 15] [--warmup N] [--json FILE] [program...]

Prints medians in ms and the ratio bare/snaprun. Both get a nearly empty environment, or this shell's with --inherit-env: a
program may do much at its start because of a variable (with NODE_EXTRA_CA_CERTS a bare Node reads all certificates, 40 ms). Needs build/ (scripts/build.sh, scripts/functions.sh). On a busy machine
only the ratio means anything.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import common


def first_reply(argv, port, env, cwd):
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() < start + 20:
            try:
                with socket.create_connection(("127.0.0.1", port)) as s:
                    s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if s.recv(1000):
                        return (time.perf_counter() - start) * 1000
            except OSError:
                time.sleep(0.0005)  # not listening yet
        raise RuntimeError("no reply")
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--inherit-env", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    parser.add_argument("programs", nargs="*", default=["c-epoll", "rust-tokio", "node-http", "deno-serve"])
    options = parser.parse_args()
    programs, results = common.programs(options.functions), []
    for name in options.programs:
        program, port = programs[name], common.free_port()
        argv, env = common.words(program, port), common.environment(program, options.inherit_env)
        with tempfile.TemporaryDirectory() as folder:
            snap = f"{folder}/app.snap"
            subprocess.run([options.binary, "snapshot", "--allow-all", "-w", str(options.warmup), "-o", snap, *argv], env=env,
                           cwd=program["cwd"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            bare, restored = [], []
            for _ in range(options.rounds):
                bare.append(first_reply(argv, port, env, program["cwd"]))
                restored.append(first_reply([options.binary, "snaprun", "-e", snap], port, env, program["cwd"]))
            b, r = statistics.median(bare), statistics.median(restored)
            print(f"{name:18} bare {b:7.1f} ms   snaprun {r:7.1f} ms   {b / r:5.2f} times as fast   "
                  f"{os.stat(snap).st_size / 1e6:.2f} MB", flush=True)
            results.append({"program": name, "warmup": options.warmup, "bare_ms": b, "snaprun_ms": r, "snapshot_bytes": os.stat(snap).st_size})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"start: {failure}")
