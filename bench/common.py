"""What the measurements share: where things are, free ports, and servers that are started, asked and stopped."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build"))
KVMSERVER = BUILD / "bin/kvmserver"
FUNCTIONS = ROOT / "build/functions"
LOAD = BUILD / "bench/load/load"


class Failure(Exception):
    """One line: what went wrong, and what would mend it."""


def need(path, how):
    if not os.access(path, os.X_OK if pathlib.Path(path).is_file() else os.R_OK):
        raise Failure(f"{path} is missing or may not be run: {how}")


def programs(folder=FUNCTIONS):
    """What scripts/functions.sh has built, by name."""
    path = pathlib.Path(folder, "programs.json")
    need(path.parent, "scripts/functions.sh builds it")
    return {program["name"]: program for program in json.loads(path.read_text())}


def environment(program, inherit=False):
    """Nearly empty: a program may do much at its start, or at each request, because of a variable."""
    own = os.environ if inherit else {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    return {**own, **program["env"]}


def words(program, port):
    return [word.replace("{port}", str(port)) for word in program["argv"]]


def free_port():
    """A port that nobody listens on, below those that the kernel gives to clients."""
    for _ in range(1000):
        port = random.randrange(10000, 30000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise Failure("no free port between 10000 and 30000: is something else listening there?")


def counter(what, port):
    """The words of a program that answers /count with the number of its requests: c or node."""
    argv = ([BUILD / "tests/e2e/keeps", port] if what == "c" else
            [words(programs()["node-http"], port)[0], ROOT / "tests/e2e/guests/probe.js", port])
    need(argv[0], "scripts/build.sh and scripts/functions.sh build it")
    return [str(word) for word in argv]


class Unix(http.client.HTTPConnection):
    """To the API of a daemon, by its socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def host(binary):
    """What is measured, and on what."""
    def said(*command):
        with contextlib.suppress(OSError):
            return subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT).stdout.strip()
        return ""

    kind = re.search(r"/dev/kvm ok \((.*)\)", said(binary, "doctor"))
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"kvm": kind[1] if kind else "unknown", "cpu": model[1] if model else "unknown", "cpus": len(os.sched_getaffinity(0)),
            "kernel": os.uname().release, "load_before": os.getloadavg()[0], "version": said(binary, "--version"),
            "commit": said("git", "rev-parse", "--short", "HEAD")}


def tail(path, lines=5):
    return "\n".join(pathlib.Path(path).read_text(errors="replace").splitlines()[-lines:])


class Server:
    """A process that serves HTTP on a port of this machine. What it prints is kept for the day it fails."""

    def __init__(self, name, argv, port, env, cwd):
        self.name, self.port = name, port
        self.output = tempfile.NamedTemporaryFile(prefix="kvmserver-bench-")
        try:
            self.process = subprocess.Popen([str(word) for word in argv], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.output,
                                            stderr=subprocess.STDOUT)
        except OSError as error:
            raise Failure(f"{name} cannot be started: {error}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def said(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def failed(self, what):
        return Failure(f"{self.name} {what}; its last lines:\n{tail(self.output.name) or '(it printed nothing)'}")

    def check(self):
        status = self.process.poll()
        if status is not None:
            raise self.failed(f"ended with {f'signal {-status}' if status < 0 else f'status {status}'}")

    def until_said(self, text, seconds=60):
        deadline = time.monotonic() + seconds
        while text not in self.said():
            self.check()
            if time.monotonic() > deadline:
                raise self.failed(f"does not say {text!r}")
            time.sleep(0.01)

    def wait_ready(self, seconds=120):
        """Until it has answered once."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            try:
                client.request("GET", "/", headers={"Connection": "close"})
                reply = client.getresponse()
                reply.read()
                if reply.status == 200:
                    return self
                raise self.failed(f"answered GET / with status {reply.status}")
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # not listening yet
            finally:
                client.close()
        raise self.failed(f"did not answer on port {self.port} within {seconds} s")

    def place(self, cpus):
        """Its threads run on these processors only."""
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cpus)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
