"""kvmserver nodes, drain and uncordon: which daemons of a cluster get requests from load balancers."""
import concurrent.futures
import contextlib
import http.client
import json
import re
import socket

import admin
import harness
import openapi
import pytest
from clusters import Load, Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures
from haproxy import HAProxy
from serving import Daemon, Store, ask

USAGE, NOT_FOUND, CONFLICT, UNREACHABLE = 2, 3, 5, 6


@pytest.fixture
def named(cluster) -> tuple[Node, Node]:
    return cluster.node().start("--node", "first"), cluster.node().start("--node", "second")


def ready(node: Node) -> tuple[int, str | None]:
    """As a load balancer sees it: the status of /readyz, and what it says of the daemon."""
    connection = http.client.HTTPConnection("127.0.0.1", node.api, timeout=harness.PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())["checks"].get("daemon")


def states(node: Node) -> dict[str, str]:
    listed = node.store("nodes", "--no-header")
    assert listed.status == 0, listed
    return {row.split()[0]: re.split(r"  +", row)[2] for row in listed.out.splitlines()}


def metric(node: Node, name: str) -> int:
    connection = admin.UnixConnection(node.store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"kvmserver_{name} "))


def requests_at(node: Node, function: str) -> int:
    return sum(one["requests"] for one in node.request("GET", "/v1/live")[1]["live"] if one["function"] == function)


def in_flight(node: Node, function: str) -> int:
    return sum(one["in_flight"] for one in node.request("GET", "/v1/live")[1]["live"] if one["function"] == function)


def test_a_node_is_drained_and_comes_back(cluster, named, snapshot) -> None:
    one, other = named
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    assert states(one) == states(other) == {"first": "serving", "second": "serving"}
    assert one.store.ok("drain", "second").startswith("second: drained")
    other.becomes(lambda: ready(other) == (503, "drained"), "it is drained")
    assert ready(one) == (200, None) and states(other) == {"first": "serving", "second": "drained"}
    # What reaches it is served.
    assert other.status("hello") == 200
    assert metric(other, "node_drained") == 1 and metric(one, "node_drained") == 0
    # It is not forgotten: after a restart, and without etcd.
    other.stop()
    one.becomes(lambda: states(one) == {"first": "serving", "second": "drained, away"}, "the stopped one is away")
    cluster.etcd.stop()
    other.start("--node", "second")
    assert ready(other) == (503, "drained") and other.status("hello") == 200
    for words in (["nodes"], ["drain", "first"], ["uncordon", "second"]):
        refused = one.store(*words)
        assert refused.status == UNREACHABLE and "etcd at http://" in refused.err, refused
    cluster.etcd.start()
    one.becomes(lambda: other.store("uncordon", "second").status == 0, "etcd is reached again")
    other.becomes(lambda: ready(other) == (200, None), "it is not drained any more")
    one.becomes(lambda: one.store("nodes").status == 0, "etcd is reached again")
    one.becomes(lambda: states(one) == {"first": "serving", "second": "serving"}, "both serve")


def test_a_daemon_that_is_killed_is_no_node_any_more(cluster, named) -> None:
    one, other = named
    other.daemon.popen.kill()
    other.daemon.popen.wait()
    one.becomes(lambda: states(one) == {"first": "serving"}, "the others notice")
    other.daemon.close()
    other.start("--node", "second")
    assert states(one) == {"first": "serving", "second": "serving"}


def test_names_of_nodes(cluster) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    host = socket.gethostname()
    nodes = one.store.json("nodes")["nodes"]
    assert [node["name"] for node in nodes] == [host, host] and nodes[0]["id"] != nodes[1]["id"], nodes
    refused = one.store("drain", host)
    assert refused.status == CONFLICT and f"2 nodes are called {host}: give the id of one" in refused.err, refused
    refused = one.store("drain", "none")
    assert refused.status == NOT_FOUND and "no node none" in refused.err, refused
    drained = one.store.json("drain", nodes[0]["id"])
    assert drained["drained"]["by"] and drained["serving"] == 1, drained
    assert one.store.json("drain", nodes[0]["id"])["drained"] == drained["drained"]  # it was so already
    last = one.store("drain", nodes[1]["id"])
    assert last.status == 0 and "no node of the cluster is left that is not drained" in last.err, last
    refused = one.fails("--node", "a/b")
    assert refused.status == USAGE and "--node: 'a/b'" in refused.err, refused
    one.store.ok("uncordon", nodes[1]["id"])
    # The id is the store's.
    for node in (one, other):
        node.stop()
        node.start("--node", "new")
    assert {node["id"] for node in one.store.json("nodes")["nodes"]} == {node["id"] for node in nodes}


def test_replies_are_as_described(cluster, named) -> None:
    one, _ = named

    def ask(method: str, target: str, status: int) -> None:
        connection = admin.UnixConnection(one.store.path / "admin.sock")
        with contextlib.closing(connection):
            connection.request(method, target)
            reply = admin.Reply(connection.getresponse())
        assert reply.status == status, reply
        description.check(method, target, None, {}, reply)

    description = openapi.Description(one.request("GET", "/v1/openapi.json")[1])
    for method, target in (("GET", ""), ("POST", "/second/drain"), ("GET", ""), ("POST", "/second/uncordon")):
        ask(method, f"/v1/nodes{target}", 200)
    ask("POST", "/v1/nodes/none/drain", 404)
    ask("POST", "/v1/nodes/none/uncordon", 404)
    cluster.etcd.stop()
    ask("GET", "/v1/nodes", 503)
    cluster.etcd.start()


@pytest.mark.nightly
def test_a_load_balancer_leaves_a_drained_node_out(cluster, named, folder, snapshot) -> None:
    for name in ("a", "b", "c", "d"):
        named[0].store.deploy(snapshot, name)
        named[1].serves(name)
    balancer = HAProxy(folder, [(node.port, node.api) for node in named])
    with contextlib.closing(balancer):
        load = Load(balancer.port, ["a", "b", "c", "d"])
        with contextlib.closing(load):
            load.more(1)
            for (drained, others), name_of_it in ((named, "first"), (named[::-1], "second")):
                before = [requests_at(others, name) for name in load.names]
                others.store.ok("drain", name_of_it)
                others.becomes(lambda: all(requests_at(others, name) > count for name, count in zip(load.names, before)),
                               "all requests go to the other")  # fmt: skip
                drained.stop()  # as for an upgrade
                load.more(1)
                drained.start("--node", name_of_it)
                drained.store.ok("uncordon", name_of_it)
                drained.becomes(lambda: ready(drained) == (200, None), "it is ready")
        assert load.bad == [] and load.good > 100, (load.bad[:10], balancer.err[-2000:])


@pytest.mark.nightly
def test_a_drained_node_finishes_its_requests(cluster, named, folder, program) -> None:
    named[0].store.deploy_probe(program("node-http"), "slow")
    named[1].becomes(lambda: named[1].status("slow") == 200, "it is served by both")
    balancer = HAProxy(folder, [(each.port, each.api) for each in named])
    with contextlib.closing(balancer), concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, balancer.port, "slow", "/sleep/8000")
        has = []
        harness.wait_until(lambda: has.extend(each for each in named if in_flight(each, "slow")) or has,
                           "a node has the request")
        drained, other = has[0], named[has[0] is named[0]]
        before = requests_at(other, "slow")
        other.store.ok("drain", "first" if drained is named[0] else "second")
        other.becomes(lambda: ask(balancer.port, "slow").status == 200 and requests_at(other, "slow") > before,
                      "the other is asked")
        assert not asked.done() and in_flight(drained, "slow") == 1
        while not asked.done():
            assert in_flight(other, "slow") == 0
        assert asked.result().body == b"probe slept\n"


def test_a_store_alone_has_no_nodes(folder) -> None:
    store = Store(folder)
    daemon = Daemon(store)
    try:
        for words in (["nodes"], ["drain", "x"], ["uncordon", "x"]):
            refused = store(*words)
            assert refused.status == CONFLICT and "this store is in no cluster" in refused.err, refused
        refused = harness.kvmserver("serve", "--store", store.path, "--node", "x")
        assert refused.status == USAGE and "--node is for --cluster URL" in refused.err, refused
    finally:
        daemon.close()
