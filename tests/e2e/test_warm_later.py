"""deploy to a daemon on this host: live before the program is warmed up, and with its warmed-up snapshot behind."""
import contextlib
import http.client
import json
import os
import pathlib
import signal

import harness
import pytest
from admin import UnixConnection
from serving import Daemon, Store, manifest, words_of

PATIENCE = harness.PATIENCE * 6


def versions(store: Store, name: str = "hello") -> list[dict]:
    return store.json("versions", name)["versions"]


def digests(store: Store) -> set[str]:
    return {"sha256:" + file.stem for file in (store.path / "snapshots").iterdir()}


class Deploy(harness.Process):
    """Stopped once the version is live: its child goes on to warm the program up, but nothing of that is sent."""

    def __init__(self, store: Store, folder: pathlib.Path, *options: str) -> None:
        self.temporary = store.folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        super().__init__([str(harness.KVMSERVER), "deploy", str(folder), "--store", str(store.path), *options],
                         env={**harness.BASE_ENVIRONMENT, "TMPDIR": str(self.temporary)})
        harness.wait_until(lambda: " live " in self.out or not self.running(), "it is live", PATIENCE)
        self.popen.send_signal(signal.SIGSTOP)
        assert " live " in self.out, self.err

    def child(self) -> int:
        """`kvmserver snapshot`, which warms it up."""
        (pid,) = pathlib.Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text().split()
        return int(pid)

    def ended(self) -> int:
        self.popen.send_signal(signal.SIGCONT)
        return self.popen.wait(PATIENCE)


@pytest.fixture
def deploy(store):
    with contextlib.ExitStack() as stack:
        def start(folder: pathlib.Path, *options: str) -> Deploy:
            started = Deploy(store, folder, *options)
            stack.callback(started.close)
            return started
        yield start


@pytest.fixture
def node(store, program) -> pathlib.Path:
    """Warming it up takes a second and more, and makes it faster in any case."""
    return manifest(store.folder / "hello", program("node-http"))


def put(store: Store, number: int, body: dict) -> tuple[int, dict]:
    connection = UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("PUT", f"/v1/functions/hello/versions/{number}/snapshot", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def test_it_is_live_before_its_warm_up(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    (cold,) = versions(store)
    etag = store.json("describe", "hello")["etag"]
    assert cold["warms_up"] and cold["percent"] == 100
    before = daemon.text("hello", "/")

    assert deployed.ended() == 0
    (warm,) = versions(store)
    assert not warm["warms_up"] and warm["created"] == cold["created"]
    assert warm["snapshot"] != cold["snapshot"], deployed.err
    assert store.json("describe", "hello")["etag"] == etag
    assert daemon.text("hello", "/") == before
    assert "node: warm-up: " in deployed.err
    assert store("verify").status == 0


@pytest.mark.nightly
def test_it_is_compressed_anew_after_its_warm_up(store, serve, deploy, node) -> None:
    daemon = serve()
    assert deploy(node).ended() == 0
    before = daemon.text("hello", "/")
    harness.wait_until(lambda: not versions(store)[0]["compress_later"], "it is compressed anew", PATIENCE)
    (last,) = versions(store)
    harness.wait_until(lambda: digests(store) == {last["snapshot"]}, "what is not needed any more is removed")
    assert daemon.text("hello", "/") == before
    assert store("verify").status == 0


def test_requests_see_no_gap(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    deployed.popen.send_signal(signal.SIGCONT)
    asked = 0
    while deployed.running():
        assert daemon.ask("hello", "/").status == 200
        asked += 1
    assert daemon.ask("hello", "/").status == 200
    assert asked > 10 and not versions(store)[0]["warms_up"]


@pytest.mark.nightly
def test_json_tells_the_snapshot_that_stays(store, serve, node) -> None:
    serve()
    result = store.json("deploy", node)
    assert result["version"] == 1
    # The daemon may have compressed it anew already.
    assert versions(store)[0]["compress_later"] is False or result["snapshot"] == versions(store)[0]["snapshot"]


@pytest.mark.nightly
def test_a_second_deploy_meanwhile(store, serve, deploy, node) -> None:
    """Each version gets its own warmed-up snapshot, whichever ends first."""
    daemon = serve()
    first = deploy(node)
    second = deploy(node)
    assert second.ended() == 0
    assert first.ended() == 0
    two, one = versions(store)
    assert (two["percent"], one["percent"]) == (100, 0)
    assert not two["warms_up"] and not one["warms_up"]
    assert daemon.ask("hello", "/").status == 200


def test_ctrl_c_meanwhile(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    deployed.popen.send_signal(signal.SIGINT)
    assert deployed.ended() == -signal.SIGINT
    assert "hello v1 stays as it was before its warm-up" in deployed.err
    assert list(deployed.temporary.iterdir()) == []
    assert daemon.ask("hello", "/").status == 200


@pytest.mark.nightly
def test_a_command_that_is_killed_meanwhile(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    child = deployed.child()
    deployed.popen.kill()
    deployed.popen.wait()
    harness.wait_until(lambda: not words_of(child), "its child ends")
    assert daemon.ask("hello", "/").status == 200
    assert versions(store)[0]["warms_up"]
    assert store("verify").status == 0
    # The next deploy is as any.
    store.ok("deploy", node)
    assert not versions(store)[0]["warms_up"]


def test_a_child_that_is_killed_meanwhile(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    os.kill(deployed.child(), signal.SIGKILL)
    assert deployed.ended() == 0
    assert "hello v1 stays as it was before its warm-up: the warm-up ended with status 137" in deployed.err
    assert daemon.ask("hello", "/").status == 200


@pytest.mark.nightly
def test_a_version_that_is_deleted_meanwhile(store, serve, deploy, node) -> None:
    daemon = serve()
    deployed = deploy(node)
    store.ok("delete", "hello", "-y")
    assert deployed.ended() == 0
    assert "hello v1 stays as it was before its warm-up: " in deployed.err and "hello" in deployed.err
    assert daemon.ask("hello", "/").status == 404


@pytest.mark.nightly
def test_a_daemon_that_is_gone_meanwhile(store, deploy, node) -> None:
    with contextlib.closing(Daemon(store)) as daemon:
        deployed = deploy(node)
        daemon.popen.kill()
        daemon.popen.wait()
        assert deployed.ended() == 0
    assert "hello v1 stays as it was before its warm-up: " in deployed.err
    with contextlib.closing(Daemon(store)) as daemon:
        assert daemon.ask("hello", "/").status == 200


def test_a_warm_up_that_helps_nothing(store, serve, program) -> None:
    """What is live stays as it is, and is compressed at once."""
    serve()
    folder = manifest(store.folder / "hello", program("c-epoll"), "max-warmup-time = 0.000001\n")
    store.ok("deploy", folder)
    assert not versions(store)[0]["warms_up"]
    harness.wait_until(lambda: not versions(store)[0]["compress_later"], "it is compressed anew", PATIENCE)


@pytest.mark.parametrize("top,options", [("warmup = 2\n", []), ("", ["--no-activate"])])
def test_what_is_warmed_up_first(store, serve, program, top, options) -> None:
    """A number of requests that somebody named, and a version that waits for its turn."""
    serve()
    folder = manifest(store.folder / "hello", program("c-epoll"), top)
    result = store("deploy", folder, "--json", *options).last
    (version,) = versions(store)
    assert not version["warms_up"]
    assert not version["compress_later"] or result["snapshot"] == version["snapshot"]


@pytest.mark.nightly
def test_what_takes_the_place(store, serve, deploy, node, program) -> None:
    """Only what asks for the same, while the version waits for it; anything else leaves it as it is."""
    daemon = serve()
    deployed = deploy(node)
    (cold,) = versions(store)

    def refused(status: int, code: str, body: dict, number: int = 1) -> str:
        got, problem = put(store, number, body)
        assert (got, problem["code"]) == (status, code), problem
        assert versions(store)[-1] == cold
        return problem["detail"]

    refused(400, "bad-value", {})
    refused(400, "bad-value", {"snapshot": cold["snapshot"], "level": 3})
    refused(404, "not-found", {"snapshot": "0" * 64})
    refused(404, "not-found", {"snapshot": cold["snapshot"]}, 2)
    more = store.folder / "more.snap"
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    made = harness.kvmserver("snapshot", "--allow-all", "--max-request-memory", "77", "-o", more, *argv)
    assert made.status == 0, made
    pushed = store.ok("push", more).split()[-1]
    assert "asks for other permissions or limits" in refused(409, "conflict", {"snapshot": pushed})
    assert deployed.ended() == 0

    (warm,) = versions(store)
    status, problem = put(store, 1, {"snapshot": cold["snapshot"]})
    assert status in (404, 409), problem  # it is final, and what was there before is removed
    status, problem = put(store, 1, {"snapshot": versions(store)[0]["snapshot"]})
    assert (status, problem["code"]) == (409, "conflict") and "final" in problem["detail"]
    assert daemon.ask("hello", "/").status == 200


def test_another_owner_may_not(store, serve, deploy, program) -> None:
    serve("--admin", f"127.0.0.1:{(port := harness.free_port())}")
    folder = manifest(store.folder / "ci-one", program("node-http"))
    deployed = deploy(folder)
    (cold,) = versions(store, "ci-one")
    token = store.ok("token", "create", "ci", "--scope", "deploy", "--prefix", "ci-")
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=harness.PATIENCE)
    with contextlib.closing(client):
        client.request("PUT", "/v1/functions/ci-one/versions/1/snapshot", json.dumps({"snapshot": cold["snapshot"]}),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {token}"})
        reply = client.getresponse()
        problem = json.loads(reply.read())
    assert (reply.status, problem["code"]) == (409, "conflict") and "somebody else" in problem["detail"]
    assert deployed.ended() == 0
    assert versions(store, "ci-one")[0]["snapshot"] != cold["snapshot"]


@pytest.mark.parametrize("words", [["--early", "x"], ["--parent", "3"], ["--early", "x", "--parent", "y"], ["--early", "x", "--parent", "-1"]])
def test_what_deploy_says_to_snapshot_alone(words) -> None:
    done = harness.kvmserver("snapshot", "-o", "/tmp/none.snap", *words, "/bin/true")
    assert done.status == 2 and "--parent" in done.err and done.err.count("\n") == 1, done
