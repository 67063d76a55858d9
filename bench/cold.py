#!/usr/bin/env python3
"""What a function's first request waits: a process finds its function, enters its jail, and restores its machine.

    bench/cold.py [--rounds 40] [--programs c-epoll node-http] [--also OTHER-KVMSERVER] [--options '--jail=off' ...]
                  [--snapshot-options '--warmup auto']

Each variant (this build and the other one, with each of the options) has a daemon of its own; the variants take turns,
and each round asks another function, so that none has a process. Prints the median, the fastest and slowest
tenth in ms, and how each median compares with that of the first variant. Needs build/ and its functions.
"""
import argparse
import json
import pathlib
import shlex
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KVMSERVER = ROOT / "build/bin/kvmserver"
SETTLE = 0.25  # seconds until the daemon has spare processes again


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def snapshot(folder, name, options):
    """The snapshot of a program of functions/."""
    program = next(p for p in json.loads((ROOT / "build/functions/programs.json").read_text()) if p["name"] == name)
    argv = [word.replace("{port}", str(free_port())) for word in program["argv"]]
    path = folder / f"{name}.snap"
    # What most functions may do: read the folder that they come from.
    subprocess.run([KVMSERVER, "snapshot", f"--allow-read={program['cwd']}", "--allow-listen=127.0.0.1", *options, "-o", path, *argv],
                   check=True, cwd=program["cwd"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


class Daemon:
    def __init__(self, binary, folder, options):
        folder.mkdir()
        self.binary, self.store, self.port = binary, folder / "store", free_port()
        self.process = subprocess.Popen(
            [binary, "serve", "--store", self.store, "--listen", f"127.0.0.1:{self.port}", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdout.readline()

    def deploy(self, name, path):
        subprocess.run([self.binary, "deploy", "--store", self.store, "--name", name, path], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, name):
        """Milliseconds until the whole reply is there."""
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {name}.localhost\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while data := connection.recv(65536):
                reply += data
        spent = (time.monotonic() - begin) * 1000
        assert reply.startswith(b"HTTP/1.1 200"), reply
        return spent

    def end(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--programs", nargs="+", default=["c-epoll", "node-http"])
    parser.add_argument("--also", nargs="*", default=[], type=pathlib.Path)
    parser.add_argument("--options", nargs="*", default=[])
    parser.add_argument("--snapshot-options", type=shlex.split, default=[], help="of the snapshot that all variants have")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmserver-cold-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        for program in chosen.programs:
            path = snapshot(folder, program, chosen.snapshot_options)
            variants = []
            for binary in [KVMSERVER, *chosen.also]:
                for options in ["", *chosen.options]:
                    daemon = Daemon(binary, folder / f"{program}-{len(variants)}", shlex.split(options))
                    variants.append((f"{binary} {options}".strip(), daemon, []))
                    for i in range(chosen.rounds + 1):
                        daemon.deploy(f"f{i}", path)
            try:
                for i in range(chosen.rounds + 1):
                    for _, daemon, times in variants:
                        time.sleep(SETTLE)
                        times.append(daemon.ask(f"f{i}"))
                first = statistics.median(variants[0][2][1:])
                print(f"{program}:")
                for title, _, times in variants:
                    times = sorted(times[1:])  # the first one fills caches
                    tenth = max(1, len(times) // 10)
                    middle = statistics.median(times)
                    print(f"  {middle:7.2f} ms ({times[tenth - 1]:.2f} to {times[-tenth]:.2f})  {middle / first:5.2f} x  {title}")
            finally:
                for _, daemon, _ in variants:
                    daemon.end()


if __name__ == "__main__":
    main()
