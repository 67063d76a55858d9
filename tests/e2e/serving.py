"""kvmserver serve with a store of the test's own. Used by test_serve_*.py."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import threading
import time
from typing import NamedTuple

import harness
from harness import BASE_ENVIRONMENT, KVMSERVER, Ended, Process, kvmserver

PROBE = pathlib.Path(__file__).parent / "guests/probe.js"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict:
        assert self.headers["content-type"] == "application/problem+json", self
        document = json.loads(self.body)
        assert document["status"] == self.status and document["request_id"], self
        return document


def ask(port: int, function: str, path: str = "/count", body: bytes | None = None, method: str = "", host: str = "",
        headers: dict[str, str] = {}, patience: float = harness.PATIENCE) -> Reply:
    """One request on a connection of its own."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    with contextlib.closing(client):
        client.request(method or ("GET" if body is None else "POST"), path, body,
                       {"Host": host or f"{function}.localhost", **headers})
        reply = client.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())


def presented_certificate(port: int, host: str | None = None) -> bytes:
    """What a TLS client that asks for this host is shown (DER); it makes a request, too."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", port), harness.PATIENCE) as plain, \
            context.wrap_socket(plain, server_hostname=host) as client:  # fmt: skip
        assert client.selected_alpn_protocol() == "http/1.1"
        client.sendall(b"GET /count HTTP/1.1\r\nHost: hello.localhost\r\nConnection: close\r\n\r\n")
        reply = b""
        while part := client.recv(65536):
            reply += part
        assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"1\n"), reply
        return client.getpeercert(True)


def gone(pid: int) -> bool:
    """Nothing of the process runs any more, whether anybody has waited for it or not."""
    try: # each thread: while one is there yet, so are the process's files
        return all(stat.read_text().rpartition(")")[2].split()[0] == "Z" for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return True


def words_of(pid: int) -> list[str]:
    try:
        text = pathlib.Path(f"/proc/{pid}/cmdline").read_text() # of one that has ended and was not waited for: nothing
        return text.split("\0") if text else []
    except (FileNotFoundError, ProcessLookupError):
        return []


def pid_of_listener(port: int) -> int:
    wanted = f"127.0.0.1:{port}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in words and b"serve" in words:
                return int(entry.name)
    raise AssertionError("nobody listens")


def open_files(pid: int) -> list[str]:
    links = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            links.append(os.readlink(fd))
    return links


class Store:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.path = folder / "store"

    def __call__(self, *words, stdin: bytes = b"") -> Ended:
        return kvmserver(*words, "--store", self.path, stdin=stdin, patience=harness.PATIENCE * 6)

    def ok(self, *words, stdin: bytes = b"") -> str:
        done = self(*words, stdin=stdin)
        assert done.status == 0, done
        return (["", *done.out.splitlines()])[-1]

    def json(self, *words) -> dict:
        done = self(*words, "--json")
        assert done.status == 0, done
        return done.result

    def deploy(self, snapshot: pathlib.Path, name: str, *options: str) -> str:
        return self.ok("deploy", snapshot, "--name", name, *options)

    def deploy_probe(self, node: dict, function: str, name: str = "probe", settings: str = "", top: str = "") -> str:
        """Deploys guests/probe.js through a manifest whose [function] part ends with `settings`."""
        folder = self.folder / f"probe-{function}"
        folder.mkdir(exist_ok=True)
        argv = [node["argv"][0], str(PROBE), str(harness.free_port()), name]
        warmup = "" if "warmup" in top else "warmup = 0\n"  # test_warmup.py has what is done without that
        text = f"allow-all = true\nlevel = 1\n{warmup}{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        (folder / "kvmserver.toml").write_text(f"{text}[function]\nname = {json.dumps(function)}\n{settings}")
        return self.ok("deploy", folder, "-q")


def manifest(folder: pathlib.Path, program: dict, top: str = "") -> pathlib.Path:
    """A folder that can be deployed, as a function of its name."""
    folder.mkdir(exist_ok=True)
    argv = harness.arguments_of(program, harness.free_port())
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        f"[function]\nname = {json.dumps(folder.name)}\n")
    return folder


class Daemon(Process):
    """Serves when the constructor returns."""
    binary = KVMSERVER

    def __init__(self, store: Store, *options: str, port: int = 0, env: dict | None = None, listen: str = "",
                 patience: float = harness.PATIENCE) -> None:  # fmt: skip
        self.store = store
        self.port = port or harness.free_port()
        self.access_file = store.folder / f"access-{self.port}.ndjson"
        argv = [str(self.binary), "serve", "--store", str(store.path), "--listen", listen or f"127.0.0.1:{self.port}",
                "--access-log", str(self.access_file), *options]
        super().__init__(argv, str(store.folder), {**BASE_ENVIRONMENT, **(env or {})})
        try:
            harness.wait_until(lambda: self.serves(), lambda: f"the daemon serves; stderr: {self.err[-2000:]}", patience)
        except BaseException:
            self.close()
            raise

    def serves(self) -> bool:
        assert self.running(), f"the daemon ended: {self.popen.wait()} {self.err[-2000:]}"
        return "Serving " in self.out and self.out.endswith("\n")

    def ask(self, function: str, path: str = "/count", **more) -> Reply:
        return ask(self.port, function, path, **more)

    def text(self, function: str, path: str, **more) -> str:
        reply = self.ask(function, path, **more)
        assert reply.status == 200, reply
        return reply.body.decode()

    def processes(self) -> dict[str, list[int]]:
        """Those of functions: pids by name and version ("hello v4")."""
        return {name: pids for name, pids in self.all_processes().items() if not name.startswith("spare")}

    def spares(self) -> list[int]:
        """Those that wait for a function."""
        return [pid for name, pids in self.all_processes().items() if name.startswith("spare") for pid in pids]

    def templates(self) -> list[int]:
        """Those from which processes of functions are forked: one, once there was any."""
        return [pid for pid in self.children() if words_of(pid)[1:2] == ["--function-forking"]]

    def all_processes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for child in self.children():
            words = words_of(child)
            if "--function-process" in words:
                found.setdefault(words[2], []).append(child)
        return found

    def trials(self) -> list[int]:
        """Those in which a new version shows that it is healthy."""
        return [pid for pid in self.children() if any("(new)" in word for word in words_of(pid))]

    def children(self) -> list[int]:
        pids = []
        for task in pathlib.Path(f"/proc/{self.popen.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                pids += map(int, (task / "children").read_text().split())
        return pids

    def open_files(self) -> list[str]:
        return open_files(self.popen.pid)

    def access(self, count: int) -> list[dict]:
        """The access log, once it has so many lines."""
        def lines() -> list[str]:
            return self.access_file.read_text().splitlines()

        harness.wait_until(lambda: len(lines()) >= count, f"{count} lines in the access log")
        return [json.loads(line) for line in lines()]


class Load:
    """Asks again and again from several threads until it is stopped."""

    def __init__(self, daemon: Daemon, function: str, path: str = "/count", clients: int = 4, keep_alive: bool = True) -> None:
        self.daemon, self.function, self.path, self.keep_alive = daemon, function, path, keep_alive
        self.replies: list[tuple[int, bytes]] = []
        self.errors: list[BaseException] = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def _run(self) -> None:
        headers = {"Host": f"{self.function}.localhost"}
        client = None
        try:
            while not self.ended.is_set():
                if client is None:
                    client = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=harness.PATIENCE)
                client.request("GET", self.path, None, headers)
                reply = client.getresponse()
                self.replies.append((reply.status, reply.read()))
                if not self.keep_alive:
                    client.close()
                    client = None
        except BaseException as error:
            self.errors.append(error)
        finally:
            if client:
                client.close()

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(harness.PATIENCE)

    def after(self, more: int) -> int:
        """Waits for so many more replies; returns how many there are."""
        wanted = len(self.replies) + more
        harness.wait_until(lambda: len(self.replies) >= wanted or self.errors, f"{more} more replies")
        return len(self.replies)

    def only(self, *bodies: bytes) -> None:
        assert not self.errors, self.errors
        wrong = [reply for reply in self.replies if reply[0] != 200 or reply[1] not in bodies]
        assert not wrong, f"{len(wrong)} of {len(self.replies)}: {wrong[:5]}"
