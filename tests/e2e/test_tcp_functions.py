"""kvmserver serve: functions with protocol = "tcp", whose every connection gets a clean machine."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import threading
import time

import admin
import harness
import pytest
from serving import Daemon, Store
from test_serve_life import pid_of_listener

GREETS = "server-first = true\n"


class Client:
    """A client of lines."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), harness.PATIENCE)
        self.lines = self.socket.makefile("rb")

    def say(self, line: str) -> str:
        self.socket.sendall(line.encode() + b"\n")
        return self.line()

    def line(self) -> str:
        return self.lines.readline().decode().rstrip("\r\n")

    def ended(self) -> bool:
        try:
            return self.lines.read() in (b"", b"end\n")
        except ConnectionError:
            return True

    def close(self) -> None:
        self.lines.close()
        self.socket.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def manifest(store: Store, name: str, listen: list[str], argv: list[str], top: str = "", settings: str = "") -> pathlib.Path:
    folder = store.folder / name
    folder.mkdir(exist_ok=True)
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\nlevel = 1\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        f'[function]\nname = {json.dumps(name)}\nprotocol = "tcp"\nlisten = {json.dumps(listen)}\n{settings}')
    return folder


def talks(store: Store, name: str, listen: list[str], says: str = "", **more) -> pathlib.Path:
    argv = [str(harness.GUESTS / "talks"), str(harness.free_port()), says or name]
    return manifest(store, name, listen, argv, **more)


def local(port: int) -> str:
    return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store and its daemon, for the tests that need none of their own."""
    store = Store(tmp_path_factory.mktemp("tcp"))
    daemon = Daemon(store, "-t", "4")
    try:
        yield store, daemon
        assert daemon.stop().status == 0
    finally:
        daemon.close()


@pytest.fixture
def port() -> int:
    return harness.free_port()


def count(port: int) -> str:
    with Client(port) as client:
        said = client.say("count")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.lines.read() == b"end\n"
        return said


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), harness.PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def access(daemon: Daemon, function: str, wanted: int) -> list[dict]:
    """The lines of the access log about a function, once there are so many."""
    def lines() -> list[dict]:
        return [line for line in map(json.loads, daemon.access_file.read_text().splitlines()) if line.get("function") == function]

    harness.wait_until(lambda: len(lines()) >= wanted, f"{wanted} lines about {function}")
    return lines()


def test_each_connection_gets_a_clean_machine(world, port) -> None:
    store, daemon = world
    said = store.ok("deploy", talks(store, "pg", [local(port)], says="one"), "-q")
    assert said == f"pg v1 live tcp://127.0.0.1:{port}"
    assert "pg v1" not in daemon.processes()
    for _ in range(3):  # the first one starts a process
        with Client(port) as client:
            assert client.say("count") == "one 1 1"
            assert client.say("count") == "one 1 2"
            mine = client.socket.getsockname()
            assert client.say("addresses") == f"127.0.0.1:{mine[1]} 127.0.0.1"
            assert client.say("print") == "printed"
            client.socket.shutdown(socket.SHUT_WR)  # the program still answers
            assert client.lines.read() == b"end\n"
    assert len(daemon.processes()["pg v1"]) == 1

    # 50 at once on 4 machines: each waits for its turn and has one of its own.
    replies: list[str] = []
    threads = [threading.Thread(target=lambda: replies.append(count(port))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == ["one 1 1"] * 50

    with Client(port) as client:  # more than buffers hold
        client.socket.sendall(b"bytes 20000000\n")
        assert len(client.lines.read()) == 20_000_000 + len("end\n")

    # logs, access log and metrics
    assert "a line of one" in store.ok("logs", "pg", "--tail", "100") + store("logs", "pg").out
    lines = access(daemon, "pg", 54)
    assert {(line["function"], line["version"], line["method"], line["path"], line["outcome"]) for line in lines} == {
        ("pg", 1, "TCP", local(port), "ok")}
    assert lines[0]["client_ip"] == "127.0.0.1" and lines[0]["cold"] and not lines[-1]["cold"]
    assert (lines[-1]["bytes_in"], lines[-1]["bytes_out"]) == (15, 20_000_004)
    assert f"TCP 127.0.0.1:{port} -" in store("logs", "pg").out
    metrics = daemon_metrics(store)
    assert 'kvmserver_tcp_connections_total{function="pg",version="1",outcome="ok"} 54' in metrics, metrics
    assert "kvmserver_open_tcp_connections 0" in metrics

    assert f"tcp://127.0.0.1:{port}" in store("list").out and f"tcp://127.0.0.1:{port}" in store("describe", "pg").out
    # what is for HTTP says what it is
    invoked = store("invoke", "pg")
    assert invoked.status == 5 and f"connect to 127.0.0.1:{port}" in invoked.err, invoked
    assert daemon.ask("pg").status == 404


def daemon_metrics(store: Store) -> str:
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def test_the_server_speaks_first(world) -> None:
    store, _ = world
    four, six = harness.free_port(), harness.free_port()
    argv = [str(harness.GUESTS / "greets"), str(harness.free_port())]
    store.ok("deploy", manifest(store, "greets", [local(four), f"[::1]:{six}"], argv, top=GREETS), "-q")
    for _ in range(2):
        for host, port in (("127.0.0.1", four), ("::1", six)):
            with Client(port, host) as client:
                assert client.line() == "1 ready"
                assert client.say("hello") == "hello"


def test_a_deploy_does_not_wait_for_a_program_that_says_nothing(store, tmp_path) -> None:
    """A trial asks it by HTTP, which such a program does not answer: nothing else comes that it could wait for."""
    folder = manifest(store, "shelf", [], [str(harness.GUESTS / "stores"), str(harness.free_port())])
    trace = tmp_path / "trace"
    traced = ["strace", "-f", "-e", "trace=ppoll", "-o", str(trace)]
    done = harness.kvmserver("deploy", folder, "--store", store.path, wrapper=traced)
    assert done.status == 0, done
    waits = re.findall(r"ppoll\(.*\{tv_sec=(\d+)", trace.read_text())
    assert waits and not [seconds for seconds in waits if seconds != "0"], waits


def test_a_new_version_while_a_connection_is_open(world, port) -> None:
    store, daemon = world
    settings = 'drain = "1s"\n'
    store.ok("deploy", talks(store, "moves", [local(port)], says="one", top="max-request-time = 60\n", settings=settings), "-q")
    with Client(port) as old:
        assert old.say("count") == "one 1 1"
        store.ok("deploy", talks(store, "moves", [local(port)], says="two", top="max-request-time = 60\n", settings=settings), "-q")
        assert count(port) == "two 1 1"
        assert old.say("count") == "one 1 2"  # it keeps its machine
        began = time.monotonic()
        assert old.ended() and time.monotonic() - began < 10  # until the drain time is over
    assert [line["outcome"] for line in access(daemon, "moves", 2)] == ["ok", "stopped"]
    # back, and both by their shares
    store.ok("rollback", "moves", "-y")
    assert count(port) == "one 1 1"
    store.ok("traffic", "moves", "1=50", "2=50")
    assert {count(port) for _ in range(40)} == {"one 1 1", "two 1 1"}
    # A version with another address takes the place of both.
    other = harness.free_port()
    store.ok("deploy", talks(store, "moves", [local(other)], says="three", settings=settings), "-q")
    assert count(other) == "three 1 1"
    harness.wait_until(lambda: refused(port), "the former address is closed")
    split = store("traffic", "moves", "2=50", "3=50")
    assert split.status == 5 and "must be for the same addresses" in split.err, split
    store.ok("delete", "moves", "--yes")
    harness.wait_until(lambda: refused(other), "nobody listens")


def test_an_address_that_is_taken(world, port) -> None:
    store, daemon = world
    store.ok("deploy", talks(store, "owner", [local(port)]), "-q")
    again = store("deploy", talks(store, "other", [local(port)]), "-q")
    assert again.status == 5 and f"127.0.0.1:{port} is taken by owner" in again.err, again
    everywhere = store("deploy", talks(store, "other", [f"0.0.0.0:{port}"]), "-q")
    assert everywhere.status == 5 and "is taken by owner" in everywhere.err, everywhere
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = local(busy.getsockname()[1])
        done = store("deploy", talks(store, "other", [taken]), "-q")
        assert done.status == 5 and f"cannot listen on {taken}: Address already in use" in done.err, done
        assert len(done.err.splitlines()) == 1, done
        # Not live, it needs no address; going live, it does.
        store.ok("deploy", talks(store, "other", [taken]), "--no-activate", "-q")
        assert store("rollback", "other", "1", "-y").status == 5
    store.ok("rollback", "other", "-y", "1")
    assert count(int(taken.rpartition(":")[2])) == "other 1 1"
    assert daemon.running()


def test_the_daemon_ends_and_starts_again(store, serve, port) -> None:
    daemon = serve()
    store.ok("deploy", talks(store, "pg", [local(port)]), "-q")
    assert count(port) == "pg 1 1"
    with Client(port) as client:
        client.say("count")
        daemon.popen.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: refused(port), "it accepts no more")
        assert client.say("count") == "pg 1 2"  # but finishes what is open
    assert daemon.wait().status == 0
    # An address that is taken at the start is had once it is free.
    with socket.create_server(("127.0.0.1", port)):
        daemon = serve()
        harness.wait_until(lambda: f"pg: cannot listen on 127.0.0.1:{port}" in daemon.err, "it says so")
    harness.wait_until(lambda: not refused(port), "it listens")
    assert count(port) == "pg 1 1"


def test_who_waits_to_be_accepted_when_the_daemon_ends(store, serve, port) -> None:
    daemon = serve()
    store.ok("deploy", talks(store, "pg", [local(port)]), "-q")
    assert count(port) == "pg 1 1"
    with contextlib.ExitStack() as stack:
        daemon.popen.send_signal(signal.SIGSTOP)
        clients = [stack.enter_context(Client(port)) for _ in range(400)]  # more than are accepted at once
        for client in clients:
            client.socket.sendall(b"count\n")
            client.socket.shutdown(socket.SHUT_WR)
        daemon.popen.send_signal(signal.SIGTERM)
        daemon.popen.send_signal(signal.SIGCONT)
        assert {client.line() for client in clients} == {"pg 1 1"}
    assert daemon.wait().status == 0


def test_hand_over_with_an_open_connection(store, serve, port) -> None:
    daemon = serve("-t", "2")
    store.ok("deploy", talks(store, "pg", [local(port)]), "-q")
    stop, replies = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            try:
                replies.append(count(port))
            except OSError as error:
                replies.append(str(error))

    asking = threading.Thread(target=ask)
    with Client(port) as client, Client(port) as silent:
        assert client.say("count") == "pg 1 1"
        asking.start()
        daemon.popen.send_signal(signal.SIGUSR2)
        harness.wait_until(lambda: daemon.out.count("Serving 1 function") == 1, f"another serves; {daemon.err}")
        assert silent.say("count") == "pg 1 1"
        assert client.say("count") == "pg 1 2"
    assert daemon.wait().status == 0
    before = len(replies)
    harness.wait_until(lambda: len(replies) > before + 5, "the successor serves")
    stop.set()
    asking.join()
    os.kill(pid_of_listener(daemon.port), signal.SIGTERM)
    assert set(replies) == {"pg 1 1"}, set(replies)
    harness.wait_until(lambda: refused(port), "the successor has ended, too")


@pytest.mark.parametrize("key, value", [("warmup", "auto"), ("warmup-path", "/a"), ("warmup-requests", "w.http")])
def test_a_warm_up_is_refused(store, port, key, value) -> None:
    said = store("deploy", talks(store, "pg", [local(port)], top=f'{key} = "{value}"\n'), "-q")
    assert said.status == 2
    assert f"kvmserver.toml:3: {key} " in said.err, said.err
    assert "HTTP request" in said.err
    assert "pg" not in store("list").out


REDIS = shutil.which("redis-server")


@pytest.mark.skipif(not REDIS, reason="there is no redis-server")
def test_redis(world, port) -> None:
    """A real program: each connection has a database of its own."""
    store, _ = world
    argv = [REDIS, "--port", str(harness.free_port()), "--save", "", "--bind", "127.0.0.1", "--daemonize", "no"]
    store.ok("deploy", manifest(store, "redis", [local(port)], argv), "-q")
    for _ in range(2):
        with Client(port) as client:
            assert client.say("INCR n") == ":1"
            assert client.say("INCR n") == ":2"
            assert client.say("DBSIZE") == ":1"


@pytest.mark.skipif(not REDIS, reason="there is no redis-server")
def test_redis_that_keeps_its_data(world, port) -> None:
    """With ephemeral = false all connections are of one machine, at once."""
    store, daemon = world
    argv = [REDIS, "--port", str(harness.free_port()), "--save", "", "--bind", "127.0.0.1", "--daemonize", "no"]
    store.ok("deploy", manifest(store, "kept-redis", [local(port)], argv, settings="ephemeral = false\n"), "-q")
    with Client(port) as silent, Client(port) as subscriber, Client(port) as client:
        assert client.say("INCR n") == ":1"
        assert subscriber.say("SUBSCRIBE news") == "*3"
        assert [subscriber.line() for _ in range(5)] == ["$9", "subscribe", "$4", "news", ":1"]
        with Client(port) as other:
            assert other.say("INCR n") == ":2"
            assert other.say("PUBLISH news hello") == ":1"
            assert [subscriber.line() for _ in range(7)] == ["*3", "$7", "message", "$4", "news", "$5", "hello"]
        assert client.say("INCR n") == ":3"
        assert silent.say("GET n") == "$1"
        assert silent.line() == "3"
    with Client(port) as client:
        assert client.say("INCR n") == ":4"
    assert len(daemon.processes()["kept-redis v1"]) == 1


def test_the_example(world, port, tmp_path) -> None:
    store, _ = world
    folder = tmp_path / "python-tcp"
    shutil.copytree(harness.ROOT / "functions/python-tcp", folder)
    text = (folder / "kvmserver.toml").read_text()
    (folder / "kvmserver.toml").write_text(text.replace("7007", str(port)))
    store.ok("deploy", folder, "-q")
    for _ in range(2):
        with Client(port) as client:
            assert client.line() == "hello, what do you say?"
            assert client.say("nothing") == "1: nothing"
            assert client.say("much") == "2: much"


def test_what_a_token_may_claim(store, serve, port) -> None:
    """The operator may claim any address; the holder of a token with a prefix only what its ceilings name."""
    daemon = serve("--admin", local(api := harness.free_port()))
    ceilings = store.folder / "ceilings.toml"
    ceilings.write_text(f'tcp-listen = ["127.0.0.1:{port}"]\n')
    tokens = {}
    for name, more in (("none", []), ("some", ["--ceilings", str(ceilings)])):
        tokens[name] = store.ok("token", "create", name, "--scope", "deploy", "--prefix", "acme-", *more)
    program = talks(store, "acme-pg", [local(port)])

    def deploy(token: str, listen: str) -> harness.Ended:
        text = (program / "kvmserver.toml").read_text()
        (program / "kvmserver.toml").write_text(re.sub(r"listen = .*", f'listen = ["{listen}"]', text, count=1))
        environment = {**harness.BASE_ENVIRONMENT, "KVMSERVER_TOKEN": tokens[token]}
        return harness.kvmserver("deploy", str(program), "-q", "--clamp", "--remote", f"http://{local(api)}", env=environment,
                                 patience=harness.PATIENCE * 6)

    for token, listen, granted in (("none", local(port), "nothing"), ("some", f"0.0.0.0:{port}", local(port)),
                                   ("some", "127.0.0.1:22", local(port))):
        done = deploy(token, listen)
        assert done.status == 4 and f"function.listen = {listen} (granted: {granted})" in done.err, done
    done = deploy("some", local(port))
    assert done.status == 0, done
    assert count(port) == "acme-pg 1 1"
    # What another function has is not told to it.
    store.ok("deploy", talks(store, "pg", [local(other := harness.free_port())]), "-q")
    wide = store.folder / "wide.toml"
    wide.write_text('tcp-listen = ["127.0.0.1:1-65535"]\n')
    tokens["wide"] = store.ok("token", "create", "wide", "--scope", "deploy", "--prefix", "acme-", "--ceilings", str(wide))
    done = deploy("wide", local(other))
    assert done.status == 5 and "is taken by another function" in done.err and "pg;" not in done.err, done
    assert daemon.running()


def test_a_function_listens_nowhere_else(world, port) -> None:
    """What it opens itself is in a network of its own."""
    store, _ = world
    folder = talks(store, "locked", [local(port)])
    text = (folder / "kvmserver.toml").read_text().replace("allow-all = true", 'allow-listen = true')
    (folder / "kvmserver.toml").write_text(text)
    store.ok("deploy", folder, "-q")
    elsewhere = harness.free_port()
    with Client(port) as client:
        client.say(f"listen {elsewhere}")
        assert refused(elsewhere)
        assert client.say("count") == "locked 1 2"


def test_limits_end_a_connection(world, port) -> None:
    store, daemon = world
    top = "max-request-time = 2\n"
    store.ok("deploy", talks(store, "limited", [local(port)], top=top, settings="[function.scale]\nmax = 1\nqueue = 1\n"), "-q")
    with Client(port) as stuck:
        stuck.socket.sendall(b"spin\n")
        assert stuck.ended()
    with Client(port) as idle:
        assert idle.say("count") == "limited 1 1"
        with Client(port) as waits:  # in the queue
            waits.socket.sendall(b"count\n")
            harness.wait_until(lambda: queued(store) == 1, f"it waits; {daemon_metrics(store)[-3000:]}")
            assert idle.say("count") == "limited 1 2"  # so it is not idle yet
            with Client(port) as third:  # for which the queue has no room
                third.socket.sendall(b"count\n")
                assert third.ended()
            assert idle.ended()  # after two seconds without a word
            assert waits.line() == "limited 1 1"
            waits.socket.shutdown(socket.SHUT_WR)
            assert waits.lines.read() == b"end\n"
    with Client(port) as dying:
        dying.socket.sendall(b"die\n")
        assert dying.ended()
    outcomes = [line["outcome"] for line in access(daemon, "limited", 5)]
    assert outcomes == ["program_failed", "queue-full", "program_failed", "ok", "program_failed"], outcomes
    for why in ("its client was idle", "it computed", "exited with status 3"):
        harness.wait_until(lambda why=why: why in daemon.err, f"the log says: {why}")
    metrics = daemon_metrics(store)
    assert 'kvmserver_rejected_total{function="limited",version="1",reason="queue-full"} 1' in metrics
    assert 'kvmserver_faults_total{function="limited",version="1",reason="program-failed"} 1' in metrics


def queued(store: Store) -> int:
    for line in daemon_metrics(store).splitlines():
        if line.startswith('kvmserver_queued_requests{function="limited"'):
            return int(line.split()[-1])
    return 0
