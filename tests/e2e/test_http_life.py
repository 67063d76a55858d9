"""The HTTP front alone: slow and vanishing peers, memory, draining, TLS. front.py has the tools."""
import hashlib
import signal
import socket
import ssl
import subprocess
import threading
import time

import front
import harness
import pytest
from front import CUT_OFF, GET, OK, SWITCHED, UPGRADE, Peer, answer, echo

pytestmark = [pytest.mark.bare]

def test_timeouts_of_clients(serving) -> None:
    http = serving(echo, "header=400", "idle=800", "progress=1000")
    begun = time.monotonic()
    silent, late = http.connect(), http.connect().send(b"GET / HTTP/1.1\r\nHo")
    drip = http.connect().send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
    reply = late.reply()
    assert reply.status == 408 and reply.problem["code"] == "header-timeout" and late.at_end()
    assert drip.reply().problem["code"] == "body-timeout" and drip.at_end()
    assert silent.at_end()
    assert 0.7 < time.monotonic() - begun < 10 * harness.SLOWNESS
    kept = http.connect()
    assert kept.send(GET).reply().status == 200
    assert kept.at_end()
    bytewise = http.connect()  # progress counts, not the time of the whole
    bytewise.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    front.slowly(bytewise, b"hello", 0.3)
    assert bytewise.reply().status == 200


def test_timeouts_of_programs(serving) -> None:
    def program(peer: Peer) -> None:
        if b"/half" in peer.head():
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        peer.to_end()

    http = serving(program, "progress=300")
    peer = http.connect().send(GET)
    assert peer.reply().problem["code"] == "program-timeout"
    harness.wait_until(lambda: http.backend.ended == 1, "the program's connection is closed")
    half = http.connect().send(GET.replace(b"/ ", b"/half "))
    half.head()
    with pytest.raises((EOFError, ConnectionResetError)):
        half.exactly(10)
    assert [http.record(i)["outcome"] for i in range(2)] == ["timed_out"] * 2


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", ["waiting", "uploading", "blocked", "receiving", "pipelined"])
def test_a_client_that_vanishes(serving, how: str, when: str) -> None:
    seen, go = threading.Event(), threading.Event()

    def program(peer: Peer) -> None:
        peer.head()
        if when == "blocked":
            seen.set()
            go.wait(harness.PATIENCE)
        if when == "receiving":
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        seen.set()
        peer.to_end()

    http = serving(program)
    peer = http.connect()
    if when == "blocked":
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        peer.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.send(b"x" * 100_000_000)
        go.set() if how == "close" else None  # an end behind bytes that wait is seen when the program takes those
    elif when == "uploading":
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello")
    else:
        peer.send(GET + (GET * 2000 if when == "pipelined" and how == "reset" else b""))
    assert seen.wait(harness.PATIENCE)
    if when == "receiving":
        peer.until(b"some")
    peer.close() if how == "close" else peer.reset()
    assert http.record()["outcome"] == "client_gone"
    go.set()
    harness.wait_until(lambda: http.backend.ended == 1, "the program's connection is closed at once")


def test_half_closing_clients(serving) -> None:
    def program(peer: Peer) -> None:
        peer.head()
        time.sleep(0.2)
        peer.send(OK)

    http = serving(program, "half-close")
    peer = http.connect().send(GET)
    peer.half_close()
    assert peer.reply().body == b"ok" and peer.at_end()


def test_bodies_are_held_back(serving) -> None:
    """Neither a program that does not read nor a client that does not read makes the front keep bytes."""
    total = 64 << 20
    go = threading.Event()
    digest = hashlib.sha256(b"x" * total).hexdigest()

    def program(peer: Peer) -> None:
        go.wait(harness.PATIENCE)
        peer.head()
        received = hashlib.sha256(peer.buffer)
        left = total - len(peer.buffer)
        while left:
            data = peer.sock.recv(min(left, 1 << 20))
            received.update(data)
            left -= len(data)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 + total) + received.hexdigest().encode())
        peer.send(b"y" * total)

    http = serving(program)
    before = http.resident()
    peer = http.connect(receive_buffer=65536)
    sender = threading.Thread(
        target=peer.send, args=(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % total + b"x" * total,))
    sender.start()
    time.sleep(0.5)
    assert sender.is_alive(), "it is held back"
    assert http.resident() - before < 4 << 20
    go.set()
    sender.join(harness.PATIENCE)
    assert peer.head() and peer.exactly(64).decode() == digest
    time.sleep(0.3)
    assert http.resident() - before < 4 << 20
    left = total - len(peer.buffer)
    while left:
        left -= len(peer.sock.recv(min(left, 1 << 20)))
    assert http.record()["bytes_out"] > total
    assert http.resident() - before < 4 << 20


def test_many_connections_and_nothing_left(serving) -> None:
    http = serving(echo, "threads=2")
    for _ in range(4):  # each thread opens what it needs
        http.connect().send(GET).reply()
    time.sleep(0.1)
    before = http.descriptors()
    peers = [http.connect() for _ in range(200)]
    for peer in peers:
        peer.send(GET)
    for number, peer in enumerate(peers):
        assert peer.reply().status == 200
        peer.close() if number % 2 else peer.reset()
    harness.wait_until(lambda: http.descriptors() <= before, "the descriptors are closed")


def test_drain(serving) -> None:
    go = threading.Event()

    def program(peer: Peer) -> None:
        if b"/wait" in peer.head():
            go.wait(harness.PATIENCE)
        peer.send(OK)

    http = serving(program, "threads=2")
    idle, fresh, busy = http.connect(), http.connect(), http.connect()
    assert idle.send(GET).reply().status == 200
    busy.send(GET.replace(b"/ ", b"/wait ") + GET)
    harness.wait_until(lambda: len(http.records) == 1, "one is done")
    time.sleep(0.2)
    http.popen.send_signal(signal.SIGTERM)
    assert idle.at_end() and fresh.at_end()
    with pytest.raises(ConnectionRefusedError):
        http.connect()
    go.set()
    reply = busy.reply()
    assert reply.body == b"ok" and reply.closes and busy.at_end()
    http.wait()
    assert http.drained() == {"drained": True, "connections": 3, "requests": 2, "in_flight": 0}


def test_drain_answers_who_has_just_connected(serving) -> None:
    """A server that another one replaces on the same socket must not drop those that it has accepted."""
    http = serving(echo)
    fresh, silent = http.connect(), http.connect()
    assert http.connect().send(GET).reply().status == 200  # it was accepted last
    http.popen.send_signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            http.connect().sock.close()
        except (ConnectionRefusedError, ConnectionResetError):
            return True
        return False

    harness.wait_until(refused, "nobody is accepted any more")
    reply = fresh.send(GET).reply()
    assert reply.status == 200 and reply.closes and fresh.at_end()
    assert silent.at_end()  # it does not hold up the end
    http.wait()
    assert http.drained()["drained"] is True


def test_drain_answers_who_waits_to_be_accepted(serving) -> None:
    http = serving(echo)
    assert http.connect().send(GET).reply().status == 200
    http.popen.send_signal(signal.SIGSTOP)
    peers = [http.connect().send(GET) for _ in range(200)]  # more than are accepted at once
    http.popen.send_signal(signal.SIGTERM)
    http.popen.send_signal(signal.SIGCONT)
    replies = [peer.reply() for peer in peers]
    assert [reply.status for reply in replies] == [200] * len(peers) and all(reply.closes for reply in replies)
    http.wait()
    assert http.drained() == {"drained": True, "connections": 201, "requests": 201, "in_flight": 0}


def test_ends_with_requests_in_flight(serving) -> None:
    http = serving(lambda peer: (peer.head(), peer.to_end()))
    peers = [http.connect().send(GET) for _ in range(5)] + [http.connect().send(GET.replace(b"/ ", b"/-/never "))]
    time.sleep(0.3)
    assert http.drained()["drained"] is False
    for peer in peers:
        with pytest.raises((EOFError, ConnectionResetError)):
            peer.reply()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    def made(name: str):
        folder = tmp_path_factory.mktemp(name)
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
                 folder / "cert.pem"]
        subprocess.run(words, check=True, capture_output=True, timeout=harness.PATIENCE)
        return folder

    return made


def client_of(*folders) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for folder in folders:
        context.load_verify_locations(folder / "cert.pem")
    return context


def test_tls(serving, certificate, tmp_path) -> None:
    folder, other = certificate("one"), certificate("two")
    used = tmp_path / "cert.pem", tmp_path / "key.pem"

    def use(source) -> None:
        for path in used:
            path.write_bytes((source / path.name).read_bytes())

    use(folder)
    http = serving(echo, f"cert={used[0]}", f"key={used[1]}", "threads=2", "forwarded", "header=1000")
    context = client_of(folder)
    context.set_alpn_protocols(["h2", "http/1.1"])
    peer = http.connect_tls(context)
    assert peer.sock.selected_alpn_protocol() == "http/1.1"
    for _ in range(3):
        assert b"X-Forwarded-Proto: https" in peer.send(GET).reply().body
    large = b"z" * 5_000_000
    peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(large) + large)
    assert peer.reply().body.endswith(large)
    assert peer.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").reply().status == 400
    assert peer.to_end() == b"", "with close_notify, else ssl raises"

    silent = socket.create_connection(("127.0.0.1", http.tls_port))
    silent.settimeout(harness.PATIENCE)
    plain = socket.create_connection(("127.0.0.1", http.tls_port))
    plain.sendall(GET)
    assert Peer(plain).at_end() or True  # an alert, perhaps
    assert silent.recv(10) == b"", "no handshake: closed after the header timeout"

    kept = http.connect_tls(client_of(folder))
    use(other)
    http.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: '"reloaded": true' in http.out, "reloaded")
    assert http.connect_tls(client_of(other)).send(GET).reply().status == 200
    assert kept.send(GET).reply().status == 200
    used[1].write_bytes((folder / "key.pem").read_bytes())
    http.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: '"reloaded": false' in http.out, "refused")
    assert str(used[1]) in http.out
    assert http.connect_tls(client_of(other)).send(GET).reply().status == 200


def test_tls_cut_off_and_tunnel(serving, certificate) -> None:
    folder = certificate("one")

    def program(peer: Peer) -> None:
        if b"/ws" in (line := peer.until(b"\r\n")):
            answer(peer, SWITCHED + b"welcome")
            peer.send(peer.exactly(4))
        elif b"/vanish" in line:
            peer.head(), peer.to_end()
        else:
            answer(peer, CUT_OFF)

    http = serving(program, f"cert={folder / 'cert.pem'}", f"key={folder / 'key.pem'}")
    peer = http.connect_tls(client_of(folder)).send(GET)
    with pytest.raises((ssl.SSLEOFError, ConnectionResetError, EOFError)):
        peer.reply()
    tunnel = http.connect_tls(client_of(folder)).send(UPGRADE)
    tunnel.head()
    assert tunnel.exactly(7) == b"welcome" and tunnel.send(b"ping").exactly(4) == b"ping"
    assert tunnel.to_end() == b""
    done = http.backend.ended
    http.connect_tls(client_of(folder)).send(GET.replace(b"/ ", b"/vanish ")).close()
    harness.wait_until(lambda: http.backend.ended > done, "the program's connection is closed at once")
