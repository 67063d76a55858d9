"""A node of a cluster whose clock is wrong, by libfaketime in the daemon and in the processes that it starts."""
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import pathlib
import time

import harness
import pytest
from clusters import Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures
from test_cluster import same
from test_cluster_nodes import metric, ready, states

LIBRARY = next(iter(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
UNREACHABLE = 6
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no libfaketime: scripts/setup.sh --tests")


def clock_off_by(seconds: int) -> dict[str, str]:
    """What a process needs for it. Clocks that only tell durations are right, as they are on such a host."""
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{seconds:+}", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1"}  # fmt: skip


def clock_of(node: Node, before: float) -> float:
    """By how much the clock of a node is off that was started at `before`."""
    started = node.request("GET", "/v1/info")[1]["daemon"]["started"]
    return datetime.datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp() - before


def status_with_token(node: Node, token: str) -> int:
    client = http.client.HTTPConnection("127.0.0.1", node.api, timeout=harness.PATIENCE)
    with contextlib.closing(client):
        client.request("GET", "/v1/functions", headers={"Authorization": f"Bearer {token}"})
        return client.getresponse().status


@pytest.fixture(params=[pytest.param(-60, marks=pytest.mark.nightly), 60])
def nodes(cluster, request) -> tuple[Node, Node]:
    """One whose clock is right, and one whose is not."""
    right = cluster.node().start("--node", "right")
    before = time.time()
    wrong = cluster.node().start("--node", "wrong", env=clock_off_by(request.param))
    assert abs(clock_of(wrong, before) - request.param) < 20, clock_of(wrong, before)
    return right, wrong


def test_both_serve_and_deploy(nodes, snapshots, program) -> None:
    right, wrong = nodes
    files = [snapshots.of(program(name)) for name in ("c-epoll", "c-poll")]
    for one, other, name in ((right, wrong, "a"), (wrong, right, "b")):
        one.store.deploy(files[0], name)
        other.serves(name)
        other.store.deploy(files[1], name)  # on top of what the other did
        one.becomes(lambda: len(one.store.json("versions", name)["versions"]) == 2, "it has the second version")
        one.store.ok("rollback", name)
        one.store.ok("env", "set", name, "COLOUR=red")
        same(one, other)
        assert one.status(name) == other.status(name) == 200
    # One of the same name, deleted by one and made by the other.
    right.store.ok("delete", "a", "--yes")
    wrong.becomes(lambda: wrong.status("a") == 404, "it is gone")
    wrong.store.deploy(files[0], "a")
    right.serves("a")
    same(right, wrong)


def test_changes_at_once(nodes, snapshot) -> None:
    """None is lost, and none wins by its clock."""
    right, wrong = nodes
    right.store.deploy(snapshot, "hello")
    wrong.serves("hello")
    won = 1
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(4):
            won += sum(done.status == 0 for done in pool.map(lambda node: node.store("deploy", snapshot, "--name", "hello"), nodes))
    assert won > 4
    same(right, wrong)
    numbers = [version["version"] for version in right.store.json("versions", "hello")["versions"]]
    assert sorted(numbers) == list(range(1, won + 1))


def test_tokens(nodes) -> None:
    right, wrong = nodes
    tokens = {one: json.loads(one.store("token", "create", name, "--scope", "read", "--expires", "1h", "--json").out)["token"]
              for one, name in ((right, "right"), (wrong, "wrong"))}  # fmt: skip
    for node in nodes:
        for token in tokens.values():
            node.becomes(lambda: status_with_token(node, token) == 200, "the token is good")


def test_gc_and_the_list_of_nodes(cluster, nodes, snapshots, program) -> None:
    right, wrong = nodes
    assert states(right) == states(wrong) == {"right": "serving", "wrong": "serving"}
    for node, other in (nodes, nodes[::-1]):
        node.store.deploy(snapshots.of(program("c-poll")), "goes")
        node.store.deploy(snapshots.of(program("c-epoll")), "stays")
        node.store.deploy(snapshots.of(program("c-epoll")), "stays")
        node.store.ok("delete", "goes", "--yes")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            deploy = pool.submit(other.store, "deploy", snapshots.of(program("c-select")), "--name", "new")
            assert other.store.json("gc", "--keep", "1") is not None
            assert deploy.result().status == 0, deploy.result()
        assert node.store("verify", "--cluster", "--dry-run").status == 0
        assert node.status("stays") == other.status("stays") == 200
    right.store.ok("drain", "wrong")
    wrong.becomes(lambda: ready(wrong) == (503, "drained"), "it is drained")
    assert metric(wrong, "cluster_followed") == 1
    wrong.store.ok("uncordon", "wrong")
    time.sleep(11)  # longer than a lease lasts that nobody keeps
    assert states(right) == states(wrong) == {"right": "serving", "wrong": "serving"}


def test_a_clock_that_a_bucket_does_not_accept(cluster, snapshot) -> None:
    wrong = cluster.node().start(env=clock_off_by(20 * 60))
    refused = wrong.store("deploy", snapshot, "--name", "hello")
    assert refused.status == UNREACHABLE and "clock" in refused.err, refused
