#!/usr/bin/env python3
"""Tries servers of Debian bare, in `run`, `run -e` and `snaprun -e`: 20 requests of 20 must be answered.

    scripts/servers.py [NAME...] [--new] [--install] [--mode MODE] [--table FILE]

--new: those that exercise something that no other does (the nightly tests). --install: apt-get install what is missing, as root;
npm packages are installed into the server's folder. A server whose package is missing is skipped, and named.
The last line is `N passed, N failed`. What is tried stands in tests/servers/catalogue.py, what came of it in tests/servers/README.md.
"""
import argparse
import contextlib
import http.server
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/servers"))
from catalogue import SERVERS, Server  # noqa: E402

KVMSERVER = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve() / "bin/kvmserver"
REQUESTS, PATIENCE = 20, 90.0 * float(os.environ.get("E2E_SLOWNESS", "1"))
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8"}


class Failed(Exception):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Backend(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"from the backend\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused) -> None:
        pass


@contextlib.contextmanager
def backend():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def ask(server: Server, port: int, values: dict) -> None:
    """One request on a connection of its own. Raises Failed when the answer does not come or is another."""
    send, expect = server.ask
    for name, value in values.items():
        send = send.replace(b"{%s}" % name.encode(), str(value).encode())
    got = b""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 20)
        if server.tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(connection)
        with connection:
            connection.sendall(send)
            while expect not in got or not got:
                part = connection.recv(65536)
                if not part:
                    break
                got += part
    except OSError as error:
        raise Failed(f"{type(error).__name__}: {error}; got {got[:80]!r}") from None
    if expect not in got or not got:
        raise Failed(f"{expect!r} is not in {got[:120]!r}")


class Trial:
    """One server. Each mode begins with the folder as it was prepared: what another run left there is not found."""

    def __init__(self, server: Server, folder: pathlib.Path, backend_port: int) -> None:
        self.server, self.folder, self.prepared = server, folder / "dir", folder / "prepared"
        self.values = {"dir": str(self.folder), "port": free_port(), "backend": backend_port}
        for name in [".", *server.folders]:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.write_files()
        if server.packages.startswith("npm:"):
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(self.folder), server.packages[4:]], check=True,
                           stdout=subprocess.DEVNULL, timeout=600)  # fmt: skip
        for command in server.prepare:
            subprocess.run(self.filled(command), check=True, cwd=self.folder, env=ENVIRONMENT, timeout=300)
        self.folder.rename(self.prepared)

    def write_files(self) -> None:
        for name, text in self.server.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(**self.values) if "{" in text else text)

    def filled(self, words: Sequence[str]) -> list[str]:
        return [word.format(**self.values) for word in words]

    def run(self, mode: str) -> None:
        """Raises Failed unless all requests are answered."""
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run(["cp", "-a", self.prepared, self.folder], check=True)
        self.values["port"] = free_port()
        self.write_files()
        argv = self.filled(self.server.argv)
        environment = [word for name, value in self.server.env.items() for word in ("--env", f"{name}={value}")]
        first = ["--server-first"] if self.server.speaks_first else []
        common = [*self.filled(self.server.allow), *first, "--env", f"PATH={ENVIRONMENT['PATH']}", *environment, *self.filled(self.server.options)]
        with tempfile.TemporaryFile() as log:
            if mode == "snaprun-e":
                snapshot = self.folder.parent / "app.snap"
                made = subprocess.run([KVMSERVER, "snapshot", "--level", "1", "-o", snapshot, *common, *argv], cwd=self.folder, env=ENVIRONMENT,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=4 * PATIENCE)  # fmt: skip
                if made.returncode != 0:
                    raise Failed(f"snapshot: status {made.returncode}; {tail(log)}")
                argv = [str(KVMSERVER), "snaprun", "-e", "--check-reset", *first, str(snapshot)]
            elif mode != "bare":
                extra = ["-e", "--check-reset"] if mode == "run-e" else []
                argv = [str(KVMSERVER), "run", *extra, *common, *argv]
            process = subprocess.Popen(argv, cwd=self.folder, env={**ENVIRONMENT, **self.server.env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)  # fmt: skip
            try:
                self.wait_ready(process, log, mode)
                for n in range(REQUESTS):
                    try:
                        ask(self.server, self.values["port"], self.values)
                    except Failed as error:
                        raise Failed(f"request {n + 1}: {error}; {tail(log)}") from None
                if b"reset differs" in text(log):
                    raise Failed("the reset left a difference: " + tail(log))
            finally:
                stop(process)

    def wait_ready(self, process: subprocess.Popen, log, mode: str) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if process.poll() is not None:
                raise Failed(f"ended with status {process.returncode}; {tail(log)}")
            if mode == "bare" or b"Program '" in text(log):
                with contextlib.suppress(Failed, OSError):
                    ask(self.server, self.values["port"], self.values)
                    return
                if mode != "bare":
                    return  # what fails is told by the requests
            time.sleep(0.1)
        raise Failed(f"does not serve within {PATIENCE:.0f} s; {tail(log)}")


def stop(process: subprocess.Popen) -> None:
    """And what it has started, in its own session."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            if how == signal.SIGTERM:
                continue
            return


def text(log) -> bytes:
    return os.pread(log.fileno(), 1 << 20, 0)


def tail(log) -> str:
    lines = [line for line in text(log).decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-400:]


def missing(server: Server) -> bool:
    program = server.argv[0]
    return program.startswith("/") and not os.path.exists(program)


def try_server(server: Server, modes: list[str], backend_port: int) -> dict[str, str]:
    """What came of each mode: "ok" or why not. A mode that the bare program fails in says nothing of ours."""
    outcome = {}
    with tempfile.TemporaryDirectory(prefix=f"server-{server.name}-") as name:
        os.chmod(name, 0o755)  # some become another user before they open their files
        try:
            trial = Trial(server, pathlib.Path(name), backend_port)
        except (OSError, subprocess.SubprocessError) as error:
            return {"bare": f"cannot be prepared: {error}"}
        for mode in modes:
            if mode not in server.modes:
                continue
            try:
                trial.run(mode)
                outcome[mode] = "ok"
            except (Failed, OSError, subprocess.SubprocessError) as error:
                outcome[mode] = str(error)
                if mode == "bare":
                    break
    return outcome


def install(servers: list[Server]) -> None:
    packages = sorted({word for s in servers if not s.packages.startswith(("npm:", "cargo:")) for word in s.packages.split()})
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=environment, stdout=subprocess.DEVNULL, check=True)
    for server in servers:
        if server.packages.startswith("cargo:") and missing(server):
            subprocess.run(["cargo", "install", "--quiet", "--root", "/usr/local", *server.packages.removeprefix("cargo:").split()], check=True)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(1))  # what was started ends, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--mode", action="append")
    parser.add_argument("--table")
    given = parser.parse_args()
    chosen = [s for s in SERVERS if (not given.names or s.name in given.names) and (not given.new or s.new)]
    if unknown := set(given.names) - {s.name for s in SERVERS}:
        parser.error(f"not in the catalogue: {' '.join(sorted(unknown))}")
    if given.install:
        install(chosen)
    modes = given.mode or ["bare", "run", "run-e", "snaprun-e"]
    rows, passed, failed = [], 0, 0
    with backend() as port:
        for server in chosen:
            if missing(server):
                print(f"{server.name}: skipped, {server.argv[0]} is not there (package {server.packages})", flush=True)
                continue
            outcome = try_server(server, modes, port)
            good = all(value == "ok" for value in outcome.values())
            passed, failed = passed + good, failed + (not good)
            print(f"{server.name}: " + ", ".join(f"{mode} {value}" for mode, value in outcome.items()), flush=True)
            rows.append([server.name, *("-" if mode not in outcome else outcome[mode].replace("|", "/") for mode in modes)])
    if given.table:
        lines = ["| server | " + " | ".join(modes) + " |", "|---" * (len(modes) + 1) + "|", *("| " + " | ".join(row) + " |" for row in rows)]
        pathlib.Path(given.table).write_text("\n".join(lines) + "\n")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
