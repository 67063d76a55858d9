"""kvmserver serve --tls: functions with protocol = "tls-passthrough", which hold the key of their connections themselves."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl

import harness
import pytest
from harness import wait_until
from serving import ask
from test_certificates import der, make

HOST = "shop.localhost"


def example(folder: pathlib.Path, settings: str = "", old: str = "", new: str = "", **more: str) -> pathlib.Path:
    """A copy of functions/python-tls with changes to its manifest."""
    if not folder.exists():
        shutil.copytree(harness.ROOT / "functions/python-tls", folder)
    text = (harness.ROOT / "functions/python-tls/kvmserver.toml").read_text().replace("8443", str(harness.free_port()))
    assert old in text
    (folder / "kvmserver.toml").write_text("level = 1\n" + more.get("top", "") + text.replace(old, new, 1) + settings)
    return folder


class Client:
    """A TLS client that asks for a host and keeps its connection."""

    def __init__(self, port: int, host: str = HOST, pieces: int = 0) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = socket.create_connection(("127.0.0.1", port), harness.PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read, self.write = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.read, self.write, server_hostname=host)
        self.pieces = pieces
        self.does(self.tls.do_handshake)
        self.certificate = self.tls.getpeercert(True)

    def does(self, what, *words):
        while True:
            try:
                done = what(*words)
                self.flush()
                return done
            except ssl.SSLWantReadError:
                self.flush()
                bytes_ = self.socket.recv(65536)
                self.read.write(bytes_) if bytes_ else self.read.write_eof()

    def flush(self) -> None:
        bytes_ = self.write.read()
        while self.pieces and bytes_:
            self.socket.sendall(bytes_[: self.pieces])
            bytes_ = bytes_[self.pieces:]
        if bytes_:
            self.socket.sendall(bytes_)

    def get(self, host: str = HOST) -> tuple[int, str]:
        self.does(self.tls.write, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self.does(self.tls.read, 65536)
        head, _, body = reply.partition(b"\r\n\r\n")
        length = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
        while len(body) < length:
            body += self.does(self.tls.read, 65536)
        return int(head.split()[1]), body.decode()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()


@pytest.fixture(scope="module")
def need_openssl() -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs openssl, for the certificate")


@pytest.fixture
def world(store, serve, snapshots, program, tmp_path, need_openssl):
    """A daemon with TLS, an HTTP function of its own certificate, and the example."""
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    own = make(tmp_path, "hello.localhost")
    store.ok("certificate", "add", *own)
    daemon = serve("--tls", "--access-log", str(tmp_path / "access.log"))
    folder = example(tmp_path / "python-tls")
    said = store("deploy", folder, "-q")
    assert said.status == 0, said
    assert f"python-tls v1 live https://{HOST}:{daemon.port}" in said.out, said
    return daemon, folder, own


def test_only_the_machine_has_the_key_and_each_connection_has_a_machine(world, store, tmp_path) -> None:
    daemon, folder, own = world
    theirs = der(folder / "certificate.pem")
    for _ in range(2):
        with Client(daemon.port) as client:
            assert client.certificate == theirs
            for _ in range(2):
                status, body = client.get()
                assert (status, body) == (200, "Hello from TLSv1.3, connection 1\n")
    with Client(daemon.port, "hello.localhost") as client:
        assert client.certificate == der(own[0])
        assert client.get("hello.localhost")[0] == 200
    with pytest.raises(ssl.SSLError, match="(?i)unrecognized.name"):
        Client(daemon.port, "nobody.example")
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    passed = [line for line in lines if line["method"] == "TLS"]
    assert len(passed) == 2 and {(line["path"], line["outcome"], line["function"]) for line in passed} == {(HOST, "ok", "python-tls")}, passed
    assert f"TLS {HOST} -" in store("logs", "python-tls").out


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_a_client_hello_in_pieces(world, pieces) -> None:
    daemon, folder, own = world
    with Client(daemon.port, pieces=pieces) as client:
        assert client.certificate == der(folder / "certificate.pem")
        assert client.get()[0] == 200
    with Client(daemon.port, "hello.localhost", pieces=pieces) as client:
        assert client.certificate == der(own[0])


def test_clients_that_say_nothing_or_no_tls(world) -> None:
    daemon, _, _ = world
    for said in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x00" * 100, b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"):
        with socket.create_connection(("127.0.0.1", daemon.port), harness.PATIENCE) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(4096):  # an alert, perhaps
                    pass
    plain = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=harness.PATIENCE)
    plain.request("GET", "/", headers={"Host": HOST})
    reply = plain.getresponse()
    assert reply.status == 400 and b"https://" in reply.read()
    with Client(daemon.port, "hello.localhost") as client:  # asks for one host and then for another
        status, body = client.get(HOST)
        assert status == 404 and "python-tls holds the key of this host itself" in body, body
    with Client(daemon.port) as client:
        assert client.get()[0] == 200


@pytest.mark.nightly
def test_versions(world, store) -> None:
    daemon, folder, _ = world
    with Client(daemon.port) as old:
        assert old.get()[1].startswith("Hello from TLS")
        (folder / "server.py").write_text((folder / "server.py").read_text().replace("Hello from", "Welcome to"))
        store.ok("deploy", folder, "-q")
        with Client(daemon.port) as new:
            assert new.get()[1].startswith("Welcome to TLS")
        assert old.get()[1].startswith("Hello from TLS")  # its drain is not over
    store.ok("rollback", "python-tls", "-y")
    with Client(daemon.port) as client:
        assert client.get()[1].startswith("Hello from TLS")
    refused = store("invoke", "python-tls")
    assert refused.status == 5 and 'protocol = "tls-passthrough": connect to one of its routes with TLS' in refused.error, refused
    example(folder, old='protocol = "tls-passthrough"\n', new="")
    text = (folder / "server.py").read_text()
    (folder / "server.py").write_text(text.replace("return self.context.wrap_socket(client, server_side=True), address", "return client, address").replace("self.connection.version()", "type(self).__name__"))
    store.ok("deploy", folder, "-q")
    mixed = store("traffic", "python-tls", "1=50", "3=50")
    assert mixed.status == 5 and "v1 is for TLS that is passed through, v3 for HTTP" in mixed.error, mixed


def test_a_daemon_that_ends_finishes_its_connections(world) -> None:
    daemon, _, _ = world
    with Client(daemon.port) as client:
        assert client.get()[0] == 200
        os.kill(daemon.popen.pid, signal.SIGTERM)
        wait_until(lambda: not accepts(daemon.port), "it accepts no more")
        assert client.get()[0] == 200
    assert daemon.wait().status == 0


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), harness.PATIENCE).close()
        return True
    except ConnectionRefusedError:
        return False


def test_dev_serves_it_as_it_is(tmp_path, need_openssl) -> None:
    folder = example(tmp_path / "app")
    with contextlib.closing(harness.Process([str(harness.KVMSERVER), "dev", "--port", "0"], str(folder), harness.BASE_ENVIRONMENT)) as dev:
        wait_until(lambda: "Ready https://" in dev.out or not dev.running(), "it is ready")
        port = int(re.search(r"^Ready https://127.0.0.1:(\d+)$", dev.out, re.M)[1])
        for _ in range(2):
            with Client(port) as client:
                assert client.certificate == der(folder / "certificate.pem")
                assert client.get() == (200, "Hello from TLSv1.3, connection 1\n")
        assert dev.stop().status == 0


REFUSED = {
    "listen": ('routes = ["shop.localhost"]', 'listen = ["127.0.0.1:1"]', 'function.listen is for functions with protocol = "tcp"'),
    "path": ('routes = ["shop.localhost"]', 'routes = ["shop.localhost/api/*"]', "route shop.localhost/api/* of a function with protocol"),
    "any-host": ('routes = ["shop.localhost"]', 'routes = ["/shop/*"]', "route /shop/* of a function with protocol"),
    "protocol": ('"tls-passthrough"', '"tls"', 'function.protocol must be "http", "tcp" or "tls-passthrough"'),
    "hook": ("[function.build]", '[function.hooks]\nhealth = "/up"\n[function.build]', "function.hooks.health is an HTTP request, which"),
    "warmup": ('allow-read = ["."]', 'allow-read = ["."]\nwarmup = 5', 'warmup sends HTTP requests, which a function with protocol = "tls-passthrough"'),
    "server-first": ('allow-read = ["."]', 'allow-read = ["."]\nserver-first = true', "a TLS client speaks first"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(store, tmp_path, need_openssl, what) -> None:
    old, new, why = REFUSED[what]
    refused = store("deploy", example(tmp_path / "app", old=old, new=new), "-q")
    assert refused.status == 2 and why in refused.error, refused


def test_a_daemon_without_tls_does_not_make_it_live(store, serve, tmp_path, need_openssl) -> None:
    folder = example(tmp_path / "app")
    daemon = serve()
    refused = store("deploy", folder, "-q")
    assert refused.status == 5 and "start it with kvmserver serve --tls" in refused.error, refused
    assert daemon.stop().status == 0
    store.ok("deploy", folder, "-q")  # without a daemon nobody knows
    daemon = serve()
    wait_until(lambda: 'functions with protocol = "tls-passthrough" are not reached: start serve with --tls' in daemon.err, "it is told")
    assert ask(daemon.port, HOST.split(".")[0], "/").status == 404


def test_many_tenants_on_one_port(store, serve, tmp_path, need_openssl) -> None:
    """Names lead to their own machines, wildcards too, and a token cannot take another's."""
    daemon = serve("--tls", "--admin", f"127.0.0.1:{(api := harness.free_port())}")
    for name, route in (("one", "one.example"), ("two", "*.two.example")):
        folder = example(tmp_path / name, old='routes = ["shop.localhost"]', new=f'routes = ["{route}"]')
        text = (folder / "server.py").read_text()
        (folder / "server.py").write_text(text.replace("Hello from", f"This is {name} by"))
        store.ok("deploy", folder, "-q", "--name", name)
    for host, name in (("one.example", "one"), ("a.two.example", "two"), ("A.b.TWO.example", "two")):
        with Client(daemon.port, host) as client:
            assert client.get()[1].startswith(f"This is {name} by TLS"), host
    token = store.ok("token", "create", "acme", "--scope", "deploy", "--prefix", "acme-")
    stolen = example(tmp_path / "stolen", old='routes = ["shop.localhost"]', new='routes = ["one.example"]')
    refused = harness.kvmserver("deploy", stolen, "--name", "acme-one", "--remote", f"http://127.0.0.1:{api}", env={"KVMSERVER_TOKEN": token.split()[-1]})
    assert refused.status in (4, 5) and "one.example" in refused.error, refused
