"""kvmserver serve: what goes wrong in one request, one process, one function concerns no other."""
import os
import signal

import harness
import pytest
from serving import Load, gone


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


@pytest.fixture
def node(program):
    return program("node-http")


def test_a_program_that_crashes(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    before = daemon.processes()
    for _ in range(3):
        problem = daemon.ask("hello", "/crash").problem
        assert problem["status"] == 502 and problem["code"] == "program-failed" and "kvmserver logs hello" in problem["hint"]
        assert daemon.text("hello", "/count") == "1\n"
    assert daemon.processes() == before  # the process lives on
    assert "[hello v1] " in daemon.err


def test_a_program_that_takes_too_long(store, serve, node) -> None:
    store.deploy_probe(node, "shop", top="max-request-time = 1\n")
    daemon = serve()
    problem = daemon.ask("shop", "/spin").problem
    assert problem["status"] == 504 and problem["code"] == "request-timeout" and "max-request-time" in problem["hint"]
    assert daemon.text("shop", "/name") == "probe"


def test_a_program_that_prints_without_end(store, serve, node, snap) -> None:
    store.deploy_probe(node, "shop")
    store.deploy(snap, "other")
    daemon = serve()
    daemon.text("shop", "/name")
    with harness.Client(daemon.port) as babbler:
        babbler.send(b"GET /babble HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        harness.wait_until(lambda: "[shop v1] babble" in daemon.err, "it prints")
        assert [daemon.text("other", "/count") for _ in range(5)] == ["1\n"] * 5


def test_a_reply_that_is_cut_off_is_seen_to_be(store, serve, node) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve()
    with harness.Client(daemon.port) as client:
        client.send(b"GET /half HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        status, headers = client.head()
        assert status == 200 and headers["content-length"] == "1000"
        with pytest.raises((ConnectionResetError, AssertionError)):
            assert len(client.reader.read(1000)) == 1000
    assert daemon.text("shop", "/name") == "probe"


def test_a_process_that_dies_takes_its_own_requests_only(store, serve, node, snap) -> None:
    store.deploy_probe(node, "shop", settings="[function.scale]\nmax = 1\n")
    store.deploy(snap, "other")
    daemon = serve()
    daemon.text("shop", "/name")
    with Load(daemon, "other") as load, harness.Client(daemon.port) as busy, harness.Client(daemon.port) as waiting:
        busy.send(b"GET /sleep/60000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        waiting.send(b"GET /name HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        load.after(50)
        os.kill(daemon.processes()["shop v1"][0], signal.SIGKILL)
        status, headers = busy.head()
        assert status == 502 and headers["content-type"] == "application/problem+json"
        assert waiting.reply() == b"probe"  # it had no machine yet: the new process has it
        load.after(50)
    load.only(b"1\n")
    assert daemon.text("shop", "/name") == "probe"
    assert "was killed by signal 9" in daemon.err


def test_one_that_dies_again_and_again_is_given_time(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    store.deploy(snap, "other")
    daemon = serve()

    def killed() -> bool:
        reply = daemon.ask("hello")
        if reply.status == 503:
            assert reply.problem["code"] == "function-failing" and int(reply.headers["retry-after"]) >= 1
            return False
        assert reply.status == 200, reply
        for pid in daemon.processes().get("hello v1", []):
            os.kill(pid, signal.SIGKILL)
            # Reaped: one that is still ending might be given the next request, which would be a 502.
            harness.wait_until(lambda: pid not in daemon.children(), "the daemon has seen its end")
        return True

    harness.wait_until(lambda: not killed(), "its requests are refused")
    assert daemon.text("other", "/count") == "1\n"
    harness.wait_until(lambda: daemon.ask("hello").status == 200, "it is tried again")


def test_one_that_lived_begins_anew(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve("--idle", "1.3")

    def kill(times: int) -> None:
        daemon.text("hello", "/count")
        (pid,) = daemon.processes()["hello v1"]
        os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: daemon.err.count("its process was killed by signal 9") == times, "the daemon knows")

    kill(1)
    kill(2)  # in a row: now it is given a while
    harness.wait_until(lambda: daemon.ask("hello").status == 200, "it is tried again")
    harness.wait_until(lambda: not daemon.processes(), "it ends for want of requests")
    kill(3)
    assert daemon.ask("hello").status == 200  # as after a first failure


def test_the_end_of_the_daemon_is_that_of_the_processes(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    (pid,) = daemon.processes()["hello v1"]
    daemon.popen.kill()
    daemon.popen.wait()

    harness.wait_until(lambda: gone(pid), "the process of the function ends by itself")


def test_the_next_start_clears_up(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    daemon.popen.kill()
    daemon.popen.wait()
    harness.wait_until(lambda: "left over from a process that died" in store("verify", "--dry-run").out, "the daemon's marks are those of a dead process")

    again = serve()
    store.ok("verify", "--dry-run")
    assert again.text("hello", "/count") == "1\n"


def test_a_stop_finishes_what_is_in_flight(store, serve, node) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve()
    daemon.text("shop", "/name")
    with harness.Client(daemon.port) as client:
        client.send(b"POST /echo HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.head()[0] == 100  # a machine has it
        daemon.popen.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: refused(daemon), "new clients are refused")
        client.send(b"abcd")
        assert client.reply() == b"abcd"
    assert daemon.wait().status == 0


def refused(daemon) -> bool:
    try:
        harness.Client(daemon.port).socket.close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was not accepted yet
        return False
    return False
