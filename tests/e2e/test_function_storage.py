"""[function.storage]: a function reaches another one, which keeps its state, in memory."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import threading
import time

import harness
import pytest
from serving import Store
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


@pytest.mark.emulated(nightly=True)
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


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("how", ["leave;add 1;exit", "leave;add 1;again;exit"])
def test_a_request_that_dies_is_a_client_that_has_gone(both, port, how) -> None:
    ask(port, how)
    assert ask(port, "get") == ["1"] and only_client(port)


def test_nothing_of_a_request_reaches_the_next_one(both, port) -> None:
    ask(port, "keep secret")
    assert ask(port, "leave;raw " + b"text\ntext\n".hex()) == ["leave", "sent"]
    assert ask(port, "keep nothing") == ["ok"]
    assert only_client(port)


@pytest.mark.emulated(nightly=True)
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


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("linger", ["0s", "1h"])
def test_a_storage_is_suspended_and_resumed(store, serve, port, linger) -> None:
    daemon = serve("-t", "1")
    deploy_storage(store, settings=f'[function.scale]\nsuspend = true\nlinger = "{linger}"\n')
    deploy_caller(store, port)
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["1"], ["2"]] and only_client(port)
    before = daemon.processes()["shelf v1"]
    assert store.ok("suspend", "shelf") == "shelf: 1 machine suspended"
    if linger == "0s":
        harness.wait_until(lambda: "shelf v1" not in daemon.processes(), "its process has ended")
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["3"], ["4"]]
    assert (daemon.processes()["shelf v1"] == before) == (linger != "0s")


@pytest.mark.parametrize("how", ["add 1", "leave;add 1"])
def test_both_keep_their_state(store, serve, port, how) -> None:
    """The caller is suspended, too, with or without a connection to the storage."""
    suspends = "ephemeral = false\n[function.scale]\nsuspend = true\n"
    daemon = serve("-t", "1")
    deploy_storage(store, settings="[function.scale]\nsuspend = true\nlinger = 0\n")
    deploy_caller(store, port, settings=suspends)  # does not linger, since it has a storage
    assert [ask(port, how)[-1], ask(port, how)[-1]] == ["1", "2"]
    store.ok("suspend", "shop")
    harness.wait_until(lambda: "shop v1" not in daemon.processes(), "its process has ended")
    assert ask(port, "get") == ["2"]
    store.ok("suspend", "shop")
    store.ok("suspend", "shelf")  # the connections ended with the caller's process
    harness.wait_until(lambda: not daemon.processes(), "both processes have ended")
    assert ask(port, "get") == ["2"]


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


def with_program(store: Store, port: int, storage: str = "", args: list[str] | None = None, name: str = "shop") -> pathlib.Path:
    argv = [str(harness.GUESTS / "calls"), str(harness.free_port()), str(STORE_PORT)]
    return manifest(store, name, [f"127.0.0.1:{port}"], argv, settings=(
        f"[function.storage]\nprogram = {json.dumps(str(harness.GUESTS / 'stores'))}\n"
        f"args = {json.dumps([str(STORE_PORT)] if args is None else args)}\n{storage}"))


def test_a_program_is_deployed_with_the_function(store, serve, port) -> None:
    serve("-t", "2")
    folder = with_program(store, port)
    said = store("deploy", folder, "--dry-run")
    assert said.status == 0 and "+ storage shop-storage" in said.out.splitlines(), said
    assert store.json("deploy", folder)["storage"] == {"name": "shop-storage", "version": 1, "deployed": True}
    assert [ask(port, "add 1"), ask(port, "add 1")] == [["1"], ["2"]]

    said = store("deploy", folder)  # a new version of the function alone
    assert said.out.startswith("shop v2 live") and "shop-storage v1 stays, with what it keeps" in said.err, said
    assert ask(port, "add 1") == ["3"]
    assert "storage" not in store("deploy", folder, "--dry-run").out
    assert store("deploy", folder, "-q", "--no-activate").status == 0
    elsewhere = folder.rename(folder.parent / "elsewhere")  # as the next job of a CI has it
    assert "shop-storage v1 stays" in store("deploy", elsewhere).err and ask(port, "get") == ["3"]
    elsewhere.rename(folder)

    said = store("deploy", with_program(store, port, "max-main-memory = 300\n"), "-q")  # something of it has changed
    assert "shop-storage v2 replaces v1: what that kept is lost" in said.err, said
    assert ask(port, "add 1") == ["1"]
    folder = with_program(store, port)
    assert "shop-storage v3 replaces v2" in store("deploy", folder, "-q").err
    assert "shop-storage v4 replaces v3" in store("deploy", folder, "-q", "--new-storage").err


def test_a_program_under_another_name(store, serve, port) -> None:
    serve("-t", "1")
    assert store("deploy", with_program(store, port, 'function = "shelf"\nsuspend = true\n'), "-q", "--name", "kiosk").status == 0
    assert ask(port, "add 1") == ["1"] and only_client(port)
    assert "kiosk" in store("list").out and "shelf" in store("list").out
    store.ok("suspend", "shelf")
    assert ask(port, "add 1") == ["2"]


def test_a_function_that_is_no_storage_is_not_replaced(store, serve, port, program) -> None:
    serve("-t", "1")
    store.deploy_probe(program("node-http"), "shop-storage")
    for words in ((), ("--dry-run",)):
        done = store("deploy", with_program(store, port), "-q", *words)
        assert done.status == 5 and "shop-storage v1 is live, and is no storage" in done.err, done
    assert store.json("list")["functions"][0]["live"] == [{"version": 1, "percent": 100}]


def test_a_function_that_cannot_be_made_leaves_its_storage(store, serve, port) -> None:
    serve("-t", "1")
    folder = with_program(store, port)
    store.ok("deploy", folder, "-q")
    assert ask(port, "add 5") == ["5"]
    text = (with_program(store, port, "max-main-memory = 300\n") / "kvmserver.toml").read_text()
    (folder / "kvmserver.toml").write_text(text.replace("[function]", "[function]\nbuild.command = \"exit 3\"", 1))
    done = store("deploy", folder, "-q", "--new-storage")
    assert done.status == 1 and "command ended with status 3" in done.err, done
    assert ask(port, "get") == ["5"]


def test_a_storage_that_cannot_be_made_leaves_what_is_live(store, serve, port) -> None:
    serve("-t", "1")
    store.ok("deploy", with_program(store, port), "-q")
    done = store("deploy", with_program(store, port, args=["never"], storage="max-boot-time = 0.5\n"), "-q")
    assert done.status != 0 and "did not wait for a connection" in done.err, done
    assert ask(port, "add 1") == ["1"]
    assert {entry["name"]: entry["live"] for entry in store.json("list")["functions"]} == {
        name: [{"version": 1, "percent": 100}] for name in ("shop", "shop-storage")}


def test_dev_boots_the_program(store, port) -> None:
    for storage, answers in (("", [["1"], ["2"]]), (None, [["cannot connect: Connection refused"]] * 2)):
        folder = with_program(store, port)
        if storage is None:  # of another function
            text = (folder / "kvmserver.toml").read_text().partition("[function.storage]")[0]
            (folder / "kvmserver.toml").write_text(text + '[function.storage]\nfunction = "shelf"\n')
        dev = harness.Process([str(harness.KVMSERVER), "dev", "--port", str(port), str(folder)], str(store.folder), harness.BASE_ENVIRONMENT)
        try:
            harness.wait_until(lambda: f"Ready tcp://127.0.0.1:{port}" in dev.out or not dev.running(), f"it serves: {dev.err}")
            assert [ask(port, "add 1"), ask(port, "add 1")] == answers
            assert ("is not reached from here" in dev.err) == (storage is None), dev.err
            assert dev.stop().status == 0
        finally:
            dev.close()


def test_describe_names_the_storage(both, store) -> None:
    assert "storage    shelf (v1)" in store("describe", "shop").out.splitlines()


def test_new_storage_needs_one(store, serve, port) -> None:
    serve("-t", "1")
    folder = with_program(store, port)
    done = store("deploy", folder, "--new-storage", "--no-activate")
    assert done.status == 2 and "--new-storage excludes --no-activate" in done.error, done
    done = store("deploy", manifest(store, "shop", [f"127.0.0.1:{port}"], ["/bin/true"]), "--new-storage")
    assert done.status == 2 and "--new-storage needs a manifest that has [function.storage] program" in done.error, done


@pytest.mark.parametrize("text, said", [
    ('program = ""', ":10: [function.storage] program is missing"),
    ("program = 3", ":11: function.storage.program must be a string"),
    ('program = "x"\nargs = "y"', ":12: function.storage.args must be an array of strings"),
    ('program = "x"\nfunction = "a/b"', ":12: function.storage.function must be the name of a function"),
    ('program = "x"\nallow-read = 3', ":12: function.storage.allow-read must be"),
    ('program = "x"\nsuspend = 3', ":12: function.storage.suspend must be true or false"),
    ('program = "x"\nconcurrency = 0', ":12: function.storage.concurrency must be a whole number from 1 to 256"),
    ('program = "x"\nmachines = 2', ":12: unknown key 'function.storage.machines'"),
    ('function = "shelf"\nargs = []', ":12: unknown key 'function.storage.args'"),
    ('program = "/no/such/program"', "[function.storage]: [run] program: "),
], ids=["empty", "number", "args", "name", "option", "suspend", "concurrency", "unknown", "no-program", "not-there"])
def test_refusals_of_a_program(store, serve, text, said) -> None:
    serve("-t", "1")
    folder = manifest(store, "shop", [f"127.0.0.1:{harness.free_port()}"], [str(harness.GUESTS / "calls"), "1", "2"],
                      settings=f"[function.storage]\n{text}\n")  # fmt: skip
    done = store("deploy", folder, "-q", "--strict")
    assert done.status != 0 and said in done.err, done
    assert "/proc/" not in done.err, done
    assert store.json("list")["functions"] == []


REDIS = shutil.which("redis-server")


@pytest.fixture
def counts(store, serve, port):
    """A function on four machines whose requests go to Redis."""
    daemon = serve("-t", "4")
    redis = manifest(store, "redis", [], [REDIS or "", "--port", "6391", "--save", "", "--appendonly", "no"], settings="ephemeral = false\n")
    store.ok("deploy", redis, "-q")
    deploy_caller(store, port, storage="redis", at="6391")
    return daemon


@pytest.mark.skipif(not REDIS, reason="no redis-server: scripts/setup.sh --tests")
def test_redis_counts_for_four_machines_over_sixteen_connections(counts, port) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda words: ask(port, words), ["times 625 INCR n"] * 16))
    assert all(len(answer) == 1 and answer[0].startswith(":") for answer in answers), answers
    assert ask(port, "INCRBY n 0") == [":10000"]


@pytest.mark.skipif(not REDIS, reason="no redis-server: scripts/setup.sh --tests")
def test_nothing_answered_is_lost_when_the_callers_are_killed(counts, port) -> None:
    ended = threading.Event()

    def count() -> tuple[int, int]:
        answered = asked = 0
        while not ended.is_set():
            asked += 1
            with contextlib.suppress(ConnectionError, TimeoutError):
                answered += ask(port, "INCR n")[:1] not in ([], ["reset"])
        return answered, asked

    kills = 0
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counting = [pool.submit(count) for _ in range(16)]
        until = time.monotonic() + 3
        while time.monotonic() < until:
            for pid in counts.processes().get("shop v1", []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
            time.sleep(0.1)  # the time between two kills, not a wait for something
        ended.set()
        answered, asked = map(sum, zip(*(each.result() for each in counting)))
    harness.wait_until(lambda: ask(port, "INCRBY n 0")[0].startswith(":"), "it answers again")
    number = int(ask(port, "INCRBY n 0")[0][1:])
    assert kills > 3 and 0 < answered <= number <= asked, (kills, answered, number, asked)
