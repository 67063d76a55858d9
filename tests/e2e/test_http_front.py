"""The HTTP front alone: what clients and programs see, and the upstream between them. front.py has the tools."""
import re
import socket
import threading
import time

import front
import harness
import pytest
from front import GET, OK, SWITCHED, UPGRADE, Peer, answer, echo

pytestmark = [pytest.mark.bare]

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
        done.wait(3 * harness.PATIENCE)  # the reply is complete by its framing, not when the connection closes

    done = threading.Event()
    http = serving(program)
    peer = http.connect()
    assert peer.send(GET.replace(b"GET", b"HEAD")).reply("HEAD").header("content-length") == b"1000"
    no_content = peer.send(GET.replace(b"/ ", b"/204 ")).reply()
    assert no_content.status == 204 and no_content.header("content-length") == b""
    assert peer.send(GET).reply().status == 304
    done.set()


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
    found = re.search(rb"\r\ntraceparent: 00-[0-9a-f]{32}-[0-9a-f]{16}-01\r\n", body)
    assert found and http.record()["trace"] == found[0].split()[1].decode()
    assert b"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n" in body
    for flags, passed_on in ((b"00", True), (b"01", False)):
        mine = b"traceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-" + flags
        given = http.connect().send(GET[:-2] + mine + b"\r\n\r\n").reply().body
        assert given.count(b"traceparent: 00-" + b"a" * 32) == given.count(b"traceparent") == 1 and (mine in given) == passed_on
    assert b"mine" not in http.connect().send(GET[:-2] + b"traceparent: mine\r\n\r\n").reply().body
