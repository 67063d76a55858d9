"""A snapshot file that the store has already is deployed again: what that reads and writes, and what it still checks."""
import contextlib
import json
import os
import pathlib
import subprocess

import harness
import pytest
from serving import Daemon, Store

MARGIN = 1 << 20  # libraries, the index, messages


@pytest.fixture
def snap(snapshots, program) -> pathlib.Path:
    """Much larger than MARGIN."""
    return snapshots.of(program("python-http"))


def io(pid: int) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())}


def deploy(store: Store, snap: pathlib.Path, name: str) -> dict[str, int]:
    """What the command has read and written."""
    argv = [str(harness.KVMSERVER), "deploy", str(snap), "--name", name, "--store", str(store.path), "-q"]
    with subprocess.Popen(argv, env=harness.BASE_ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as command:
        os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
        done = io(command.pid)
        assert command.wait() == 0, command.stderr.read()
    return done


def chunks(store: Store) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (store.path / "chunks").glob("*/*")}


def last_chunk(store: Store) -> pathlib.Path:
    """The coldest of the only snapshot, which a trial does not read."""
    (record,) = (store.path / "snapshots").iterdir()
    *_, chunk, _, _ = json.loads(record.read_text().split("\n", 1)[1])["pieces"]
    return store.path / "chunks" / chunk[0][:2] / chunk[0]


def alter(path: pathlib.Path) -> None:
    """The byte in its middle."""
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        byte = file.read(1)[0]
        file.seek(middle)
        file.write(bytes([byte ^ 1]))


def test_the_command_itself_writes_into_the_store(store, serve, snap) -> None:
    daemon = serve()
    size = snap.stat().st_size
    before = io(daemon.popen.pid)
    command = deploy(store, snap, "one")
    after = io(daemon.popen.pid)
    assert size <= command["wchar"] < size + MARGIN, command
    assert after["wchar"] - before["wchar"] < MARGIN, (before, after)
    assert daemon.text("one", "/") != ""
    assert store("verify").status == 0


def test_a_file_that_is_stored_is_read_once_and_nothing_of_it_is_written(store, serve, snap) -> None:
    daemon = serve()
    store.deploy(snap, "one")
    size = snap.stat().st_size
    assert size > 3 * MARGIN
    stored = chunks(store)
    for name in ("one", "two", "one"):
        before = io(daemon.popen.pid)
        command = deploy(store, snap, name)
        after = io(daemon.popen.pid)
        if name == "two":  # by now its digest is known
            size = 0
        assert command["rchar"] < size + MARGIN, command
        assert command["wchar"] < MARGIN, command
        assert after["write_bytes"] - before["write_bytes"] < MARGIN, (before, after)
        assert daemon.text(name, "/") != ""
    assert chunks(store) == stored
    assert store("verify").status == 0


def test_what_was_tried_just_now_is_not_tried_again(store, serve, snap) -> None:
    daemon = serve()

    def takes_a_process() -> bool:
        harness.wait_until(lambda: len(daemon.spares()) == 2, "both spare processes are there")
        before = sorted(daemon.spares())
        store.deploy(snap, "two")
        return sorted(daemon.spares()) != before

    store.deploy(snap, "one")
    assert not takes_a_process()
    store.ok("env", "set", "two", "A=1")
    assert takes_a_process()  # with other values it may fail
    assert not takes_a_process()
    assert daemon.text("two", "/") != ""


def test_a_version_does_not_go_live_when_its_chunks_were_altered(store, snap) -> None:
    with contextlib.closing(Daemon(store)):
        for _ in range(2):
            store.deploy(snap, "one")
        alter(last_chunk(store))
        again = store("deploy", snap, "--name", "one")
        assert again.status == 7 and "is altered" in again.error, again
        assert [version["version"] for version in store.json("versions", "one")["versions"]] == [2, 1]
    # Without a daemon the command has the bytes at hand, and mends it.
    store.deploy(snap, "one")
    assert store("verify").status == 0


def test_a_file_that_was_altered_in_place_is_read_again(store, serve, snap, tmp_path) -> None:
    serve()
    own = tmp_path / "own.snap"
    own.write_bytes(snap.read_bytes())
    for _ in range(2):
        store.deploy(own, "one")
    times = own.stat()
    alter(own)
    os.utime(own, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a program may do that keeps the times of files
    again = store("deploy", own, "--name", "one")
    assert again.status == 7 and "altered" in again.error, again
    assert [version["version"] for version in store.json("versions", "one")["versions"]] == [2, 1]
