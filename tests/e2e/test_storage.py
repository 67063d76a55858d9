"""++ storage: a second program, in a machine that keeps its state, to which the request machines connect in memory."""
import concurrent.futures
import contextlib
import os
import re
import shutil
import socket

import harness
import pytest
from harness import GUESTS, LIMITS, PATIENCE, kvmserver

STORE_PORT = 6390  # nothing listens there on the host
REDIS = shutil.which("redis-server")


class Server(harness.Process):
    """`calls` in request machines, and what follows `++ storage`; ready when the constructor returns."""

    def __init__(self, *storage: str, options=("-e",), at: str = str(STORE_PORT), early=False, snapshot=None) -> None:
        self.port = harness.free_port()
        program = [GUESTS / "calls", self.port, at, *(["early"] if early else [])]
        permissions = [] if "--allow-connect" in options or snapshot else ["--allow-listen"]
        words = ["snaprun", "--listen", f"127.0.0.1:{self.port}"] if snapshot else ["run", *permissions]
        words += ["--check-reset", "--stats", *LIMITS, *options, *([snapshot] if snapshot else program)]
        words += ["++", "storage", *storage] if storage else []
        super().__init__([str(harness.KVMSERVER), *map(str, words)], str(GUESTS), harness.BASE_ENVIRONMENT)
        try:
            harness.wait_until(lambda: "Program '" in self.out or not self.running(), f"it serves: {self.err}")
            assert self.running(), self.err
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None and self.running():
                ended = self.stop()
                assert ended.status == 0 and "reset differs" not in ended.err, ended
        finally:
            self.close()

    def begin(self) -> socket.socket:
        """A request machine of one's own: it gets its client with the first byte."""
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        client.settimeout(PATIENCE)
        return client

    @staticmethod
    def end(client: socket.socket, commands: str) -> list[str]:
        with client, contextlib.suppress(ConnectionResetError):
            client.sendall(commands.encode() + b"\n")
            answer = b""
            while piece := client.recv(1 << 16):
                answer += piece
            return answer.decode().splitlines()
        return ["reset"]

    def ask(self, commands: str) -> list[str]:
        return self.end(self.begin(), commands)

    def only_client(self) -> bool:
        """A reply may be there before the storage has seen that the request's connection is closed."""
        harness.wait_until(lambda: self.ask("clients") == ["1"], "all other connections are closed")
        return True

    def exits(self) -> int:
        """Ends it. All exits, of the request machines and the storage."""
        said = self.stop().err
        connections, each = re.search(r"(\d+) connections, .* ([\d.]+) exits", said).groups()
        return round(int(connections) * float(each)) + int(re.search(r"storage stores: \d+ connections, (\d+) exits", said)[1])


def stores(at: str = str(STORE_PORT)) -> list[str]:
    return [*LIMITS[:2], str(GUESTS / "stores"), at]


@pytest.fixture(scope="module")
def server():
    with Server(*stores()) as it:
        yield it


@pytest.mark.emulated
@pytest.mark.parametrize("options", [("-e",), ("-e", "-t", "2"), ()], ids=["e", "e-t2", "kept"])
def test_a_number_is_kept_across_requests(options):
    with Server(*stores(), options=options) as it:
        assert [it.ask("add 1") for _ in range(5)] == [["1"], ["2"], ["3"], ["4"], ["5"]]
        assert it.only_client()


def test_nothing_of_the_host_listens(server):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", STORE_PORT), PATIENCE)


def test_both_ends_see_the_same_addresses(server):
    where, who = server.ask("where;who")
    assert where == f"{who} {STORE_PORT}" and int(who) >= 32768


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("how", ["leave;add 1;exit", "leave;add 1;again;exit"])
def test_a_request_that_dies_is_a_client_that_has_gone(server, how):
    [before] = server.ask("get")
    server.ask(how)
    assert server.ask("get") == [str(int(before) + 1)] and server.only_client()
    assert "exited with status 7 during a request" in server.err


@pytest.mark.parametrize("limit, commands", [("--max-request-time=0.3", "spin"), ("--max-request-total=0.5", "wait")])
def test_a_time_limit_holds_while_it_waits_for_the_storage(limit, commands):
    with Server(*stores(), options=("-e", limit)) as it:
        assert it.ask("add 1;" + commands) == ["reset"]
        assert it.ask("get") == ["1"] and it.only_client()
        assert limit.split("=")[0] in it.err


def test_a_connection_that_stays_open_ends_with_its_request(server):
    assert server.ask("leave;get")[0] == "leave"
    assert server.ask("leave") == ["leave"]  # a request that does not connect finds none
    assert "broke" not in server.err
    assert server.only_client()


def test_an_answer_that_was_not_read_is_not_the_next_requests(server):
    server.ask("keep secret")
    assert server.ask("leave;raw " + b"text\ntext\n".hex()) == ["leave", "sent"]
    assert server.ask("keep nothing") == ["ok"]


@pytest.mark.emulated(nightly=True)
def test_one_to_one():
    def both(it: Server) -> list[str]:
        held = it.begin()
        held.sendall(b"add 1;")  # has one machine; the other serves the next client
        other = it.ask("add 1")
        return [*other, *it.end(held, "add 1")]

    with Server(*stores(), options=("-e", "-t", "2")) as it:
        assert both(it) == ["1", "2", "3"]
    with Server("--1-to-1", *stores(), options=("-e", "-t", "2")) as it:
        assert both(it) == ["1", "1", "2"]
        assert both(it) in (["2", "3", "4"], ["3", "2", "3"])  # each keeps its own


@pytest.mark.parametrize("at, listens", [("/tmp/store.sock", "/tmp/store.sock"), ("/nowhere/s", "/nowhere/s"), ("@store", "@store"),
                                         ("./s", str(GUESTS / "s"))], ids=["tmp", "no-folder", "abstract", "relative"])
def test_unix_addresses(at, listens):
    with Server(*stores(listens), at=at) as it:
        assert [it.ask("add 1"), it.ask("add 1")] == [["1"], ["2"]]
    assert not os.path.exists(listens)


@pytest.mark.emulated(nightly=True)
def test_large_transfers(server):
    megabytes = 2 if harness.SLOWNESS > 1 else 20
    assert server.ask(f"echo {megabytes << 20};get")[0] == f"same {megabytes << 20}"


def test_a_storage_that_does_not_read_makes_its_client_wait():
    with Server(*stores(), options=("-e", "-t", "2", "--max-request-total=1")) as it:
        flood = it.begin()
        flood.sendall(b"mute;flood 500000000")
        assert it.ask("add 1") == ["1"]  # it serves others
        assert it.end(flood, "") == ["reset"]
        assert it.ask("get") == ["1"]
        with open(f"/proc/{it.popen.pid}/status") as status:
            assert int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) < 300_000  # kB


@pytest.mark.emulated(nightly=True)
def test_hostile_bytes(server):
    assert server.ask("raw " + bytes(range(11, 256)).hex() + "0a;get")[0] == "sent"
    assert server.ask("raw " + b"x\n".hex() + ";wait") == ["sent", "what?"]


def test_a_connection_from_before_the_image_is_reset():
    with Server(*stores(), early=True) as it:
        for _ in range(2):
            assert it.ask("early;add 1;again;add 1")[1:] in (["failed: Connection reset by peer", "again", n] for n in ("1", "2"))
        assert it.only_client()


def test_without_a_storage_the_address_is_the_hosts():
    with Server(options=("-e", "--allow-connect", "--allow-listen")) as it:
        assert it.ask("get") == ["cannot connect: Connection refused"]


def test_another_address_needs_a_permission():
    with Server(*stores(str(STORE_PORT + 1))) as it:
        assert it.ask("get") == ["cannot connect: Permission denied"]


def test_its_permissions_are_its_own():
    secret = GUESTS / "calls"
    with Server(*stores(), options=("-e", "--allow-read", "--allow-listen")) as it:
        assert it.ask(f"open {secret}") == ["No such file or directory"]  # as for any program without the permission
    with Server(f"--allow-read={GUESTS}", *stores()) as it:
        assert it.ask(f"open {secret}") == ["open"]


@pytest.mark.parametrize("last, status, said", [("exit 3", 3, "exited with status 3"), ("exit 0", 1, "exited with status 0"),
                                                ("crash", 139, "SIGSEGV")])
def test_the_run_ends_with_its_storage(last, status, said):
    with Server(*stores()) as it:
        assert it.ask("add 1") == ["1"]
        it.ask(last)
        ended = it.wait()
    assert ended.status == status, ended
    assert said in ended.err and "storage stores: " in ended.err and "what it kept is lost" in ended.err


def test_a_snapshot_is_served_with_a_storage_booted_at_its_start(tmp_path):
    made = kvmserver("snapshot", "--allow-listen", "-o", tmp_path / "app.snap", *LIMITS, GUESTS / "calls", 1, STORE_PORT, "early",
                     "++", "storage", *stores(), cwd=GUESTS, patience=PATIENCE + 100)
    assert made.status == 0, made
    with Server(*stores(), snapshot=tmp_path / "app.snap") as it:
        assert [it.ask("add 1"), it.ask("early;get")[1:], it.ask("add 1")] == [["1"], ["failed: Connection reset by peer"], ["2"]]


def test_by_the_options_file(tmp_path):
    (tmp_path / "kvmserver.toml").write_text(f'[run]\nprogram = "/x"\n[storage]\nprogram = "{GUESTS / "stores"}"\nargs = ["{STORE_PORT}"]\n')
    with Server(options=("-e", "-c", tmp_path / "kvmserver.toml")) as server:
        assert [server.ask("add 1") for _ in range(3)] == [["1"], ["2"], ["3"]]
    refused = kvmserver("deploy", "--store", tmp_path / "store", tmp_path)
    assert refused.status == 2 and "kvmserver.toml:3: [storage] is for run, snapshot and snaprun" in refused.error, refused


def test_a_round_trip_costs_two_exits():
    def exits(calls: int) -> int:
        with Server(*stores()) as it:
            assert it.ask(f"times {calls} get") == ["0"]
            return it.exits()

    few, many = exits(100), exits(500)
    assert many - few < 2.2 * 400, (few, many)  # one in each machine, and now and then a tick


@pytest.mark.parametrize("words, said", [
    (["++", "storage"], "++ storage needs a PROGRAM"),
    (["++", "storage", "--1-to-1"], "++ storage needs a PROGRAM"),
    (["++", "storage", *stores(), "++", "storage", *stores()], "'++ storage' twice"),
    (["++", "storage", "--http", *stores()], "unknown option --http"),
    (["++", "storage", "--1-to-1=perhaps", *stores()], "neither true nor false"),
    (["++", "storage", "/no/such/program"], "/no/such/program"),
    (["++", "storage", "--max-boot-time=0.3", str(GUESTS / "stores"), "never"], "did not wait for a connection"),
    (["++", "storage", *LIMITS[:2], "/bin/true"], "exited with status 0 before it waited for a connection"),
], ids=["no-program", "no-program-1-to-1", "two", "option", "value", "not-found", "never-listens", "ends"])
def test_refusals(words, said):
    done = kvmserver("run", "-e", "--allow-all", GUESTS / "calls", harness.free_port(), STORE_PORT, *words)
    assert done.status not in (0, 139) and said in done.err, done
    assert len([line for line in done.err.splitlines() if line.startswith("kvmserver: ")]) <= 2, done.err


def test_behind_two_dashes_the_words_are_the_programs():
    done = kvmserver("run", "--allow-all", "--", "/bin/echo", "a", "++", "storage", cwd="/")
    assert (done.status, done.out) == (0, "a ++ storage\n"), done


@pytest.mark.skipif(not REDIS, reason="no redis-server: scripts/setup.sh --tests")
def test_redis_counts_for_four_machines_over_sixteen_connections():
    with Server(REDIS or "", "--port", "6391", "--save", "", "--appendonly", "no", options=("-e", "-t", "4"), at="6391") as it, \
            concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(it.ask, ["times 625 INCR n"] * 16))
        assert all(len(answer) == 1 and answer[0].startswith(":") for answer in answers), answers
        assert it.ask("INCRBY n 0") == [":10000"]
