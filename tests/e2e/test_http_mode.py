"""--http: clients' connections stay open, every request gets a clean machine."""
import concurrent.futures
import json
import pathlib
import signal
import socket
import struct

import harness
import pytest
from harness import RUN_E, SNAPRUN_E, SNAPRUN_E2

SOME = ["c-epoll", "rust-tokio-multi", "go-http", "python-http", "node-http", "deno-serve"]


@pytest.mark.emulated
@pytest.mark.parametrize("name", SOME)
def test_every_request_of_a_connection_gets_a_clean_machine(start, program, name: str) -> None:
    server = start(program(name), SNAPRUN_E, "--http", "--check-reset")
    with server.client() as client:
        for _ in range(10):
            assert client.ask("/count") == b"1\n"
        client.send(b"".join(harness.request("/count") for _ in range(5)))  # pipelined
        assert [client.reply() for _ in range(5)] == [b"1\n"] * 5
        assert client.ask("/echo", b"x" * 100_000) == b"x" * 100_000
        assert client.ask("/bytes/1000000") == harness.letters(1_000_000)
    assert server.stop().status == 0


def test_run_with_http(start, program) -> None:
    server = start(program("c-epoll"), RUN_E, "--http")
    with server.client() as client:
        assert [client.ask("/count") for _ in range(3)] == [b"1\n"] * 3


def test_large_bodies_both_ways(start, program) -> None:
    server = start(program("node-http"), SNAPRUN_E, "--http")
    with server.client() as client:
        body = harness.letters(10_000_000)
        assert client.ask("/echo", body) == body
        assert client.ask("/bytes/10000000") == body


def test_many_clients_share_two_machines(start, program) -> None:
    server = start(program("python-http"), SNAPRUN_E2, "--http", "--check-reset")

    def counts(_: int) -> list[bytes]:
        with server.client() as client:
            return [client.ask("/count") for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(counts == [b"1\n"] * 20 for counts in pool.map(counts, range(16)))
    assert server.stop().status == 0


def problem(client: harness.Client, path: str, status: int) -> dict:
    client.send(harness.request(path))
    got, headers = client.head()
    assert got == status and headers["content-type"] == "application/problem+json"
    document = json.loads(client.reader.read(int(headers["content-length"])))
    assert document["status"] == status and document["request_id"]
    return document


def test_a_crash_and_an_endless_loop_are_problems(start, program) -> None:
    server = start(program("c-epoll"), SNAPRUN_E, "--http", "--max-request-time", "1")
    with server.client() as client:
        assert problem(client, "/crash", 502)["code"] == "program-failed"
    with server.client() as client:
        document = problem(client, "/spin", 504)
        assert document["code"] == "request-timeout" and "--max-request-time" in document["hint"]
    with server.client() as client:
        assert client.ask("/count") == b"1\n"


def test_a_stop_lets_requests_in_flight_end(start, program) -> None:
    server = start(program("node-http"), SNAPRUN_E, "--http")

    def refused() -> bool:
        try:
            server.client().socket.close()
        except (ConnectionRefusedError, ConnectionResetError):  # reset: it closes at this moment
            return True
        return False

    with server.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.head()[0] == 100  # a machine has it
        server.popen.send_signal(signal.SIGTERM)
        harness.wait_until(refused, "new clients are refused")
        client.send(b"abcd")
        assert client.reply() == b"abcd"
    assert server.wait().status == 0


def test_requests_that_are_not_http_are_refused(start, program) -> None:
    server = start(program("c-epoll"), SNAPRUN_E, "--http")
    for bad in (b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\nHost: a\n\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"):
        with server.client() as client:
            client.send(bad)
            assert client.reader.read().startswith(b"HTTP/1.1 400 ")
    with server.client() as client:
        assert client.ask("/count") == b"1\n"


@pytest.fixture
def endings(start) -> harness.Server:
    """One machine with guests/endings.c."""
    return start(harness.guest("endings", "{port}"), SNAPRUN_E, "--http", "--check-reset")


def cut_off(client: harness.Client, path: str) -> bytes:
    """What comes of a body until the connection is reset."""
    client.send(harness.request(path))
    assert client.head()[0] == 200
    body = b""
    with pytest.raises(ConnectionResetError):
        while more := client.reader.read(1):
            body += more
        pytest.fail(f"{path}: a clean end after {body!r}")
    return body


def test_replies_end_as_the_program_ends_them(endings) -> None:
    with endings.client() as client:  # all of it on one connection
        for _ in range(3):
            assert client.ask("/") == b"ok"
            assert client.ask("/until-close") == b"all of it"
            assert client.ask("/half") == b"half"
    for path in ("/reset", "/cut", "/die"):
        with endings.client() as client:
            assert len(cut_off(client, path)) < 10 + 5
    with endings.client() as client:
        assert problem(client, "/silent", 502)["code"] == "no-reply"
        assert client.ask("/") == b"ok"
    assert endings.stop().status == 0


def test_request_and_reply_flow_at_once(endings) -> None:
    with endings.client() as client:
        for _ in range(3):
            client.send(b"POST /talk HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
            assert client.head()[0] == 200
            assert client.reader.read(8) == b"3\r\none\r\n"  # while it waits for the rest
            client.send(b"rest")
            assert client.chunks() == b"two"


def test_a_program_that_never_waits_gets_the_rest_of_a_request(endings) -> None:
    with endings.client() as client:
        client.send(b"POST /busy HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
        harness.wait_until(lambda: "busy" in endings.out, "the machine has the first part")
        client.send(b"rest")
        assert client.reply() == b"busy"


def test_a_reply_before_the_body_is_read(endings) -> None:
    with endings.client() as client:
        for size in (10, 30_000):
            assert client.ask("/early", b"x" * size, status=413) == b"no"
        client.send(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nhalf")
        assert client.reply(413) == b"no"
        client.send(b"of it, and all.." + harness.request("/"))
        assert client.reply() == b"ok"


@pytest.mark.parametrize("head, body", [(0, 0), (60_000, 0), (60_000, 16_000), (0, 16_384), (0, 100_000)])
def test_all_of_a_request_arrives(endings, head: int, body: int) -> None:
    field = "X: " + "x" * head
    with endings.client() as client:
        for _ in range(2):
            got = int(client.ask("/size", b"b" * body, field))
            # `Connection: close` is added, nothing else.
            assert got == len(harness.request("/size", b"b" * body, field, "Connection: close"))


def test_a_client_that_goes_away_frees_the_machine(endings) -> None:
    with endings.client() as client:
        client.send(harness.request("/wait"))
        harness.wait_until(lambda: "waiting" in endings.out, "the machine has the request")
        waiting = endings.client()  # for the one machine
        waiting.send(harness.request("/"))
    with waiting:
        assert waiting.reply() == b"ok"
    assert "the client has gone" in endings.out


def unsent(port: int, client_port: int) -> int:
    """Bytes that the server has given to its socket and that the client has no room for."""
    ends = (f":{port:04X}", f":{client_port:04X}")
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1][-5:], fields[2][-5:]) == ends:
            return int(fields[4].split(":")[0], 16)
    return 0


def test_a_client_that_reads_late_gets_every_byte(start, program) -> None:
    server = start(program("c-epoll"), SNAPRUN_E2, "--http")
    count, size = 200, 60_000  # more than sockets hold
    with server.client() as client:
        client.send(b"".join(harness.request(f"/bytes/{size + i}") for i in range(count)))
        seen = [0]

        def stands_still() -> bool:
            seen.append(unsent(server.port, client.socket.getsockname()[1]))
            return seen[-1] > 0 and len(set(seen[-20:])) == 1

        harness.wait_until(stands_still, "no more fits")
        with server.client() as other:  # is served in the meantime
            assert other.ask("/count") == b"1\n"
        for i in range(count):
            assert client.reply() == harness.letters(size + i), f"reply {i}"


def test_clients_that_vanish_leave_nothing_behind(start, program) -> None:
    server = start(program("c-epoll"), SNAPRUN_E2, "--http", "--check-reset")
    with server.client() as steady:
        for i in range(200):
            with server.client() as client:
                client.send(harness.request("/count" if i % 2 else "/bytes/50000"))
                if i % 3 == 0:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert steady.ask("/bytes/1000") == harness.letters(1000)
            assert steady.ask("/count") == b"1\n"
    assert server.stop().status == 0
