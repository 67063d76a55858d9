"""serve --cluster-away-limit: a node that does not reach etcd serves for as long as told."""
import concurrent.futures
import contextlib
import pathlib
import signal
import time

import harness
import pytest
from clusters import Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures
from test_cluster_nodes import metric, ready
from test_tcp_functions import Client, talks

USAGE, UNREACHABLE = 2, 6


def refusal(node: Node, function: str) -> str | None:
    """The code of the problem that a request gets; None: it is served."""
    reply = node.daemon.ask(function)
    if reply.status == 200:
        return None
    assert reply.status == 503 and int(reply.headers["retry-after"]) > 0, reply
    return reply.problem["code"]


def test_a_node_serves_for_as_long_as_told(cluster, snapshot) -> None:
    limited, other = cluster.node().start("--cluster-away-limit", "2"), cluster.node().start()
    limited.store.deploy(snapshot, "hello")
    other.serves("hello")
    cluster.etcd.stop()
    assert limited.status("hello") == 200
    limited.becomes(lambda: refusal(limited, "hello") == "cluster-away", "it refuses")
    assert ready(limited) == (503, "cluster-away") and metric(limited, "cluster_away") == 1
    assert "has not been reached since 20" in limited.daemon.err
    assert refusal(limited, "no-such-function") == "cluster-away"  # it may be there by now
    invoked = limited.store("invoke", "hello", "--path", "/count")
    assert invoked.status != 0 and "has not reached its cluster's index" in invoked.err, invoked
    assert limited.store.json("list")["functions"][0]["name"] == "hello"  # the API answers
    assert other.status("hello") == 200 and ready(other) == (200, None) and metric(other, "cluster_away") == 0
    # A restart does not extend it, and only a higher limit does.
    for options, code in ((["2"], "cluster-away"), (["3600"], None), (["0"], None), (["2"], "cluster-away")):
        limited.stop()
        limited.start("--cluster-away-limit", *options)
        assert refusal(limited, "hello") == code, limited.daemon.err
    other.store.ok("list")
    cluster.etcd.start()
    limited.becomes(lambda: refusal(limited, "hello") is None, "it serves again")
    assert ready(limited) == (200, None) and metric(limited, "cluster_away") == 0
    assert "is reached again: functions are served" in limited.daemon.err


def test_what_was_missed_is_there_before_it_serves_again(cluster, snapshot) -> None:
    limited, other = cluster.node().start("--cluster-away-limit", "1"), cluster.node().start()
    limited.store.deploy(snapshot, "goes")
    limited.stop()
    other.serves("goes")
    other.store.ok("delete", "goes", "--yes")
    other.store.deploy(snapshot, "comes")
    cluster.etcd.stop()
    limited.start("--cluster-away-limit", "1")
    limited.becomes(lambda: refusal(limited, "goes") == "cluster-away", "it refuses")
    cluster.etcd.start()

    def answer() -> tuple[int, int]:
        return limited.status("goes"), limited.status("comes")

    seen = set()
    limited.becomes(lambda: seen.add(answer()) or (404, 200) in seen, "it serves again")
    assert seen <= {(503, 503), (503, 200), (404, 200)}, seen


def test_an_etcd_that_hangs_counts_as_away(cluster, snapshot) -> None:
    limited = cluster.node().start("--cluster-away-limit", "1")
    limited.store.deploy(snapshot, "hello")
    cluster.etcd.pause()
    harness.wait_until(lambda: refusal(limited, "hello") == "cluster-away", "it refuses", harness.PATIENCE + 10)
    cluster.etcd.resume()
    limited.becomes(lambda: refusal(limited, "hello") is None, "it serves again")


def test_an_entry_that_cannot_be_copied_is_no_outage(cluster, snapshot) -> None:
    limited = cluster.node().start("--cluster-away-limit", "1")
    limited.store.deploy(snapshot, "hello")
    cluster.etcd.put("kvmserver/functions/other", "what this is nobody knows")
    limited.becomes(lambda: "functions/other was not sealed" in limited.daemon.err, "it has seen it")
    limited.becomes(lambda: metric(limited, "cluster_followed") == 0, "it does not follow")
    for _ in range(30):
        assert limited.status("hello") == 200
        time.sleep(0.1)
    cluster.etcd.delete("kvmserver/functions/other")
    limited.becomes(lambda: metric(limited, "cluster_followed") == 1, "it follows")


def is_closed(port: int) -> bool:
    """Whoever connects gets nothing."""
    try:
        with Client(port) as client:
            return client.ended()
    except ConnectionResetError:
        return True


def test_connections_of_tcp_functions(cluster) -> None:
    limited = cluster.node().start("--cluster-away-limit", "1")
    port, greeting = harness.free_port(), harness.free_port()
    limited.store.ok("deploy", talks(limited.store, "pg", [f"127.0.0.1:{port}"]), "-q")
    limited.store.ok("deploy", talks(limited.store, "smtp", [f"127.0.0.1:{greeting}"], settings="server-first = true\n"), "-q")
    with Client(port) as open_before, Client(port) as silent:
        assert open_before.say("count") == "pg 1 1"
        cluster.etcd.stop()
        limited.becomes(lambda: ready(limited)[0] == 503, "it refuses")
        assert open_before.say("count") == "pg 1 2"  # what is under way goes on
        with contextlib.suppress(OSError):
            silent.socket.sendall(b"count\n")
        assert silent.ended() and is_closed(port) and is_closed(greeting)
    assert {line["outcome"] for line in limited.daemon.access(4)[-4:]} >= {"cluster-away"}
    cluster.etcd.start()
    limited.becomes(lambda: ready(limited)[0] == 200, "it serves again")
    with Client(port) as client:
        assert client.say("count") == "pg 1 1"


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon", "1e10"])
def test_nonsense_is_refused(cluster, value: str) -> None:
    refused = cluster.node().fails(f"--cluster-away-limit={value}")
    assert refused.status == USAGE and f"--cluster-away-limit: '{value}' is not a number from 0 to" in refused.err, refused


def test_it_is_for_clusters(folder) -> None:
    refused = harness.kvmserver("serve", "--store", folder / "store", "--cluster-away-limit", "10")
    assert refused.status == USAGE and "--cluster-away-limit is for --cluster URL" in refused.err, refused


def deployed_later(node: Node, file: pathlib.Path, name: str) -> None:
    """As soon as it is possible: for a second after a failure nobody asks the bucket."""
    node.becomes(lambda: node.store("deploy", file, "--name", name).status == 0, "it is deployed")


@pytest.mark.nightly
def test_a_node_that_starts_while_the_bucket_hangs(cluster, snapshots, program) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshots.of(program("c-epoll")), "hello")
    other.serves("hello")
    other.stop()
    one.store.deploy(snapshots.of(program("c-poll")), "new")
    cluster.s3.pause()
    begin = time.monotonic()
    other.start(patience=60)
    assert time.monotonic() - begin < 40
    assert other.status("hello") == 200
    cluster.s3.resume()
    other.serves("new")


@pytest.mark.nightly
def test_changes_while_the_bucket_hangs(cluster, snapshots, program) -> None:
    """What needs no bucket is changed, and is known to all soon; the rest is refused in time, and follows later."""
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshots.of(program("c-epoll")), "hello")
    other.serves("hello")
    other.daemon.popen.send_signal(signal.SIGSTOP)  # so it has not asked for the new one's list of chunks yet
    one.store.deploy(snapshots.of(program("c-poll")), "new")
    cluster.s3.pause()
    other.daemon.popen.send_signal(signal.SIGCONT)
    one.store.ok("env", "set", "hello", "COLOUR=red")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        refused = [pool.submit(one.store, "deploy", snapshots.of(program("c-select")), "--name", "third"), pool.submit(one.store, "gc")]
        harness.wait_until(lambda: other.store.json("env", "list", "hello")["env"], "it has the variable", 40)
        assert other.status("hello") == one.status("hello") == one.status("new") == 200
        for done in refused:
            assert done.result().status == UNREACHABLE, done.result()
    assert time.monotonic() - begin < 60
    begin = time.monotonic()
    other.stop()
    assert time.monotonic() - begin < 30
    cluster.s3.resume()
    deployed_later(one, snapshots.of(program("c-select")), "third")
    other.start()
    other.serves("third")
    other.serves("new")
