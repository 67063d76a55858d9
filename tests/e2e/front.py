"""The HTTP front by itself (tests/http/http_front) between a client of raw bytes and a backend that a test writes.

Used by test_http_*.py. Needs neither KVM nor kvmserver.
"""
import json
import re
import signal
import socket
import ssl
import threading
import time

import harness

PROGRAM = harness.BUILD / "tests/http/http_front"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UPGRADE = (b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"


class Backend:
    """Calls handle(connection) in a thread for each connection; `connection` is a Peer."""

    def __init__(self, handle) -> None:
        self.handle = handle
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.heads: list[bytes] = []
        self.errors: list[BaseException] = []
        self.ended = 0  # connections that were served and closed
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Peer(connection),), daemon=True).start()

    def _serve(self, peer: "Peer") -> None:
        try:
            self.handle(peer)
        except (OSError, EOFError):
            pass
        except BaseException as error:  # shown by the test
            self.errors.append(error)
        finally:
            peer.close()
            self.ended += 1

    def close(self) -> None:
        self.listener.close()
        assert not self.errors, self.errors


class Peer:
    """One end of a connection, with what was read and not used yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.buffer = sock, b""
        sock.settimeout(harness.PATIENCE)

    def send(self, data: bytes) -> "Peer":
        self.sock.sendall(data)
        return self

    def more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError(f"the connection ended after {self.buffer[-300:]!r}")
        self.buffer += data

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self.more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            self.more()
        return self.exactly(self.buffer.index(mark) + len(mark))

    def head(self) -> bytes:
        return self.until(b"\r\n\r\n")

    def to_end(self) -> bytes:
        try:
            while True:
                self.more()
        except EOFError:
            return self.exactly(len(self.buffer))

    def at_end(self) -> bool:
        """The other side has closed, cleanly or not, and sent no more than was read."""
        try:
            return self.to_end() == b""
        except ConnectionResetError:
            return self.buffer == b""

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def raw_chunks(self) -> bytes:
        """A chunked body as it stands, with its trailers."""
        raw = b""
        while True:
            line = self.until(b"\r\n")
            raw += line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            raw += self.exactly(size + 2)
        while True:
            line = self.until(b"\r\n")
            raw += line
            if line == b"\r\n":
                return raw

    def reply(self, method: str = "GET") -> "Reply":
        head = self.head()
        reply = Reply(head)
        if method == "HEAD" or reply.status in (204, 304) or reply.status < 200:
            return reply
        if b"chunked" in reply.header("transfer-encoding"):
            reply.raw = self.raw_chunks()
            reply.body = unchunk(reply.raw)
        elif reply.header("content-length"):
            reply.body = self.exactly(int(reply.header("content-length")))
        else:
            reply.body = self.to_end()
        return reply


class Reply:
    def __init__(self, head: bytes) -> None:
        self.head, self.body, self.raw = head, b"", b""
        found = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert found, head
        self.status = int(found[1])

    def header(self, name: str) -> bytes:
        found = re.findall(rb"(?im)^" + name.encode() + rb":[ \t]*(.*?)\r$", self.head)
        assert len(found) < 2, self.head
        return found[0] if found else b""

    @property
    def problem(self) -> dict:
        assert self.header("content-type") == b"application/problem+json", self.head
        problem = json.loads(self.body)
        assert problem["status"] == self.status and problem["title"] and problem["detail"]
        assert re.fullmatch("[0-9a-f]{16}", problem["request_id"])
        return problem

    @property
    def closes(self) -> bool:
        return self.header("connection") == b"close"


def unchunk(raw: bytes) -> bytes:
    body = b""
    while True:
        line, raw = raw.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        if size == 0:
            return body
        body, raw = body + raw[:size], raw[size + 2 :]


class Front(harness.Process):
    def __init__(self, backend_port: int, *options: str) -> None:
        super().__init__([str(PROGRAM), str(backend_port), *options])
        try:
            harness.wait_until(lambda: "listening" in self.out or not self.running(), "it listens")
            self.port, self.tls_port = map(int, self.out.splitlines()[0].split()[1:])
        except BaseException:
            self.close()
            raise

    def connect(self, receive_buffer: int = 0) -> Peer:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(harness.PATIENCE)
        sock.connect(("127.0.0.1", self.port))
        return Peer(sock)

    def connect_tls(self, context: ssl.SSLContext) -> Peer:
        sock = socket.create_connection(("127.0.0.1", self.tls_port), timeout=harness.PATIENCE)
        return Peer(context.wrap_socket(sock, server_hostname="localhost"))

    @property
    def records(self) -> list[dict]:
        lines = [json.loads(line) for line in self.out.splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if "outcome" in line]

    def record(self, number: int = 0) -> dict:
        harness.wait_until(lambda: len(self.records) > number, f"record {number}; there are {self.records}")
        return self.records[number]

    def resident(self) -> int:
        with open(f"/proc/{self.popen.pid}/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def descriptors(self) -> int:
        return len(list(harness.pathlib.Path(f"/proc/{self.popen.pid}/fd").iterdir()))

    def drained(self) -> dict:
        """Ends it; what it says last."""
        ended = self.stop(signal.SIGTERM)
        assert ended.status == 0, ended
        return json.loads(next(line for line in ended.out.splitlines() if "drained" in line))


def slowly(peer: Peer, data: bytes, pause: float = 0.002) -> None:
    for byte in data:
        peer.send(bytes([byte]))
        time.sleep(pause)


def answer(peer: Peer, reply: bytes = OK) -> None:
    """A program that looks at the head alone."""
    peer.head()
    peer.send(reply)


def echo(peer: Peer) -> None:
    """A program that replies with the head and the raw body that it was sent."""
    head = peer.head()
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if b"chunked" in head:
        head += peer.raw_chunks()
    elif length:
        head += peer.exactly(int(length[1]))
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)
