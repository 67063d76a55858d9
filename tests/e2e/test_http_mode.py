"""--http: clients' connections stay open, every request gets a clean machine."""
import concurrent.futures
import json
import signal

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
