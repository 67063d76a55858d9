"""[function.storage]: a function reaches another one, which keeps its state, in memory."""
import json
import pathlib
import socket
import threading

import harness
import pytest
from serving import Daemon, Store
from test_tcp_functions import Client, manifest, refused

STORE_PORT = 6390  # nothing listens there on the host


def deploy_storage(store: Store, name: str = "shelf", settings: str = "", says: str = str(STORE_PORT)) -> str:
    folder = manifest(store, name, [], [str(harness.GUESTS / "stores"), says], settings="ephemeral = false\n" + settings)
    return store.ok("deploy", folder, "-q")


def deploy_caller(store: Store, port: int, name: str = "shop", storage: str = "shelf", settings: str = "", at: str = str(STORE_PORT)) -> str:
    argv = [str(harness.GUESTS / "calls"), str(harness.free_port()), at]
    folder = manifest(store, name, [f"127.0.0.1:{port}"], argv, settings=f'{settings}[function.storage]\nfunction = "{storage}"\n')
    return store.ok("deploy", folder, "-q")


def ask(port: int, commands: str) -> list[str]:
    with Client(port) as client:
        client.socket.sendall(commands.encode() + b"\n")
        try:
            return client.lines.read().decode().splitlines()
        except ConnectionResetError:
            return ["reset"]


@pytest.fixture
def port() -> int:
    return harness.free_port()


@pytest.mark.emulated
def test_a_number_is_kept_across_requests(store, serve, port) -> None:
    serve("-t", "2")
    assert deploy_storage(store).startswith("shelf v1 live")
    deploy_caller(store, port)
    assert [ask(port, "add 1") for _ in range(5)] == [["1"], ["2"], ["3"], ["4"], ["5"]]
    assert refused(STORE_PORT)


@pytest.fixture
def both(store, serve, port):
    """A caller on two machines, and its storage."""
    daemon = serve("-t", "2")
    deploy_storage(store)
    deploy_caller(store, port)
    return daemon


def only_client(port: int) -> bool:
    """A reply may be there before the storage has seen that the request's connection is closed."""
    harness.wait_until(lambda: ask(port, "clients") == ["1"], "all other connections are closed")
    return True


def test_both_ends_see_the_same_addresses(both, port) -> None:
    [where, who] = ask(port, "where;who")
    assert where == f"{who} {STORE_PORT}" and int(who) >= 32768


@pytest.mark.emulated
@pytest.mark.parametrize("how", ["leave;add 1;exit", "leave;add 1;again;exit"])
def test_a_request_that_dies_is_a_client_that_has_gone(both, port, how) -> None:
    ask(port, how)
    assert ask(port, "get") == ["1"] and only_client(port)


def test_nothing_of_a_request_reaches_the_next_one(both, port) -> None:
    ask(port, "keep secret")
    assert ask(port, "leave;raw " + b"text\ntext\n".hex()) == ["leave", "sent"]
    assert ask(port, "keep nothing") == ["ok"]
    assert only_client(port)


@pytest.mark.emulated
def test_large_transfers(both, port) -> None:
    megabytes = 2 if harness.SLOWNESS > 1 else 20
    assert ask(port, f"echo {megabytes << 20};get")[0] == f"same {megabytes << 20}"


def test_many_at_once_lose_nothing(both, port) -> None:
    answers: list[list[str]] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(port, "times 100 add 1"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(answer) == 1 and answer[0].isdigit() for answer in answers), answers
    assert ask(port, "get") == ["1600"]


def test_another_address_is_not_the_storage(store, serve, port) -> None:
    serve("-t", "1")
    deploy_storage(store)
    deploy_caller(store, port, at=str(STORE_PORT + 1))
    assert ask(port, "get") == ["cannot connect: Connection refused"]  # of the host: it may connect everywhere


@pytest.mark.emulated
def test_a_storage_is_suspended_and_resumed(store, serve, port) -> None:
    daemon = serve("-t", "1")
    deploy_storage(store, settings="[function.scale]\nsuspend = true\n")
    deploy_caller(store, port)
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["1"], ["2"]] and only_client(port)
    store.ok("suspend", "shelf")
    assert "shelf v1" not in daemon.processes()
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["3"], ["4"]]


def test_a_new_version_of_the_storage_begins_anew(store, serve, port) -> None:
    serve("-t", "2")
    deploy_storage(store, settings='drain = "200ms"\n')
    deploy_caller(store, port)
    with Client(port) as held:
        held.socket.sendall(b"add 7;wait\n")
        harness.wait_until(lambda: ask(port, "get") == ["7"], "it has connected")
        assert deploy_storage(store).startswith("shelf v2 live")
        said = held.lines.read().decode().splitlines()  # the connection ends after the old version's drain time
    assert said[0] == "7" and said[1].startswith("failed: "), said
    assert ask(port, "add 1") == ["1"]


def test_a_storage_that_is_gone_is_told_in_the_log(both, store, port) -> None:
    assert ask(port, "get") == ["0"]
    store.ok("delete", "shelf", "--yes")
    harness.wait_until(lambda: ask(port, "get") == ["cannot connect: Connection refused"], "it is refused")
    assert "storage: there is no function shelf" in store("logs", "shop").out
    deploy_storage(store)
    harness.wait_until(lambda: ask(port, "add 2") == ["2"], "it is there again")


@pytest.mark.parametrize("at", ["/tmp/shelf.sock", "@shelf"])
def test_unix_addresses(store, serve, port, at) -> None:
    serve("-t", "1")
    deploy_storage(store, says=at)
    deploy_caller(store, port, at=at)
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["1"], ["2"]]


@pytest.mark.parametrize("text, status, said", [
    ('storage = "shelf"', 2, "kvmserver.toml:10: function.storage must be a table"),
    ('[function.storage]\nfunction = "a/b"', 2, "kvmserver.toml:11: function.storage.function must be the name of a function"),
    ("[function.storage]", 2, "kvmserver.toml:10: function.storage.function must be the name of a function"),
    ('[function.storage]\nfunction = "shop"', 2, "shop cannot be its own storage"),
    ('[function.storage]\nfunction = "nowhere"', 3, "no function nowhere is live: deploy it first"),
    ('[function.storage]\nfunction = "web"', 5, "web v1 does not have protocol = \"tcp\""),
], ids=["text", "name", "empty", "itself", "missing", "http"])
def test_refusals(store, serve, program, text, status, said) -> None:
    serve("-t", "1")
    if '"web"' in text:
        store.deploy_probe(program("node-http"), "web")
    folder = manifest(store, "shop", [f"127.0.0.1:{harness.free_port()}"], [str(harness.GUESTS / "calls"), "1", "2"], settings=text + "\n")
    done = store("deploy", folder, "-q")
    assert done.status == status and said in done.err, done
