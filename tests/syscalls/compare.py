#!/usr/bin/env python3
"""Runs the programs of this folder natively and in a machine, and compares what they say and how they end.

    tests/syscalls/run.sh [OPTIONS] [NAME[-dynamic|-static] ...]    all when none is named

    --list          the names
    --native        run natively only and print the transcript
    --repeat N      natively N times: does a program say the same each time?
    --option O      for `kvmserver run`, as --option=--verbose-syscalls (repeatable)
    --quiet         no differences, only names

KVMSERVER_BUILD names the build folder (build/). Standard library only.
"""
import argparse
import difflib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve()
PROGRAMS = BUILD / "tests/syscalls"
KVMSERVER = BUILD / "bin/kvmserver"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GREETING": "good morning", "LC_ALL": "C"}
INPUT = b"some input\nin two lines\n"
PATIENCE = float(os.environ.get("SYSCALLS_PATIENCE", "60"))  # seconds for one program
ENDINGS = [
    "0", "7", "256", "quick", "abort", "segv", "ill", "fpe", "term", "kill", "rt", "pipe", "ignored", "blocked",
    "exit-in-thread", "segv-in-thread", "thread-goes-on", "main-leaves-threads",
]  # fmt: skip
ARGUMENTS = {  # of programs that take some; the others run once without
    "exit_status": [[ending] for ending in ENDINGS],
    "broken_pipe": [["{port}"]],
    "identity": [["one", "", "two words", "-e", "--allow-all", "++"]],
    "sockets_out": [["{port}"]],
}
# What docs/LIMITS.md says is not there: a program, and what the machine's transcript holds instead.
KNOWN: dict[str, str] = {}


class Ending(NamedTuple):
    status: int  # as a shell sees it
    out: str
    err: str


class Case(NamedTuple):
    program: str  # with its variant
    arguments: list[str]

    @property
    def name(self) -> str:
        return "-".join([self.program, *self.arguments]) if self.program.startswith("exit_status") else self.program


class EchoServer:
    """Sends back what it gets, over TCP and UDP, at one port. Runs in a process of its own: whatever else threads of the test
    run do with descriptors (a blocked call outlives the close of its socket, and the number is soon another's) is not its concern."""

    def __init__(self) -> None:
        argv = [sys.executable, os.path.abspath(__file__), "--echo-server"]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # ends with its stdin
        self.port = int(self.process.stdout.readline())


class Echo:
    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        threading.Thread(target=self.serve, daemon=True).start()
        threading.Thread(target=self.serve_datagrams, daemon=True).start()

    def serve(self) -> None:
        while True:
            threading.Thread(target=self.echo, args=[self.tcp.accept()[0]], daemon=True).start()

    @staticmethod
    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                pass  # the program under test went away

    def serve_datagrams(self) -> None:
        while True:
            data, sender = self.udp.recvfrom(65536)
            self.udp.sendto(data, sender)


_echo_server: EchoServer | None = None


def echo_port() -> int:
    global _echo_server
    if _echo_server is None:
        _echo_server = EchoServer()
    return _echo_server.port


def cases() -> list[Case]:
    names = sorted(path.name for path in PROGRAMS.glob("*-*") if path.is_file() and os.access(path, os.X_OK))
    return [Case(name, list(args)) for name in names for args in ARGUMENTS.get(name.rsplit("-", 1)[0], [[]])]


def execute(argv: list[str], scratch: pathlib.Path) -> Ending:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    process = subprocess.Popen(
        argv, cwd=scratch, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = process.communicate(INPUT, PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += b"\n(stopped: it takes more than %d s)\n" % PATIENCE
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ending(status, out.decode(errors="replace"), err.decode(errors="replace"))


def command(case: Case) -> list[str]:
    arguments = [argument.replace("{port}", str(echo_port())) for argument in case.arguments]
    return [str(PROGRAMS / case.program), *arguments]


def natively(case: Case, scratch: pathlib.Path) -> Ending:
    return execute(command(case), scratch)


def in_machine(case: Case, scratch: pathlib.Path, options: list[str]) -> Ending:
    # With everything allowed /tmp is the host's: programs of the machine's own folders have the network only.
    permissions = ["--allow-connect", "--allow-listen"] if case.program.startswith("own_") else ["--allow-all"]
    return execute([str(KVMSERVER), "run", *permissions, *options, *command(case)], scratch)


def lines_that_differ(wanted: str, got: str, what: str) -> list[str]:
    if wanted == got:
        return []
    names = (f"{what}, natively", f"{what}, in a machine")
    return [line[:300] for line in difflib.unified_diff(wanted.splitlines(), got.splitlines(), *names, "", "", 2, "")]


def differences(case: Case, options: list[str] = []) -> str:
    """What the machine does otherwise than this kernel; empty when nothing."""
    with tempfile.TemporaryDirectory(prefix="syscalls-") as folder:
        scratch = pathlib.Path(os.path.realpath(folder)) / "scratch"
        wanted = natively(case, scratch)
        got = in_machine(case, scratch, options)
    if (known := KNOWN.get(case.program.rsplit("-", 1)[0])) and known in got.out:
        return ""
    told = lines_that_differ(wanted.out, got.out, "stdout")
    if wanted.status < 128 and not options:  # else stderr holds the report of the crash, or what the options print
        told += lines_that_differ(wanted.err, got.err, "stderr")
    if wanted.status != got.status:
        told.append(f"exit status: natively {wanted.status}, in a machine {got.status}")
    if told and got.err and wanted.err != got.err:
        told += ["stderr in a machine ends with:", *got.err.splitlines()[-15:]]
    return "\n".join(told)


def is_repeatable(case: Case, times: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="syscalls-") as folder:
        scratch = pathlib.Path(os.path.realpath(folder)) / "scratch"
        first = natively(case, scratch)
        for _ in range(times - 1):
            again = natively(case, scratch)
            if again != first:
                print("\n".join(lines_that_differ(first.out, again.out, "stdout")), again.err)
                return False
    return True


def chosen(names: list[str]) -> list[Case]:
    every = cases()
    if not names:
        return every
    found = [case for case in every if any(f"{case.program}-".startswith(name + "-") or case.name == name for name in names)]
    missing = [name for name in names if not any(f"{c.program}-".startswith(name + "-") or c.name == name for c in found)]
    if missing:
        sys.exit(f"no such program in {PROGRAMS}: {' '.join(missing)}")
    return found


def main() -> int:
    if sys.argv[1:] == ["--echo-server"]:
        print(Echo().port, flush=True)
        sys.stdin.read()
        return 0
    parser = argparse.ArgumentParser(prog="tests/syscalls/run.sh", description="native and machine transcripts compared")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if not cases():
        sys.exit(f"nothing is built in {PROGRAMS}")
    failed = 0
    for case in chosen(given.names):
        if given.list:
            print(case.name)
        elif given.native:
            with tempfile.TemporaryDirectory(prefix="syscalls-") as folder:
                ending = natively(case, pathlib.Path(folder) / "scratch")
            print(f"{ending.out}{ending.err}exit status {ending.status}")
        elif given.repeat:
            same = is_repeatable(case, given.repeat)
            print("ok" if same else "DIFFERS", case.name, flush=True)
            failed += not same
        else:
            told = differences(case, given.option)
            print("FAILED" if told else "ok", case.name, flush=True)
            if told and not given.quiet:
                print(told, flush=True)
            failed += bool(told)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
