"""serve --cluster: daemons with a store each and one index in etcd, their chunks in one bucket."""
import concurrent.futures
import contextlib
import random
import time

import harness
import pytest
from clusters import Load, Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures
from haproxy import HAProxy

CONFLICT, UNREACHABLE, BAD_SNAPSHOT = 5, 6, 7


@pytest.fixture
def pair(cluster) -> tuple[Node, Node]:
    return cluster.node().start(), cluster.node().start()


def functions_of(node: Node) -> list[str]:
    return [function["name"] for function in node.store.json("list")["functions"]]


def what_is_known(node: Node) -> dict:
    """Of all functions, apart from what belongs to one store."""
    known = {}
    for function in node.store.json("list")["functions"]:
        name = function["name"]
        versions = node.store.json("versions", name)["versions"]
        for version in versions:
            version.pop("compress_later", None)
        known[name] = {"described": node.store.json("describe", name), "versions": versions, "history": node.store.json("history", name)}
        known[name]["described"].pop("versions", None)
    return known


def same(one: Node, other: Node) -> None:
    other.becomes(lambda: what_is_known(one) == what_is_known(other), "both know the same")


def test_what_one_deploys_all_serve(pair, snapshot) -> None:
    one, other = pair
    one.store.deploy(snapshot, "hello", "--message", "the first")
    other.serves("hello")
    same(one, other)
    # The other way round, and on top of what the first one did.
    other.store.ok("env", "set", "hello", "COLOUR=red")
    other.store.deploy(snapshot, "hello")
    one.becomes(lambda: len(one.store.json("versions", "hello")["versions"]) == 2, "it has the second version")
    same(one, other)
    one.store.ok("rollback", "hello")
    other.becomes(lambda: other.store.json("describe", "hello")["live"][0]["version"] == 1, "v1 is live")
    other.store.ok("delete", "hello", "--yes")
    one.becomes(lambda: one.status("hello") == 404, "it is gone")
    # One of the same name is another one.
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    same(one, other)


def test_tokens_secrets_and_certificates(pair) -> None:
    one, other = pair
    one.store.ok("token", "create", "ci", "--scope", "read")
    other.becomes(lambda: [token["name"] for token in other.store.json("token", "list")["tokens"]] == ["ci"], "it has the token")
    one.store.ok("secret", "set", "KEY", "--stdin", stdin=b"abc")
    other.becomes(lambda: [secret["name"] for secret in other.store.json("secret", "list")["secrets"]] == ["KEY"], "it has the secret")
    other.store.ok("token", "revoke", "ci")
    one.becomes(lambda: one.store.json("token", "list")["tokens"] == [], "the token is revoked")
    assert [secret["name"] for secret in one.store.json("secret", "list")["secrets"]] == ["KEY"]


def test_a_route_belongs_to_one_function(pair, snapshot) -> None:
    one, other = pair
    one.store.deploy(snapshot, "first", "--route", "same.example")
    other.becomes(lambda: functions_of(other) == ["first"], "it has the function")
    refused = other.store("deploy", snapshot, "--name", "second", "--route", "same.example")
    assert refused.status == CONFLICT and "same.example" in refused.err, refused
    one.store.ok("delete", "first", "--yes")
    other.store.deploy(snapshot, "second", "--route", "same.example")
    same(one, other)


def test_more_routes_than_etcd_takes_in_one_change(pair, snapshot) -> None:
    one, other = pair
    many = [word for i in range(130) for word in ("--route", f"r{i}.example")]
    refused = one.store("deploy", snapshot, "--name", "many", *many)
    assert refused.status == CONFLICT and "routes are too many for it" in refused.err, refused
    assert functions_of(one) == []
    one.store.deploy(snapshot, "many", *many[:200])
    same(one, other)


def test_deploys_of_one_function_at_once(pair, snapshot) -> None:
    """Each of them wins or is told of a conflict: no version is lost, none comes twice."""
    one, other = pair
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    won = 1

    def deploy(node: Node) -> harness.Ended:
        return node.store("deploy", snapshot, "--name", "hello")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(8):
            for done in pool.map(deploy, (one, other)):
                assert done.status == 0 or (done.status == CONFLICT and "through another daemon of the cluster" in done.err), done
                won += done.status == 0
    assert won > 8
    same(one, other)
    numbers = [version["version"] for version in one.store.json("versions", "hello")["versions"]]
    assert sorted(numbers) == list(range(1, won + 1))


def test_while_etcd_is_away(cluster, pair, snapshot) -> None:
    one, other = pair
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    cluster.etcd.stop()
    assert one.status("hello") == other.status("hello") == 200
    refused = one.store("deploy", snapshot, "--name", "hello")
    assert refused.status == UNREACHABLE and "the cluster's index" in refused.err, refused
    status, problem = one.request("DELETE", "/v1/functions/hello")
    assert status == 503 and problem["code"] == "cluster-away", problem
    other.becomes(lambda: "is not copied" in other.daemon.err, "the log says so")
    # A daemon that begins now serves what its store has.
    other.stop()
    other.start()
    assert other.status("hello") == 200
    assert cluster.node().fails().status == UNREACHABLE # it has nothing yet
    cluster.etcd.start()
    harness.wait_until(lambda: one.store("deploy", snapshot, "--name", "later").status == 0, "changes are possible again")
    other.serves("later")
    same(one, other)
    assert "is followed again" in other.daemon.err


def test_an_etcd_that_hangs_holds_up_changes_only(cluster, pair, snapshot) -> None:
    one, _ = pair
    one.store.deploy(snapshot, "hello")
    cluster.etcd.pause()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        refused = pool.submit(one.store, "delete", "hello", "--yes")
        answers = 0
        while not refused.done():
            assert one.request("GET", "/readyz")[0] == 200
            assert one.status("hello") == 200
            answers += 1
        assert refused.result().status == UNREACHABLE, refused.result()
    assert answers > 10
    cluster.etcd.resume()
    harness.wait_until(lambda: one.store("delete", "hello", "--yes").status == 0, "it can be deleted")


def test_a_daemon_that_was_away_catches_up(pair, snapshot) -> None:
    one, other = pair
    for name in ("goes", "stays", "changes"):
        one.store.deploy(snapshot, name)
    other.serves("changes")
    other.stop()
    one.store.ok("delete", "goes", "--yes")
    one.store.deploy(snapshot, "changes")
    one.store.deploy(snapshot, "comes")
    other.start()
    assert other.status("goes") == 404  # it has copied before it serves
    assert other.status("comes") == 200
    same(one, other)


def test_etcd_learns_nothing(cluster, pair, snapshot) -> None:
    one, other = pair
    words = ["s3cretword", "v4riableword", "messageword"]
    one.store.deploy(snapshot, "hello", "--message", words[2])
    one.store.ok("env", "set", "hello", f"COLOUR={words[1]}")
    one.store.ok("secret", "set", "hello", "WORD", "--stdin", stdin=words[0].encode())
    other.becomes(lambda: other.store.json("secret", "list", "hello")["secrets"], "it has the secret")
    stored = b"".join(file.read_bytes() for file in cluster.etcd.folder.rglob("*") if file.is_file())
    assert b"functions/hello" in stored
    for word in words:
        assert word.encode() not in stored
    # A value that was put in the place of another one is not taken.
    one.store.deploy(snapshot, "other")
    other.serves("other")
    before = what_is_known(other)
    cluster.etcd.put("kvmserver/functions/other", cluster.etcd.get("kvmserver/functions/hello"))
    other.becomes(lambda: "functions/other was not sealed with the key" in other.daemon.err, "the log says so")
    assert what_is_known(other) == before and other.status("other") == 200


def test_an_altered_list_of_chunks_is_not_used(cluster, snapshot) -> None:
    one = cluster.node().start()
    one.store.deploy(snapshot, "hello")
    (record,) = (cluster.s3.bucket / "app" / "snapshots").glob("??/*.json")
    intact = record.read_bytes()
    record.write_bytes(intact.replace(b"pieces", b"pieced"))
    other = cluster.node().start()
    assert other.status("hello") == 404
    assert "list of the chunks of snapshot" in other.daemon.err and "is altered" in other.daemon.err
    record.write_bytes(intact)
    other.serves("hello")


def test_functions_of_before_become_the_cluster_s(cluster, snapshot) -> None:
    one, other, third = cluster.node(), cluster.node(), cluster.node()
    one.store.deploy(snapshot, "hello")
    one.store.ok("token", "create", "ci", "--scope", "read")
    one.start()
    other.start()
    assert other.status("hello") == 200
    same(one, other)
    assert [token["name"] for token in other.store.json("token", "list")["tokens"]] == ["ci"]
    third.store.deploy(snapshot, "hello")
    refused = third.fails()
    assert refused.status == CONFLICT and "function hello is in this store and another one" in refused.err, refused
    third.store.ok("delete", "hello", "--yes")
    third.start()
    same(one, third)


def test_an_etcd_that_lost_the_cluster_removes_nothing(cluster, pair, snapshot) -> None:
    one, other = pair
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    cluster.etcd.lose()
    other.becomes(lambda: "has lost the cluster" in other.daemon.err, "the log says so")
    assert one.status("hello") == other.status("hello") == 200
    refused = one.store("deploy", snapshot, "--name", "hello")
    assert refused.status == CONFLICT and "has lost the cluster" in refused.err, refused
    refused = other.store("delete", "hello", "--yes")
    assert refused.status == CONFLICT and "has lost the cluster" in refused.err, refused
    # As the message says: what the stores have is there again.
    for node in (one, other):
        node.stop()
        (node.store.path / "cluster").unlink()
    one.start()
    other.start()
    assert one.status("hello") == other.status("hello") == 200
    same(one, other)


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.nightly)])
def test_daemons_that_are_killed_while_they_change_something(pair, snapshots, program, rounds: int) -> None:
    """At any moment of a deploy, a deletion, a rollback or gc: the change is everywhere or nowhere."""
    files = [snapshots.of(program(name)) for name in ("c-epoll", "c-poll", "c-select")]
    for node in pair:
        node.store.deploy(files[0], "steady")
    chance = random.Random(rounds)
    done = 0
    for turn in range(rounds):
        node, other = chance.sample(pair, 2)
        name = f"f{chance.randrange(3)}"
        command = chance.choice([("deploy", chance.choice(files), "--name", name)] * 4 +
                                [("delete", name, "--yes"), ("rollback", name), ("gc", "--keep", "1"), ("env", "set", name, f"A={turn}")])  # fmt: skip
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            result = pool.submit(node.store, *command)
            with contextlib.suppress(concurrent.futures.TimeoutError):
                result.result(chance.uniform(0, 0.25))
            node.daemon.popen.kill()
            node.daemon.popen.wait()
            done += result.result().status == 0
        assert other.status("steady") == 200
        node.daemon.close()
        node.start()
        assert node.status("steady") == 200
        same(node, other)
        for function in functions_of(node):
            assert node.status(function) == other.status(function) == 200, (turn, command, function)
    assert rounds < 100 or 0 < done < rounds
    for node in pair:
        report = node.store("verify", "--cluster", "--dry-run")
        assert report.status == 0 and report.out.startswith("Verified: functions"), report
    for node in pair:
        node.stop()
        report = node.store("verify")  # a record may tell of a change that was not made, as in a store alone
        assert "lost" not in report.out and "damaged" not in report.out, report
        report = node.store("verify", "--dry-run")
        assert report.status == 0, report


def test_gc_of_versions(pair, snapshot) -> None:
    one, other = pair
    for _ in range(3):
        one.store.deploy(snapshot, "hello")
    other.serves("hello")
    freed = one.store.json("gc", "--keep", "1")
    assert freed["versions"] == 2, freed
    same(one, other)
    assert len(other.store.json("versions", "hello")["versions"]) == 1


def objects(cluster) -> set[str]:
    return {file.name for file in (cluster.s3.bucket / "app").glob("*/??/*") if file.is_file()}


def test_gc_of_the_bucket(cluster, pair, snapshots, program) -> None:
    one, other = pair
    one.store.deploy(snapshots.of(program("c-epoll")), "stays")
    kept = objects(cluster)
    other.store.deploy(snapshots.of(program("c-poll")), "goes")
    one.serves("goes")
    assert objects(cluster) > kept
    one.store.ok("delete", "goes", "--yes")
    freed = one.store.json("gc")
    assert objects(cluster) == kept and freed["objects"] > 0, freed
    assert one.status("stays") == other.status("stays") == 200
    # The other daemon still has it on its disk, and brings it back.
    other.store.deploy(snapshots.of(program("c-poll")), "again")
    one.serves("again")


def test_verify_of_the_cluster(cluster, pair, snapshots, program) -> None:
    one, other = pair
    one.store.deploy(snapshots.of(program("c-epoll")), "hello")
    clean = one.store.json("verify", "--cluster")
    assert clean["clean"] and clean["functions"] == clean["versions"] == clean["snapshots"] == 1 and clean["chunks"] > 0, clean
    other.becomes(lambda: functions_of(other) == ["hello"], "the other daemon has it")  # and no chunk on its disk
    # The list of its chunks, and one of them.
    lost = [next((cluster.s3.bucket / "app").glob(f"{kind}/??/*")) for kind in ("chunks", "snapshots")]
    kept = {file: file.read_bytes() for file in lost}
    for file in lost:
        file.unlink()
    faulty = other.store("verify", "--cluster", "--dry-run")
    assert faulty.status == BAD_SNAPSHOT and "repairable: " in faulty.out and "no list of the chunks" in faulty.out, faulty
    faulty = other.store("verify", "--cluster")
    assert faulty.status == BAD_SNAPSHOT and "run this on another node" in faulty.out, faulty
    mended = one.store("verify", "--cluster")
    assert mended.status == 0 and "sent again from this store" in mended.out, mended
    assert all(file.read_bytes() == what for file, what in kept.items()) and other.store.json("verify", "--cluster")["findings"] == []
    other.serves("hello")
    # An altered list, and entries that do not agree.
    lost[-1].write_bytes(lost[-1].read_bytes().replace(b"pieces", b"Pieces"))
    assert "is altered" in one.store("verify", "--cluster", "--dry-run").out
    assert one.store("verify", "--cluster").status == 0 and one.store.json("verify", "--cluster")["clean"]
    route = next(key for key in cluster.etcd.all() if key.startswith("kvmserver/routes/"))
    cluster.etcd.put(route, "nobody")
    faulty = one.store("verify", "--cluster")
    assert faulty.status == BAD_SNAPSHOT and "its route hello.localhost is another function's, nobody" in faulty.out, faulty


@pytest.mark.parametrize("away", [1, pytest.param(10, marks=pytest.mark.nightly)])
def test_behind_a_load_balancer_nothing_is_lost(cluster, folder, snapshot, away: int) -> None:
    """While a daemon is killed, another one is stopped, and etcd and S3 are away for some seconds."""
    nodes = [cluster.node().start() for _ in range(3)]
    names = [f"f{i}" for i in range(6)]
    for number, name in enumerate(names):
        nodes[number % 3].store.deploy(snapshot, name)
    for node in nodes:
        for name in names:
            node.serves(name)
    balancer = HAProxy(folder, [(node.port, node.api) for node in nodes])
    with contextlib.closing(balancer):
        load = Load(balancer.port, names)
        with contextlib.closing(load):
            load.more(away)
            nodes[0].daemon.popen.kill()
            nodes[0].daemon.popen.wait()
            load.more(away)
            nodes[0].daemon.close()
            nodes[0].start()
            killed = list(load.bad)
            load.more(away)
            nodes[1].stop()
            load.more(away)
            nodes[1].start()
            load.more(away)
            cluster.etcd.stop()
            load.more(away)
            cluster.etcd.start()
            cluster.s3.stop()
            load.more(away)
            cluster.s3.start()
            load.more(away)
        # Those in flight on the killed daemon, which HAProxy asks again.
        assert load.bad == killed and len(killed) <= len(load.threads), (len(load.bad), load.bad[:10], balancer.err[-2000:])
    print(f"{load.good} requests, {len(load.bad)} in flight on the killed daemon failed")
    nodes[2].store.deploy(snapshot, "after")
    begin = time.monotonic()
    for node in nodes:
        node.serves("after")
    print(f"served by all after {time.monotonic() - begin:.3f} s")
    same(nodes[0], nodes[1])
    same(nodes[0], nodes[2])


def test_what_is_refused(cluster, snapshot, folder) -> None:
    one = cluster.node().start()
    one.store.deploy(snapshot, "hello")
    one.stop()
    # Without the daemon others would not have it.
    refused = one.store("deploy", snapshot, "--name", "hello")
    assert refused.status == CONFLICT and "the store belongs to the cluster of etcd at http://" in refused.err, refused
    assert one.store("gc").status == CONFLICT
    alone = harness.kvmserver("serve", "--store", one.store.path, "--listen", f"127.0.0.1:{harness.free_port()}")
    assert alone.status == CONFLICT and "give --cluster, --cluster-key and --chunks" in alone.err, alone
    # Another key, another cluster, none.
    other = folder / "other key"
    other.write_text("f" * 64)
    other.chmod(0o600)
    refused = one.fails("--cluster-key", str(other))
    assert refused.status == CONFLICT and "was not sealed with the key of --cluster-key" in refused.err, refused
    refused = one.fails("--cluster", cluster.etcd.address + "/elsewhere")
    assert refused.status == CONFLICT and "has lost the cluster" in refused.err, refused
    for words, why in ((["--cluster-key", folder / "none"], "No such file"), (["--cluster", "etcd://"], "etcd://HOST:PORT"),
                       (["--cluster", ""], "--cluster: the value is empty")):  # fmt: skip
        refused = one.fails(*map(str, words))
        assert refused.status == 2 and why in refused.err, refused
    one.start()
    assert one.status("hello") == 200
