#!/usr/bin/env python3
"""`kvmserver suspend` of a counter, and the first request afterwards.

    bench/suspend.py [--rounds 12] [--json FILE] [c] [node]

Two functions of one daemon take turns. The process of one lingers after the suspend ([function.scale] linger), so the
request goes on in it; that of the other ends, and the request needs a new one. Each answer must be the number after the
one before it. Medians, and the fastest and slowest, in ms; `memory`: of the lingering process, in MiB, without
pages of files. Needs build/ (scripts/build.sh, scripts/functions.sh) and tests/e2e's guests.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import common

KEEPS = {"lingers": "1h", "ends": "0s"}
COLUMNS = ("suspend", "request", "next")


class World:
    def __init__(self, folder, what):
        self.store, self.port = folder / "store", common.free_port()
        self.server = common.Server("the daemon", [common.KVMSERVER, "serve", "--store", self.store, "--listen",
                                                   f"127.0.0.1:{self.port}"], self.port, dict(os.environ), folder)
        self.server.until_said("Serving ")
        self.numbers = dict.fromkeys(KEEPS, 0)
        for name, linger in KEEPS.items():
            argv = common.counter(what, common.free_port())
            (folder / name).mkdir()
            (folder / name / "kvmserver.toml").write_text(
                f"allow-all = true\nwarmup = 0\n[run]\nprogram = {json.dumps(argv[0])}\n"
                f'args = {json.dumps(argv[1:])}\n[function]\nname = "{name}"\nephemeral = false\n'
                f'[function.scale]\nsuspend = true\nidle = "1h"\nlinger = "{linger}"\n')
            self.kvmserver("deploy", folder / name, "-q")

    def kvmserver(self, *words):
        begin = time.monotonic()
        done = subprocess.run([common.KVMSERVER, *map(str, words), "--store", self.store], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise common.Failure(f"{words[0]}: {done.stderr.strip() or done.returncode}")
        return (time.monotonic() - begin) * 1000

    def count(self, name):
        """Milliseconds until the whole reply is there."""
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"GET /count HTTP/1.1\r\nHost: {name}.localhost\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while data := connection.recv(65536):
                reply += data
        spent = (time.monotonic() - begin) * 1000
        self.numbers[name] += 1
        if not reply.startswith(b"HTTP/1.1 200") or int(reply.split(b"\r\n\r\n", 1)[1]) != self.numbers[name]:
            raise common.Failure(f"{name}, request {self.numbers[name]}: {reply!r}")
        return spent

    @staticmethod
    def memory(name):
        """None if no process lingers, as after each eighth suspend: such a round does not count."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{name} v1".encode() in (process / "cmdline").read_bytes().split(b"\0"):
                    kinds = dict(re.findall(r"^Pss_(\w+):\s+(\d+)", (process / "smaps_rollup").read_text(), re.M))
                    return (int(kinds["Anon"]) + int(kinds["Shmem"])) / 1024
            except OSError:
                continue
        return None


def measure(what, rounds):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kvmserver-suspend-"))
    world = None
    try:
        world = World(folder, what)
        rows = {name: [] for name in KEEPS}
        for name in KEEPS:
            world.count(name)
        while len(rows["lingers"]) < rounds:
            if len(rows["ends"]) > 2 * rounds:
                raise common.Failure(f"{what}: its process does not linger")
            for name in KEEPS:
                row = {"suspend": world.kvmserver("suspend", name)}
                time.sleep(1)  # what follows a suspend is over, and there are spare processes
                row["memory"] = world.memory(name)
                row["request"] = world.count(name)
                row["next"] = world.count(name)
                if (row["memory"] is not None) == (name == "lingers"):
                    rows[name].append(row)
        return rows
    finally:
        if world:
            world.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("what", nargs="*", metavar="c|node", default=["c", "node"])
    options = parser.parse_args()
    if unknown := [what for what in options.what if what not in ("c", "node")]:
        parser.error(f"{unknown[0]} is neither c nor node")
    common.need(common.KVMSERVER, "scripts/build.sh builds it")
    results = {}
    print(f"{'':16}" + "".join(f"{name:>24}" for name in COLUMNS) + f"{'memory':>10}")
    for what in options.what:
        results[what] = measure(what, options.rounds)
        for name, rows in results[what].items():
            cells = []
            for column in COLUMNS:
                values = [row[column] for row in rows]
                cells.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
            memory = f"{statistics.median(row['memory'] for row in rows):>10.1f}" if name == "lingers" else ""
            print(f"{what + ', ' + name:16}" + "".join(f"{cell:>24}" for cell in cells) + memory, flush=True)
    if options.json:
        options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"bench/suspend.py: {failure}")
