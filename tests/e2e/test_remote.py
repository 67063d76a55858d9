"""The commands with --remote: TLS, tokens, uploads that break and go on, and only what is missing travels."""
import contextlib
import http.server
import json
import os
import pathlib
import pty
import re
import signal
import stat
import subprocess
import termios
import threading

import admin
import harness
import pytest
from harness import Ended, kvmserver


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> admin.Certificates:
    return admin.Certificates(tmp_path_factory.mktemp("certificates"))


class Far:
    """A daemon's API over TLS, and this host's commands."""

    def __init__(self, folder: pathlib.Path, certificates: admin.Certificates) -> None:
        self.folder = folder
        self.api = admin.Listener(folder, certificates)
        self.remotes = folder / "config/remotes.json"
        self.env = {"KVMSERVER_REMOTES": str(self.remotes), "HOME": str(folder)}
        self.authority = str(certificates.authority)

    def run(self, *words, env: dict | None = None, stdin: bytes = b"") -> Ended:
        return kvmserver(*words, env={**self.env, **(env or {})}, stdin=stdin, cwd=self.folder, patience=harness.PATIENCE * 6)

    def ok(self, *words, **more) -> str:
        done = self.run(*words, **more)
        assert done.status == 0, done
        return (["", *done.out.splitlines()])[-1]

    def fails(self, status: int, *words, **more) -> str:
        done = self.run(*words, **more)
        assert done.status == status, done
        return done.error

    def login(self, *scopes: str, prefix: str = "", name: str = "far", url: str | None = None) -> None:
        token = self.api.token(f"{name}-token", *scopes, prefix=prefix)
        self.ok("login", url or self.api.url, "--name", name, "--token-stdin", "--cacert", self.authority, stdin=token.encode() + b"\n")


@pytest.fixture
def far(folder, certificates):
    far = Far(folder, certificates)
    yield far
    far.api.close()


@pytest.fixture
def big(snapshots, program) -> pathlib.Path:
    """More than a socket's buffers hold."""
    return snapshots.of(program("python-http"))


def test_login(far) -> None:
    token = far.api.token("me", "deploy")
    url = far.api.url
    said = far.run("login", url, "--token-stdin", "--cacert", far.authority, stdin=token.encode())
    assert said.status == 0 and said.out.startswith(f"Logged in to {url} as me (deploy)"), said
    assert stat.S_IMODE(os.stat(far.remotes).st_mode) == 0o600
    listed = far.run("remote", "list")
    assert listed.out == f"NAME       URL\n127.0.0.1  {url}\n" and token not in listed.out + far.run("remote", "list", "--json").out
    far.ok("list", "--remote", "127.0.0.1")
    far.ok("list", "--remote", url)
    far.remotes.chmod(0o644)
    assert "chmod 600" in far.fails(4, "list", "--remote", url)
    far.remotes.chmod(0o600)
    assert "kvmserver login" in far.fails(3, "list", "--remote", "nowhere")
    assert far.ok("remote", "remove", "127.0.0.1") == "Removed 127.0.0.1"
    far.fails(3, "remote", "remove", "127.0.0.1")
    # What does not work is not kept.
    assert "token" in far.fails(4, "login", url, "--token-stdin", "--cacert", far.authority, stdin=b"kvs_wrong\n")
    assert "--cacert" in far.fails(6, "login", url, "--token-stdin", stdin=token.encode())
    far.fails(2, "login", url)
    assert far.run("remote", "list").out == ""


def test_an_interrupted_login_leaves_the_terminal_as_it_was(far) -> None:
    ours, theirs = pty.openpty()
    words = [str(harness.KVMSERVER), "login", far.api.url, "--cacert", far.authority]
    shown = lambda: bool(termios.tcgetattr(theirs)[3] & termios.ECHO)  # noqa: E731
    with subprocess.Popen(words, env={**harness.BASE_ENVIRONMENT, **far.env}, stdin=theirs, stderr=subprocess.PIPE) as client:
        harness.wait_until(lambda: not shown(), "it waits for the token")
        client.send_signal(signal.SIGINT)
        assert client.wait(harness.PATIENCE) == -signal.SIGINT
    assert shown()
    os.close(ours)
    os.close(theirs)


def test_where_tokens_come_from(far) -> None:
    token = far.api.token("me", "read")
    remote = ["--remote", far.api.url, "--cacert", far.authority]
    assert "token" in far.fails(4, "list", *remote)
    far.ok("list", *remote, env={"KVMSERVER_TOKEN": token})
    file = far.folder / "token"
    file.write_text(token + "\n")
    file.chmod(0o644)
    assert "chmod 600" in far.fails(4, "list", *remote, "--token-file", file)
    file.chmod(0o600)
    far.ok("list", *remote, "--token-file", file)
    (far.folder / ".netrc").write_text(f"machine 127.0.0.1 login x password {token}\n")
    (far.folder / ".netrc").chmod(0o600)
    far.ok("list", *remote)
    far.fails(2, "list", "--token-file", file)


def test_plain_http_is_for_this_host(far) -> None:
    for url in ("http://example.com", "http://127.0.0.1.example.com:1", "http://10.0.0.1:1", "http://[::2]:1"):
        assert "in the clear" in far.fails(2, "list", "--remote", url), url
    assert "URL" in far.fails(2, "list", "--remote", "https://user:secret@example.com")
    far.fails(2, "list", "--remote", "ftp://example.com")
    far.fails(6, "list", "--remote", f"http://127.0.0.1:{harness.free_port()}")


def test_tls_is_verified(far, folder) -> None:
    token = {"KVMSERVER_TOKEN": far.api.token("me", "read")}
    assert "not trusted" in far.fails(6, "list", "--remote", far.api.url, env=token)
    stranger = admin.Certificates(folder / "stranger")
    far.fails(6, "list", "--remote", far.api.url, "--cacert", stranger.authority, env=token)
    far.ok("list", "--remote", far.api.url, env={**token, "SSL_CERT_FILE": far.authority})
    far.ok("list", "--remote", f"https://localhost:{far.api.port}", env={**token, "CURL_CA_BUNDLE": far.authority})


def test_events_of_a_transfer(far, big) -> None:
    far.login("deploy")
    done = far.run("deploy", big, "--name", "hello", "--remote", "far", "--json")
    assert done.status == 0 and done.err == "", done
    (upload,) = [each for each in done.events if each["event"] == "phase" and each["state"] == "done"]
    assert upload["phase"] == "upload" and upload["unit"] == "bytes" and upload["done"] == upload["all"] > 0
    (live,) = [each for each in done.events if each["event"] == "live"]
    assert live["url"] and live["served"] is True and done.last["bytes"] == big.stat().st_size
    back = far.run("pull", "hello", "-o", "back.snap", "--remote", "far", "--json")
    assert back.last["event"] == "result" and back.last["snapshot"] == live["snapshot"]
    assert [each["phase"] for each in back.events if each.get("state") == "done"] == ["download"]
    lost = far.run("deploy", big, "--name", "hello", "--remote", f"http://127.0.0.1:{harness.free_port()}", "--json")
    assert lost.status == 6 and lost.err == "" and lost.last["event"] == "error" and lost.last["exit_code"] == 6, lost


def test_the_whole_way(far, snap, program, snapshots) -> None:
    far.login("admin")
    remote = ["--remote", "far"]
    assert far.ok("deploy", snap, "--name", "hello", *remote).startswith("hello v1 live http://hello.localhost")
    other = snapshots.of(program("c-poll"))
    made = far.run("deploy", other, "--name", "hello", "--json", *remote).last
    assert made["version"] == 2 and made["bytes"] == other.stat().st_size
    assert far.ok("list", *remote).split()[:3] == ["hello", "v2", "ready"]
    assert far.ok("describe", "hello", *remote) == "hello v2 ready"
    assert [line.split()[:2] for line in far.run("versions", "hello", "--no-header", *remote).out.splitlines()] == [["v2", "live"], ["v1", "ready"]]
    assert far.ok("rollback", "hello", "--dry-run", *remote) == "hello v2 -> v1 (dry run)"
    assert far.ok("rollback", "hello", "-y", *remote) == "hello v2 -> v1"
    assert far.ok("traffic", "hello", "1=40", "2=60", *remote) == "hello v1 -> v1:40%,v2:60%"
    assert far.ok("env", "set", "hello", "A=1", *remote) == "Set A"
    assert far.ok("env", "list", "hello", *remote) == "A=1"
    assert far.ok("secret", "set", "hello", "S", "--stdin", *remote, stdin=b"hush\n") == "Set S"
    assert far.ok("secret", "list", "hello", *remote).startswith("S ")
    back = far.folder / "back.snap"
    far.ok("pull", "hello@2", "-o", back, *remote)
    assert back.read_bytes() == other.read_bytes()
    assert far.ok("push", snap, *remote).startswith("Pushed sha256:")
    assert far.ok("gc", *remote) == "Freed 0 B"
    assert far.ok("verify", *remote).startswith("Verified: functions 1, versions 2")
    assert "not v9" in far.fails(5, "deploy", snap, "--name", "hello", "--if-version", "9", *remote)
    far.fails(3, "describe", "nobody", *remote)
    far.ok("traffic", "hello", "2=100", *remote)
    assert far.ok("delete", "-y", "hello", "--version", "1", *remote) == "Deleted hello v1"
    assert far.ok("delete", "-y", "hello", *remote) == "Deleted hello"
    assert far.run("list", *remote).out == ""
    token = far.ok("token", "create", "ci", "--scope", "deploy", "--prefix", "web-", "--expires", "1h", *remote)
    assert token.startswith("kvs_")
    assert any(line.split()[:3] == ["ci", "deploy", "web-*"] for line in far.run("token", "list", *remote).out.splitlines())
    assert far.ok("token", "revoke", "ci", *remote) == "Revoked ci"
    far.fails(2, "list", "--store", far.folder, *remote)


def test_scopes(far, snap) -> None:
    far.login("read", name="reader")
    assert "scope" in far.fails(4, "deploy", snap, "--name", "hello", "--remote", "reader")
    far.login("deploy", prefix="web-", name="web")
    assert "web-" in far.fails(4, "deploy", snap, "--name", "hello", "--remote", "web")
    assert "--clamp" in far.fails(4, "deploy", snap, "--name", "web-a", "--remote", "web")  # it asks for everything
    assert far.ok("deploy", snap, "--name", "web-a", "--clamp", "--remote", "web").startswith("web-a v1 live")
    far.fails(4, "gc", "--remote", "web")
    far.fails(4, "token", "create", "x", "--scope", "admin", "--remote", "web")


def test_a_sick_version_says_why(far, snap, program) -> None:
    from platforms import manifest
    far.login("deploy")
    folder = far.folder / "app"
    manifest(folder, program("c-epoll"), 'name = "shop"\n[function.hooks]\nhealth = "/crash"\n')
    done = far.run("deploy", folder, "--remote", "far")
    assert done.status == 1 and "does not go live: GET /crash" in done.error and "c-epoll: killed by SIGSEGV" in done.err, done
    assert far.run("list", "--remote", "far").out == ""


def wired(far, wire: admin.Wire) -> None:
    far.login("deploy", "admin", name="wired", url=f"https://127.0.0.1:{wire.port}")
    wire.to_server = 0


def test_only_missing_pieces_travel(far, big) -> None:
    wire = admin.Wire(far.api.port)
    wired(far, wire)
    size = big.stat().st_size
    assert size > 1 << 20
    far.ok("push", big, "--remote", "wired")
    assert size < wire.to_server < size * 1.1 + 100_000
    wire.to_server = 0
    far.ok("push", big, "--remote", "wired")
    assert wire.to_server < size // 10, "all of it is there already"
    # A piece is lost: that piece travels, and no other. (gc first: the index must not know the snapshot either.)
    chunks = sorted((path for path in (far.api.store / "chunks").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    biggest = chunks[-1].stat().st_size
    snapshot_files = list((far.api.store / "snapshots").iterdir())
    assert len(snapshot_files) == 1
    far.api.stop()
    far.api.close()
    kept = {path: path.read_bytes() for path in chunks[:-1]}
    for path in (far.api.store).rglob("*"):
        if path.is_file() and "chunks" not in path.parts and path.name != "store.json":
            path.unlink()
    chunks[-1].unlink()
    far.api = admin.Listener(far.folder, far.api.certificates, far.api.port)
    wire.to_server = 0
    pushed = far.run("push", big, "--remote", "wired", "--json").last
    assert pushed["new_bytes"] == biggest
    assert biggest < wire.to_server < biggest + len(chunks) * 300 + 20_000
    assert all(path.read_bytes() == data for path, data in kept.items())
    wire.close()


def test_an_interrupted_upload_goes_on(far, big) -> None:
    size = big.stat().st_size
    wire = admin.Wire(far.api.port, [size // 3, size // 3])
    wired(far, wire)
    made = far.run("deploy", big, "--name", "hello", "--remote", "wired")
    assert made.status == 0 and wire.broken == 2, made
    assert wire.to_server < size * 1.5 + 200_000, "it went on, and did not begin again"
    far.ok("pull", "hello", "-o", far.folder / "back.snap", "--remote", "wired")
    assert (far.folder / "back.snap").read_bytes() == big.read_bytes()
    wire.close()


@pytest.mark.nightly
def test_a_network_that_takes_no_more_is_left(far, big) -> None:
    """As when a cable is pulled: no end, no error, only silence. The rest goes over a new connection."""
    size = big.stat().st_size
    wire = admin.Wire(far.api.port, [size // 3], quietly=True)
    wired(far, wire)
    made = far.run("push", big, "--remote", "wired", "--timeout", "5")
    assert made.status == 0 and wire.broken == 1, made
    assert wire.to_server < size * 1.5 + 200_000, "it went on, and did not begin again"
    wire.close()


class Said(http.server.BaseHTTPRequestHandler):
    """Answers what the test tells it to: `answers` are (method, how its path begins, status, body), each for one request,
    the last that fits for all further ones."""
    protocol_version = "HTTP/1.1"
    answers: list[tuple[str, str, int, bytes, dict]]
    asked: list[str]

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append(f"{self.command} {self.path}")
        fit = [answer for answer in self.answers if answer[0] == self.command and self.path.startswith(answer[1])]
        if len(fit) > 1:
            self.answers.remove(fit[0])
        _, _, status, body, headers = fit[0]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_HEAD = answer

    def log_message(self, *_) -> None:
        pass


@contextlib.contextmanager
def said(*answers: tuple):
    """The URL of such a server, and what it was asked."""
    handler = type("Handler", (Said,), {"answers": [(*answer, {})[:5] for answer in answers], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
    finally:
        server.shutdown()
        server.server_close()


BUSY = json.dumps({"title": "x", "status": 503, "code": "busy", "detail": "64 requests are being answered already"}).encode()
WHERE = "/v1/uploads/0123"


def before_the_bytes() -> list[tuple]:
    return [("POST", "/v1/snapshots/missing", 200, b'{"present": false, "missing": []}'),
            ("POST", "/v1/uploads", 201, b'{"complete": false, "id": "0123", "offset": 0}')]


def test_a_busy_server_is_asked_again(far, snap) -> None:
    done = b'{"complete": true, "new_bytes": 5}'
    with said(*before_the_bytes(), ("PATCH", WHERE, 503, BUSY), ("PATCH", WHERE, 200, done),
              ("HEAD", WHERE, 503, BUSY), ("HEAD", WHERE, 200, b"", {"Upload-Offset": "0"})) as (url, asked):
        far.ok("push", snap, "--remote", url)
    assert [line.split()[0] for line in asked[3:]] == ["PATCH", "HEAD", "HEAD", "PATCH"]


@pytest.mark.nightly
@pytest.mark.parametrize("head", [(503, BUSY), (200, b"", {"Upload-Offset": "0"})], ids=["to-all", "to-bytes"])
def test_a_server_that_stays_busy_is_given_up(far, snap, head: tuple) -> None:
    with said(*before_the_bytes(), ("PATCH", WHERE, 503, BUSY), ("HEAD", WHERE, *head)) as (url, asked):
        assert far.fails(6, "push", snap, "--remote", url).endswith(f"{url}: it is busy: try again later")
    assert 6 <= len(asked) < 20


def test_an_upload_of_somebody_else_is_waited_for(far, snap) -> None:
    """He sends the same bytes: they arrive, whoever does it."""
    taken = json.dumps({"status": 409, "code": "conflict", "detail": "somebody else is sending to it"}).encode()
    with said(("POST", "/v1/snapshots/missing", 200, b'{"present": false, "missing": []}'),
              ("POST", "/v1/snapshots/missing", 200, b'{"present": false, "missing": []}'),
              ("POST", "/v1/snapshots/missing", 200, b'{"present": true, "missing": []}'), before_the_bytes()[1],
              ("PATCH", WHERE, 409, taken), ("HEAD", WHERE, 200, b"", {"Upload-Offset": "0"}),
              ("HEAD", WHERE, 404, b"")) as (url, asked):
        far.ok("push", snap, "--remote", url)
    assert [line.split()[0] for line in asked] == ["POST", "POST", "POST", "PATCH", "HEAD", "PATCH", "HEAD", "POST"]


def test_the_signs_of_life_of_a_log_are_not_shown(far) -> None:
    line = json.dumps({"id": 1, "ms": 0, "function": "hello", "version": 1, "stream": "out", "request_id": "", "text": "it speaks"}).encode()
    with said(("GET", "/v1/functions/hello/logs", 200, b"\n\n" + line + b"\n\n")) as (url, _):
        assert far.run("logs", "hello", "-f", "--remote", url).out == "1970-01-01T00:00:00Z v1 it speaks\n"
        assert far.run("logs", "hello", "-f", "--json", "--remote", url).out == line.decode() + "\n"


def test_logins_at_once_are_all_kept(far) -> None:
    """In a folder of its own, named by no path."""
    tokens = {f"n{i}": far.api.token(f"n{i}", "read") for i in range(6)}
    env = {**harness.BASE_ENVIRONMENT, **far.env, "KVMSERVER_REMOTES": "here.json"}
    clients = []
    for name, token in tokens.items():
        words = [str(harness.KVMSERVER), "login", far.api.url, "--name", name, "--token-stdin", "--cacert", far.authority]
        client = subprocess.Popen(words, env=env, cwd=far.folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        client.stdin.write(token.encode())
        client.stdin.close()
        clients.append(client)
    assert [client.wait(harness.PATIENCE) for client in clients] == [0] * len(clients)
    listed = far.run("remote", "list", env={"KVMSERVER_REMOTES": "here.json"}).out
    assert [row.split()[0] for row in listed.splitlines()[1:]] == sorted(tokens)


def test_progress_is_for_a_terminal(far, big) -> None:
    far.login("admin")
    words = [str(harness.KVMSERVER), "push", str(big), "--remote", "far"]
    env = {**harness.BASE_ENVIRONMENT, **far.env}
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as client:
        os.close(theirs)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(ours, 65536):
                shown += data
    os.close(ours)
    assert client.returncode == 0
    assert re.search(rb"Uploading [\d.]+ MiB of [\d.]+ MiB, 100%", shown) and shown.endswith(b"\r\x1b[K"), shown[-300:]
    far.ok("gc", "--remote", "far")
    done = far.run("push", big, "--remote", "far")
    assert done.status == 0 and "Uploading" not in done.err


@pytest.mark.parametrize(("answer", "options", "status"), [(b"n\n", [], 1), (b"y\n", [], 0), (b"", ["-y"], 0)])
def test_delete_asks_on_a_terminal(far, snap, answer: bytes, options: list[str], status: int) -> None:
    far.ok("deploy", snap, "--name", "hello", "--store", far.api.store)
    ours, theirs = pty.openpty()
    words = [str(harness.KVMSERVER), "delete", "hello", "--store", str(far.api.store), *options]
    with subprocess.Popen(words, env={**harness.BASE_ENVIRONMENT, **far.env}, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as client:
        os.close(theirs)
        if answer:
            asked = b""
            while b"[y/N]" not in asked:
                asked += os.read(ours, 4096)
            assert b"Delete hello from" in asked
            os.write(ours, answer)
        assert client.wait(harness.PATIENCE) == status
    os.close(ours)
    assert far.run("describe", "hello", "--store", far.api.store).status == (0 if status else 3)


def test_another_process_goes_on_with_it(far, big) -> None:
    """The client is killed in the middle; the next one sends the rest."""
    size = big.stat().st_size
    wire = admin.Wire(far.api.port)
    wired(far, wire)
    client = harness.Process([str(harness.KVMSERVER), "push", str(big), "--remote", "wired"], env={**harness.BASE_ENVIRONMENT, **far.env})
    harness.wait_until(lambda: wire.to_server > size // 4 or not client.running(), "some of it travels")
    client.popen.kill()
    client.close()
    harness.wait_until(wire.idle, "nothing is on its way any more")
    harness.wait_until(lambda: all(upload["offset"] > 0 for upload in far.api.ask("GET", "/v1/uploads").json["uploads"]), "what came counts")
    uploads = far.api.ask("GET", "/v1/uploads").json["uploads"]
    wire.to_server = 0
    far.ok("push", big, "--remote", "wired")
    if uploads:  # it was not faster than the kill
        assert wire.to_server < size - uploads[0]["offset"] + size // 10 + 200_000
    assert far.api.ask("GET", "/v1/uploads").json["uploads"] == []
    wire.close()


def test_the_server_restarts_during_an_upload(far, big) -> None:
    wire = admin.Wire(far.api.port)
    wired(far, wire)
    client = harness.Process([str(harness.KVMSERVER), "push", str(big), "--remote", "wired"], env={**harness.BASE_ENVIRONMENT, **far.env})
    harness.wait_until(lambda: wire.to_server > big.stat().st_size // 4 or not client.running(), "some of it travels")
    far.api.popen.kill()
    far.api.close()
    far.api = admin.Listener(far.folder, far.api.certificates, far.api.port)
    ended = client.wait()
    assert ended.status == 0, ended
    client.close()
    wire.close()
    assert far.api.ask("POST", "/v1/verify").json["clean"] is True


def test_without_remote_the_daemon_of_the_store_is_asked(far, snap) -> None:
    assert far.ok("deploy", snap, "--name", "hello", "--store", far.api.store).startswith("hello v1 live")
    # Nobody else may open the store, yet the commands work: they use the socket.
    far.api.stop()
    assert far.ok("list", "--store", far.api.store).endswith(" hello.localhost"), "and without a daemon the store itself"
    assert "kvmserver serve" in far.fails(6, "invoke", "hello", "--store", far.api.store)
    assert "kvmserver serve" in far.fails(6, "logs", "hello", "--store", far.api.store)


def test_timeout(far) -> None:
    """A server that accepts and says nothing."""
    import socket
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "--timeout" in far.fails(6, "list", "--remote", url, "--timeout", "0.5")
    for wrong in ("0", "x", "-1"):
        far.fails(2, "list", "--timeout", wrong, "--remote", "https://localhost:1")


def test_tokens_are_not_in_argv(far) -> None:
    for command in ("login", "list"):
        assert "--token " not in kvmserver(command, "--help").out
    assert "--token-file" in far.fails(2, "login", far.api.url, "--token", "x")


def test_curl_is_loaded_only_when_needed(far, snap) -> None:
    far.login("read")

    def loads_curl(*words) -> bool:
        done = subprocess.run([harness.KVMSERVER, *map(str, words)], env={**harness.BASE_ENVIRONMENT, **far.env, "LD_DEBUG": "files"},
                              capture_output=True, text=True)
        return "libcurl" in done.stderr

    assert loads_curl("list", "--remote", "far")
    assert not loads_curl("list", "--store", far.folder / "none")
    assert not loads_curl("inspect", snap)
