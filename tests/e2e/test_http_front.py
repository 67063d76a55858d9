"""The HTTP front alone: what clients and programs see, and what is refused. front.py has the tools."""
import contextlib
import hashlib
import json
import signal
import socket
import ssl
import subprocess
import threading
import time

import front
import harness
import pytest
from front import Peer

pytestmark = [pytest.mark.bare]

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(peer: Peer, reply: bytes = OK) -> None:
    """A program that looks at the head alone."""
    peer.head()
    peer.send(reply)


def echo(peer: Peer) -> None:
    """A program that replies with the head and the raw body that it was sent."""
    head = peer.head()
    length = front.re.search(rb"(?i)content-length: (\d+)", head)
    if b"chunked" in head:
        head += peer.raw_chunks()
    elif length:
        head += peer.exactly(int(length[1]))
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)


@pytest.fixture
def serving():
    """serving(handle, *options): a Front before a Backend; the front must still run at the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(handle, *options: str) -> front.Front:
            backend = front.Backend(handle)
            started = front.Front(backend.port, *options)
            started.backend = backend
            stack.callback(started.close)
            stack.callback(backend.close)
            stack.callback(lambda: running(started))
            return started

        yield start


def running(started: front.Front) -> None:
    if not started.popen.returncode == 0:
        assert started.running(), f"the front ended: {started.popen.returncode} {started.err}"


# What programs and clients see


def test_the_program_sees_the_clients_bytes(serving) -> None:
    http = serving(echo)
    sent = b"gEt /x?y=%20z HTTP/1.1\r\nhOST:  a \r\nX-b:1\r\ntraceparent: 00-1-2-01\r\nConnection: keep-alive\r\nx-B: 2\r\n\r\n"
    peer = http.connect().send(sent)
    assert peer.reply().body == sent.replace(b"Connection: keep-alive", b"Connection: close")
    record = http.record()
    assert record["method"] == "gEt" and record["status"] == 200 and record["outcome"] == "ok"
    assert record["bytes_in"] == len(sent) and record["ip"] == "127.0.0.1" and record["trace"] == "00-1-2-01"
    assert record["total_us"] >= record["exec_us"] > 0


def test_keep_alive_and_a_connection_to_the_program_each(serving) -> None:
    seen = []

    def program(peer: Peer) -> None:
        seen.append(peer.head())
        peer.send(OK)
        assert peer.at_end(), "one request a connection"

    http = serving(program)
    peer = http.connect()
    for _ in range(50):
        reply = peer.send(GET).reply()
        assert reply.body == b"ok" and reply.header("connection") == b""
    assert len(seen) == 50
    assert peer.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).reply().closes
    assert peer.at_end()


def test_pipelining(serving) -> None:
    http = serving(echo)
    count = 300
    requests = [b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n%04d" % (i, i) for i in range(count)]
    peer = http.connect().send(b"".join(requests))
    for i in range(count):
        body = peer.reply().body
        assert body.startswith(b"POST /%d " % i) and body.endswith(b"%04d" % i)


def test_every_split(serving) -> None:
    http = serving(echo, "threads=2")
    request = b"POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n"
    expected = request.replace(b"chunked\r\n\r\n", b"chunked\r\nConnection: close\r\n\r\n", 1)
    peer = http.connect()
    peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(1, len(request)):
        peer.send(request[:at])
        time.sleep(0.003)
        assert peer.send(request[at:]).reply().body == expected
    slow = http.connect()
    front.slowly(slow, request)
    assert slow.reply().body == expected


def test_an_empty_line_between_requests_is_skipped(serving) -> None:
    http = serving(echo)
    peer = http.connect().send(b"\r\n" + GET + b"\r\n" + GET)
    assert peer.reply().status == peer.reply().status == 200


def test_chunked_both_ways_with_trailers(serving) -> None:
    chunks = b"5;a=b\r\nhello\r\n0006\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"

    def program(peer: Peer) -> None:
        peer.head()
        raw = peer.raw_chunks()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + raw + b"beyond the end")

    http = serving(program)
    peer = http.connect()
    for _ in range(3):
        reply = peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).reply()
        assert reply.raw == chunks and reply.body == b"hello world"


def test_a_reply_until_close_becomes_chunks(serving) -> None:
    def program(peer: Peer) -> None:
        peer.head()
        for part in (b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\none", b" two", b" three"):
            peer.send(part)
            time.sleep(0.02)

    http = serving(program)
    peer = http.connect()
    for _ in range(2):
        reply = peer.send(GET).reply()
        assert reply.body == b"one two three" and reply.header("transfer-encoding") == b"chunked"
    old = http.connect().send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    reply = old.reply()
    assert reply.body == b"one two three" and reply.closes and not reply.header("transfer-encoding")


def test_http_1_0(serving) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: u\r\n\r\n"

    def program(peer: Peer) -> None:
        answer(peer, chunked if b"/chunked" in peer.until(b"\r\n") else OK)

    http = serving(program)
    peer = http.connect().send(b"GET / HTTP/1.0\r\n\r\n")
    assert peer.reply().closes and peer.at_end()
    peer = http.connect()
    for _ in range(3):
        assert peer.send(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").reply().header("connection") == b"keep-alive"
    reply = peer.send(b"GET /chunked HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").reply()
    assert reply.body == b"abcde" and reply.closes and peer.at_end()


def test_replies_without_a_body(serving) -> None:
    def program(peer: Peer) -> None:
        line = peer.until(b"\r\n")
        peer.head()
        if line.startswith(b"HEAD"):
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        elif b"/204" in line:
            peer.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc")
        else:
            peer.send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nTransfer-Encoding: chunked\r\n\r\n".replace(
                b"Transfer-Encoding: chunked\r\n", b""))
        time.sleep(0.2)  # the reply is complete by its framing, not when the connection closes

    http = serving(program)
    peer = http.connect()
    begun = time.monotonic()
    assert peer.send(GET.replace(b"GET", b"HEAD")).reply("HEAD").header("content-length") == b"1000"
    no_content = peer.send(GET.replace(b"/ ", b"/204 ")).reply()
    assert no_content.status == 204 and no_content.header("content-length") == b""
    assert peer.send(GET).reply().status == 304
    assert time.monotonic() - begun < 0.5 * harness.SLOWNESS


def test_100_continue_and_other_interim_replies(serving) -> None:
    def program(peer: Peer) -> None:
        head = peer.head()
        assert b"Expect: 100-continue" in head
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = peer.exactly(5)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)

    http = serving(program)
    peer = http.connect()
    for body in (b"hello", b"again"):
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert peer.reply().header("link") == b"</a>"
        assert peer.reply().status == 100
        assert peer.send(body).reply().body == body


def test_a_refused_expectation_closes(serving) -> None:
    http = serving(lambda peer: answer(peer, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"))
    peer = http.connect().send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    reply = peer.reply()
    assert reply.status == 417 and reply.closes and peer.at_end()


def test_early_reply_with_a_body_still_coming(serving) -> None:
    http = serving(answer)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n"
    peer = http.connect().send(head)
    assert peer.reply().body == b"ok"
    peer.send(b"x" * 30000)  # small: thrown away, the connection lives
    assert peer.send(GET).reply().body == b"ok"
    large = http.connect().send(head.replace(b"30000", b"99999999"))
    assert large.reply().body == b"ok"
    assert large.at_end()


def test_replies_while_the_body_is_sent(serving) -> None:
    def program(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            peer.send(b"4\r\n" + peer.exactly(4) + b"\r\n")
        peer.send(b"0\r\n\r\n")

    http = serving(program)
    peer = http.connect()
    for _ in range(2):
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 80\r\n\r\n")
        assert peer.head()
        for i in range(20):
            assert peer.send(b"%04d" % i).exactly(9) == b"4\r\n%04d\r\n" % i
        assert peer.exactly(5) == b"0\r\n\r\n"


UPGRADE = (b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def tunnel_echo(peer: Peer) -> None:
    head = peer.head()
    assert b"\r\nConnection: Upgrade\r\n" in head and b"Sec-WebSocket-Key" in head
    peer.send(SWITCHED + b"welcome")
    while data := peer.buffer or peer.sock.recv(65536):
        peer.buffer = b""
        peer.send(data)
    peer.send(b"bye")


def test_upgrade_is_a_tunnel(serving) -> None:
    http = serving(tunnel_echo, "progress=1500")
    peer = http.connect().send(UPGRADE + b"early")
    assert peer.head() == SWITCHED
    assert peer.exactly(12) == b"welcomeearly"
    for size in (1, 100, 70000):
        data = bytes(range(256)) * (size // 256 + 1)
        threading.Thread(target=peer.send, args=(data,)).start()
        assert peer.exactly(len(data)) == data
    time.sleep(2)  # silence is allowed
    assert peer.send(b"still").exactly(5) == b"still"
    peer.half_close()  # passed on to the program, which still says something
    assert peer.to_end() == b"bye"
    assert http.record()["status"] == 101 and http.record()["outcome"] == "ok"


def test_the_program_ends_the_tunnel(serving) -> None:
    def program(peer: Peer) -> None:
        answer(peer, SWITCHED + b"bye")
        peer.half_close()
        peer.to_end()

    http = serving(program)
    peer = http.connect().send(UPGRADE)
    peer.head()
    assert peer.to_end() == b"bye"
    peer.close()
    assert http.record()["outcome"] == "ok"
    harness.wait_until(lambda: http.backend.ended == 1, "the program sees the end")


def test_a_tunnel_whose_client_is_reset(serving) -> None:
    http = serving(tunnel_echo)
    peer = http.connect().send(UPGRADE)
    peer.head(), peer.exactly(7), peer.reset()
    assert http.record()["outcome"] == "client_gone"
    harness.wait_until(lambda: http.backend.ended == 1, "the program's connection is closed")


def test_a_refused_upgrade_is_a_reply_like_others(serving) -> None:
    http = serving(answer)
    peer = http.connect()
    assert peer.send(UPGRADE).reply().body == b"ok"
    assert peer.send(GET).reply().body == b"ok"


# What is refused

REFUSED = {
    "bare-lf": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "bare-lf-in-header": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 30\r\n\r\n"),
    "bare-cr": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ: a\r\n\r\n"),
    "obs-fold": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n"),
    "folded-te": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    "double-host": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "no-host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "bad-host": (400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "absolute-host": (400, b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "cl-te": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"),
    "te-cl": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nA\r\n0\r\n\r\n"),
    "te-te": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\n\r\n0\r\n\r\n"),
    "te-space": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    "te-vt": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "te-unknown": (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "te-list": (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "te-1.0": (400, b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "cl-cl": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    "cl-list": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello"),
    "cl-plus": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello"),
    "cl-overflow": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello"),
    "nul": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"),
    "name": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX Y: z\r\n\r\n"),
    "method": (400, b"G{T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "spaces": (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "0.9": (400, b"GET /\r\n\r\n"),
    "garbage": (400, b"\x16\x03\x01\x02\x00\x01\x00"),
    "connect": (501, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    "2.0": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "1.2": (505, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    "target": (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "huge-header": (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70000 + b"\r\n\r\n"),
    "many-headers": (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 300 + b"\r\n"),
    "chunk-size": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n"),
    "chunk-overflow": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n"),
    "chunk-lf": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"),
    "chunk-long": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"),
    "chunk-extension": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 5000 + b"\r\n"),
    "trailer": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n"),
}


@pytest.mark.parametrize("before", [b"", GET], ids=["first", "second"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_closed(serving, name: str, before: bytes) -> None:
    status, request = REFUSED[name]

    def program(peer: Peer) -> None:
        if b"chunked" in peer.head():
            peer.raw_chunks()
        peer.send(OK)

    http = serving(program)
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    peer = http.connect().send(before + request + smuggled)
    if before:
        assert peer.reply().body == b"ok"
    reply = peer.reply()
    assert reply.status == status and reply.closes
    assert reply.problem["code"]
    assert peer.at_end(), "nothing after a refusal is served"
    assert http.record(1 if before else 0)["outcome"] == "refused"
    assert http.connect().send(GET).reply().body == b"ok"


def test_head_of_the_largest_size_is_served(serving) -> None:
    http = serving(echo)
    request = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    request += b"a" * (65536 - len(request) - 4) + b"\r\n\r\n"
    assert http.connect().send(request).reply().status == 200


def test_body_limit(serving) -> None:
    http = serving(echo, "max-body=1000")
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    peer = http.connect()
    assert peer.send(post % 1000 + b"x" * 1000).reply().status == 200
    reply = peer.send(post % 1001 + b"x" * 1001).reply()
    assert reply.status == 413 and reply.problem["code"] == "body-too-large" and peer.at_end()
    peer = http.connect().send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        peer.send(b"190\r\n" + b"x" * 400 + b"\r\n")
        time.sleep(0.05)
    assert peer.reply().status == 413 and peer.at_end()


BAD_REPLIES = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "no http": b"hello\r\n\r\n",
    "bare lf": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "fold": b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "cl and te": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "te": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "huge": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000,
    "unasked upgrade": SWITCHED,
    "interims": b"HTTP/1.1 102 Processing\r\n\r\n" * 10 + b"x",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    "status": b"HTTP/1.1 999 OK\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_malformed_reply_is_502(serving, name: str) -> None:
    http = serving(lambda peer: answer(peer, BAD_REPLIES[name]))
    peer = http.connect().send(GET)
    reply = peer.reply()
    while reply.status == 102:
        reply = peer.reply()
    assert reply.status == 502 and reply.problem["code"] in ("bad-reply", "no-reply")
    if name == "chunk":
        return  # a reply to HEAD has no body
    assert peer.send(GET.replace(b"GET", b"HEAD")).head().startswith((b"HTTP/1.1 502", b"HTTP/1.1 102"))
    assert http.record()["outcome"] == "program_failed"


CUT = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n|z",
}


@pytest.mark.parametrize("name", CUT)
def test_a_reply_cut_off_is_seen_to_be(serving, name: str) -> None:
    def program(peer: Peer) -> None:
        head, *rest = CUT[name].split(b"|")
        answer(peer, head)
        time.sleep(0.1)
        peer.send(b"".join(rest))

    http = serving(program)
    peer = http.connect().send(GET)
    assert peer.head().startswith(b"HTTP/1.1 200")
    with pytest.raises((EOFError, ConnectionResetError)):
        Peer.raw_chunks(peer) if name != "length" else peer.exactly(100)
    assert http.record()["outcome"] == "program_failed"


def test_a_killed_machine_until_close(serving) -> None:
    def program(peer: Peer) -> None:
        if b"/-/killed" in peer.until(b"\r\n"):
            answer(peer, b"HTTP/1.1 200 OK\r\n\r\nhalf")
            time.sleep(0.1)

    http = serving(program)
    peer = http.connect().send(GET.replace(b"/ ", b"/-/killed "))
    peer.head()
    assert peer.exactly(9) == b"4\r\nhalf\r\n"
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.exactly(5)
    old = http.connect().send(b"GET /-/killed HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        old.reply()


def test_a_killed_machine_says_why(serving) -> None:
    http = serving(lambda peer: None)
    reply = http.connect().send(GET.replace(b"/ ", b"/-/killed ")).reply()
    assert reply.status == 504 and reply.problem["code"] == "time-limit" and reply.problem["hint"]


# Upstream


def test_upstream_refuses(serving) -> None:
    http = serving(answer)
    peer = http.connect().send(GET.replace(b"/ ", b"/-/refuse "))
    reply = peer.reply()
    assert reply.status == 503 and reply.header("retry-after") == b"7" and not reply.closes
    assert reply.problem["code"] == "no-machine" and reply.problem["request_id"] == http.record()["id"]
    assert peer.send(GET).reply().body == b"ok"
    post = b"POST /-/refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    assert peer.send(post).reply().status == 503
    assert peer.send(GET).reply().body == b"ok"
    assert peer.send(post[:-1]).reply().closes


def test_upstream_answers_late(serving) -> None:
    http = serving(answer, "threads=2")
    for _ in range(3):
        assert http.connect().send(GET.replace(b"/ ", b"/-/slow ")).reply().body == b"ok"
    assert all(record["queue_us"] > 190_000 for record in http.records)


def test_upstream_never_answers(serving) -> None:
    http = serving(answer, "connect=300")
    peer = http.connect().send(GET.replace(b"/ ", b"/-/never "))
    reply = peer.reply()
    assert reply.status == 503 and reply.problem["code"] == "queue-timeout" and reply.header("retry-after")
    assert http.out.count("abandoned") == 1
    http.connect().send(GET.replace(b"/ ", b"/-/never ")).close()
    harness.wait_until(lambda: http.out.count("abandoned") == 2, "the upstream hears that the client is gone")


def test_backend_that_does_not_listen(serving) -> None:
    http = serving(answer)
    http.backend.listener.shutdown(socket.SHUT_RDWR)
    assert http.connect().send(GET).reply().status == 502


def test_extras(serving) -> None:
    http = serving(echo, "trace", "forwarded")
    body = http.connect().send(GET).reply().body
    found = front.re.search(rb"\r\ntraceparent: 00-[0-9a-f]{32}-[0-9a-f]{16}-01\r\n", body)
    assert found and http.record()["trace"] == found[0].split()[1].decode()
    assert b"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n" in body
    given = http.connect().send(GET[:-2] + b"traceparent: mine\r\n\r\n").reply().body
    assert given.count(b"traceparent") == 1 and b"traceparent: mine" in given


# Slow, absent and vanishing peers


def test_timeouts_of_clients(serving) -> None:
    http = serving(echo, "header=400", "idle=800", "progress=500")
    begun = time.monotonic()
    silent, late = http.connect(), http.connect().send(b"GET / HTTP/1.1\r\nHo")
    drip = http.connect().send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
    reply = late.reply()
    assert reply.status == 408 and reply.problem["code"] == "header-timeout" and late.at_end()
    assert drip.reply().problem["code"] == "body-timeout" and drip.at_end()
    assert silent.at_end()
    assert 0.7 < time.monotonic() - begun < 3 * harness.SLOWNESS
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
@pytest.mark.parametrize("when", ["waiting", "uploading", "receiving", "pipelined"])
def test_a_client_that_vanishes(serving, how: str, when: str) -> None:
    seen = threading.Event()

    def program(peer: Peer) -> None:
        peer.head()
        if when == "receiving":
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        seen.set()
        peer.to_end()

    http = serving(program)
    peer = http.connect()
    if when == "uploading":
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello")
    else:
        peer.send(GET + (GET * 2000 if when == "pipelined" and how == "reset" else b""))
    assert seen.wait(harness.PATIENCE)
    if when == "receiving":
        peer.until(b"some")
    peer.close() if how == "close" else peer.reset()
    harness.wait_until(lambda: http.backend.ended == 1, "the program's connection is closed at once")
    assert http.record()["outcome"] == "client_gone"


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
    assert http.resident() - before < 2 << 20
    go.set()
    sender.join(harness.PATIENCE)
    assert peer.head() and peer.exactly(64).decode() == digest
    time.sleep(0.3)
    assert http.resident() - before < 2 << 20
    left = total - len(peer.buffer)
    while left:
        left -= len(peer.sock.recv(min(left, 1 << 20)))
    assert http.record()["bytes_out"] > total
    assert http.resident() - before < 2 << 20


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


# The front's own life


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
            answer(peer, CUT["length"])

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
