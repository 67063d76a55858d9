"""deploy to a daemon on this host: live with a snapshot compressed in a hurry, which the daemon compresses anew behind."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import harness
import pytest
import serving
from serving import Daemon, Store, ask, words_of


def manifest(folder: pathlib.Path, program: dict, top: str = "") -> pathlib.Path:
    return serving.manifest(folder, program, "warmup = 0\n" + top)


def deploy(store: Store, folder: pathlib.Path) -> None:
    """Without anything that is compressed already."""
    done = harness.kvmserver("deploy", folder, "--store", store.path, env={"XDG_CACHE_HOME": str(store.folder / "cache")},
                             patience=harness.PATIENCE * 6)  # fmt: skip
    assert done.status == 0, done


def version(store: Store, name: str, number: int = 1) -> dict:
    return next(one for one in store.json("versions", name)["versions"] if one["version"] == number)


def compressed(store: Store, name: str, number: int = 1) -> dict:
    harness.wait_until(lambda: not version(store, name, number)["compress_later"], "the snapshot is compressed anew", harness.IDLE_PATIENCE)
    return version(store, name, number)


def compressing(daemon: Daemon) -> list[int]:
    """Processes that compress a snapshot anew."""
    children = pathlib.Path(f"/proc/{daemon.popen.pid}/task")
    pids = {int(pid) for task in children.iterdir() for pid in (task / "children").read_text().split()}
    return [pid for pid in pids if "--examiner" in (words := words_of(pid)) and "idle" in words]


def deployed(daemon: Daemon, folder: pathlib.Path) -> int:
    """The process that compresses the new function's snapshot anew."""
    deploy(daemon.store, folder)
    harness.wait_until(lambda: compressing(daemon), "it compresses")
    (pid,) = compressing(daemon)
    return pid


def snapshots_of(store: Store) -> set[str]:
    return {file.stem for file in (store.path / "snapshots").iterdir()}


def digest(one: dict) -> str:
    return one["snapshot"].removeprefix("sha256:")


@pytest.fixture
def large(program) -> dict:
    """Takes seconds to compress."""
    return program("python-http")


def test_it_is_live_at_once_and_smaller_later(store, serve, large) -> None:
    daemon = serve()
    deploy(store, manifest(store.folder / "hello", large))
    hurried = version(store, "hello")
    etag = store.json("describe", "hello")["etag"]
    assert hurried["compress_later"]
    assert store("versions", "hello").out.rstrip().endswith(f"sha256:{digest(hurried)[:12]} (to be compressed)")

    def answered_and_done() -> bool:
        assert daemon.text("hello", "/") != ""
        return not version(store, "hello")["compress_later"]

    harness.wait_until(answered_and_done, "the snapshot is compressed anew", harness.IDLE_PATIENCE)
    assert "(to be" not in store("versions", "hello").out
    anew = version(store, "hello")
    assert anew["bytes"] < hurried["bytes"] and anew["snapshot"] != hurried["snapshot"]
    assert store.json("describe", "hello")["etag"] == etag
    assert daemon.text("hello", "/") != ""
    harness.wait_until(lambda: snapshots_of(store) == {digest(anew)}, "what was deployed is removed")
    assert daemon.text("hello", "/") != ""
    assert store("verify").status == 0
    assert "stays as large" not in daemon.err


@pytest.mark.nightly
def test_cold_starts_find_their_snapshot_while_it_is_replaced(store, serve, large) -> None:
    """With two functions: the change of one sent the daemon to remove what it had just replaced for the other."""
    daemon = serve()
    names = ["one", "two"]
    hurried = set()
    for name in names:
        folder = manifest(store.folder / name, large)
        with open(folder / "kvmserver.toml", "a") as file:
            file.write('[function.scale]\nidle = "1ms"\n')
        deploy(store, folder)
        hurried.add(digest(version(store, name)))
    starts = 0

    def answered_and_replaced() -> bool:
        nonlocal starts
        for name in names:
            reply = daemon.ask(name, "/")
            assert reply.status == 200, (starts, reply, daemon.err)
            starts += 1
        return not hurried & snapshots_of(store)

    harness.wait_until(answered_and_replaced, "all are compressed anew", harness.IDLE_PATIENCE)
    assert starts > 30


@pytest.mark.nightly
def test_a_daemon_that_is_killed_meanwhile_loses_nothing(store, large) -> None:
    daemon = Daemon(store)
    with contextlib.closing(daemon):
        pid = deployed(daemon, manifest(store.folder / "hello", large))
        daemon.popen.kill()
        daemon.popen.wait()
    hurried = version(store, "hello")
    assert hurried["compress_later"]
    harness.wait_until(lambda: not words_of(pid), "its child ends")
    daemon = Daemon(store)
    with contextlib.closing(daemon):
        assert daemon.text("hello", "/") != ""
        anew = compressed(store, "hello")
        assert anew["bytes"] < hurried["bytes"]
        assert daemon.text("hello", "/") != ""
        harness.wait_until(lambda: snapshots_of(store) == {digest(anew)}, "what was deployed is removed")
    assert store("verify").status == 0


def test_a_daemon_ends_at_once_while_it_compresses(store, large) -> None:
    daemon = Daemon(store)
    with contextlib.closing(daemon):
        pid = deployed(daemon, manifest(store.folder / "hello", large))
        daemon.popen.send_signal(signal.SIGTERM)
        assert daemon.popen.wait(harness.PATIENCE) == 0
        assert not words_of(pid)
    assert version(store, "hello")["compress_later"]


@pytest.mark.nightly
def test_a_child_that_dies_is_said_and_the_version_stays(store, serve, large) -> None:
    daemon = serve()
    os.kill(deployed(daemon, manifest(store.folder / "hello", large)), signal.SIGKILL)
    harness.wait_until(lambda: "the snapshot of hello v1 stays as large as it is" in daemon.err, "it says so")
    assert daemon.text("hello", "/") != ""
    assert version(store, "hello")["compress_later"]
    # Others are compressed nevertheless.
    deploy(store, manifest(store.folder / "other", large))
    compressed(store, "other")
    assert daemon.err.count("stays as large") == 1


@pytest.mark.nightly
def test_a_disk_that_is_full(store, large) -> None:
    """The version stays live; once there is room, the next daemon compresses it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system for the store")
    store.path.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        small = harness.Process(["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o mode=700 none {store.path} && echo mounted && exec sleep 1000"])
        stack.callback(small.close)
        harness.wait_until(lambda: small.out == "mounted\n", "the store has a file system of its own")
        inside = ["nsenter", "-m", "-t", str(small.popen.pid)]
        port = harness.free_port()
        environment = {**harness.BASE_ENVIRONMENT, "XDG_CACHE_HOME": str(store.folder / "cache")}

        def run(*words) -> str:
            return subprocess.run([*inside, *map(str, words)], env=environment, check=True, capture_output=True, text=True).stdout

        def served() -> harness.Process:
            daemon = harness.Process([*inside, harness.KVMSERVER, "serve", "--store", store.path, "--listen", f"127.0.0.1:{port}"])
            stack.callback(daemon.close)
            harness.wait_until(lambda: "Serving " in daemon.out, "the daemon serves")
            return daemon

        def later() -> bool:
            return json.loads(run(harness.KVMSERVER, "versions", "hello", "--json", "--store", store.path))["versions"][0]["compress_later"]

        daemon = served()
        run(harness.KVMSERVER, "deploy", manifest(store.folder / "hello", large), "--store", store.path)
        used = int(run("du", "-sk", store.path).split()[0])
        run("mount", "-o", f"remount,size={used + 4096}k", store.path)
        harness.wait_until(lambda: "the snapshot of hello v1 stays as large as it is" in daemon.err, "it says so", harness.IDLE_PATIENCE)
        assert "No space left" in daemon.err
        assert ask(port, "hello", "/").status == 200
        assert later()
        daemon.popen.send_signal(signal.SIGTERM)
        assert daemon.popen.wait(harness.PATIENCE) == 0
        run("mount", "-o", f"remount,size={used * 3}k", store.path)
        served()
        harness.wait_until(lambda: not later(), "the snapshot is compressed anew", harness.IDLE_PATIENCE)
        assert ask(port, "hello", "/").status == 200
        assert "Verified: " in run(harness.KVMSERVER, "verify", "--store", store.path)


def test_a_level_that_was_asked_for_stays(store, serve, large, program) -> None:
    daemon = serve()
    deploy(store, manifest(store.folder / "hello", large, "level = 1\n"))
    before = version(store, "hello")
    assert not before["compress_later"] # looking at it alone would take the daemon a while
    store.ok("deploy", manifest(store.folder / "other", program("c-epoll")))
    compressed(store, "other") # so the daemon has looked at both
    assert version(store, "hello") == before
    assert daemon.text("hello", "/") != ""


def test_without_a_daemon_nothing_is_left_for_later(store, program) -> None:
    store.ok("deploy", manifest(store.folder / "hello", program("c-epoll")))
    assert not version(store, "hello")["compress_later"]


def test_a_token_for_one_prefix(store, serve, program) -> None:
    """What is compressed anew stays the tenant's own; what needs no more compression stays as it is."""
    daemon = serve("--admin", f"127.0.0.1:{(port := harness.free_port())}")
    token = store.ok("token", "create", "ci", "--scope", "deploy", "--prefix", "ci-")
    env = {"KVMSERVER_REMOTES": str(store.folder / "remotes.json")}

    def run(*words, stdin: bytes = b"") -> None:
        done = harness.kvmserver(*words, env=env, stdin=stdin, patience=harness.PATIENCE * 6)
        assert done.status == 0, done

    run("login", f"http://127.0.0.1:{port}", "--name", "here", "--token-stdin", stdin=token.encode())
    run("deploy", manifest(store.folder / "ci-one", program("c-epoll")), "--remote", "here", "--clamp")
    anew = compressed(store, "ci-one")
    harness.wait_until(lambda: snapshots_of(store) == {digest(anew)}, "what was deployed is removed")
    assert daemon.text("ci-one", "/") != ""
    assert "stays as large" not in daemon.err
