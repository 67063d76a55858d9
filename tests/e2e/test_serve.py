"""kvmserver serve: routes, versions, traffic; functions come and go while it serves."""
import collections
import socket

import harness
import pytest
from serving import Load


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


@pytest.fixture
def other(snapshots, program):
    return snapshots.of(program("c-poll"))


@pytest.fixture
def node(program):
    return program("node-http")


def test_two_functions(store, serve, snap, snapshots, node) -> None:
    assert store.deploy(snap, "hello") == "hello v1 stored; not served: start kvmserver serve"
    store.deploy(snapshots.of(node), "node")
    daemon = serve()
    assert daemon.out == f"Serving 2 functions on 127.0.0.1:{daemon.port}\n"
    for _ in range(3):  # every request has a clean machine
        assert daemon.text("hello", "/count") == "1\n"
        assert daemon.text("node", "/count") == "1\n"
    assert daemon.text("hello", "/") == "Hello from C\n"
    assert daemon.text("node", "/") == "Hello from Node\n"
    assert {name: len(pids) for name, pids in daemon.processes().items()} == {"hello v1": 1, "node v1": 1}
    body = harness.letters(3_000_000)
    assert daemon.ask("node", "/echo", body=body).body == body


def test_a_unix_socket(store, serve, snap, folder) -> None:
    path = folder / "front.sock"
    for _ in range(2):  # the second finds the first one's socket
        daemon = serve(listen=f"unix:{path}")
        assert store.deploy(snap, "hello").endswith(f" live http://hello.localhost at unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(harness.PATIENCE)
            client.connect(str(path))
            client.sendall(b"GET /count HTTP/1.1\r\nHost: hello.localhost\r\nConnection: close\r\n\r\n")
            assert client.makefile("rb").read().endswith(b"\r\n\r\n1\n")
        daemon.stop()


def test_requests_of_one_connection_go_to_several_functions(store, serve, snap, other) -> None:
    store.deploy(snap, "one")
    store.deploy(other, "two", "--route", "two.example.com", "--route", "one.localhost/two/*")
    daemon = serve()
    with harness.Client(daemon.port) as client:
        for host, path, status in (("one.localhost", "/", 200), ("two.example.com", "/", 200), ("ONE.localhost:8080", "/", 200),
                                   ("one.localhost", "/two/x", 404), ("nobody.localhost", "/", 404)):  # fmt: skip
            client.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            client.reply(status)
    served = [(line.get("function"), line["status"]) for line in daemon.access(5)]
    # A line is written once its machine is clean again: not always in order.
    assert sorted(served, key=str) == sorted([("one", 200), ("two", 200), ("one", 200), ("two", 404), (None, 404)], key=str)


def test_unknown_route_is_a_problem_that_helps(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    problem = serve().ask("nobody", "/x").problem
    assert problem["status"] == 404 and problem["code"] == "no-route"
    assert "nobody.localhost/x" in problem["detail"] and "kvmserver list" in problem["hint"]


def test_an_empty_store(store, serve) -> None:
    daemon = serve()
    assert "Serving 0 functions" in daemon.out
    assert "kvmserver deploy" in daemon.ask("hello").problem["hint"]


def test_a_deploy_is_seen(store, serve, snap, other) -> None:
    daemon = serve()
    store.deploy(snap, "hello")
    harness.wait_until(lambda: daemon.ask("hello").status == 200, "the new function answers", 1)
    store.ok("delete", "-y", "hello")
    harness.wait_until(lambda: daemon.ask("hello").status == 404, "it is gone", 1)
    harness.wait_until(lambda: not daemon.processes(), "its process is gone")


def test_deploys_lose_no_request(store, serve, node) -> None:
    store.deploy_probe(node, "shop", "v1")
    daemon = serve("--threads", "2")
    daemon.text("shop", "/name")
    with Load(daemon, "shop", "/name") as load:
        for version in ("v2", "v3"):
            load.after(20)
            store.deploy_probe(node, "shop", version)
            harness.wait_until(lambda: load.replies[-1][1].decode() == version, f"{version} answers")
        store.ok("rollback", "shop", "-y", "2")
        harness.wait_until(lambda: load.replies[-1][1] == b"v2", "v2 answers")
        load.after(20)
    load.only(b"v1", b"v2", b"v3")
    order = [name for i, (_, name) in enumerate(load.replies) if i == 0 or load.replies[i - 1][1] != name]
    assert order[0] == b"v1" and order[-1] == b"v2" and b"v3" in order
    harness.wait_until(lambda: list(daemon.processes()) == ["shop v2"], "only the live version has a process")




def test_a_request_in_flight_is_finished_by_its_version(store, serve, node) -> None:
    store.deploy_probe(node, "shop", "old")
    daemon = serve()
    daemon.text("shop", "/name")
    with harness.Client(daemon.port) as client:
        client.send(b"GET /sleep/1500 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        store.deploy_probe(node, "shop", "new")
        harness.wait_until(lambda: daemon.text("shop", "/name") == "new", "the new version answers", 1)
        assert client.reply() == b"old slept\n"
    harness.wait_until(lambda: list(daemon.processes()) == ["shop v2"], "the old version's process is gone")


def test_traffic_is_divided(store, serve, snap, other) -> None:
    store.deploy(snap, "hello")
    store.deploy(other, "hello")
    daemon = serve()
    store.ok("traffic", "hello", "1=25", "2=75")
    def versions() -> collections.Counter:
        before = len(daemon.access_file.read_text().splitlines())
        for _ in range(200):
            daemon.text("hello", "/count")
        # A line is written when the machine is clean again: that of an earlier request may still have been missing.
        return collections.Counter(line["version"] for line in daemon.access(before + 200)[before:][-200:])

    harness.wait_until(lambda: daemon.text("hello", "/count") and len(daemon.processes()) == 2, "both versions serve")
    counted = versions()
    assert 20 <= counted[1] <= 85 and counted[1] + counted[2] == 200, counted  # 50 expected, 5 sigma
    store.ok("traffic", "hello", "1=100")
    harness.wait_until(lambda: "hello v2" not in daemon.processes(), "v2 is given up")
    assert versions() == {1: 200}


def test_a_version_that_is_not_there_any_more(store, serve, snap) -> None:
    """Its chunks are gone: a problem, and the others go on."""
    store.deploy(snap, "good")
    store.ok("deploy", snap, "--name", "bad")
    daemon = serve()
    daemon.text("good", "/count")
    for folder in (store.path / "chunks").iterdir():
        for chunk in folder.iterdir():
            chunk.rename(chunk.with_suffix(".away"))
    problem = daemon.ask("bad").problem
    assert problem["status"] == 502 and problem["code"] == "not-restored" and ": is missing: " in problem["detail"]
    assert daemon.text("good", "/count") == "1\n"
    for folder in (store.path / "chunks").iterdir():
        for chunk in folder.iterdir():
            chunk.rename(chunk.with_suffix(""))
    harness.wait_until(lambda: daemon.ask("bad").status == 200, "it is tried again")


def test_the_store_is_read_in_place(store, serve, snap) -> None:
    """No copy of the snapshot is made anywhere the daemon writes to."""
    store.deploy(snap, "hello")
    before = {path for path in store.path.rglob("*") if path.is_file()}
    daemon = serve(env={"TMPDIR": str(store.folder / "tmp")})  # there is no such folder
    assert daemon.text("hello", "/count") == "1\n"
    new = {path for path in store.path.rglob("*") if path.is_file()} - before
    assert all(path.stat().st_size < 100_000 for path in new), new


def test_bad_options(store, snap) -> None:
    for words, status in ((["--listen", "nowhere:x"], 2), (["--threads", "x"], 2), (["--max-vms", "-1"], 2), (["--idle", "soon"], 2),
                          (["--tls-key", "x"], 2), (["what"], 2), (["--access-log", "/nowhere/log"], 1)):  # fmt: skip
        done = store("serve", "--listen", "127.0.0.1:0", *words) if "--listen" not in words else store("serve", *words)
        assert done.status == status, done
        assert done.error


def test_an_address_in_use(store, serve) -> None:
    daemon = serve()
    done = store("serve", "--listen", f"127.0.0.1:{daemon.port}")
    assert done.status == 5 and "--listen" in done.error
