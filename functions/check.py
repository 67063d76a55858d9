#!/usr/bin/env python3
"""Starts the programs of functions/ bare and checks that each keeps the contract of README.md.

    functions/check.py [name...]     all that build/functions/programs.json lists, or only these
    functions/check.py --more        the samples of samples.py instead

Prints `ok NAME`, or what is wrong; exits 1 when anything is. Standard library only.
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import samples

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "build/functions/programs.json"
LETTERS = b"abcdefghijklmnopqrstuvwxyz"
PATIENCE = 30.0  # seconds for anything that should happen


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def letters(n: int) -> bytes:
    return (LETTERS * (n // 26 + 1))[:n]


def request(path: str, body: bytes | None = None, *headers: str) -> bytes:
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: localhost", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.reader.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        line = self.reader.readline()
        expect(line.startswith(b"HTTP/1.1 "), f"no HTTP reply but {line!r}")
        headers = {}
        while (header := self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers

    def chunks(self) -> bytes:
        body = b""
        while size := int(self.reader.readline().split(b";")[0], 16):
            body += self.reader.read(size)
            self.reader.readline()
        self.reader.readline()
        return body

    def reply(self, status: int = 200) -> bytes:
        got, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = self.chunks()
        else:
            expect("content-length" in headers, "a reply without Content-Length")
            body = self.reader.read(int(headers["content-length"]))
            expect(len(body) == int(headers["content-length"]), "the reply is cut short")
        expect(got == status, f"status {got}, not {status}")
        return body

    def ask(self, path: str, body: bytes | None = None, *headers: str, status: int = 200) -> bytes:
        self.send(request(path, body, *headers))
        return self.reply(status)

    def at_end(self) -> bool:
        return self.reader.read(1) == b""


class Server:
    """The program, running bare with no environment but its own."""

    def __init__(self, program: dict) -> None:
        self.program = program
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        argv = [argument.replace("{port}", str(self.port)) for argument in program["argv"]]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            argv, cwd=program["cwd"], env=program["env"], stdout=subprocess.PIPE, stderr=self.errors
        )
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            sys.stderr.buffer.write(self.errors.read())
        expect(line == b"listening on %d\n" % self.port, f"it printed {line!r}")

    def client(self) -> Client:
        return Client(self.port)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def check_hello(server: Server) -> None:
    with server.client() as client:
        body = client.ask("/")
        if server.program["name"] == "node-react":
            expect(body.startswith(b"<!DOCTYPE html><html") and body.endswith(b"</html>"), "the page is no HTML page")
            expect(25_000 < len(body) < 35_000, f"the page has {len(body)} bytes")
        else:
            expect(body == f"Hello from {server.program['lang']}\n".encode(), f"/ answers {body!r}")
        client.ask("/nothing", status=404)


def check_count(server: Server) -> None:
    for connection in range(2):
        with server.client() as client:
            for i in range(3):
                body = client.ask("/count")
                expect(body == b"%d\n" % (connection * 3 + i + 1), f"/count answers {body!r}")


def check_echo(server: Server) -> None:
    with server.client() as client:
        for body in (b"", b"x", bytes(range(256)), os.urandom(100_000), os.urandom(10_000_000), os.urandom(20_000_000)):
            expect(client.ask("/echo", body) == body, f"an echo of {len(body)} bytes differs")


def check_continue(server: Server) -> None:
    body = os.urandom(1_000_000)
    head = request("/echo", body, "Expect: 100-continue")[: -len(body)]
    with server.client() as client:
        client.send(head)
        expect(client.head()[0] == 100, "no 100 Continue")
        client.send(body)
        expect(client.reply() == body, "an echo after 100 Continue differs")


def check_bytes(server: Server) -> None:
    with server.client() as client:
        for n in (0, 1, 26, 30, 65_537, 10_000_000):
            expect(client.ask(f"/bytes/{n}") == letters(n), f"/bytes/{n} differs")


def check_close(server: Server) -> None:
    with server.client() as client:
        client.ask("/bytes/10")
        client.ask("/bytes/10", None, "Connection: close")
        expect(client.at_end(), "Connection: close is ignored")
    with server.client() as client:
        client.send(request("/bytes/5"))
        client.socket.shutdown(socket.SHUT_WR)
        expect(client.reply() == letters(5) and client.at_end(), "a half-closed connection is not answered")


def check_pipeline(server: Server) -> None:
    with server.client() as client:
        client.send(b"".join(request(f"/bytes/{n}") for n in range(50)))
        for n in range(50):
            expect(client.reply() == letters(n), f"pipelined reply {n} differs")
        client.send(request("/echo", b"first") + request("/bytes/7") + request("/echo", b"second"))
        for body in (b"first", letters(7), b"second"):
            expect(client.reply() == body, "replies around a pipelined POST differ")


def check_trickle(server: Server) -> None:
    with server.client() as client:
        for byte in request("/echo", b"slowly"):
            client.send(bytes([byte]))
            time.sleep(0.002)
        expect(client.reply() == b"slowly", "a request of single bytes is answered wrongly")


def check_vanish(server: Server) -> None:
    with server.client() as client:
        client.send(request("/echo", b"x" * 1_000_000)[:500_000])
    for _ in range(3):
        with server.client() as client:
            client.send(request("/bytes/10000000"))
            client.reader.read(100)
    check_close(server)


def check_slow_reader(server: Server) -> None:
    if server.program["serial"]:
        return
    with server.client() as slow, server.client() as other:
        slow.send(request("/bytes/10000000"))
        time.sleep(0.1)
        expect(other.ask("/bytes/10") == letters(10), "a slow reader blocks the others")
        expect(slow.reply() == letters(10_000_000), "a slow reader's reply differs")


def check_concurrent(server: Server) -> None:
    close = ["Connection: close"] if server.program["serial"] else []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(100)]
        for _ in range(1 if close else 3):
            for n, client in enumerate(clients):
                client.send(request(f"/bytes/{n * 100}", None, *close))
            for n, client in enumerate(clients):
                expect(client.reply() == letters(n * 100), f"reply to connection {n} of 100 differs")
                if close:
                    expect(client.at_end(), "Connection: close is ignored")


def check_crash(server: Server) -> None:
    with server.client() as client:
        client.send(request("/crash"))
        with contextlib.suppress(ConnectionError):
            expect(client.at_end(), "/crash answers")
    status = server.process.wait(PATIENCE)
    wanted = -signal.SIGSEGV if server.program["lang"] == "C" else 3
    expect(status == wanted, f"/crash ends with status {status}, not {wanted}")


def check_spin(server: Server) -> None:
    with server.client() as client:
        client.send(request("/spin"))
        client.socket.settimeout(0.5)
        try:
            client.reader.read(1)
        except TimeoutError:
            return
    raise AssertionError("/spin answers")


SERVING = [
    check_count, check_hello, check_echo, check_continue, check_bytes, check_close, check_pipeline, check_trickle,
    check_slow_reader, check_concurrent, check_vanish,
]  # fmt: skip
LAST = [check_crash, check_spin]  # each needs a server of its own


def check(program: dict) -> bool:
    for checks in [SERVING, *([last] for last in LAST)]:
        server = None
        what = "start"
        try:
            server = Server(program)
            for one in checks:
                what = one.__name__.removeprefix("check_")
                one(server)
        except (AssertionError, OSError, subprocess.TimeoutExpired, ValueError) as error:
            print(f"FAILED {program['name']}: {what}: {error}", flush=True)
            return False
        finally:
            if server:
                server.stop()
    print("ok", program["name"], flush=True)
    return True


def check_sample(name: str) -> bool:
    with socket.socket() as probe, tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as errors:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        argv, environment = samples.bare(name, port, scratch)
        process = subprocess.Popen(argv, cwd=samples.BUILT / name, env=environment, stdout=errors, stderr=errors)
        try:
            samples.wait_ready(port, process, PATIENCE)
            for question in samples.SAMPLES[name]:
                question.ask(port)
        except (AssertionError, OSError) as error:
            errors.seek(0)
            print(f"FAILED {name}: {error}\n{errors.read().decode(errors='replace')}", flush=True)
            return False
        finally:
            process.kill()
            process.wait()
    print("ok", name, flush=True)
    return True


def main() -> int:
    if sys.argv[1:] == ["--more"]:
        missing = [name for name in samples.SAMPLES if not (samples.BUILT / name / "built").exists()]
        if missing:
            sys.exit(f"not built: {' '.join(missing)}: scripts/functions.sh --more")
        return 0 if all([check_sample(name) for name in samples.SAMPLES]) else 1
    if not PROGRAMS.exists():
        sys.exit("nothing is built: scripts/functions.sh")
    programs = {program["name"]: program for program in json.loads(PROGRAMS.read_text())}
    names = sys.argv[1:] or list(programs)
    unknown = [name for name in names if name not in programs]
    if unknown:
        sys.exit(f"not built: {' '.join(unknown)}: scripts/functions.sh {' '.join(unknown)}")
    return 0 if all([check(programs[name]) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
