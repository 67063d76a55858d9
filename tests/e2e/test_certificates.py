"""kvmserver certificate, and serve --tls: each host has the certificate that is for it."""
import contextlib
import json
import pathlib
import signal
import socket
import ssl
import subprocess

import admin
import harness
import pytest
from serving import presented_certificate


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


def make(folder: pathlib.Path, *hosts: str, name: str = "", days: int = 9) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate of its own for these hosts, and its key."""
    name = name or hosts[0].replace("*", "all")
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
                    "-subj", "/CN=unused", "-addext", "subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts),
                    "-keyout", key, "-out", chain], check=True, capture_output=True)  # fmt: skip
    return chain, key


def der(chain: pathlib.Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(chain.read_text())


def test_each_host_has_its_certificate(store, serve, snap, tmp_path) -> None:
    store.deploy(snap, "hello")
    shop, wild, other = make(tmp_path, "shop.example", "www.shop.example"), make(tmp_path, "*.shop.example"), make(tmp_path, "other.example")
    said = store.ok("certificate", "add", *shop)  # before there is a daemon
    assert said == "Added shop.example: for shop.example,www.shop.example, expires in 8 days", said
    daemon = serve("--tls")
    assert f"https://hello.localhost:{daemon.port}" in store("list").out
    assert presented_certificate(daemon.port, "shop.example") == presented_certificate(daemon.port, "WWW.shop.EXAMPLE") == der(shop[0])
    for stranger in ("api.shop.example", "other.example", None):  # there is none for these
        with pytest.raises(ssl.SSLError, match="(?i)unrecognized.name"):
            presented_certificate(daemon.port, stranger)

    store.ok("certificate", "add", *wild)
    store.ok("certificate", "add", *other, "--name", "second")
    assert presented_certificate(daemon.port, "api.shop.example") == der(wild[0])
    assert presented_certificate(daemon.port, "www.shop.example") == der(shop[0])  # the very host goes first
    assert presented_certificate(daemon.port, "other.example") == der(other[0])
    with pytest.raises(ssl.SSLError):
        presented_certificate(daemon.port, "a.b.shop.example")  # a wildcard is for one part of the name

    lines = store("certificate", "list").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["shop.example", "shop.example,www.shop.example"], ["*.shop.example", "*.shop.example"], ["second", "other.example"]]  # fmt: skip
    assert "in 8 days" in lines[1]
    with contextlib.closing(admin.UnixConnection(store.path / "admin.sock")) as connection:
        connection.request("GET", "/metrics")
        text = admin.Reply(connection.getresponse()).body.decode()
    assert 'kvmserver_certificate_expiry_time_seconds{certificate="second"} ' in text

    renewed = make(tmp_path, "other.example", name="renewed")
    store.ok("certificate", "add", *renewed, "--name", "second")
    assert presented_certificate(daemon.port, "other.example") == der(renewed[0])
    assert store.ok("certificate", "remove", "second") == "Removed second"
    with pytest.raises(ssl.SSLError):
        presented_certificate(daemon.port, "other.example")


def test_a_daemon_without_tls_is_told_of(store, serve, snap, tmp_path) -> None:
    store.deploy(snap, "hello")
    serve()
    ended = store("certificate", "add", *make(tmp_path, "shop.example"))
    assert ended.status == 0
    assert ended.err == "kvmserver: the daemon does not serve TLS yet: start it with --tls\n"


def test_others_have_that_of_the_files(store, serve, snap, tmp_path) -> None:
    store.deploy(snap, "hello")
    chain, key = make(tmp_path, "localhost")
    mine = make(tmp_path, "mine.example")
    daemon = serve("--tls-certificate", str(chain), "--tls-key", str(key))
    store.ok("certificate", "add", *mine)
    assert presented_certificate(daemon.port, "mine.example") == der(mine[0])
    for host in ("elsewhere.example", None):
        assert presented_certificate(daemon.port, host) == der(chain)
    renewed = make(tmp_path, "localhost", name="renewed")
    renewed[0].replace(chain)
    renewed[1].replace(key)
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: presented_certificate(daemon.port, None) == der(chain), "the files are read again")
    assert presented_certificate(daemon.port, "mine.example") == der(mine[0])


def test_no_request_is_lost_while_certificates_change(store, serve, snap, tmp_path) -> None:
    store.deploy(snap, "hello")
    chain, key = make(tmp_path, "shop.example")
    store.ok("certificate", "add", chain, key)
    daemon = serve("--tls")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", daemon.port), harness.PATIENCE), server_hostname="shop.example") as client:
        replies = client.makefile("rb")

        def ask() -> None:
            client.sendall(b"GET /count HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
            head = []
            while (line := replies.readline().strip()) != b"":
                head.append(line)
            assert head[0].startswith(b"HTTP/1.1 200"), head
            size = next(int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length"))
            assert replies.read(size) == b"1\n"

        ask()
        for days in range(3, 8):
            store.ok("certificate", "add", *make(tmp_path, "shop.example", days=days))
            presented_certificate(daemon.port, "shop.example")
            ask()
        store.ok("certificate", "remove", "shop.example")
        ask()  # an open connection goes on


def test_a_lost_index_loses_no_certificate(store, tmp_path) -> None:
    store.ok("certificate", "add", *make(tmp_path, "shop.example"))
    (store.path / "index.db").write_bytes(b"damaged" * 1000)
    store("verify")
    assert [one["name"] for one in json.loads(store("certificate", "list", "--json").out)["certificates"]] == ["shop.example"]


def test_what_is_refused(store, tmp_path) -> None:
    chain, key = make(tmp_path, "shop.example")
    other = make(tmp_path, "other.example")[1]
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted], check=True, capture_output=True)
    nameless = tmp_path / "nameless.pem"
    subprocess.run(["openssl", "req", "-x509", "-key", key, "-subj", "/O=nobody", "-days", "2", "-out", nameless], check=True, capture_output=True)
    large = tmp_path / "large.pem"
    large.write_bytes(b"x" * 70000)
    for words, status, line in [
        (["add", chain], 2, "certificate add"),
        (["add", chain, other], 2, "certificate: the key does not belong to the certificate"),
        (["add", key, key], 2, "certificate: no usable certificate chain (PEM)"),
        (["add", chain, encrypted], 2, "certificate: no usable private key (PEM, not encrypted)"),
        (["add", chain, chain], 2, "certificate: no usable private key (PEM, not encrypted)"),
        (["add", nameless, key], 2, "the certificate names no host: it needs a subjectAltName of type DNS"),
        (["add", tmp_path / "none", key], 3, f"{tmp_path}/none: No such file or directory"),
        (["add", large, key], 2, f"{large}: is no file of at most 64 KiB with PEM texts"),
        (["add", chain, key, "--name", "a b"], 2, 'certificate "a b": its name may have'),
        (["remove", "none"], 3, "there is no certificate none: `kvmserver certificate list` lists them"),
        (["list", "--name", "a"], 2, "--name is for certificate add"),
        (["ad"], 2, "did you mean add?"),
    ]:  # fmt: skip
        ended = store("certificate", *words)
        assert ended.status == status and line in ended.err and ended.err.count("\n") == 1, (words, ended)
    assert store("certificate", "list", "--no-header").out == ""
    assert "PRIVATE KEY" not in store("certificate", "list", "--json").out
