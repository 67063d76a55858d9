"""A machine whose state cannot be saved, for want of room on the disk, stays in memory and goes on from there."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import harness
import pytest
from serving import gone
from test_kept import KEPT, keeps, live, logged, node  # noqa: F401: fixtures
from test_migrate import Side, deploy
from test_suspend import IDLE, SUSPENDED, SUSPENDS, states, suspended

UNSAVED = "so its process keeps it"
NOT_LONG = SUSPENDS.replace(IDLE, "1h")


class Disk:
    """The store's states, on a file system of their own."""

    def __init__(self, folder) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.chmod(0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700,size=64m", "none", folder], check=True)

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / "filler.lock").open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        (self.folder / "filler.lock").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)


@pytest.fixture
def disk(store):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system for the states")
    disk = Disk(store.path / "states")
    yield disk
    disk.close()


def unsaved(store, function: str = "keeps", times: int = 1) -> None:
    harness.wait_until(lambda: store("logs", function).out.count(UNSAVED) >= times, "it could not be saved")


def counts(daemon, *numbers: int, function: str = "keeps") -> None:
    assert [daemon.text(function, "/count").strip() for _ in numbers] == [str(number) for number in numbers]


def test_it_goes_on_from_memory_and_is_saved_later(disk, keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    disk.fill()
    for round in range(1, 4):
        counts(daemon, 2 * round - 1, 2 * round)
        unsaved(store, times=round)
        assert logged(store, "keeps", "No space left on device")
        harness.wait_until(lambda: live(store, "keeps")["state"] == "unsaved", "it is told")
    (pid,) = daemon.processes()["keeps v1"]
    assert live(store, "keeps")["pid"] == pid and not states(store) and not logged(store, "keeps", "is lost")
    disk.free()
    suspended(daemon, store)  # without a request
    assert live(store, "keeps")["state"] == "suspended"
    counts(daemon, 7, 8)


def test_requests_that_wait_meanwhile(disk, keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS.replace(IDLE, "20ms")).status == 0
    disk.fill()
    counts(daemon, *range(1, 60))
    assert not logged(store, "keeps", "is lost")


@pytest.mark.nightly
def test_node_goes_on(disk, store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    disk.fill()
    for round in range(1, 4):
        counts(daemon, 2 * round - 1, 2 * round, function="probe")
        unsaved(store, "probe", round)
    disk.free()
    suspended(daemon, store, "probe")
    counts(daemon, 7, function="probe")


def test_node_goes_on_from_copies_and_large_pages(disk, store, serve, node) -> None:
    """A process whose memory is mapped from the daemon's cache, as that of all but the first is."""
    cache = store.folder / "cache"
    daemon = serve(env={"XDG_CACHE_HOME": str(cache)})
    store.deploy_probe(node, "probe", settings=KEPT + NOT_LONG)
    counts(daemon, 1, function="probe")

    def complete() -> bool:
        """There is a large page, they come last, and nothing came for a second."""
        copies = [path.stat() for path in cache.rglob("*.pages")]
        return any(copy.st_size // 4096 == 512 for copy in copies) and max(copy.st_mtime for copy in copies) < time.time() - 1

    harness.wait_until(complete, "copies are kept")
    store.ok("env", "set", "probe", "A=b")  # in a process of its own
    counts(daemon, 1, function="probe")
    for round in range(1, 5):
        disk.fill()
        assert store("suspend", "probe").status == 1
        disk.free()
        counts(daemon, 2 * round, 2 * round + 1, function="probe")
    assert store.ok("suspend", "probe") == "probe: 1 machine suspended"
    counts(daemon, 10, function="probe")


def test_by_command(disk, keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=NOT_LONG).status == 0
    counts(daemon, 1, 2)
    disk.fill()
    for _ in range(2):  # the second time it is in memory already
        refused = store("suspend", "keeps")
        assert refused.status == 1 and "was not saved, and stays in memory" in refused.err and len(refused.said) == 1, refused
    assert store.ok("resume", "keeps") == "keeps: 1 machine started"
    counts(daemon, 3)
    assert store("suspend", "keeps").status == 1
    disk.free()
    assert store.ok("suspend", "keeps") == "keeps: 1 machine suspended"
    harness.wait_until(lambda: not daemon.processes(), "its process has ended")
    assert len(states(store)) == 1
    counts(daemon, 4)


def test_what_was_saved_before_stays_until_it_is_replaced(disk, keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=NOT_LONG).status == 0
    counts(daemon, 1, 2)
    assert store.ok("suspend", "keeps") == "keeps: 1 machine suspended"
    counts(daemon, 3)
    disk.fill()
    assert store("suspend", "keeps").status == 1
    daemon.popen.send_signal(signal.SIGKILL)
    daemon.popen.wait()
    disk.free()
    counts(serve(), 3)


def test_the_daemon_ends(disk, keeps, store, serve) -> None:
    """It tries once more, whether there is room by then or not."""
    daemon, _ = in_memory(disk, keeps, store, serve)
    disk.free()
    assert daemon.stop().status == 0
    daemon = serve()
    counts(daemon, 3)
    disk.fill()
    assert store("suspend", "keeps").status == 1
    assert daemon.stop().status == 0
    disk.free()
    daemon = serve()
    assert logged(store, "keeps", "is lost")
    counts(daemon, 3)


def in_memory(disk, keeps, store, serve) -> tuple:
    """A daemon, and the process of a function that has counted to two and could not be suspended."""
    daemon = serve()
    assert keeps(settings=NOT_LONG).status == 0
    counts(daemon, 1, 2)
    disk.fill()
    assert store("suspend", "keeps").status == 1
    (pid,) = daemon.processes()["keeps v1"]
    return daemon, pid


@pytest.mark.parametrize("change", [("env", "set", "keeps", "COLOUR=red"), ("delete", "keeps", "--yes")])
def test_nobody_wants_it_any_longer(disk, keeps, store, serve, change) -> None:
    _, pid = in_memory(disk, keeps, store, serve)
    store.ok(*change)
    harness.wait_until(lambda: gone(pid), "its process has ended")
    assert not states(store)


def test_its_process_is_killed(disk, keeps, store, serve) -> None:
    daemon, pid = in_memory(disk, keeps, store, serve)
    os.kill(pid, signal.SIGKILL)
    assert store("suspend", "keeps").status == 1
    assert logged(store, "keeps", "is lost: its process has ended")
    disk.free()
    counts(daemon, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system for the states")
def test_it_is_not_migrated(folder) -> None:
    """What is in memory is newer than what is saved."""
    sides = []
    with contextlib.ExitStack() as stack:
        for name in "ab":
            sides.append(Side(folder, name))
            stack.callback(sides[-1].close)
        here, there = sides
        here.close()
        disk = Disk(here.store.path / "states")
        stack.callback(disk.close)
        here.start()
        deploy(here, KEPT + NOT_LONG)
        counts(here.daemon, 1, 2)
        disk.fill()
        for _ in range(2):  # once running, once in memory only
            refused = here.migrate(there)
            assert refused.status == 1 and "was not saved" in refused.err, refused
        counts(here.daemon, 3)
        disk.free()
        assert here.migrate(there).status == 0
        counts(there.daemon, 4)


SPINS = """
import http.server, sys, threading
count, busy = 0, threading.Event()

def spin():
    while busy.is_set():
        pass

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        if self.path == "/spin":
            busy.set()
            threading.Thread(target=spin, daemon=True).start()
        elif self.path == "/calm":
            busy.clear()
        body = str(count).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.nightly
def test_a_program_that_does_not_wait(store, serve, tmp_path) -> None:
    python = shutil.which("python3", path="/usr/bin")
    folder = tmp_path / "spins"
    folder.mkdir()
    (folder / "spins.py").write_text(SPINS)
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\n[run]\nprogram = {json.dumps(python)}\nargs = [\"spins.py\", \"{harness.free_port()}\"]\n"
        f"[function]\nname = \"spins\"\n{KEPT}{NOT_LONG}")
    daemon = serve()
    store.ok("deploy", folder, "-q")
    assert daemon.text("spins", "/spin") == "1"
    for number in (2, 3):
        refused = store("suspend", "spins")
        assert refused.status == 1 and "stays in memory" in refused.err, refused
        assert logged(store, "spins", "it does not wait for connections, so its state cannot be saved")
        assert daemon.text("spins", "/count") == str(number)
    assert daemon.text("spins", "/calm") == "4"
    assert store.ok("suspend", "spins") == "spins: 1 machine suspended"
    assert daemon.text("spins", "/count") == "5"
