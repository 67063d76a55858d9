"""kvmserver serve: [function.scale], queues, and how many machines there are."""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import resource
import signal
import time

import admin
import harness
import pytest
from serving import gone


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


@pytest.fixture
def node(program):
    return program("node-http")


def at_once(daemon, count: int, function: str, path: str) -> list:
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: daemon.ask(function, path), range(count)))


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def live(store, function: str) -> dict:
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/v1/live")
        return next(one for one in admin.Reply(connection.getresponse()).json["live"] if one["function"] == function)


def test_idle_functions_end_and_come_back(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve("--idle", "0.2")
    for _ in range(3):
        assert daemon.text("hello", "/count") == "1\n"
        harness.wait_until(lambda: not daemon.processes(), "its process ends")
    lines = daemon.access(3)
    assert [line["cold"] for line in lines] == [True] * 3
    assert all(0 < line["restore_us"] <= line["queue_us"] for line in lines), lines


def test_a_cold_function_takes_a_spare_process(store, serve, snap) -> None:
    for name in ("one", "two", "three"):
        store.deploy(snap, name)
    daemon = serve()

    def spares(other: list[int] = []) -> list[int]:
        harness.wait_until(lambda: len(daemon.spares()) == 2 and not set(other) & set(daemon.spares()), "there are two new ones")
        return daemon.spares()

    first = spares()
    assert daemon.text("one", "/count") == "1\n"
    (pid,) = daemon.processes()["one v1"]
    assert pid in first
    for spare in spares(other=[pid]):  # nobody tells the daemon
        os.kill(spare, signal.SIGKILL)
        harness.wait_until(lambda: gone(spare), "it is dead")
    for name in ("two", "three"):
        assert daemon.text(name, "/count") == "1\n"
    assert sorted(daemon.processes()) == ["one v1", "three v1", "two v1"]
    left = spares()
    daemon.popen.kill()
    daemon.popen.wait()
    harness.wait_until(lambda: all(map(gone, left)), "they end with it")


def test_a_trial_takes_a_spare_process_if_there_is_one(store, serve, snap) -> None:
    daemon = serve()
    harness.wait_until(lambda: len(daemon.spares()) == 2, "there are two")
    first = set(daemon.spares())
    store.deploy(snap, "one")
    harness.wait_until(lambda: len(daemon.spares()) == 2 and len(first & set(daemon.spares())) == 1, "one of them is another")
    (used,) = first - set(daemon.spares())
    harness.wait_until(lambda: gone(used), "it has ended")
    for spare in daemon.spares():  # nobody tells the daemon
        os.kill(spare, signal.SIGKILL)
        harness.wait_until(lambda: gone(spare), "it is dead")
    store.deploy(snap, "two")
    assert [daemon.text(name, "/count") for name in ("one", "two")] == ["1\n", "1\n"]


def image_of(pid: int) -> tuple[int, int, dict[int, int]]:
    """Of a function's process: bytes of its image, those that are its own, and of each file that the image is mapped from."""
    own = whole = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "memfd:kvmserver-image" in os.readlink(fd):
                own, whole = fd.stat().st_blocks * 512, fd.stat().st_size
    files = {}
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if words[-1].endswith(".pages"):
            begin, end = (int(at, 16) for at in words[0].split("-"))
            files[int(words[4])] = end - begin
    return whole, own, files


def test_functions_that_differ_in_a_line_share_memory(store, serve, node) -> None:
    for name in ("Hello", "Hallo"):
        store.deploy_probe(node, name.lower(), name)
    daemon = serve()
    for name in ("Hello", "Hallo"):
        assert daemon.text(name.lower(), "/name") == name
        for path in ("/echo", "/headers", "/values", "/count", "/nothing"):  # more of the program than its first page
            daemon.ask(name.lower(), path)
    (first,), (second,) = (daemon.processes()[f"{name} v1"] for name in ("hello", "hallo"))
    (whole, own, mapped), (_, _, others) = image_of(first), image_of(second)
    assert whole > 50e6
    assert own < 0.3 * whole, (own, whole)
    common = {inode: size for inode, size in mapped.items() if inode in others}
    assert len(common) >= 3 and sum(common.values()) > 0.7 * sum(mapped.values()), (mapped, others)


def test_min_keeps_it_warm(store, serve, node) -> None:
    store.deploy_probe(node, "warm", settings='[function.scale]\nmin = 2\nmax = 2\nidle = "100ms"\n')
    daemon = serve()
    harness.wait_until(lambda: "warm v1" in daemon.processes(), "it is started without a request")
    pid = daemon.processes()["warm v1"][0]
    harness.wait_until(lambda: threads_of(pid) >= 4, "it has two machines")
    time.sleep(0.5)  # five times as long as idle
    assert daemon.processes() == {"warm v1": [pid]}
    daemon.text("warm", "/name")
    assert not daemon.access(1)[0]["cold"]
    store.deploy_probe(node, "warm", "second", settings='[function.scale]\nmin = 1\n')
    harness.wait_until(lambda: "warm v2" in daemon.processes() and "warm v1" not in daemon.processes(), "the new version takes its place")


def test_machines_are_added_under_load_up_to_max(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings="[function.scale]\nmax = 3\n")
    daemon = serve()
    daemon.text("shop", "/name")
    begin = time.monotonic()
    replies = at_once(daemon, 6, "shop", "/sleep/2000")
    took = time.monotonic() - begin
    assert [reply.status for reply in replies] == [200] * 6
    assert 3.9 <= took, f"six requests of 2 s by three machines took {took:.2f} s"
    waited = sorted(line["queue_us"] for line in daemon.access(7) if line["path"] == "/sleep/2000")
    assert waited[3] - waited[2] > 500_000, waited  # three at once, three in the second round


def test_a_full_queue_refuses(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings="[function.scale]\nmax = 1\nqueue = 2\n")
    daemon = serve()
    daemon.text("shop", "/name")
    daemon.access(1)  # its machine is clean again
    replies = at_once(daemon, 6, "shop", "/sleep/2500")
    assert sorted(reply.status for reply in replies) == [200] * 3 + [503] * 3
    for reply in replies:
        if reply.status == 503:
            assert reply.problem["code"] == "queue-full" and int(reply.headers["retry-after"]) >= 1
    outcomes = sorted(line["outcome"] for line in daemon.access(7))
    assert outcomes == ["ok"] * 4 + ["queue-full"] * 3


def test_waiting_has_an_end(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings='[function.scale]\nmax = 1\nqueue-timeout = "300ms"\n')
    daemon = serve()
    harness.wait_until(lambda: daemon.ask("shop", "/name").status == 200, "it has a machine")  # its start may take longer than 300 ms
    replies = at_once(daemon, 2, "shop", "/sleep/1000")
    assert sorted(reply.status for reply in replies) == [200, 503]
    late = next(reply for reply in replies if reply.status == 503)
    assert late.problem["code"] == "queue-timeout" and "retry-after" in late.headers

    def waited() -> list[int]:
        return [line["queue_us"] for line in daemon.access(2) if line["path"] == "/sleep/1000" and line["status"] == 503]

    harness.wait_until(lambda: waited() != [], "the refusal is in the access log")
    assert 290_000 < waited()[0] < 1_000_000


def test_a_client_that_goes_away_leaves_the_queue(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings="[function.scale]\nmax = 1\nqueue = 1\n")
    daemon = serve()
    with harness.Client(daemon.port) as busy:
        busy.send(b"GET /sleep/1000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        harness.wait_until(lambda: daemon.processes() != {}, "it is in a machine")
        waiting = harness.Client(daemon.port)
        waiting.send(b"GET /name HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        with contextlib.closing(waiting.socket):
            pass
        waiting.reader.close()
        assert busy.reply() == b"probe slept\n"
    assert daemon.text("shop", "/name") == "probe"


def test_without_descriptors_nobody_waits_in_vain(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings='[function.scale]\nmax = 1\nqueue-timeout = "0"\n')
    daemon = serve()
    daemon.text("shop", "/name")
    with contextlib.ExitStack() as stack:
        busy, *waiting = clients = [stack.enter_context(harness.Client(daemon.port)) for _ in range(4)]
        busy.send(b"POST /echo HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert busy.head()[0] == 100 # the program waits for the body, so the request has its socket
        # One that waits within its request needs a socket for its reply; the others do not. (1 ms is over before it waits.)
        for client, path in zip(waiting, (b"/name", b"/sleep/200", b"/name")):
            client.send(b"GET " + path + b" HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        harness.wait_until(lambda: live(store, "shop")["queued"] == 3, "the others wait")
        limits = resource.prlimit(daemon.popen.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.popen.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        busy.send(b"abcd")
        statuses = [client.head()[0] for client in clients]
        assert statuses[0] == 200 and statuses[2] == 503 and set(statuses) <= {200, 503}, statuses
        resource.prlimit(daemon.popen.pid, resource.RLIMIT_NOFILE, limits)
    assert daemon.text("shop", "/name") == "probe"


def test_max_vms_bounds_all_functions_together(store, serve, snap, node) -> None:
    for name in ("a", "b", "c", "d"):
        store.deploy(snap, name)
    daemon = serve("--max-vms", "2", "--threads", "4")
    for _ in range(2):
        for name in ("a", "b", "c", "d"):
            assert daemon.text(name, "/count") == "1\n"
            harness.wait_until(lambda: sum(map(len, daemon.processes().values())) <= 2, "no more than two have a process")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: daemon.text("abcd"[i % 4], "/count"), range(200)))
    assert replies == ["1\n"] * 200
    harness.wait_until(lambda: sum(map(len, daemon.processes().values())) <= 2, "no more than two have a process")


def test_a_burst_to_one_function_leaves_the_others_theirs(store, serve, snap) -> None:
    for name in ("a", "b", "c", "cold"):
        store.deploy(snap, name)
    daemon = serve("--max-vms", "3", "--threads", "1")
    for name in ("a", "b", "c"):
        assert daemon.text(name, "/count") == "1\n"
    before = daemon.processes()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(harness.Client(daemon.port)) for _ in range(8)]
        for client in clients:
            client.send(b"GET /count HTTP/1.1\r\nHost: cold.localhost\r\n\r\n")
        assert [client.reply() for client in clients] == [b"1\n"] * 8
    after = daemon.processes()
    assert [after.get(f"{name} v1") for name in ("b", "c")] == [before[f"{name} v1"] for name in ("b", "c")], (before, after)


def test_idle_machines_end_when_memory_is_short(store, serve, snap) -> None:
    for name in ("a", "b", "busy"):
        store.deploy(snap, name)
    daemon = serve("--memory-reserve", "1000T")  # no host has as much
    with harness.Client(daemon.port) as client:
        client.send(b"GET /count HTTP/1.1\r\nHost: busy.localhost\r\nContent-Length: 4\r\n\r\n")
        for _ in range(2):
            for name in ("a", "b"):
                assert daemon.text(name, "/count") == "1\n"
            harness.wait_until(lambda: list(daemon.processes()) == ["busy v1"], "only the busy machine has stayed")
        client.send(b"abcd")
        assert client.head()[0] == 200
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        given_back = re.search(r"^kvmserver_vms_given_back_total (\d+)$", connection.getresponse().read().decode(), re.M)
    assert int(given_back[1]) >= 4, given_back
    assert re.search(r"^kvmserver: memory is short \(\d+ MiB are available, --memory-reserve is 1048576000 MiB\): idle machines ended, longest idle first: \d+$",
                     daemon.err, re.M), daemon.err


@pytest.mark.nightly
def test_many_functions_take_turns(store, serve, snap) -> None:
    names = [f"f{i}" for i in range(30)]
    for name in names:
        store.deploy(snap, name)
    daemon = serve("--max-vms", "8", "--idle", "0.1")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda i: daemon.text(names[i % 30], "/count"), range(300))) == ["1\n"] * 300
    harness.wait_until(lambda: not daemon.processes(), "all are given up")
