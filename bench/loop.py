#!/usr/bin/env python3
"""From a saved edit to the new reply: `kvmserver dev --watch`, and bare Node that a trivial watcher restarts.

    bench/loop.py [--edits 20] [--deploys 3] [--at-once] [--json FILE]

Both serve the Node template (`kvmserver init --template node`) and get the same edits in turn: the text of the reply, one
line, written in place. A time begins before the write and ends with the first reply that has the new text. It is asked for
once the server says on stdout that it is ready, so that no other request costs CPU time meanwhile. CPU time is that of the
whole process tree, from the write until --quiet seconds after the reply, when what goes on behind it has ended. Then the
same program is deployed to a running daemon, first as a new function and then with one line changed: until the first reply
with the new text, and until the command ends, which goes on to warm it up. A deploy begins when the daemon has done what it
does behind the one before, which is to compress it for some seconds; with --at-once, meanwhile. Needs build/
(scripts/build.sh) and node. The times assume idle processors: on a busy machine use `nice -n -20`.
"""
import argparse
import ctypes
import http.client
import json
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

import common

PATIENCE = 60
TICK = os.sysconf("SC_CLK_TCK")
WATCHER = "--restart-on-change"


def restart_on_change(file, *argv):
    """The trivial watcher: ends the program when the file was written, and starts it again."""
    close_write = 8  # IN_CLOSE_WRITE
    libc = ctypes.CDLL(None)
    inotify = libc.inotify_init1(0)
    if libc.inotify_add_watch(inotify, file.encode(), close_write) < 0:
        sys.exit(f"loop: {file} cannot be watched")
    while True:
        program = subprocess.Popen(argv)
        os.read(inotify, 4096)
        program.terminate()
        program.wait()


def cpu_seconds(pid):
    """Of the process, its living descendants, and those that were waited for."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [child for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except OSError:  # it has just ended: its parent has its time
        return 0
    return sum(map(int, fields[11:15])) / TICK + sum(map(cpu_seconds, children))


def template(binary, folder):
    subprocess.run([binary, "init", "--template", "node", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


def edit(file, text):
    """Changes the text of the reply."""
    source, count = re.subn(r"from Node[^\\]*", f"from Node {text}", file.read_text())
    if count != 1:
        raise common.Failure(f"{file} has not the one line to edit")
    file.write_text(source)


def ask(port, host="localhost"):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        client.request("GET", "/", headers={"Host": host, "Connection": "close"})
        return client.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        client.close()


class Subject:
    """A server that follows the edits of its folder."""

    def __init__(self, name, argv, folder, port, ready):
        self.name, self.folder, self.port, self.ready = name, folder, port, ready
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in argv], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.said)
        self.seconds, self.cpu = [], []
        self.wait_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def wait_ready(self):
        end, text = time.monotonic() + PATIENCE, b""
        while self.ready not in text:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            more = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not more:
                raise common.Failure(f"{self.name} is not ready again; it said: {os.pread(self.said.fileno(), 2000, 0).decode(errors='replace')}")
            text += more

    def measure(self, text, quiet):
        cpu, begin = cpu_seconds(self.process.pid), time.monotonic()
        edit(self.folder / "server.js", text)
        self.wait_ready()
        while not ask(self.port).endswith(f"from Node {text}\n"):
            if time.monotonic() > begin + PATIENCE:
                raise common.Failure(f"{self.name} does not answer with the new text")
            time.sleep(0.001)
        self.seconds.append(time.monotonic() - begin)
        time.sleep(quiet)
        self.cpu.append(cpu_seconds(self.process.pid) - cpu)


def loop(options, folder):
    port = common.free_port()
    dev = [options.binary, "dev", "--watch", "--port", port]
    bare_folder, bare_port = template(options.binary, folder / "bare"), common.free_port()
    server = bare_folder / "server.js"
    server.write_text(server.read_text().replace("8080", str(bare_port)))
    watcher = [sys.executable, __file__, WATCHER, "server.js", "node", "server.js"]
    with (Subject("kvmserver dev --watch", dev, template(options.binary, folder / "dev"), port, b"Ready http") as ours,
          Subject("node, restarted", watcher, bare_folder, bare_port, b"listening on") as bare):
        for number in range(options.edits + 1):
            for subject in (ours, bare) if number % 2 else (bare, ours):
                subject.measure(f"edit{number}", options.quiet)
                if number == 0:  # the first one is left out
                    subject.seconds, subject.cpu = [], []
    return [{"name": subject.name, "seconds": subject.seconds, "cpu_seconds": subject.cpu} for subject in (ours, bare)]


def wait_until_idle(pid):
    end, before = time.monotonic() + PATIENCE, -1.0
    while (now := cpu_seconds(pid)) > before + 0.02:
        if time.monotonic() > end:
            raise common.Failure(f"the daemon is not idle within {PATIENCE} s")
        before = now
        time.sleep(0.5)


def deploys(options, folder):
    port, store = common.free_port(), folder / "store"
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    source = template(options.binary, folder / "deployed")
    first, second, ended = [], [], []
    with tempfile.TemporaryFile() as said, subprocess.Popen([options.binary, "serve", "--store", store, "--listen", f"127.0.0.1:{port}"],
                                                            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as daemon:
        try:
            if not daemon.stdout.readline():
                raise common.Failure(f"serve does not start: {os.pread(said.fileno(), 2000, 0).decode(errors='replace')}")
            for number in range(options.deploys):
                for times, text in ((first, f"new{number}"), (second, f"changed{number}")):
                    if not options.at_once:
                        wait_until_idle(daemon.pid)
                    edit(source / "server.js", text)
                    begin = time.monotonic()
                    deploy = subprocess.Popen([options.binary, "deploy", "-q", "--store", store, "--name", f"hello{number}"], cwd=source,
                                              env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    while not (reply := ask(port, f"hello{number}.localhost")).endswith(f"from Node {text}\n"):
                        if deploy.poll() is not None:
                            raise common.Failure(f"deploy ended with status {deploy.returncode}, and it answers {reply!r}: {deploy.stderr.read()}")
                        time.sleep(0.01)
                    times.append(time.monotonic() - begin)
                    _, errors = deploy.communicate()
                    ended.append(time.monotonic() - begin)
                    if deploy.returncode:
                        raise common.Failure(f"deploy: {errors.strip()}")
        finally:
            daemon.terminate()
    return [{"name": "deploy, a new function", "seconds": first}, {"name": "deploy, one line changed", "seconds": second},
            {"name": "deploy, its end", "seconds": ended}]


def row(result):
    def figures(values):
        return f"{statistics.median(values):8.3f} {max(values):8.3f}" if values else " " * 17
    return f"{result['name']:26}{figures(result['seconds'])}   {figures(result.get('cpu_seconds'))}"


def main():
    if sys.argv[1:2] == [WATCHER]:
        restart_on_change(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--deploys", type=int, default=3)
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--quiet", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--binary", type=pathlib.Path, default=common.KVMSERVER)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    common.need(options.binary, "scripts/build.sh builds it")
    print(f"{'':26}{'s, median':>8}    worst   {'CPU s, median':>8} worst", flush=True)
    with tempfile.TemporaryDirectory(prefix="kvmserver-bench-") as folder:
        results = []
        for part in (loop, deploys):
            results += (more := part(options, pathlib.Path(folder)) if part is loop or options.deploys else [])
            print("".join(row(result) + "\n" for result in more), end="", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"loop: {failure}")
