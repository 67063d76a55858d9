#!/usr/bin/env python3
"""A deploy of a snapshot file whose chunks the store has already: times, and what it costs in system calls.

    bench/deploy.py [--rounds 15] [--snapshot FILE]... [--json FILE] [program...]

The first deploy of each file puts its chunks into the store. Then it is deployed again and again, by turns as a new version
and under another name: in a store without a daemon (`here`), to the daemon of that store by its socket (`daemon`), and to a
daemon with a token by TCP (`--remote`). `PUT` is the same without the command: the two requests of the API that do the work,
`POST /v1/snapshots/missing` and `PUT /v1/functions/NAME`. `cold`: the pages of the file and of the store are dropped from the
page cache before. Times are medians and the worst, in ms. The counts are of one deploy under strace: the command and all of
its processes, and the daemon. Needs build/ (scripts/build.sh, scripts/functions.sh) and strace.
"""
import argparse
import hashlib
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import common

COUNTED = ("execve", "fsync", "fdatasync", "linkat", "read", "pread64", "write", "pwrite64")
DONE = re.compile(r"^(\w+)\(.* = (\d+)$")


def run(words, env):
    done = subprocess.run([str(word) for word in words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise common.Failure(f"{' '.join(map(str, words[1:4]))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def drop(*folders):
    """Takes the clean pages of all files below out of the page cache."""
    os.sync()
    for path in (path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*")) if path.is_file()):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


class Traced:
    """Counts the system calls of a command with all of its processes, or of one that runs."""

    def __init__(self, folder, words):
        folder.mkdir()
        self.folder = folder
        self.command = ["strace", "-ff", "-qq", "-o", folder / "calls", "-e", f"trace={','.join(COUNTED)}", *words]

    def counts(self):
        counts = dict.fromkeys(("processes", "fsyncs", "links", "MB read", "MB written"), 0)
        for file in self.folder.iterdir():
            for line in file.read_text(errors="replace").splitlines():
                call, result = found.groups() if (found := DONE.match(line)) else ("", 0)
                counts["processes"] += call == "execve"
                counts["fsyncs"] += call in ("fsync", "fdatasync")
                counts["links"] += call == "linkat"
                counts["MB read"] += int(result) / 1e6 if call in ("read", "pread64") else 0
                counts["MB written"] += int(result) / 1e6 if call in ("write", "pwrite64") else 0
        return {name: round(value, 2) for name, value in counts.items()}


class Place:
    """A store, with a daemon or without, into which the file is deployed."""

    def __init__(self, options, folder, kind):
        self.binary, self.kind, self.folder, self.store = options.binary, kind, folder / kind.strip("-"), folder / kind.strip("-") / "store"
        self.folder.mkdir()
        self.env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "KVMSERVER_REMOTES": str(self.folder / "remotes.json")}
        self.daemon, self.number = None, 0
        if kind == "here":
            return
        admin = f"127.0.0.1:{common.free_port()}"
        self.said = tempfile.TemporaryFile()
        self.daemon = subprocess.Popen([options.binary, "serve", "--store", self.store, "--listen", f"127.0.0.1:{common.free_port()}", "--admin",
                                        admin], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.said)
        if not self.daemon.stdout.readline():
            raise common.Failure(f"serve does not start: {os.pread(self.said.fileno(), 2000, 0).decode(errors='replace')}")
        if kind == "--remote":
            token = self.ask("POST", "/v1/tokens", {"name": "bench", "scopes": ["deploy"], "prefix": ""})["token"]
            self.env["KVMSERVER_TOKEN"] = token
            self.remote = f"http://{admin}"

    def close(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()

    def ask(self, method, target, body):
        client = common.Unix(self.store / "admin.sock")
        client.request(method, target, json.dumps(body))
        reply = client.getresponse()
        text = reply.read()
        if reply.status >= 300:
            raise common.Failure(f"{method} {target}: {text.decode()}")
        return json.loads(text)

    def name(self):
        """By turns a function that is there, and a new one."""
        self.number += 1
        return f"f{self.number // 2 * 2}"

    def words(self, file):
        where = ["--remote", self.remote] if self.kind == "--remote" else ["--store", self.store]
        return [self.binary, "deploy", "-q", file, "--name", self.name(), *where]

    def deploy(self, file):
        words = self.words(file)
        begin = time.perf_counter()
        run(words, self.env)
        return (time.perf_counter() - begin) * 1000

    def put(self, file, digest):
        begin = time.perf_counter()
        if not self.ask("POST", "/v1/snapshots/missing", {"snapshot": f"sha256:{digest}", "pieces": []})["present"]:
            raise common.Failure(f"{file} is not in the store")
        self.ask("PUT", f"/v1/functions/{self.name()}", {"snapshot": f"sha256:{digest}"})
        return (time.perf_counter() - begin) * 1000

    def counted(self, file):
        traced = Traced(self.folder / f"command-{file.stem}", self.words(file))
        if not self.daemon:
            run(traced.command, self.env)
            return {"command": traced.counts()}
        server = Traced(self.folder / f"daemon-{file.stem}", ["-f", "-p", self.daemon.pid])
        with subprocess.Popen([str(word) for word in server.command], stderr=subprocess.DEVNULL) as strace:
            while not any(server.folder.iterdir()):
                time.sleep(0.01)
            time.sleep(0.3)  # until it holds all threads
            run(traced.command, self.env)
            time.sleep(0.5)  # until it has made its next spare process: strace that leaves amid a fork can leave the child stopped
            strace.terminate()
        return {"command": traced.counts(), "daemon": server.counts()}


def measure(options, folder, file):
    results = []

    def add(name, times, counts=None):
        results.append({"file": file.name, "bytes": file.stat().st_size, "name": name, "ms": times, "counts": counts})
        line = f"{file.name:18} {name:14} {statistics.median(times):8.1f} {max(times):8.1f}"
        print(line + "".join(f"   {who}: " + ", ".join(f"{value:g} {what}" for what, value in each.items()) for who, each in (counts or {}).items()),
              flush=True)

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for kind in options.kinds:
        place = Place(options, folder, kind)
        try:
            add(f"{kind}, first", [place.deploy(file)])
            place.deploy(file)
            add(kind, [place.deploy(file) for _ in range(options.rounds)], place.counted(file))
            if kind == "daemon":
                add("PUT", [place.put(file, digest) for _ in range(options.rounds)])
            if kind != "--remote":
                cold = []
                for _ in range(options.rounds // 3 + 1):
                    drop(file, place.store)
                    cold.append(place.deploy(file))
                add(f"{kind}, cold", cold)
        finally:
            place.close()
    return results


def snapshot(options, folder, name):
    program, file = common.programs()[name], folder / f"{name}.snap"
    subprocess.run([options.binary, "snapshot", "--allow-all", "-o", file, *common.words(program, common.free_port())],
                   env=common.environment(program), cwd=program["cwd"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["here", "daemon", "--remote"], help="here,daemon,--remote")
    parser.add_argument("--binary", type=pathlib.Path, default=common.KVMSERVER)
    parser.add_argument("--snapshot", type=pathlib.Path, action="append", default=[], metavar="FILE", help="instead of the programs'")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("programs", nargs="*", default=["c-epoll", "node-http"])
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    common.need(options.binary, "scripts/build.sh builds it")
    print(f"{'':33} {'ms':>8} {'worst':>8}", flush=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="kvmserver-bench-", dir=common.BUILD) as name:
        folder = pathlib.Path(name)
        for file in options.snapshot or [snapshot(options, folder, name) for name in options.programs]:
            own = folder / f"stores-{file.stem}"
            own.mkdir()
            results += measure(options, own, file.resolve())
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"deploy: {failure}")
