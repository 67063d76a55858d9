#!/usr/bin/env python3
"""`kvmserver migrate` between two daemons of this host, while a client asks without a pause.

    bench/migrate.py [--rounds 10] [--json FILE] [c] [node] [node50]

The function goes to the other daemon and back, --rounds times in all; the client asks the first daemon all the time. c: a
counter in C; node: a counter in Node; node50: the same, which keeps 50 MiB that it fills anew before each migration.
`wait`: the longest that the client waited for one answer meanwhile. `ahead`, `held`, `save`, `send`, `take over`: what the
command says (docs/API.md). Medians, and the fastest and slowest, in ms. Every answer must be the number after the one before it. Needs build/
(scripts/build.sh, scripts/functions.sh) and tests/e2e's guests.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import common

WHAT = {"c": 0, "node": 0, "node50": 50}  # MiB to fill
COLUMNS = ("wait", "ahead", "held", "save", "send", "take_over")


def kvmserver(store, *words, stdin=None):
    done = subprocess.run([common.KVMSERVER, *map(str, words), "--store", store], stdin=stdin or subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode:
        raise common.Failure(f"{words[0]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Side:
    def __init__(self, folder, name):
        self.store, self.port, self.admin = folder / name, common.free_port(), common.free_port()
        self.server = common.Server(f"daemon {name}", [common.KVMSERVER, "serve", "--store", self.store, "--listen",
                                                       f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"],
                                    self.port, dict(os.environ), folder)
        self.server.until_said("Serving ")
        self.token = folder / f"token-{name}"
        self.token.touch(0o600)
        self.token.write_text(kvmserver(self.store, "token", "create", "mover", "--scope", "deploy", "-q"))

    def migrate(self, to):
        return json.loads(kvmserver(self.store, "migrate", "moves", "--to", f"http://127.0.0.1:{to.admin}", "--to-token-file", to.token,
                                    "--json"))


class Client(threading.Thread):
    """Asks without a pause; `longest` is what it waited for an answer since it was set to 0."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.longest, self.answers, self.wrong, self.ended = port, 0.0, 0, "", False
        self.number = None

    def run(self):
        try:
            self.ask()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.wrong = self.ended or f"the client lost its connection: {error}"

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.ended and not self.wrong:
            begin = time.monotonic()
            connection.request("GET", "/count", headers={"Host": "moves.localhost"})
            reply = connection.getresponse()
            body = reply.read().decode().strip()
            self.longest = max(self.longest, time.monotonic() - begin)
            if reply.status != 200 or (self.number is not None and int(body) != self.number + 1):
                self.wrong = f"{reply.status} {body!r} after {self.number}"
            else:
                self.number = int(body)
            self.answers += 1


def deploy(side, folder, what):
    argv = common.counter(what, common.free_port())
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\nwarmup = 0\n[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        '[function]\nname = "moves"\nephemeral = false\n[function.scale]\nsuspend = true\nidle = "1h"\n')
    kvmserver(side.store, "deploy", folder, "-q")


def fill(side, mib):
    connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"/grow/{mib}", headers={"Host": "moves.localhost"})
        if connection.getresponse().status != 200:
            raise common.Failure("the program could not be filled")


def measure(what, rounds):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kvmserver-migrate-"))
    sides = []
    try:
        sides += [Side(folder, "a")]
        sides += [Side(folder, "b")]
        deploy(sides[0], folder, what)
        client = Client(sides[0].port)
        client.start()
        rows = []
        for at in range(rounds):
            if WHAT[what]:
                fill(sides[0], WHAT[what])
            answered = client.answers
            while client.answers < answered + 50 and not client.wrong:
                time.sleep(0.01)
            client.longest = 0.0
            done = sides[at % 2].migrate(sides[(at + 1) % 2])
            answered = client.answers
            while client.answers < answered + 50 and not client.wrong:  # the first of them may be the one that waits
                time.sleep(0.01)
            if client.wrong:
                raise common.Failure(f"{what}: {client.wrong}")
            rows.append({"wait": client.longest * 1000, **done["timing_ms"], "state_bytes": done["state_bytes"]})
        client.ended = True
        client.join(60)
        return rows
    finally:
        for side in sides:
            side.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("what", nargs="*", metavar="|".join(WHAT), default=list(WHAT))
    options = parser.parse_args()
    if unknown := [what for what in options.what if what not in WHAT]:
        parser.error(f"{unknown[0]} is none of {', '.join(WHAT)}")
    common.need(common.KVMSERVER, "scripts/build.sh builds it")
    results = {}
    print(f"{'':8}" + "".join(f"{name.replace('_', ' '):>24}" for name in COLUMNS) + f"{'state, MB':>12}")
    for what in options.what:
        rows = results[what] = measure(what, options.rounds)
        cells = []
        for name in COLUMNS:
            values = [row[name] for row in rows]
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})")
        size = statistics.median(row["state_bytes"] for row in rows) / 1e6
        print(f"{what:8}" + "".join(f"{cell:>24}" for cell in cells) + f"{size:>12.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"bench/migrate.py: {failure}")
