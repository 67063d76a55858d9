"""Starts servers, bare or in machines, and ends them. Used by every test here.

Everything waits for something with a limit (PATIENCE); nothing sleeps and hopes.
"""
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve()
KVMSERVER = BUILD / "bin/kvmserver"
GUESTS = BUILD / "tests/e2e"
PROGRAMS_FILE = ROOT / "build/functions/programs.json"

sys.path.insert(0, str(ROOT / "functions"))
import check  # noqa: E402  the contract of the programs in functions/, and a client

Client, request, letters = check.Client, check.request, check.letters

# How many times slower than a real machine everything is (the emulated host).
SLOWNESS = float(os.environ.get("E2E_SLOWNESS", "1"))
PATIENCE = min(20.0 * SLOWNESS, 100.0)  # seconds for anything that should happen
# What compresses anew runs only when nothing else wants the processor, such as other tests.
IDLE_PATIENCE = PATIENCE * 20
check.PATIENCE = PATIENCE
ALL_TESTS = os.environ.get("KVMSERVER_TESTS") == "all"  # also what takes long
LIMITS = ["--max-boot-time", "100", "--max-request-time", "60"] if SLOWNESS > 1 else []
# A cache folder, as users have one: what is mapped out of it takes other paths than what is unpacked anew.
CACHE = tempfile.TemporaryDirectory(prefix="kvmserver-cache-")
BASE_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": CACHE.name}


class Mode(NamedTuple):
    name: str
    command: str = ""  # run, snaprun; "" is the plain program
    ephemeral: bool = False
    threads: int = 1

    @property
    def options(self) -> list[str]:
        return (["-e"] if self.ephemeral else []) + ["-t", str(self.threads)]


BARE = Mode("bare")
RUN = Mode("run", "run")
RUN_E = Mode("run-e", "run", True)
SNAPRUN_E = Mode("snaprun-e", "snaprun", True)
SNAPRUN_E2 = Mode("snaprun-e-t2", "snaprun", True, 2)
SNAPRUN = Mode("snaprun", "snaprun")
MODES = {mode.name: mode for mode in (BARE, RUN, RUN_E, SNAPRUN_E, SNAPRUN_E2, SNAPRUN)}


class Ended(NamedTuple):
    status: int  # as a shell sees it
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The lines of stderr, without those that tell what goes on, which are there when it takes long."""
        return [line for line in self.err.splitlines() if not (line.startswith("kvmserver: ") and line.endswith(" ..."))]

    @property
    def events(self) -> list[dict]:
        """Those of --json: nothing else may be on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def last(self) -> dict:
        return self.events[-1]

    @property
    def result(self) -> dict:
        """Of --json: one object, or the last event."""
        return self.last if self.out.startswith('{"event"') else json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that says what went wrong."""
        lines = [line for line in self.said if line.startswith("kvmserver: ")]
        assert lines, f"no line of ours on stderr: {self.err!r}"
        return lines[-1]


def shell_status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def programs() -> dict[str, dict]:
    if not PROGRAMS_FILE.exists():
        sys.exit(f"{PROGRAMS_FILE} is missing: scripts/functions.sh")
    return {program["name"]: program for program in json.loads(PROGRAMS_FILE.read_text())}


def guest(name: str, *arguments: str) -> dict:
    """One of the small programs in guests/, described like those of functions/."""
    argv = [str(GUESTS / name), *arguments]
    return {"name": name, "lang": "C", "argv": argv, "cwd": str(GUESTS), "env": {}, "serial": True}


def permissions_of(program: dict) -> list[str]:
    return program.get("permissions", ["--allow-all"])


# Below those that the kernel gives to clients, so that no client has a port by the time a server listens on it. What
# runs beside these tests, such as the other part of them, begins elsewhere.
FIRST_PORT = 10000 + os.getpid() % 40 * 500
PORTS = itertools.cycle(range(FIRST_PORT, FIRST_PORT + 500))


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def arguments_of(program: dict, port: int) -> list[str]:
    return [argument.replace("{port}", str(port)) for argument in program["argv"]]


def environment_options(program: dict) -> list[str]:
    return [word for name, value in program["env"].items() for word in ("--env", f"{name}={value}")]


def kvmserver(*words: str | os.PathLike, cwd: str | os.PathLike | None = None, env: dict | None = None,
              stdin: bytes = b"", wrapper: list[str] = [], patience: float = PATIENCE) -> Ended:
    """Runs a command that ends by itself."""
    argv = [*wrapper, str(KVMSERVER), *map(str, words)]
    environment = {**BASE_ENVIRONMENT, **(env or {})}
    done = subprocess.run(argv, cwd=cwd, env=environment, input=stdin, capture_output=True, timeout=patience)
    return Ended(shell_status(done.returncode), done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def wait_until(condition, what, patience: float = PATIENCE) -> None:
    """`what` is awaited: a text, or a function that returns it."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience:.0f} s: {what() if callable(what) else what}")
        time.sleep(0.005)


class Process:
    """A process that goes on, its output kept in files."""

    def __init__(self, argv: list[str], cwd: str | None = None, env: dict | None = None) -> None:
        self.out_file, self.err_file = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.popen = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=self.out_file, stderr=self.err_file
        )

    @staticmethod
    def _text(file) -> str:
        return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")

    @property
    def out(self) -> str:
        return self._text(self.out_file)

    @property
    def err(self) -> str:
        return self._text(self.err_file)

    def running(self) -> bool:
        return self.popen.poll() is None

    def wait(self) -> Ended:
        self.popen.wait(PATIENCE)
        return Ended(shell_status(self.popen.returncode), self.out, self.err)

    def stop(self, how: int = signal.SIGTERM) -> Ended:
        """Asks it to end, makes it end when it does not."""
        if self.running():
            self.popen.send_signal(how)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"it does not end when asked; stderr: {self.err[-2000:]}") from None

    def close(self) -> None:
        if self.running():
            self.popen.kill()
        self.popen.wait()
        self.out_file.close()
        self.err_file.close()


class Server(Process):
    """A program that serves in one of the modes; ready when the constructor returns."""

    def __init__(self, program: dict, mode: Mode, *options: str, snapshot: pathlib.Path | None = None) -> None:
        self.port = free_port()
        self.mode = mode
        # A clean machine a connection serves one connection after the other, whatever the program could do.
        self.program = {**program, "serial": program["serial"] or mode.ephemeral}
        argv = arguments_of(program, self.port)
        if mode.command == "":
            super().__init__(argv, program["cwd"], {**program["env"]})
        else:
            argv = [str(KVMSERVER), *self.command(argv, snapshot, list(options))]
            super().__init__(argv, program["cwd"], BASE_ENVIRONMENT)
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def command(self, argv: list[str], snapshot: pathlib.Path | None, options: list[str]) -> list[str]:
        if self.mode.command == "snaprun":
            assert snapshot, "a snapshot is needed"
            listen = ["--listen", f"127.0.0.1:{self.port}"]
            return ["snaprun", *self.mode.options, *listen, *LIMITS, *options, str(snapshot)]
        environment = environment_options(self.program)
        return ["run", *permissions_of(self.program), *self.mode.options, *environment, *LIMITS, *options, *argv]

    def wait_ready(self) -> None:
        def ready() -> bool:
            if not self.running():
                raise AssertionError(
                    f"it ended with status {shell_status(self.popen.returncode)} before it served; stderr: {self.err[-2000:]}"
                )
            if self.mode.command and "\nProgram '" not in "\n" + self.out:
                return False
            with contextlib.suppress(ConnectionError):
                # Nothing is accepted before the program listens, and this is no request.
                return self.out != "" if not self.mode.command and self.program["name"] in programs() else self.answers()
            return False

        wait_until(ready, f"{self.program['name']} serves; stderr: {self.err[-2000:]}", PATIENCE)

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE):
            return True

    def client(self) -> Client:
        return Client(self.port)

    def get(self, path: str, *headers: str) -> bytes:
        """One request on a connection of its own."""
        with self.client() as client:
            return client.ask(path, None, *headers)

    def line(self) -> str:
        """What a server of guests/ says."""
        with self.client() as client:
            client.send(b"go\n")
            return client.reader.read().decode()

    def count(self) -> int:
        return int(self.get("/count", "Connection: close"))


class Snapshots:
    """One snapshot of each program, made when it is first wanted, for speed at a low level."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.made: dict[str, Ended] = {}

    def of(self, program: dict) -> pathlib.Path:
        name = program["name"]
        path = self.folder / f"{name}.snap"
        if name not in self.made:
            self.made[name] = make_snapshot(program, path, "--level", "1")
        assert path.exists(), f"no snapshot of {name}: {self.made[name]}"
        return path


def make_snapshot(program: dict, path: pathlib.Path, *options: str) -> Ended:
    argv = arguments_of(program, free_port())
    environment = environment_options(program)
    words = ["snapshot", *permissions_of(program), "-o", path, *environment, *LIMITS, *options, *argv]
    return kvmserver(*words, cwd=program["cwd"], patience=PATIENCE + 200)


class ServerPool:
    """The server that one (program, mode) is tested with; a new one after a test failed on it."""

    def __init__(self, program: dict, mode: Mode, snapshots: Snapshots) -> None:
        self.program, self.mode, self.snapshots = program, mode, snapshots
        self.current: Server | None = None
        self.failures: list[str] = []

    @contextlib.contextmanager
    def server(self):
        assert len(self.failures) < 3, f"given up after three failures: {self.failures[-1][:300]}"
        try:
            if self.current is None:
                snapshot = self.snapshots.of(self.program) if self.mode.command == "snaprun" else None
                self.current = Server(self.program, self.mode, snapshot=snapshot)
            yield self.current
            assert self.current.running(), "the server ended during the test"
        except BaseException as error:
            self.failures.append(str(error))
            said = self.current.err[-2000:] if self.current else ""
            self.close()
            if said and isinstance(error, Exception):
                raise AssertionError(f"{error}\nstderr of the server: {said}") from error
            raise

    def close(self) -> None:
        if self.current:
            self.current.close()
            self.current = None


def remove(path: pathlib.Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
