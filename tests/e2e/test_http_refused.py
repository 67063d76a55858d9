"""The HTTP front alone: requests and replies that are malformed, too large or cut off. front.py has the tools."""
import time

import pytest
from front import CUT_OFF, GET, OK, SWITCHED, Peer, answer, echo

pytestmark = [pytest.mark.bare]

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
    "length": CUT_OFF,
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
