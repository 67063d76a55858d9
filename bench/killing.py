#!/usr/bin/env python3
"""kill -9 at random moments while a daemon serves, uploads arrive over HTTP, others deploy and collect beside it.

    bench/killing.py [--kills 200] [--seed N]

Three functions, of programs with 4 MB of their own each so that uploads take a while. Each time one of them gets a new version, over
HTTP or beside the daemon, often with a `gc` at the same time, and at a random moment the daemon, the client or the `gc` is killed.
Then (the daemon is started again if need be) every function must answer: the one that was deployed as before or as new, as new if
that was acknowledged, the others as they did. `verify` must be clean in between. Exit status 1 when it was not so.

Needs build/ (scripts/build.sh) and musl-gcc.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from serving import KVMSERVER, ROOT, Platform, free_port, snapshot

PROGRAMS = 8
NAMES = ("red", "green", "blue")


def large_program(folder, greeting):
    """functions/c-epoll with a greeting and 4 MB of random data of its own."""
    header = (ROOT / "functions/c-common/http.h").read_text().replace("Hello from C\\n", greeting + "\\n")
    place = folder / greeting
    (place / "c-common").mkdir(parents=True)
    (place / "c-epoll").mkdir()
    (place / "c-common/http.h").write_text(header)
    (place / "c-epoll/main.c").write_text((ROOT / "functions/c-epoll/main.c").read_text())
    (place / "data").write_bytes(os.urandom(4_000_000))
    (place / "data.s").write_text(f'.data\n.incbin "{place}/data"\n.section .note.GNU-stack\n')
    subprocess.run(["musl-gcc", "-O2", "-static", "-o", place / "program", place / "c-epoll/main.c", place / "data.s"], check=True)
    return [str(place / "program"), str(free_port())]


class Killing:
    def __init__(self, platform, folder, seed):
        self.platform, self.random = platform, random.Random(seed)
        self.snaps = {}
        for n in range(PROGRAMS):
            self.snaps[f"Hello-{n}"] = snapshot(folder, f"p{n}", large_program(folder, f"Hello-{n}"))
        self.admin = free_port()
        self.now, self.kills = {}, {"daemon": 0, "client": 0, "gc": 0}
        # What may still become true: the daemon finishes what a client that is dead has asked for, and sees what one wrote before it died.
        self.pending = {name: set() for name in NAMES}
        self.acknowledged = self.restarts = 0

    def begin(self):
        for name, text in zip(NAMES, self.snaps):
            self.platform.deploy(self.snaps[text], name)
            self.now[name] = text
        self.token = self.platform.run("token", "create", "killing", "--scope", "admin").strip()
        self.serve()
        begin = time.monotonic()
        self.wait(self.deploy(NAMES[0], list(self.snaps)[PROGRAMS - 1], remote=True))
        self.now[NAMES[0]] = list(self.snaps)[PROGRAMS - 1]
        self.typical = time.monotonic() - begin

    def serve(self):
        self.platform.serve("--admin", f"127.0.0.1:{self.admin}", "--idle", "2")

    def start(self, *words):
        return subprocess.Popen([KVMSERVER, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "KVMSERVER_TOKEN": self.token})

    def deploy(self, name, text, remote):
        where = ["--remote", f"http://127.0.0.1:{self.admin}"] if remote else ["--store", self.platform.store]
        return self.start("deploy", self.snaps[text], "--name", name, "-q", *where)

    @staticmethod
    def wait(process):
        _, said = process.communicate(timeout=120)
        if process.returncode:
            raise RuntimeError(said)

    def once(self):
        name, text = self.random.choice(NAMES), self.random.choice(list(self.snaps))
        remote = self.random.random() < 0.7
        client = self.deploy(name, text, remote)
        gc = self.start("gc", "--keep", "1", "-y", "-q", "--store", self.platform.store) if self.random.random() < 0.5 else None
        time.sleep(self.random.uniform(0, 1.2 * self.typical))
        victim = self.random.choice(["daemon", "client"] if remote else ["client", "gc"] if gc else ["client"])
        {"daemon": self.platform.daemon, "client": client, "gc": gc}[victim].kill()
        self.kills[victim] += 1
        if victim == "daemon":
            self.platform.daemon.wait()
            self.serve()
            self.restarts += 1
        else:
            self.pending[name].add(text)
        said = client.communicate(timeout=120)[1]
        if gc:
            gc.communicate(timeout=120)
        done = client.returncode == 0
        self.did = f"{victim} was killed while {name} was deployed {'over HTTP' if remote else 'beside the daemon'}{' and gc ran' if gc else ''}"
        self.acknowledged += done
        good = self.check(name, text, done, said)
        if victim == "daemon":
            self.pending = {name: set() for name in NAMES}
        return good

    def check(self, deployed, text, done, said):
        good = True
        for name in NAMES:
            status, body = self.platform.ask(name)
            answer = body.decode(errors="replace").strip()
            allowed = {self.now[name]} if name != deployed else {text} if done else {text, self.now[name]}
            if status != 200 or answer not in allowed | self.pending[name]:
                print(f"{name}: {status} {answer!r}, not one of {sorted(allowed)}; {self.did}; the client said: {said.strip()}", flush=True)
                time.sleep(1)
                print("   a second later", self.platform.ask(name), flush=True)
                good = False
            if status == 200:
                self.now[name] = answer
        return good

    def verify(self):
        self.platform.daemon.kill()
        self.platform.daemon.wait()
        self.serve()  # clears up
        good = self.check("", "", False, "")
        self.pending = {name: set() for name in NAMES}
        done = subprocess.run([KVMSERVER, "verify", "--dry-run", "--store", self.platform.store], capture_output=True, text=True)
        if done.returncode:
            print(f"verify: {done.stdout}{done.stderr}", flush=True)
        return good and done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    good = True
    with tempfile.TemporaryDirectory() as name:
        platform = Platform(pathlib.Path(name))
        try:
            killing = Killing(platform, pathlib.Path(name), options.seed)
            killing.begin()
            for n in range(options.kills):
                good &= killing.once()
                if n % 20 == 19:
                    good &= killing.verify()
            good &= killing.verify()
            print(f"{options.kills} killed ({', '.join(f'{what} {n}' for what, n in killing.kills.items())}), {killing.acknowledged} deploys acknowledged, "
                  f"{killing.restarts} daemons started again; {'nothing lost, verify clean' if good else 'NOT GOOD: see above'}")
        finally:
            platform.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
