#!/usr/bin/env python3
"""What huge pages of the host change for requests that need much memory.

    bench/huge_pages.py [--mib 48] [--requests 30] [--options '--hugepages' ...]

A program (tests/e2e/guests/fills.c) has MIB of memory, reads all of it, and fills as much again in each request. Each
variant (without options, with an arena, and with what --options gives) has a server of its own; they take turns.
Prints the median time of a request in ms, how it compares with that of the first variant, and the page faults of the
host in a request; as root also the faults that KVM answered, from its own counters. Needs build/.
"""
import argparse
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from harness import BUILD, KVMSERVER, free_port  # noqa: E402

KVM = pathlib.Path("/sys/kernel/debug/kvm")


class Server:
    def __init__(self, snapshot, options):
        self.name, self.port, self.times = " ".join(options) or "ordinary pages", free_port(), []
        self.process = subprocess.Popen(
            [KVMSERVER, "snaprun", "-e", "-v", "--max-request-memory=256", f"--listen=127.0.0.1:{self.port}", *options, snapshot],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def ask(self):
        """Milliseconds until the reply is there."""
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"go\n")
            reply = b""
            while part := connection.recv(1 << 16):
                reply += part
        if not reply.startswith(b"sound,"):
            sys.exit(f"{self.name}: {reply!r}")
        return 1000 * (time.monotonic() - begin)

    def faults(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[7])

    def kvm(self, counter):
        """Of all its machines; None where it cannot be read."""
        files = list(KVM.glob(f"{self.process.pid}-*/{counter}"))
        return sum(int(file.read_text()) for file in files) if files else None


def until_told(server):
    """Main memory moves into huge pages in the background, and its end is told."""
    if any("hugepages" in word or "hugepage-arena" in word for word in shlex.split(server.name)):
        for line in server.process.stderr:
            if "--hugepages:" in line:
                print(f"# {server.name}: {line.strip()}")
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=48)
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--options", action="append", default=[])
    arguments = parser.parse_args()
    arena = f"--hugepage-requests-arena={arguments.mib + 2}"
    variants = [[], [arena], ["--hugepages"], [arena, "--hugepages"], *map(shlex.split, arguments.options)]
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder) / "fills.snap"
        subprocess.run([KVMSERVER, "snapshot", "--allow-all", "--max-request-memory=256", "-o", snapshot,
                        BUILD / "tests/e2e/fills", str(arguments.mib), str(free_port())],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        servers = []
        try:
            for options in variants:
                servers.append(Server(snapshot, options))
                servers[-1].ask()
                until_told(servers[-1])
                servers[-1].ask()
            before = [(s.faults(), s.kvm("pf_fixed"), s.kvm("pages_2m")) for s in servers]
            for _ in range(arguments.requests):
                for server in servers:
                    server.times.append(server.ask())
            print(f"{'':44} {'ms':>7} {'ratio':>6} {'faults':>7} {'of KVM':>7} {'2 MiB pages of KVM':>19}")
            for server, (faults, fixed, _) in zip(servers, before):
                median = statistics.median(server.times)
                mine = "?" if fixed is None else round((server.kvm("pf_fixed") - fixed) / arguments.requests)
                large = "?" if fixed is None else server.kvm("pages_2m")
                print(f"{server.name:44} {median:7.2f} {median / statistics.median(servers[0].times):6.2f} "
                      f"{(server.faults() - faults) / arguments.requests:7.0f} {mine:>7} {large:>19}")
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()


if __name__ == "__main__":
    main()
