"""The API's listener on a store (tests/admin/admin_listener), and clients for it. Used by test_admin_api.py and test_remote.py."""
import hashlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import threading

import harness

PROGRAM = harness.BUILD / "tests/admin/admin_listener"


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    def problem(self, status: int, code: str) -> dict:
        assert self.status == status, (self.status, self.body)
        assert self.headers["Content-Type"] == "application/problem+json"
        assert {"title", "status", "detail", "code", "request_id"} <= set(self.json), self.json
        assert self.json["code"] == code and self.json["status"] == status, self.json
        return self.json

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("localhost", timeout=harness.PATIENCE)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(harness.PATIENCE)
        self.sock.connect(str(self.path))


class Certificates:
    """An authority of our own, and a certificate of it for localhost."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        self.authority, self.certificate, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"

        def openssl(*words) -> None:
            subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "ca.key", "-out", self.authority,
                "-subj", "/CN=test authority", "-days", "2")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", folder / "request.pem", "-subj", "/CN=localhost")
        names = folder / "names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2\n")
        openssl("x509", "-req", "-in", folder / "request.pem", "-CA", self.authority, "-CAkey", folder / "ca.key",
                "-CAcreateserial", "-out", self.certificate, "-days", "2", "-extfile", names)


class Listener(harness.Process):
    def __init__(self, folder: pathlib.Path, certificates: Certificates | None = None, port: int | None = None, *options: str) -> None:
        self.store = folder / "store"
        self.socket = self.store / "admin.sock"
        self.port = port or harness.free_port()
        self.certificates = certificates
        scheme = "https" if certificates else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        words = [f"unix={self.socket}", f"tcp=127.0.0.1:{self.port}", *options]
        if certificates:
            words += [f"cert={certificates.certificate}", f"key={certificates.key}"]
        super().__init__([str(PROGRAM), str(self.store), str(harness.KVMSERVER), *words], env=harness.BASE_ENVIRONMENT)

        def ready() -> bool:
            assert self.running(), self.err
            return self.out.startswith("listening ")

        harness.wait_until(ready, "the API listens")

    def connection(self) -> http.client.HTTPConnection:
        if self.certificates:
            context = ssl.create_default_context(cafile=str(self.certificates.authority))
            return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=harness.PATIENCE)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE)

    def ask(self, method: str, path: str, body=None, token: str | None = None, headers: dict | None = None, tcp: bool = False) -> Reply:
        """By the Unix socket, or (with a token, or when told) by TCP."""
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connection() if tcp or token is not None else UnixConnection(self.socket)
        try:
            connection.request(method, path, data, headers)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def token(self, name: str, *scopes: str, prefix: str = "") -> str:
        made = self.ask("POST", "/v1/tokens", {"name": name, "scopes": list(scopes), "prefix": prefix})
        assert made.status == 201, made
        return made.json["token"]

    def upload(self, data: bytes, token: str | None = None) -> Reply:
        """A whole file, in one piece."""
        begun = self.ask("POST", "/v1/uploads", {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}, token)
        assert begun.status in (200, 201), begun
        if begun.json["complete"]:
            return begun
        return self.ask("PATCH", begun.headers["Location"], data, token, {"Upload-Offset": "0"})

    def deploy(self, name: str, data: bytes, token: str | None = None, **more) -> Reply:
        sent = self.upload(data, token)
        assert sent.status == 200, sent
        return self.ask("PUT", f"/v1/functions/{name}", {"snapshot": sent.json["snapshot"], **more}, token)


class Wire:
    """Passes bytes on between clients and a port, counts them, and breaks the first connections that carry too many,
    or `quietly` takes no more of their bytes and does not say so."""

    def __init__(self, port: int, break_after: list[int] | None = None, *, quietly: bool = False) -> None:
        self.quietly = quietly
        self.quiet: list[socket.socket] = []
        self.pumps: list[threading.Thread] = []
        self.target = port
        self.break_after = list(break_after or [])
        self.to_server = 0
        self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # nobody listens at this moment: the client is told, the next one is served
                client.close()
                continue
            for pump in ((client, server, True), (server, client, False)):
                self.pumps.append(threading.Thread(target=self._pump, args=pump, daemon=True))
                self.pumps[-1].start()
            del client, server, pump  # closed when both pumps are done: a socket that is only shut down takes bytes for ever

    def idle(self) -> bool:
        """Nothing is on its way any more."""
        return not any(pump.is_alive() for pump in self.pumps)

    def _pump(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        carried = 0
        try:
            while data := source.recv(65536):
                sink.sendall(data)
                if not counts:
                    continue
                carried += len(data)
                self.to_server += len(data)
                if self.break_after and carried >= self.break_after[0]:
                    self.break_after.pop(0)
                    self.broken += 1
                    if self.quietly:
                        self.quiet += [source, sink]
                        return
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.listener.close()
        for end in self.quiet:
            end.close()
