#!/usr/bin/env python3
"""Serves for an hour under what goes wrong on a machine, and looks whether anybody notices.

    scripts/soak.py [--seconds 3600] [--seed N]     as root

A daemon that may have 256 descriptors open, its store on a small disk of its own (tmpfs), answers four clients.
Meanwhile, at random moments: its disk is full for some seconds, the time of day steps by a day,
forwards and backwards, processes of functions are killed, another client opens more connections than there is room
for, a function gets new versions and old ones are collected; and each minute SIGUSR2 hands over to a successor.

Must hold: each reply is that of a machine that no request was in before; it is another one only within some seconds
after a process of that function was killed; no connection is refused or cut; a deployment fails only where the disk
was full, and changes nothing then; each successor takes over, or says why not where the disk was full; at the end all
functions answer, the store is sound, and nothing of the daemon is left. The status is 1 where something did not.
"""
import argparse
import collections
import contextlib
import http.client
import json
import mmap
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve()
BINARY = BUILD / "bin/kvmserver"
DISK_MIB, DAY = 256, 86400
STEADY, NEW = ["c-epoll", "node-http"], ["c-epoll", "c-poll"]  # what is asked all the time; versions of `changing`
AFTER_KILL = 15  # seconds
PATIENCE = 60


class Wrong(Exception):
    pass


def program_words(name, port):
    for program in json.loads((BUILD / "functions/programs.json").read_text()):
        if program["name"] == name:
            return [word.replace("{port}", str(port)) for word in program["argv"]]
    raise Wrong(f"{name} is not built: scripts/functions.sh {name}")


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def words(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


class Soak:
    def __init__(self, folder, seconds, seed):
        self.folder, self.seconds, self.random = folder, seconds, random.Random(seed)
        self.store, self.log = folder / "disk/store", folder / "log"
        self.port, self.wrong, self.counts = 18000 + os.getpid() % 10000, [], collections.Counter()
        self.killed = collections.defaultdict(lambda: -1e9)  # when, by function
        self.disk_full_until = self.disk_full = 0  # monotonic time of its last end; whether it is now
        self.filling = self.crowding = None
        self.over = threading.Event()
        self.began = time.monotonic()
        self.most = {"descriptors": 0, "MiB": 0}

    def say(self, text):
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def is_wrong(self, text):
        self.wrong.append(text)
        self.say(f"WRONG: {text}")

    def run(self, *arguments):
        return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE * 4,
                              cwd=self.folder)

    def ok(self, *arguments):
        done = self.run(*arguments)
        if done.returncode:
            raise Wrong(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def set_up(self):
        (self.folder / "disk").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "soak", self.folder / "disk"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.steps = self.folder / "steps"
        self.steps.write_bytes(bytes(8))
        for name in {*STEADY, *NEW}:
            program = program_words(name, self.random.randrange(20000, 29000))
            self.ok("snapshot", "-o", self.folder / f"{name}.snap", "--allow-all", *program)
        for name in STEADY:
            self.ok("deploy", self.folder / f"{name}.snap", "--name", name, "-q", "--store", self.store)
        self.ok("deploy", self.folder / f"{NEW[0]}.snap", "--name", "changing", "-q", "--store", self.store)

    def start(self):
        preload = BUILD / "tests/e2e/clock_steps.so"
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                [BINARY, "serve", "--store", self.store, "--listen", f"127.0.0.1:{self.port}"],
                stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, "LD_PRELOAD": str(preload), "CLOCK_STEPS": str(self.steps)},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
        self.pid = self.daemon.pid
        self.wait_for("it serves", lambda: self.said("Serving ") == 1)

    def said(self, text):
        return self.log.read_text(errors="replace").count(text)

    @staticmethod
    def wait_for(what, holds, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise Wrong(f"waited {seconds} s, and not: {what}")
            time.sleep(0.02)

    def ask(self, function, path="/count"):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(client):
            client.request("GET", path, None, {"Host": f"{function}.localhost"})
            reply = client.getresponse()
            return reply.status, reply.read()

    # What goes on all the time.

    def client(self, function):
        pauses = random.Random(self.random.random())
        while not self.over.wait(pauses.uniform(0, 0.02)):
            try:
                status, body = self.ask(function)
            except (OSError, http.client.HTTPException) as error:
                self.is_wrong(f"{function}: {error!r}")
                continue
            recent = time.monotonic() - self.killed[function] < AFTER_KILL
            if status == 200 and body == b"1\n":
                self.counts[f"replies of {function}"] += 1
            elif status in (502, 503) and recent:
                self.counts[f"{status} of {function} after a kill"] += 1
            else:
                self.is_wrong(f"{function}: {status} {body[:300]!r}")

    # What happens now and then; one after the other, all by the main thread but for the disk.

    def kill(self):
        victims = [(pid, words(pid)) for pid in children(self.pid)]
        victims = [(pid, title[2].split()[0]) for pid, title in victims
                   if "--function-process" in title and title[2].strip()]
        if not victims:
            return
        pid, name = self.random.choice(victims)
        self.killed[name] = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.counts[f"killed: {name}"] += 1

    def step_clock(self):
        by = self.random.choice([-DAY, 0, DAY])
        with open(self.steps, "r+b") as file, mmap.mmap(file.fileno(), 8) as at:
            at[:] = struct.pack("q", by)
        self.counts["clock steps"] += 1

    def fill_disk(self):
        def fill():
            self.disk_full = 1
            with contextlib.suppress(OSError), open(self.folder / "disk/filler", "wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(1 << 16))
            self.over.wait(self.random.uniform(2, 8))
            (self.folder / "disk/filler").unlink()
            self.disk_full_until, self.disk_full = time.monotonic(), 0

        if not self.disk_full:
            self.counts["full disks"] += 1
            self.disk_full = 1
            self.filling = threading.Thread(target=fill)
            self.filling.start()

    def crowd(self):
        """Another client opens more connections than there is room for and holds them, some within a request."""
        def hold():
            with contextlib.ExitStack() as stack:
                for number in range(self.random.randrange(100, 400)):
                    try:
                        connection = socket.create_connection(("127.0.0.1", self.port), 5, ("127.0.0.2", 0))
                        stack.enter_context(connection)
                        if number % 2:
                            connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
                    except OSError:
                        self.counts["connections of the crowd that were refused"] += 1
                self.over.wait(self.random.uniform(1, 8))

        if not (self.crowding and self.crowding.is_alive()):
            self.counts["crowds"] += 1
            self.crowding = threading.Thread(target=hold)
            self.crowding.start()

    def was_full(self, since):
        return self.disk_full or self.disk_full_until >= since

    def live(self, name):
        functions = json.loads(self.ok("list", "--json", "--store", self.store))["functions"]
        return next(function["live"] for function in functions if function["name"] == name)

    def deploy(self):
        begin, name = time.monotonic(), self.random.choice(NEW)
        before = self.live("changing")
        done = self.run("deploy", self.folder / f"{name}.snap", "--name", "changing", "-q", "--store", self.store)
        after = self.live("changing")
        if done.returncode == 0:
            self.counts["deployments"] += 1
        elif not self.was_full(begin):
            self.is_wrong(f"deploy: {done.stderr.strip()}")
        else:
            self.counts["deployments refused for the disk"] += 1
            if after != before:
                self.is_wrong(f"a refused deployment changed {before} to {after}: {done.stderr.strip()}")
        begin = time.monotonic()
        collected = self.run("gc", "--keep", "1", "-y", "-q", "--store", self.store)
        if collected.returncode and not self.was_full(begin):
            self.is_wrong(f"gc: {collected.stderr.strip()}")

    def hand_over(self):
        begin, old, serving, staying = time.monotonic(), self.pid, self.said("Serving "), self.said("this one keeps serving")
        os.kill(old, signal.SIGUSR2)
        self.wait_for("a successor serves or the old one goes on",
                      lambda: self.said("Serving ") > serving or self.said("this one keeps serving") > staying)
        if self.said("this one keeps serving") > staying:
            if not self.was_full(begin):
                self.is_wrong(f"no successor: {self.log.read_text(errors='replace')[-500:]}")
            self.counts["no successor, the disk was full"] += 1
            return
        self.pid = next(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                        if pid != old and f"127.0.0.1:{self.port}" in words(pid) and "serve" in words(pid))
        self.wait_for("the old one ends", lambda: self.ended(old))
        self.counts["successors"] += 1

    def ended(self, pid):
        if pid == self.daemon.pid:
            return self.daemon.poll() is not None
        return not words(pid)

    def look(self):
        with contextlib.suppress(OSError):
            self.most["descriptors"] = max(self.most["descriptors"], len(os.listdir(f"/proc/{self.pid}/fd")))
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            self.most["MiB"] = max(self.most["MiB"], resident >> 10)

    def go_on(self):
        end, next_hand_over = self.began + self.seconds, time.monotonic() + min(60, self.seconds / 3)
        next_word = 0
        while time.monotonic() < end:
            self.random.choice([self.kill, self.step_clock, self.fill_disk, self.deploy, self.crowd])()
            self.look()
            if time.monotonic() >= next_hand_over:
                self.hand_over()
                next_hand_over += 60
            if time.monotonic() >= next_word:
                self.say(", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())))
                next_word = time.monotonic() + 60
            self.over.wait(self.random.uniform(0.2, 2))

    def finish(self):
        for thread in filter(None, [self.filling, self.crowding]):
            thread.join()
        time_left = time.monotonic() + AFTER_KILL
        for name in [*STEADY, "changing"]:
            while (reply := self.ask(name))[0] != 200 and time.monotonic() < time_left:
                self.over.wait(0.2)
            if reply != (200, b"1\n"):
                self.is_wrong(f"at the end {name} answers {reply}")
        all_children = children(self.pid)
        os.kill(self.pid, signal.SIGTERM)
        self.wait_for("the daemon ends", lambda: self.ended(self.pid))
        self.wait_for("its processes end", lambda: not any(words(pid) for pid in all_children))
        self.ok("verify", "--store", self.store)
        self.say(", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())))
        self.say(f"at most {self.most['descriptors']} descriptors and {self.most['MiB']} MiB of the daemon")

    def soak(self):
        self.set_up()
        self.start()
        clients = [threading.Thread(target=self.client, args=(name,)) for name in STEADY for _ in range(2)]
        for thread in clients:
            thread.start()
        try:
            self.go_on()
        finally:
            self.over.set()
            for thread in clients:
                thread.join()
        self.over = threading.Event()
        self.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--in-own-mounts", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: it mounts a small disk, in a mount namespace of its own")
    if not given.in_own_mounts:
        os.execvp("unshare", ["unshare", "--mount", "--net", sys.executable, *sys.argv, "--in-own-mounts"])
    seed = given.seed if given.seed is not None else random.randrange(1 << 30)
    print(f"soak: --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(pathlib.Path(folder), given.seconds, seed)
        try:
            soak.soak()
        except (Wrong, subprocess.TimeoutExpired) as error:
            soak.is_wrong(str(error))
        finally:
            with contextlib.suppress(OSError, AttributeError):
                os.kill(soak.pid, signal.SIGKILL)
            if soak.wrong and soak.log.exists():
                print(soak.log.read_text(errors="replace")[-3000:])
            subprocess.run(["umount", "--lazy", soak.folder / "disk"], check=False)
    print(f"soak: {len(soak.wrong)} wrong")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
