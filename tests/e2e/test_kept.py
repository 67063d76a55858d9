"""[function] ephemeral = false: one machine that keeps its state and serves its connections at once."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket

import admin
import harness
import pytest
from serving import gone, pid_of_listener

KEPT = "ephemeral = false\n"
LOST = "its machine ends, and what it kept is lost"
GUESTS = harness.BUILD / "tests/e2e"


@pytest.fixture
def node(program):
    return program("node-http")


@pytest.fixture
def keeps(store, tmp_path):
    """keeps(top, settings): deploys guests/keeps.c as a function of that name."""
    def deploy(top: str = "", settings: str = "", name: str = "keeps", stays: bool = True):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        argv = [str(GUESTS / "keeps"), str(harness.free_port())]
        (folder / "kvmserver.toml").write_text(
            f"allow-all = true\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
            f"[function]\nname = \"{name}\"\n{KEPT if stays else ''}{settings}")
        return store("deploy", folder, "-q")
    return deploy


def live(store, function: str) -> dict:
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/v1/live")
        return next(one for one in admin.Reply(connection.getresponse()).json["live"] if one["function"] == function)


def logged(store, function: str, text: str) -> bool:
    return text in store("logs", function).out


def hold(daemon, function: str, path: str = "/hold") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", daemon.port), harness.PATIENCE)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {function}.localhost\r\n\r\n".encode())
    return client


def reply_on(client: socket.socket) -> bytes:
    reply = http.client.HTTPResponse(client)
    reply.begin()
    return reply.read()


@pytest.mark.emulated(nightly=True)
def test_it_counts_on_from_request_to_request(keeps, serve) -> None:
    assert keeps("warmup = 0\n").status == 0 and keeps(name="forgets", stays=False).status == 0
    daemon = serve()  # after the deploys: emulated hosts have no libcurl
    assert [daemon.text("keeps", "/count") for _ in range(5)] == ["1\n", "2\n", "3\n", "4\n", "5\n"]
    assert [daemon.text("forgets", "/count") for _ in range(2)][0] == daemon.text("forgets", "/count")


def test_a_warm_up_leaves_nothing_behind_unless_it_was_asked_for(keeps, serve) -> None:
    daemon = serve()
    assert keeps().status == 0 and keeps("warmup = 3\n", name="warmed").status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    assert daemon.text("warmed", "/count") == "4\n"


def test_it_runs_before_the_first_request_and_stays(keeps, serve) -> None:
    daemon = serve("--idle", "0.1")
    assert keeps().status == 0
    harness.wait_until(lambda: "keeps v1" in daemon.processes(), "its machine runs")
    pids = daemon.processes()
    assert daemon.text("keeps", "/count") == "1\n"
    assert keeps(name="other", stays=False).status == 0 and daemon.text("other", "/count")
    harness.wait_until(lambda: "other v1" not in daemon.processes(), "the idle one has ended")
    assert daemon.processes() == pids and daemon.text("keeps", "/count") == "2\n"


def test_it_stays_when_its_snapshot_is_compressed_anew(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps().status == 0 and daemon.text("keeps", "/count") == "1\n"
    pids = daemon.processes()
    hurried = store.json("versions", "keeps")["versions"][0]
    assert hurried["compress_later"]

    def compressed() -> dict | None:
        (now,) = store.json("versions", "keeps")["versions"]
        return now if now["snapshot"] != hurried["snapshot"] else None
    harness.wait_until(compressed, "it is compressed", harness.IDLE_PATIENCE)
    assert keeps(name="other", stays=False).status == 0 and daemon.text("other", "/count")  # the daemon has seen both
    assert daemon.text("keeps", "/count") == "2\n" and daemon.processes()["keeps v1"] == pids["keeps v1"]
    assert daemon.ask("keeps", "/exit").problem["code"] == "program-failed"
    assert daemon.text("keeps", "/count") == "1\n"  # from the new one: the old one is gone from the store


def test_requests_meet_in_the_one_machine(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert set(pool.map(lambda _: daemon.text("probe", "/meet/20"), range(20))) == {"met\n"}
        counts = list(pool.map(lambda _: int(daemon.text("probe", "/count")), range(200)))
    assert sorted(counts) == list(range(1, 201))
    assert [len(pids) for pids in daemon.processes().values()] == [1]


def test_long_bodies_and_websockets_beside_each_other(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT)
    body = bytes(range(256)) * 12000
    with contextlib.closing(hold(daemon, "probe", "/meet/2")) as waits, concurrent.futures.ThreadPoolExecutor(4) as pool:
        bodies = pool.map(lambda n: daemon.ask("probe", "/echo", body=body[n:]).body == body[n:], range(4))
        sockets = [hold(daemon, "probe", "/ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nX:") for _ in range(2)]
        for client in sockets:
            assert client.recv(1000).startswith(b"HTTP/1.1 101 ")
        said = []
        for client in sockets * 2:
            client.sendall(b"a")
            said.append(client.recv(100))
        assert said == [b"1:a", b"2:a", b"3:a", b"4:a"] and all(bodies)
        for client in sockets:
            client.close()
        assert daemon.text("probe", "/meet/2") == "met\n" and waits.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.emulated(nightly=True)
def test_what_is_above_its_concurrency_waits(store, keeps, serve) -> None:
    assert keeps(settings="[function.scale]\nconcurrency = 2\n").status == 0
    daemon = serve()
    held = [hold(daemon, "keeps") for _ in range(3)]
    harness.wait_until(lambda: live(store, "keeps")["queued"] == 1, "one waits")
    assert live(store, "keeps")["in_flight"] == 2
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        later = pool.submit(daemon.text, "keeps", "/count")
        harness.wait_until(lambda: live(store, "keeps")["queued"] == 2, "two wait")
        for client in held:  # clients that go make room
            client.close()
        assert later.result() == "1\n"


def test_an_end_of_the_program_begins_anew_and_says_what_is_lost(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT)
    assert [daemon.text("probe", "/count") for _ in range(3)] == ["1", "2", "3"]
    with contextlib.closing(hold(daemon, "probe", "/meet/2")) as other:
        harness.wait_until(lambda: live(store, "probe")["in_flight"] == 1, "another is in the machine")
        assert daemon.ask("probe", "/die").problem["code"] == "program-failed"
        assert other.recv(1000).startswith(b"HTTP/1.1 502 ")
    assert daemon.text("probe", "/count") == "1"
    assert logged(store, "probe", "exited with status 3; what it kept is lost, and it starts again from its snapshot")


@pytest.mark.emulated(nightly=True)
def test_a_request_that_computes_for_ever_ends_with_its_machine(keeps, serve, store) -> None:
    limit = max(1, int(harness.SLOWNESS))  # both must be there before the first one's time is over
    assert keeps(f"max-request-time = {limit}\n").status == 0
    daemon = serve()
    assert daemon.text("keeps", "/count") == "1\n"

    def two(*paths: str) -> list[socket.socket]:
        clients = []
        for path in paths:
            clients.append(stack.enter_context(contextlib.closing(hold(daemon, "keeps", path))))
            harness.wait_until(lambda: live(store, "keeps")["in_flight"] == len(clients), "it is in the machine")
        return clients

    with contextlib.ExitStack() as stack:
        for client in two("/hold", "/hold"):  # from now on it can be given two at once
            client.close()
        harness.wait_until(lambda: live(store, "keeps")["in_flight"] == 0, "they have gone")
        # The second one comes while it computes, and is never looked at.
        replies = [json.loads(reply_on(client))["code"] for client in two("/spin", "/count")]
    assert replies == ["request-timeout"] * 2
    assert daemon.text("keeps", "/count") == "1\n"
    assert daemon.ask("keeps", "/nap").problem["code"] == "request-timeout"
    assert daemon.text("keeps", "/count") == "1\n"
    assert f"it computed for {limit} s (--max-request-time); what it kept is lost" in daemon.err


def test_a_request_that_is_never_answered_ends_alone(keeps, serve, store, node) -> None:
    daemon = serve()
    assert keeps("max-request-time = 1\n").status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    assert daemon.ask("keeps", "/hold").problem["code"] == "request-timeout"
    assert daemon.text("keeps", "/count") == "2\n"
    assert logged(store, "keeps", "a request was not done within --max-request-time; its connection is closed, the machine goes on")
    store.deploy_probe(node, "probe", settings=KEPT, top="max-request-total = 1\n")  # it has timers of its own to wait for
    assert daemon.ask("probe", "/meet/2").problem["code"] == "request-timeout"
    assert daemon.text("probe", "/count") == "1"


def test_a_new_version_begins_anew_and_the_old_one_finishes(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT)
    assert [daemon.text("probe", "/count") for _ in range(2)] == ["1", "2"]
    (old,) = daemon.processes()["probe v1"]
    with contextlib.closing(hold(daemon, "probe", "/meet/2")) as waits, contextlib.closing(hold(daemon, "probe", "/sleep/300")) as sleeps:
        harness.wait_until(lambda: live(store, "probe")["in_flight"] == 2, "two are in the machine")
        store.deploy_probe(node, "probe", settings=KEPT, name="second")
        assert daemon.text("probe", "/count") == "1" and not gone(old)
        assert b"probe slept" in reply_on(sleeps)
        waits.close()
    harness.wait_until(lambda: gone(old), "the old version's machine has ended")
    assert daemon.text("probe", "/count") == "2"


def test_the_example_counts_for_each_tenant(store, serve, node, tmp_path) -> None:
    folder = shutil.copytree(harness.ROOT / "functions/node-counter", tmp_path / "counter")
    file = folder / "kvmserver.toml"
    file.write_text(file.read_text().replace('"node"', json.dumps(node["argv"][0])))
    daemon = serve()
    assert store.ok("deploy", folder, "-q")
    said = [daemon.text("counter", f"/{tenant}") for tenant in ("acme", "acme", "globex")]
    assert said == ["acme 1\n", "acme 2\n", "globex 1\n"]
    assert json.loads(daemon.text("counter", "/")) == {"acme": 2, "globex": 1}


def test_new_values_begin_anew_and_say_so(keeps, serve, store) -> None:
    daemon = serve()
    assert keeps().status == 0 and daemon.text("keeps", "/count") == "1\n"
    ((old,),) = daemon.processes().values()
    store.ok("env", "set", "keeps", "COLOUR=red")
    harness.wait_until(lambda: gone(old), "the machine with the old environment has ended")
    assert daemon.text("keeps", "/count") == "1\n"
    assert logged(store, "keeps", LOST)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR2])
def test_another_daemon_begins_anew_and_it_is_told(store, serve, node, how: int) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT)
    assert [daemon.text("probe", "/count") for _ in range(2)] == ["1", "2"]
    with contextlib.closing(hold(daemon, "probe", "/sleep/300")) as sleeps:
        harness.wait_until(lambda: live(store, "probe")["in_flight"] == 1, "it is in the machine")
        daemon.popen.send_signal(how)
        assert b"probe slept" in reply_on(sleeps)
    assert daemon.wait().status == 0
    assert LOST in daemon.err
    if how == signal.SIGTERM:
        daemon = serve()
    assert daemon.text("probe", "/count") == "1"
    assert logged(store, "probe", LOST)
    if how == signal.SIGUSR2:
        successor = pid_of_listener(daemon.port)
        os.kill(successor, signal.SIGTERM)
        harness.wait_until(lambda: gone(successor), "the successor has ended")


def test_others_that_want_machines_do_not_take_it(keeps, serve, store) -> None:
    daemon = serve("--max-vms", "1", "--idle", "0.1")
    assert keeps().status == 0 and daemon.text("keeps", "/count") == "1\n"
    assert keeps(name="other", stays=False).status == 0
    with contextlib.closing(hold(daemon, "other", "/count")):
        harness.wait_until(lambda: live(store, "other")["queued"] == 1, "another function waits for a machine")
        assert [daemon.text("keeps", "/count") for _ in range(3)] == ["2\n", "3\n", "4\n"]
    assert list(daemon.processes()) == ["keeps v1"]


def test_it_is_shown_where_functions_are(keeps, serve, store) -> None:
    daemon = serve()
    assert keeps().status == 0 and keeps(name="forgets", stays=False).status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    assert {one["name"]: one["keeps_state"] for one in store.json("list")["functions"]} == {"keeps": True, "forgets": False}
    assert "ready, keeps state" in store.ok("describe", "keeps") and "keeps state" not in store.ok("describe", "forgets")
    shown = live(store, "keeps")
    assert (shown["machines"], shown["busy"]) == (1, 0)


@pytest.mark.parametrize("settings, said", [
    ('ephemeral = "no"\n', "function.ephemeral must be true or false"),
    (KEPT + "[function.scale]\nmax = 4\n", "function.scale.max must be absent where function.ephemeral = false: function.scale.machines of them run all the time"),
    (KEPT + "[function.scale]\nidle = \"1s\"\n", "function.scale.idle must be absent where function.ephemeral = false"),
    (KEPT + "[function.scale]\nconcurrency = 0\n", "function.scale.concurrency must be a whole number from 1 to 256"),
    ("[function.scale]\nconcurrency = 4\n", "function.scale.concurrency must be absent unless function.ephemeral = false"),
])
def test_what_does_not_go_together_is_refused(keeps, settings: str, said: str) -> None:
    done = keeps(settings=settings, stays=False)
    assert done.status == 2 and said in done.err, done
