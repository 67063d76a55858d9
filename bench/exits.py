#!/usr/bin/env python3
"""Exits to user space per request, counted by the kernel: perf stat -e kvm:kvm_userspace_exit.

    bench/exits.py [--requests 200] [--warmup N] [--peer PATH] [program...]

Each request is a new connection that is closed after the answer. Needs build/ (scripts/build.sh, scripts/functions.sh)
and perf with access to tracepoints (root).
"""
import argparse
import re
import signal
import socket
import subprocess
import sys
import time

import common

DEFAULT = ["c-epoll", "c-epoll-dynamic", "c-thread", "rust-tokio", "rust-tokio-multi", "go-http", "python-http", "python-asyncio",
           "python-uvicorn", "node-http", "node-react", "deno-serve"]


def request(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while s.recv(65536):
            pass


def load(port, count):
    for _ in range(count):
        request(port)


def measure(binary, program, requests, warmup):
    port = common.free_port()
    argv, env = common.words(program, port), common.environment(program)
    command = [binary, "run", "-e", "--allow-all"] + (["-w", str(warmup)] if warmup else []) + argv
    server = subprocess.Popen(command, cwd=program["cwd"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for line in server.stdout:
            if " loaded." in line:
                break
        else:
            raise RuntimeError("did not start")
        deadline = time.monotonic() + 10
        while True:
            try:
                load(port, 10)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
        counted = subprocess.run(
            ["perf", "stat", "-x,", "-e", "kvm:kvm_userspace_exit", "-p", str(server.pid), "--",
             sys.executable, __file__, "--load", str(port), str(requests)],
            capture_output=True, text=True, check=True).stderr
        match = re.search(r"^(\d+),.*kvm_userspace_exit", counted, re.M)
        return int(match.group(1)) / requests
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def main():
    if sys.argv[1:2] == ["--load"]:
        return load(int(sys.argv[2]), int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--peer", help="another kvmserver binary with the same `run -e --allow-all` form")
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    parser.add_argument("programs", nargs="*", default=DEFAULT)
    options = parser.parse_args()
    programs = common.programs(options.functions)
    binaries = [options.binary] + ([options.peer] if options.peer else [])
    for name in options.programs:
        for binary in binaries:
            try:
                print(f"{name:18} {measure(binary, programs[name], options.requests, options.warmup):8.2f} exits a request"
                      f"{'' if binary == options.binary else '  (peer)'}", flush=True)
            except (RuntimeError, OSError, subprocess.CalledProcessError, AttributeError) as error:
                print(f"{name:18} failed: {error}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"exits: {failure}")
