"""Many and slow clients: what they get, and that others are served meanwhile."""
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import threading

import front
import harness
import pytest
from front import GET, OK, UPGRADE, Peer
from serving import Daemon

CLONE_NEWNET = 0x40000000
ADDRESSES = ["fd00:1::1/64", "fd00:1::2/64", "fd00:2::1/64"]


@contextlib.contextmanager
def own_network():
    """This thread, and what it starts, in a network of its own with some addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for address in ADDRESSES:
                subprocess.run(["ip", "addr", "add", address, "dev", "lo", "nodad"], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0


@pytest.fixture
def network():
    with own_network():
        yield


def connect(port: int, source: str = "127.0.0.1", to: str = "127.0.0.1") -> Peer:
    return Peer(socket.create_connection((to, port), harness.PATIENCE, source_address=(source, 0)))


def answered(handle):
    def serve(peer: Peer) -> None:
        peer.head()
        handle(peer)

    return serve


def refusals(process) -> list[str]:
    lines = [json.loads(line) for line in process.out.splitlines() if line.startswith("{")]
    return [line["refused"] for line in lines if "refused" in line]


def test_a_client_with_too_many_connections(serving) -> None:
    server = serving(answered(lambda peer: peer.send(OK)), "per-client=2")
    first, second = connect(server.port), connect(server.port)
    for peer in (first, second):
        assert peer.send(GET).reply().body == b"ok"
    third = connect(server.port)
    reply = third.reply()
    assert reply.status == 503 and reply.problem["code"] == "too-many-of-client" and reply.header("retry-after") == b"1"
    assert third.at_end()
    assert refusals(server) == ["too-many-of-client"]
    assert first.send(GET).reply().body == b"ok"
    first.close()

    def again() -> bool:
        with contextlib.closing(connect(server.port)) as peer:
            with contextlib.suppress(OSError):
                peer.send(GET)
            return peer.reply().status == 200

    harness.wait_until(again, "the place of one that has gone is free")


def test_clients_are_told_apart_by_address(network, serving) -> None:
    server = serving(answered(lambda peer: peer.send(OK)), "per-client=2", "any-address")
    kept = [connect(server.port, source) for source in ("127.0.0.2", "127.0.0.2")]
    assert connect(server.port, "127.0.0.2").reply().status == 503
    assert connect(server.port, "127.0.0.3").send(GET).reply().status == 200
    kept += [connect(server.port, source, "fd00:1::1") for source in ("fd00:1::1", "fd00:1::2")]
    assert connect(server.port, "fd00:1::2", "fd00:1::1").reply().status == 503, "one subscriber has all of a /64"
    assert connect(server.port, "fd00:2::1", "fd00:1::1").send(GET).reply().status == 200
    assert kept[0].send(GET).reply().status == 200


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost:", GET], ids=["nothing", "half a head", "a request"])
def test_a_client_that_takes_all_places_keeps_nobody_out(network, serving, said: bytes) -> None:
    server = serving(answered(lambda peer: peer.send(OK)), "max-connections=20")
    many = [connect(server.port, "127.0.0.2") for _ in range(20)]
    for peer in many:
        peer.send(said)
        if said == GET:
            assert peer.reply().status == 200
    for number in range(8):
        other = connect(server.port, "127.0.0.3")
        assert other.send(GET).reply().body == b"ok", number
        many.append(other)
    assert refusals(server) == ["gave-way"] * 8
    ended = [peer.at_end() for peer in many[:8]]
    assert all(ended), "those that had waited for longest"
    if said == GET:
        assert many[19].send(GET).reply().status == 200


def test_requests_do_not_give_way(serving) -> None:
    began, end = [], threading.Event()

    def program(peer: Peer) -> None:
        peer.head()
        began.append(peer)
        end.wait(harness.PATIENCE)
        peer.send(OK)

    server = serving(program, "max-connections=3")
    busy = [connect(server.port).send(GET) for _ in range(3)]
    harness.wait_until(lambda: len(began) == 3, "each has a request")
    assert connect(server.port).reply().problem["code"] == "too-many-connections"
    end.set()
    assert [peer.reply().body for peer in busy] == [b"ok"] * 3
    assert refusals(server) == ["too-many-connections"]


RATE = ("min-rate=2000", "rate-window=300")


def test_a_client_that_takes_its_reply_too_slowly(serving) -> None:
    body = b"x" * (16 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = serving(answered(lambda peer: peer.send(head + body)), *RATE)
    with contextlib.closing(connect(server.port)) as peer:
        peer.send(GET).head()
        harness.wait_until(lambda: server.records, "it is given up")
        assert server.records[0]["outcome"] == "client_slow"
        with pytest.raises(ConnectionResetError):
            peer.to_end()


def test_a_client_that_takes_its_reply_slowly_enough(serving) -> None:
    """Though no write of the front ends for longer than the window: the kernel has bytes that go out meanwhile."""
    body = b"x" * (6 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = serving(answered(lambda peer: peer.send(head + body)), *RATE)
    with contextlib.closing(connect(server.port)) as peer:
        peer.send(GET).head()
        taken = 0
        pause, other_end = socket.socketpair()  # nothing ever comes there
        pause.settimeout(0.02)
        while taken < 2 << 20:
            taken += len(peer.sock.recv(16384))
            with pytest.raises(TimeoutError):
                pause.recv(1)
        assert server.records == []
        other_end.close()
        pause.close()
        while taken + len(peer.buffer) < len(body):
            taken += len(peer.sock.recv(1 << 20))
        harness.wait_until(lambda: server.records, "it is complete")
        assert server.records[0]["outcome"] == "ok"


def test_a_body_that_drips(serving) -> None:
    def program(peer: Peer) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                peer.more()

    server = serving(program, *RATE)
    with contextlib.closing(connect(server.port)) as peer:
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        peer.sock.settimeout(0.02)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while True:
                peer.send(b"x")
                with contextlib.suppress(TimeoutError):
                    peer.more()
                    break
        peer.sock.settimeout(harness.PATIENCE)
        assert peer.reply().problem["code"] == "client-too-slow"
    harness.wait_until(lambda: server.records, "it is over")
    assert server.records[0]["outcome"] == "client_slow" and server.records[0]["status"] == 408


def test_a_tunnel_may_be_slow(serving) -> None:
    def program(peer: Peer) -> None:
        peer.head()
        peer.send(front.SWITCHED)
        while True:
            peer.send(peer.exactly(1))

    server = serving(program, *RATE)
    with contextlib.closing(connect(server.port)) as peer:
        peer.send(UPGRADE)
        assert peer.reply().status == 101
        peer.sock.settimeout(0.8)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                peer.more()
        peer.sock.settimeout(harness.PATIENCE)
        assert peer.send(b"y").exactly(1) == b"y"


def test_who_never_says_anything(serving) -> None:
    server = serving(answered(lambda peer: peer.send(OK)), "idle=200")
    with contextlib.closing(connect(server.port)) as silent, contextlib.closing(connect(server.port)) as idle:
        assert idle.send(GET).reply().status == 200
        assert silent.at_end() and idle.at_end()
    assert refusals(server) == ["silent"]


def metric(daemon: Daemon, reason: str) -> int:
    import admin

    connection = admin.UnixConnection(daemon.store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    rows = [line for line in text.splitlines() if line.startswith("kvmserver_rejected_total") and f'reason="{reason}"' in line]
    return sum(int(row.split()[-1]) for row in rows)


def test_the_daemon(network, serve, store, snapshots, program) -> None:
    """A flood at the public address and at the API's: the socket answers, and clients of other addresses are served."""
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    port = harness.free_port()
    daemon = serve("--max-connections", "40", "--max-connections-per-client", "30", "--admin", f"127.0.0.1:{port}")
    flood = [connect(daemon.port, "127.0.0.2") for _ in range(35)]
    assert flood[-1].reply().problem["code"] == "too-many-of-client"
    flood += [connect(daemon.port, "127.0.0.4") for _ in range(20)]
    flood += [connect(port, "127.0.0.2") for _ in range(300)]
    assert [daemon.ask("hello").status for _ in range(5)] == [200] * 5
    assert metric(daemon, "too-many-of-client") == 5
    assert metric(daemon, "gave-way") > 0
    assert store.ok("list").startswith("hello")
    for peer in flood:
        peer.close()
