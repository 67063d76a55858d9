#!/usr/bin/env python3
"""`serve` under load: what is counted is told, and what went wrong.

    bench/serving.py load  [--seconds 60] [--clients 16]   20 functions, one deployed anew each second, one that crashes
    bench/serving.py wrk   [--seconds 60] [--clients 16]   the same with wrk (bench/load.lua): faster, and so harder
    bench/serving.py many  [--functions 1000]              the store's size, `list`, cold requests, hot beside cold
    bench/serving.py churn [--cycles 10000]                restored and dropped again and again: memory, descriptors

Needs build/ (scripts/build.sh, scripts/functions.sh) and musl-gcc. Exit status 1 when an answer was wrong or lost.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KVMSERVER = ROOT / "build/bin/kvmserver"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def c_program(folder, greeting):
    """functions/c-epoll that answers with a greeting of its own, so that an answer of another function is noticed."""
    (folder / "c-common").mkdir(exist_ok=True)
    (folder / "c-epoll").mkdir(exist_ok=True)
    header = (ROOT / "functions/c-common/http.h").read_text()
    assert "Hello from C\\n" in header
    (folder / "c-common/http.h").write_text(header.replace("Hello from C\\n", greeting + "\\n"))
    (folder / "c-epoll/main.c").write_text((ROOT / "functions/c-epoll/main.c").read_text())
    program = folder / greeting
    subprocess.run(["musl-gcc", "-O2", "-static", "-o", program, folder / "c-epoll/main.c"], check=True)
    return [str(program), str(free_port())]


def snapshot(folder, name, argv, *options):
    path = folder / f"{name}.snap"
    subprocess.run([KVMSERVER, "snapshot", "--allow-all", "--cache", "none", *options, "-o", path, *argv], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def node(folder, name):
    """functions/node-http that differs in a line."""
    program = next(p for p in json.loads((ROOT / "build/functions/programs.json").read_text()) if p["name"] == "node-http")
    source = pathlib.Path(program["cwd"], "server.js").read_text().replace("Hello from Node", f"{name} from Node")
    place = folder / name
    place.mkdir()
    (place / "server.js").write_text(source)
    return [program["argv"][0], str(place / "server.js"), str(free_port())]


def tree(pid):
    """The process and its children."""
    pids = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            for child in (task / "children").read_text().split():
                pids += tree(int(child))
        except OSError:
            pass
    return pids


def processes(pid):
    """Its children for functions, by number: what each serves, or "spare" while it waits for one."""
    found = {}
    for child in tree(pid)[1:]:
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if words[1:2] == ["--function-process"]:
                found[child] = words[2]
    return found


def functions(pid):
    """Its children that serve a function."""
    return [child for child, serves in processes(pid).items() if not serves.startswith("spare")]


def memory(pid):
    """MB that belong to the process and its children: proportional set size."""
    total = 0
    for one in tree(pid):
        try:
            for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) / 1000
        except OSError:
            pass  # it has ended meanwhile
    return total


class Platform:
    def __init__(self, folder):
        self.store = folder / "store"
        self.port = free_port()
        self.daemon = None

    def run(self, *words):
        done = subprocess.run([KVMSERVER, *words, "--store", self.store], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def deploy(self, snap, name, *options):
        self.run("deploy", snap, "--name", name, "-q", *options)

    def serve(self, *options):
        self.daemon = subprocess.Popen([KVMSERVER, "serve", "--store", self.store, "--listen", f"127.0.0.1:{self.port}", *options],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while "Serving" not in self.daemon.stdout.readline():
            assert self.daemon.poll() is None, "the daemon ended"

    def stop(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, name, path="/", client=None):
        own = client or self.client()
        own.request("GET", path, None, {"Host": f"{name}.localhost"})
        reply = own.getresponse()
        body = reply.read()
        if not client:
            own.close()
        return reply.status, body


def twenty(platform, folder):
    names = [f"f{n:02}" for n in range(20)]
    for name in names:
        platform.deploy(snapshot(folder, name, c_program(folder, f"Hello-{name}")), name)
    platform.serve("--idle", "30")
    for name in names:
        platform.ask(name)
    return names


def wrk(platform, folder, options):
    names = twenty(platform, folder)
    memories = [memory(platform.daemon.pid)]
    running = subprocess.Popen(["wrk", "-t", "2", "-c", str(options.clients), "-d", f"{options.seconds:.0f}s", "--timeout", "10s", "-s", ROOT / "bench/load.lua",
                                f"http://127.0.0.1:{platform.port}/"], stdout=subprocess.PIPE, text=True)
    deploys = 0
    while running.poll() is None:
        begin = time.monotonic()
        platform.deploy(folder / f"{names[3]}.snap", names[3])
        deploys += 1
        memories.append(memory(platform.daemon.pid))
        time.sleep(max(0, 1 - (time.monotonic() - begin)))
    said = running.stdout.read()
    print("".join(line + "\n" for line in said.splitlines() if "wrong" in line), end="")
    print(f"{deploys} deploys; memory in MB: " + " ".join(f"{m:.0f}" for m in memories[:: max(1, len(memories) // 10)]))
    return " 0 wrong, 0 of another function," in said and "lost: 0 connect, 0 read, 0 write, 0 timeout" in said


def load(platform, folder, options):
    names = twenty(platform, folder)
    crashing = names[7]
    before = memory(platform.daemon.pid)
    end = time.monotonic() + options.seconds
    counts = {"right": 0, "wrong": 0, "lost": 0, "crashed as asked": 0, "deploys": 0}
    lock, wrong = threading.Lock(), []

    def client():
        mine, connection = random.Random(), None
        while time.monotonic() < end:
            name = mine.choice(names)
            path = "/crash" if name == crashing else "/"
            try:
                connection = connection or platform.client()
                status, body = platform.ask(name, path, connection)
                if name == crashing:
                    what = "crashed as asked" if status == 502 else "wrong"
                else:
                    what = "right" if status == 200 and body == f"Hello-{name}\n".encode() else "wrong"
            except (OSError, http.client.HTTPException) as error:
                connection, what, status, body = None, "lost", 0, repr(error)
            with lock:
                counts[what] += 1
                if what in ("wrong", "lost"):
                    wrong.append((name, status, body[:200]))

    def deployer():
        while time.monotonic() < end:
            begin = time.monotonic()
            platform.deploy(folder / f"{names[3]}.snap", names[3])
            counts["deploys"] += 1
            time.sleep(max(0, 1 - (time.monotonic() - begin)))

    threads = [threading.Thread(target=client) for _ in range(options.clients)] + [threading.Thread(target=deployer)]
    for thread in threads:
        thread.start()
    memories = []
    while any(thread.is_alive() for thread in threads):
        memories.append(memory(platform.daemon.pid))
        time.sleep(2)
    print(f"{counts}; {sum(counts.values()) / options.seconds:.0f} requests/s")
    print(f"memory in MB: {before:.0f} before, then " + " ".join(f"{m:.0f}" for m in memories[:: max(1, len(memories) // 10)]))
    for one in wrong[:10]:
        print("  ", one)
    return not wrong


def many(platform, folder, options):
    snaps = [snapshot(folder, f"c{n}", c_program(folder, f"Hello-{n}")) for n in range(3)]
    nodes = [snapshot(folder, f"n{n}", node(folder, f"node{n}")) for n in range(3)]
    begin = time.monotonic()
    names = []
    for n in range(options.functions):
        names.append(f"fn{n:04}")
        platform.deploy((nodes if n % 2 else snaps)[n // 2 % 3], names[-1])
    print(f"{options.functions} deploys: {time.monotonic() - begin:.0f} s")
    distinct = sum(path.stat().st_size for path in snaps + nodes)
    stored = sum(path.stat().st_size for path in platform.store.rglob("*") if path.is_file())
    print(f"store {stored / 1e6:.1f} MB, distinct snapshots {distinct / 1e6:.1f} MB: {stored / distinct:.2f} times (at most 1.2)")
    times = []
    for _ in range(10):
        begin = time.monotonic()
        platform.run("list")
        times.append((time.monotonic() - begin) * 1000)
    print(f"list: median {statistics.median(times):.1f} ms (at most 100)")
    platform.serve("--idle", "3")  # the hot ones are asked again in less
    is_node = [name for n, name in enumerate(names) if n % 2]
    for name in is_node[:6]:  # the file cache is warm, and the unpacked copies are there
        platform.ask(name)
    time.sleep(5)
    hot, cold = names[0:200:2], is_node[100:]

    def hot_times(rounds):
        taken, connection = [], platform.client()
        for _ in range(rounds):
            for name in hot:
                begin = time.monotonic()
                status, body = platform.ask(name, "/", connection)
                taken.append((time.monotonic() - begin) * 1000)
                assert status == 200, (status, body)
        return taken

    hot_times(1)
    alone = hot_times(3)
    taken = []
    for name in cold:
        begin = time.monotonic()
        status, body = platform.ask(name)
        taken.append((time.monotonic() - begin) * 1000)
        assert status == 200, (name, status, body)
        if len(taken) % 10 == 0:  # keeps them hot
            hot_times(1)
    beside = hot_times(3)
    taken.sort()
    print(f"cold Node requests, {len(taken)} functions: median {statistics.median(taken):.1f} ms, p99 {taken[len(taken) * 99 // 100]:.1f} ms (at most 50), max {taken[-1]:.1f} ms")
    print(f"100 hot functions: median {statistics.median(alone):.2f} ms before, {statistics.median(beside):.2f} ms with the others known and cold")
    return True


def churn(platform, folder, options):
    names = [f"f{n:02}" for n in range(20)]
    snap = snapshot(folder, "c", c_program(folder, "Hello"))
    for name in names:
        platform.deploy(snap, name)
    platform.serve("--idle", "0.05")

    def state():
        pid = platform.daemon.pid
        while functions(pid) or len(processes(pid)) != 2:  # two spare processes
            time.sleep(0.05)
        slab = next(int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("SUnreclaim"))
        return memory(pid), len(os.listdir(f"/proc/{pid}/fd")), slab / 1000

    for name in names * 5:
        platform.ask(name)
    before = state()
    done = 0
    while done < options.cycles:
        for name in names:
            status, body = platform.ask(name)
            assert (status, body) == (200, b"Hello\n"), (status, body)
        done += len(names)
        while functions(platform.daemon.pid):
            time.sleep(0.01)
    after = state()
    print(f"{done} times restored and dropped: daemon {before[0]:.1f} -> {after[0]:.1f} MB, {before[1]} -> {after[1]} descriptors, "
          f"kernel slab {before[2]:.0f} -> {after[2]:.0f} MB")
    return after[1] <= before[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "wrk", "many", "churn"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--functions", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=10000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        platform = Platform(pathlib.Path(name))
        try:
            good = {"load": load, "wrk": wrk, "many": many, "churn": churn}[options.what](platform, pathlib.Path(name), options)
        finally:
            platform.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
