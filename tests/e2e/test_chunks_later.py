"""A function whose snapshot is in a bucket begins to serve with the chunks that it needs; the others follow."""
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import socket

import admin
import bucket
import harness
import pytest
from clusters import s3  # noqa: F401  fixture
from serving import Daemon, Store
from test_chunks_in_s3 import forget_local, local

MIB = 32
PAGES = MIB * 256
FETCHES = 8  # at once


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("shelf") / "shelf.snap"
    made = harness.make_snapshot(harness.guest("shelf", f"{MIB}", "{port}"), path, "--level", "1", "--warmup", "0")
    assert made.status == 0, made
    return path


@pytest.fixture
def gate(s3):
    with contextlib.closing(bucket.Gate(s3)) as one:
        yield one


class Shelf:
    """The function, deployed and forgotten by the disk. The gate keeps the chunks with its large memory."""

    def __init__(self, daemon: Daemon, store: Store, gate: bucket.Gate, snapshot: pathlib.Path, sums: dict[int, str]) -> None:
        self.daemon, self.store, self.gate, self.sums = daemon, store, gate, sums
        store.deploy(snapshot, "shelf")
        digest = store.json("versions", "shelf")["versions"][0]["snapshot"].removeprefix("sha256:")
        record = json.loads((store.path / "snapshots" / f"{digest}.json").read_text().partition("\n")[2])
        self.pieces = [digest for digest, _ in record["pieces"]]
        self.rest = {digest for digest, length in record["pieces"] if length > 900 << 10}  # only what cannot be compressed
        assert len(self.rest) > MIB / 2 > FETCHES
        assert daemon.ask("shelf", "/").status == 200
        forget_local(daemon, store)
        gate.set(shut=True, through=set(self.pieces) - self.rest)

    def sum(self, page: int) -> str:
        return self.daemon.text("shelf", f"/{page}", patience=60)

    def busy(self) -> int:
        """How many machines have a request."""
        with contextlib.closing(admin.UnixConnection(self.store.path / "admin.sock")) as connection:
            connection.request("GET", "/v1/live")
            return sum(one["busy"] for one in admin.Reply(connection.getresponse()).json["live"])


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), harness.PATIENCE) as client:
        client.sendall(b"GET /\n")
        return client.recv(1) != b""
    return False


@pytest.fixture(scope="module")
def sums() -> dict[int, str]:
    """What is right, by page: from the program itself. No machine has touched these pages when a test begins."""
    port = harness.free_port()
    native = harness.Process([str(harness.GUESTS / "shelf"), f"{MIB}", str(port)])
    with contextlib.closing(native):
        harness.wait_until(lambda: listens(port), "it listens")
        got = {}
        for page in (PAGES // 3, PAGES - 5):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=harness.PATIENCE)) as client:
                client.request("GET", f"/{page}")
                got[page] = client.getresponse().read().decode()
    assert len(set(got.values())) == 2
    return got


@pytest.fixture
def function(serve, store, folder, gate, shelf, sums) -> Shelf:
    """With a cache of its own: in the one of other tests are chunks that they have unpacked."""
    environment = {**bucket.ENVIRONMENT, "XDG_CACHE_HOME": str(folder / "cache")}
    return Shelf(serve("--chunks", gate.url(), "--idle", "0.2", env=environment), store, gate, shelf, sums)


def test_it_serves_before_all_have_come(function, gate) -> None:
    assert function.daemon.ask("shelf", "/").status == 200
    held = gate.holds(FETCHES)
    assert set(held) <= function.rest and not function.rest & local(function.store).keys()
    gate.set(shut=False)
    assert {page: function.sum(page) for page in function.sums} == function.sums
    harness.wait_until(lambda: local(function.store).keys() == set(function.pieces), "all have come")


def test_the_chunks_that_requests_wait_for_come_before_the_others(function, gate) -> None:
    """Of two far from each other at most one is among those that are on their way already."""
    assert function.daemon.ask("shelf", "/").status == 200
    gate.holds(FETCHES)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = {page: pool.submit(function.sum, page) for page in function.sums}
        harness.wait_until(lambda: function.busy() == 2, "machines have the requests")
        let_through = 0
        while not any(answer.done() for answer in answers.values()):
            gate.set(through={gate.holds(FETCHES)[-1]})  # the one that was asked for last
            let_through += 1
            harness.wait_until(lambda: any(answer.done() for answer in answers.values()) or len(gate.kept()) >= FETCHES, "the next one is asked for")
        assert let_through < len(function.rest) / 2, let_through
        gate.set(shut=False)
        assert {page: answer.result() for page, answer in answers.items()} == function.sums


def test_a_bucket_that_is_away_for_a_while(function, gate) -> None:
    assert function.daemon.ask("shelf", "/").status == 200
    gate.holds(FETCHES)
    gate.set(refuses=True)
    assert function.daemon.ask("shelf", "/").status == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(function.sum, PAGES // 3)
        harness.wait_until(lambda: function.busy() == 1, "the request waits for its page")
        refused = gate.refused
        harness.wait_until(lambda: gate.refused > refused + 2, "it is asked again")
        assert not answer.done()
        gate.set(refuses=False, shut=False)
        assert answer.result() == function.sums[PAGES // 3]


def test_a_chunk_that_is_altered_is_not_used(function, gate, s3) -> None:
    for digest in function.rest:
        file = s3.objects()[digest]
        file.write_bytes(file.read_bytes()[::-1])
    assert function.daemon.ask("shelf", "/").status == 200
    gate.set(shut=False)
    reply = function.daemon.ask("shelf", f"/{PAGES // 3}", patience=60)
    assert reply.status == 502, reply
    harness.wait_until(lambda: "the object is altered" in function.store("logs", "shelf").out, "the log says why")
    assert "a chunk of its snapshot did not come from the bucket" in function.store("logs", "shelf").out
    for digest in function.rest:
        file = s3.objects()[digest]
        file.write_bytes(file.read_bytes()[::-1])
    harness.wait_until(lambda: function.daemon.ask("shelf", f"/{PAGES // 3}").status == 200, "it is fetched again")


def test_the_daemon_ends_while_chunks_are_to_come(function, gate) -> None:
    assert function.daemon.ask("shelf", "/").status == 200
    gate.holds(FETCHES)
    gate.set(refuses=True)
    assert function.daemon.stop().status == 0
