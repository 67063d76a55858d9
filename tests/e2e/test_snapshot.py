"""Snapshot files: made, inspected, restored, small, whole in themselves."""
import contextlib
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import time

import check
import harness
import pytest
from harness import SNAPRUN_E, Process, Server, guest, kvmserver, make_snapshot, wait_until


def moved_program(program: dict, folder) -> dict:
    """A copy of the program in a folder of its own."""
    copy = folder / "program"
    shutil.copytree(program["cwd"], copy, symlinks=True)
    argv = [argument.replace(program["cwd"], str(copy)) for argument in program["argv"]]
    return {**program, "cwd": str(copy), "argv": argv}


# The dynamic C program's snapshot holds the whole of libc (880 KiB); the static one (musl) shows what kvmserver itself adds.
@pytest.mark.parametrize(
    ("name", "limit"),
    [("c-epoll", 300_000), ("c-epoll-dynamic", 1_000_000), pytest.param("node-http", 30_000_000, marks=pytest.mark.nightly)],
)
def test_size(folder, program, name: str, limit: int) -> None:
    path = folder / "app.snap"
    assert make_snapshot(program(name), path).status == 0
    assert path.stat().st_size <= limit


def test_last_line(folder, program) -> None:
    path = folder / "app.snap"
    made = make_snapshot(program("c-epoll"), path)
    assert made.status == 0
    assert re.match(r"Snapshot \S*app\.snap \d\S* [KM]i?B sha256:[0-9a-f]+", made.out.splitlines()[-1]), made.out
    assert [entry.name for entry in folder.iterdir()] == ["app.snap"]


def test_inspect(snapshots, program) -> None:
    shown = kvmserver("inspect", snapshots.of(program("node-http")))
    assert shown.status == 0 and shown.out.splitlines()[-1] == "compatible: yes", shown
    for part in ("server.js", "127.0.0.1:", "node"):
        assert part in shown.out, f"{part} is missing in {shown.out}"
    verified = kvmserver("inspect", "--verify", snapshots.of(program("node-http")))
    assert verified.status == 0 and verified.out.splitlines()[-1] == "compatible: yes", verified


@pytest.mark.parametrize("name", ["c-epoll", "rust-tokio", "node-http"])
def test_needs_no_files_of_the_program(folder, program, name: str) -> None:
    copy = moved_program(program(name), folder)
    path = folder / "app.snap"
    assert make_snapshot(copy, path, "--level", "1").status == 0
    shutil.rmtree(folder / "program")
    server = Server({**copy, "cwd": "/"}, SNAPRUN_E, snapshot=path)
    try:
        for one in (check.check_hello, check.check_bytes, check.check_pipeline):
            one(server)
    finally:
        server.close()


def is_large(copy) -> bool:
    return copy.stat().st_size // 4096 == 512


def test_chunks_are_kept_unpacked(folder, program) -> None:
    node, path, cache = program("node-http"), folder / "app.snap", folder / "cache"
    assert make_snapshot(node, path, "--level", "1", "--cache", str(cache)).status == 0

    def copies() -> list:  # of chunks; chunks as they were compressed, and large pages, lie there as well
        return sorted(path for path in cache.glob("*.pages") if not is_large(path))

    kept = len(copies())
    assert kept > 10 and len(list(cache.iterdir())) > kept

    def served(*words: str) -> str:
        server = Server(node, SNAPRUN_E, "-v", "--cache", *words, snapshot=path)
        try:
            for one in (check.check_hello, check.check_bytes):
                one(server)
            assert server.count() == 1
            return server.stop().err  # not killed: its other process would go on for a moment, and write copies
        finally:
            server.close()

    found = re.search(r"(\d+) of (\d+) hot chunks and (\d+) of (\d+) large pages were kept unpacked in (.*)", served(str(cache)))
    assert found and found[1] == found[2] and found[5] == str(cache)
    hot = int(found[1])
    assert hot == kept if found[3] == "0" else hot <= kept  # what is in large pages is not unpacked
    assert len(copies()) > kept  # and cold ones that were needed
    for copy in copies()[::2]:  # as after a power failure: made in another run of the machine, and not all of it
        data = bytearray(copy.read_bytes())
        data[-48:-12] = b"x" * 36
        data[0] ^= 0xFF
        copy.write_bytes(data)
    found = re.search(r"(\d+) of (\d+) hot chunks and", served(str(cache)))
    assert found and 0 < int(found[1]) < int(found[2])  # those that are damaged come from the snapshot
    shutil.rmtree(cache)
    assert "kept unpacked" not in served("none")
    assert not cache.exists()


def in_large_pages(copies) -> int:
    """How many of these copies the host has, or reads, in a page of 2 MiB: all, none, or some if its memory is fragmented."""
    with contextlib.ExitStack() as open_ones:
        for copy in copies:
            file = open_ones.enter_context(open(copy, "rb"))
            mapped = open_ones.enter_context(mmap.mmap(file.fileno(), 2 << 20, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
            mapped.madvise(mmap.MADV_HUGEPAGE)
            mapped.read()
        entries = re.findall(r"(\S+)\n(?:[A-Z]\S+: .*\n)*?FilePmdMapped: +2048 kB", pathlib.Path("/proc/self/smaps").read_text())
    return len(set(entries) & {str(copy) for copy in copies})


def drop_from_memory(copies) -> None:
    for copy in copies:
        with open(copy, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_large_pages_are_shared_and_can_be_done_without(folder, program) -> None:
    node, cache = program("node-http"), folder / "cache"
    words = ["--level", "1", "--cache", str(cache)]

    def large() -> list:
        return sorted(path for path in cache.glob("*.pages") if is_large(path))

    def served(path) -> re.Match:
        server = Server(node, SNAPRUN_E, "-v", "--cache", str(cache), "--check-reset", snapshot=path)
        try:
            for one in (check.check_hello, check.check_bytes):
                one(server)
            assert [server.count() for _ in range(3)] == [1, 1, 1]
            return re.search(r"and (\d+) of (\d+) large pages", server.err)
        finally:
            server.close()

    one, other = folder / "one.snap", folder / "other.snap"
    assert make_snapshot(node, one, *words).status == 0
    files = large()
    assert len(files) > 5
    env = {**node["env"], "OTHER": "1"}
    assert make_snapshot({**node, "env": env}, other, *words, "--env", "OTHER=1").status == 0
    assert large() == files
    enough = len(files) // 2  # the host may need some of its free memory for others meanwhile
    host = in_large_pages(files)
    for path in (one, other):
        found = served(path)
        assert found[2] == str(len(files))
        assert int(found[1]) > enough or host < len(files)
    for copy in files:  # as after a start of the machine: not checked yet, and not in memory
        with open(copy, "r+b") as file:
            file.seek(2 << 20)
            file.write(b"x" * 36)
    drop_from_memory(files)
    found = served(one)
    assert found[2] == str(len(files))
    drop_from_memory(files)
    host = min(host, in_large_pages(files))
    assert int(found[1]) > enough or host < len(files)
    if host < len(files):
        print(f"not tested: the host gives {host} of {len(files)} files in large pages")
    for copy in files[::2]:  # as after a power failure
        data = bytearray(copy.read_bytes())
        data[2 << 20 : (2 << 20) + 36] = b"x" * 36
        data[5000] ^= 0xFF
        copy.write_bytes(data)
    assert int(served(one)[1]) <= len(files) // 2
    for copy in files:
        copy.unlink()
    assert served(one)[1] == "0"


def test_listens_where_the_program_did(folder, program) -> None:
    c_epoll, port, path = program("c-epoll"), harness.free_port(), folder / "app.snap"
    words = ["snapshot", "--allow-all", "-o", path, *harness.LIMITS, *harness.arguments_of(c_epoll, port)]
    assert kvmserver(*words).status == 0
    process = Process([str(harness.KVMSERVER), "snaprun", "-e", str(path)], env=harness.BASE_ENVIRONMENT)
    try:
        wait_until(lambda: "Program 'c-epoll' loaded." in process.out or not process.running(), "it is loaded")
        with harness.Client(port) as client:
            assert client.ask("/count") == b"1\n"
    finally:
        process.close()


def test_permissions_are_the_snapshots(folder, program) -> None:
    """What the program may do is said when the snapshot is made; restoring needs no flag."""
    c_epoll, port, path = program("c-epoll"), harness.free_port(), folder / "app.snap"
    words = [f"--allow-listen=127.0.0.1:{port}", "-o", path, *harness.LIMITS, *harness.arguments_of(c_epoll, port)]
    assert kvmserver("snapshot", *words).status == 0
    server = Server(c_epoll, SNAPRUN_E, snapshot=path)
    try:
        assert server.count() == 1
    finally:
        server.close()


def test_what_a_program_does_at_some_times_of_a_second_is_not_hot(folder) -> None:
    # Where it were, functions that differ in a line would share less.
    path = folder / "app.snap"
    made = make_snapshot({**guest("timely", "{port}"), "name": "timely"}, path, "--level", "1")
    assert made.status == 0, made.error
    memory = json.loads(kvmserver("inspect", path, "--json").out)["memory"]
    assert memory["stored_raw_bytes"] > 4_000_000
    assert memory["hot_raw_bytes"] < 1_000_000, memory


def test_replaces_an_older_one_whole(folder, program) -> None:
    path = folder / "app.snap"
    path.write_text("older")
    assert make_snapshot(program("c-epoll"), path).status == 0
    assert kvmserver("inspect", path).status == 0


def test_two_are_the_same_program(folder, program) -> None:
    """The first reply of a restored server equals the first reply of any other restore."""
    for n in range(2):
        assert make_snapshot(program("c-epoll"), folder / f"{n}.snap").status == 0
        server = Server(program("c-epoll"), SNAPRUN_E, snapshot=folder / f"{n}.snap")
        try:
            assert server.count() == 1
        finally:
            server.close()


def test_failing_leaves_the_older_one(folder) -> None:
    path = folder / "app.snap"
    path.write_text("older")
    assert make_snapshot(guest("boot", "exit"), path).status == 1
    assert path.read_text() == "older" and len(list(folder.iterdir())) == 1


def test_stopping_leaves_nothing(folder) -> None:
    argv = [str(harness.KVMSERVER), "snapshot", "--allow-all", "-o", str(folder / "app.snap"), *guest("boot", "sleep")["argv"]]
    process = Process(argv, env=harness.BASE_ENVIRONMENT)
    try:
        wait_until(lambda: "boot: sleep" in process.out + process.err, "the program boots")
        started = time.monotonic()
        ended = process.stop(signal.SIGTERM)
        assert ended.status != 0 and time.monotonic() - started < 5 * harness.SLOWNESS
        assert list(folder.iterdir()) == []
    finally:
        process.close()


def spoilt(path: pathlib.Path, what: str) -> pathlib.Path:
    out = path.with_name(f"{what}.snap")
    harness.subprocess.run([harness.GUESTS / "spoil", path, out, what], check=True, timeout=harness.PATIENCE)
    return out


@pytest.mark.parametrize(
    ("what", "line"),
    [
        pytest.param("rights", None, marks=pytest.mark.emulated(nightly=True)),
        pytest.param("alias", "its program could reach what decides what runs at CPL 0", marks=pytest.mark.emulated(nightly=True)),
        pytest.param("supervisor", "it has pages for CPL 0 that are not the guest kernel's", marks=pytest.mark.emulated(nightly=True)),
        pytest.param("beyond", "its page tables lead beyond its memory", marks=pytest.mark.emulated(nightly=True)),
        pytest.param("door", "its guest kernel has no sound entries", marks=pytest.mark.emulated(nightly=True)),
        pytest.param("region", "the CPL 0 pages of its guest kernel do not have a region of their own", marks=pytest.mark.emulated(nightly=True)),
        pytest.param("code", None, marks=pytest.mark.emulated),
        pytest.param("tables", None, marks=pytest.mark.emulated(nightly=True)),
        pytest.param("nothing", None, marks=pytest.mark.emulated(nightly=True)),
    ],
)
def test_a_snapshot_brings_nothing_that_runs_at_cpl_0(folder, what: str, line: str | None) -> None:
    """Its code and descriptor tables are not used; page tables by which it had others are refused."""
    program = harness.guest("seeded", "{port}")
    made = make_snapshot(program, folder / "app.snap", "--level", "1")
    assert made.status == 0, made.err
    path = spoilt(folder / "app.snap", what)
    if line:
        ended = kvmserver("snaprun", "-e", "--listen", f"127.0.0.1:{harness.free_port()}", path)
        assert (ended.status, ended.error) == (7, f"kvmserver: snapshot: {line}; build it again"), ended
        return
    with contextlib.closing(Server(program, SNAPRUN_E, "--check-reset", snapshot=path)) as server:
        for _ in range(3):
            assert server.line()
        ended = server.stop()
        assert ended.status == 0 and "the machine broke" not in ended.err, ended.err
