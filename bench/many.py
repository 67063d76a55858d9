#!/usr/bin/env python3
"""What very many deployed functions cost: the daemon's start and memory, `list`, a deploy, a first request.

    bench/many.py [--counts 1000,10000,100000] [--rounds 5] [--snapshots 4] [--binary FILE] [--json FILE]

For each number of functions a store of its own is filled: `kvmserver deploy` makes a few functions with snapshots of
functions/c-epoll (they differ in their environment), and the rest are copies of their rows in the store's index
(SQLite), made in one transaction: each has a name, a route (NAME.localhost), a tag and a version of its own. The copies
have no records beside the index, which only `verify` and a lost index would miss. Printed for each number:

    start            from the start of `kvmserver serve` until GET /readyz of its API answers 200
    memory           the daemon's resident memory (VmRSS), once it serves
    list             the command `kvmserver list`, all functions
    list page        the command with --limit 50 after a name in the middle
    API all, page    GET /v1/functions, and with ?limit=50&after=NAME
    API live         GET /v1/live
    deploy           PUT /v1/functions/NAME with a snapshot that the store has: until it answers (with its trial),
                     and CPU time of the daemon's threads for it; its trial is a process of its own
    other change     CPU time of the daemon's threads after another process has written what concerns no function
    first request    to a function that has no process yet, of a snapshot that was served before
    request          to one that has, p50 of 500 on one connection; with the table's size it tells the cost of a route

How long the search of a route alone takes: micro --benchmark_filter=route. Needs build/ (scripts/build.sh,
scripts/functions.sh). On a busy machine the least of the rounds means most: that is what is printed, but for p50.
"""
import argparse
import contextlib
import http.client
import json
import pathlib
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

import common

PAGE = 50


class Api(http.client.HTTPConnection):
    """The API at the store's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=600)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def call(self, method, target, body=None):
        self.request(method, target, None if body is None else json.dumps(body))
        reply = self.getresponse()
        return reply.status, reply.read()


def run(options, *words):
    done = subprocess.run([options.binary, *words], capture_output=True, text=True)
    if done.returncode:
        raise common.Failure(f"{' '.join(map(str, words[:2]))}: {done.stderr.strip()}")
    return done.stdout


def name_of(number):
    return f"many-{number:07}"


def snapshots(options, folder):
    program = common.programs(options.functions)["c-epoll"]
    made = []
    for number in range(options.snapshots):
        made.append(folder / f"{number}.snap")
        # What most functions may do: read the folder that they come from, and listen.
        run(options, "snapshot", f"--allow-read={program['cwd']}", "--allow-listen=127.0.0.1", "-o", made[-1], "--env", f"NUMBER={number}",
            *common.words(program, common.free_port()))
    return made


def fill(options, store, made, count):
    """The first functions by deploys, the rest as copies of their rows."""
    for number, snapshot in enumerate(made[:count]):
        run(options, "deploy", snapshot, "--name", name_of(number), "-q", "--store", store)
    index = sqlite3.connect(store / "index.db")
    with contextlib.closing(index), index:
        index.execute("PRAGMA foreign_keys = ON")
        first = [row[0] for row in index.execute("SELECT id FROM function ORDER BY id")]

        def copy(table, names, values, model, extra=()):
            index.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {table} WHERE "
                          f"{'id' if table == 'function' else 'function'} = ?", (*extra, model))

        columns = {table: [row[1] for row in index.execute(f"PRAGMA table_info({table})")] for table in ("function", "version", "traffic", "event")}
        for number in range(len(first), count):
            model, name = first[number % len(first)], name_of(number)
            rest = [c for c in columns["function"] if c not in ("id", "name", "tag")]
            copy("function", ["name", "tag", *rest], ["?", "?", *rest], model, (name, f"{number:012x}"))
            made_id = index.execute("SELECT last_insert_rowid()").fetchone()[0]
            for table in ("version", "traffic", "event"):
                rest = [c for c in columns[table] if c not in ("id", "function")]
                copy(table, ["function", *rest], ["?", *rest], model, (made_id,))
            index.execute("INSERT INTO route (host, path, function) VALUES (?, '/', ?)", (f"{name}.localhost", made_id))


class Daemon:
    def __init__(self, options, store, *words):
        self.port, self.store = common.free_port(), store
        self.output = tempfile.TemporaryFile()
        begin = time.perf_counter()
        self.process = subprocess.Popen([options.binary, "serve", "--store", store, "--listen", f"127.0.0.1:{self.port}", "--jail=auto", *words],
                                        stdout=subprocess.DEVNULL, stderr=self.output)
        try:
            while not self.ready():
                if self.process.poll() is not None:
                    self.output.seek(0)
                    raise common.Failure(f"the daemon ended: {self.output.read()[-500:]}")
                time.sleep(0.002)
            self.started = time.perf_counter() - begin
            self.api = Api(store / "admin.sock")
        except BaseException:
            self.stop()
            raise

    def ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(Api(self.store / "admin.sock")) as api:
            return api.call("GET", "/readyz")[0] == 200
        return False

    def resident(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def cpu(self):
        """Seconds of all its threads, also of those that have ended; not of its children."""
        return time.clock_gettime((~self.process.pid << 3) | 2)  # CPUCLOCK_SCHED of another process (clock_getcpuclockid(3))

    def settled_cpu(self):
        """Once it rests: for half a second it has used next to nothing."""
        while True:
            before = self.cpu()
            time.sleep(0.5)
            if (now := self.cpu()) - before < 0.005:
                return now

    def ask(self, name):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(client):
            client.request("GET", "/", None, {"Host": f"{name}.localhost"})
            reply = client.getresponse()
            if reply.status != 200:
                raise common.Failure(f"{name} answered with {reply.status}: {reply.read(500).decode(errors='replace')}")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ms(action):
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def least(options, action):
    return min(ms(action) for _ in range(options.rounds))


def get(daemon, target):
    status, _ = daemon.api.call("GET", target)
    if status != 200:
        raise common.Failure(f"GET {target}: {status}")


def deploys(options, daemon, digest, count):
    """Wall and daemon's CPU time of the quickest."""
    walls, cpus = [], []
    for number in range(options.rounds):
        name = name_of(count // 2 + number) if number % 2 else f"new-{number}"
        before = daemon.settled_cpu()
        begin = time.perf_counter()
        status, body = daemon.api.call("PUT", f"/v1/functions/{name}", {"snapshot": digest, "routes": [f"{name}.localhost/"]})
        walls.append((time.perf_counter() - begin) * 1000)
        if status not in (200, 201):
            raise common.Failure(f"deploy of {name}: {status} {body[:300]}")
        cpus.append((daemon.settled_cpu() - before) * 1000)
    return min(walls), min(cpus)


def first_requests(options, daemon, count):
    """The quickest, of functions whose snapshots were examined before, with a spare process there for each."""
    for number in range(min(options.snapshots, count)):
        daemon.ask(name_of(number))
    taken = []
    for number in range(options.rounds):
        daemon.settled_cpu()
        taken.append(ms(lambda n=count // 3 + number: daemon.ask(name_of(n))))
    return min(taken)


def other_change(options, daemon, count):
    """A token, by its row only."""
    index = sqlite3.connect(daemon.store / "index.db")
    cpus = []
    with contextlib.closing(index):
        for number in range(options.rounds):
            before = daemon.settled_cpu()
            with index:
                index.execute("INSERT INTO token (name, hash, scopes, prefix, created) VALUES (?, ?, 1, '', 0)",
                              (f"t{number}", number.to_bytes(32, "big")))
            cpus.append((daemon.settled_cpu() - before) * 1000)
    return min(cpus)


def p50_us(daemon, name, requests=500):
    client = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    taken = []
    with contextlib.closing(client):
        for _ in range(requests):
            begin = time.perf_counter()
            client.request("GET", "/", None, {"Host": f"{name}.localhost"})
            reply = client.getresponse()
            reply.read()
            taken.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(taken)


def measure(options, folder, made, count):
    store = folder / f"store-{count}"
    fill(options, store, made, count)
    told, daemons = {"functions": count}, contextlib.ExitStack()
    with daemons:
        for number in range(options.starts):
            daemon = Daemon(options, store)
            told["start_ms"] = min(told.get("start_ms", 1e9), daemon.started * 1000)
            if number + 1 < options.starts:
                daemon.stop()
        daemons.callback(daemon.stop)
        daemon.settled_cpu()
        told["resident_kib"] = daemon.resident()
        middle = name_of(count // 2)
        command = [options.binary, "list", "--store", store]
        paging = "--limit" in run(options, "list", "--help")
        told["list_all_ms"] = least(options, lambda: run(options, *command[1:]))
        if paging:
            told["list_page_ms"] = least(options, lambda: run(options, *command[1:], "--limit", str(PAGE), "--after", middle))
        told["api_all_ms"] = least(options, lambda: get(daemon, "/v1/functions"))
        if paging:
            told["api_page_ms"] = least(options, lambda: get(daemon, f"/v1/functions?limit={PAGE}&after={middle}"))
        told["api_live_ms"] = least(options, lambda: get(daemon, "/v1/live"))
        digest = "sha256:" + sqlite_digest(store)
        told["first_request_ms"] = first_requests(options, daemon, count)
        told["request_p50_us"] = p50_us(daemon, name_of(count // 3))
        told["deploy_ms"], told["deploy_daemon_ms"] = deploys(options, daemon, digest, count)
        told["other_change_daemon_ms"] = other_change(options, daemon, count)
        told["resident_end_kib"] = daemon.resident()
    return told


def sqlite_digest(store):
    with contextlib.closing(sqlite3.connect(store / "index.db")) as index:
        return index.execute("SELECT digest FROM snapshot LIMIT 1").fetchone()[0].hex()


ROWS = [("start_ms", "start", "ms"), ("resident_kib", "memory", "KiB"), ("list_all_ms", "list", "ms"), ("list_page_ms", "list page", "ms"),
        ("api_all_ms", "API all", "ms"), ("api_page_ms", "API page", "ms"), ("api_live_ms", "API live", "ms"), ("deploy_ms", "deploy", "ms"),
        ("deploy_daemon_ms", "deploy, daemon's CPU", "ms"), ("other_change_daemon_ms", "other change, daemon's CPU", "ms"),
        ("first_request_ms", "first request", "ms"), ("request_p50_us", "request", "us"), ("resident_end_kib", "memory at the end", "KiB")]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1000,10000,100000", help="numbers of functions, each of which gets a store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=2, help="of the daemon, of which the quickest counts")
    parser.add_argument("--snapshots", type=int, default=4)
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        images = snapshots(options, folder)
        for count in map(int, options.counts.split(",")):
            results.append(measure(options, folder, images, count))
            print(f"{count} functions", flush=True)
            for key, what, unit in ROWS:
                if key in results[-1]:
                    print(f"  {what:28} {results[-1][key]:11.2f} {unit}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"many: {failure}")
