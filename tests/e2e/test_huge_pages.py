"""--hugepages, --hugepage-arena-size and --hugepage-requests-arena: memory of machines in huge pages of the host. What the
host does not give is told, and requests are served all the same."""
import os
import pathlib
import re

import harness
import pytest
from harness import RUN, RUN_E, SNAPRUN, SNAPRUN_E, SNAPRUN_E2, Server, kvmserver

MIB, ARENA_MIB = 12, 16
FILLS = harness.guest("fills", f"{MIB}", "{port}")
LIMITS = ["--max-request-memory", "32"]
ARENA = [*LIMITS, "--hugepage-requests-arena", f"{ARENA_MIB}"]
SOUND = f"sound, {MIB} MiB, request 1"
RESERVED = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
TRANSPARENT = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

IN_EMULATED = pytest.param(SNAPRUN_E, marks=pytest.mark.emulated(nightly=True))

needs_transparent = pytest.mark.skipif(
    not TRANSPARENT.exists() or "[never]" in TRANSPARENT.read_text(), reason=f"the host gives no huge pages ({TRANSPARENT})"
)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = tmp_path_factory.mktemp("huge") / "fills.snap"
    made = harness.make_snapshot(FILLS, path, "--level", "1")
    assert made.status == 0, made
    return path


@pytest.fixture
def serving(snapshot):
    started = []

    def start(mode, *options):
        started.append(Server(FILLS, mode, *options, snapshot=snapshot if mode.command == "snaprun" else None))
        return started[-1]

    yield start
    for server in started:
        server.close()


def mapped(process, kind: str) -> int:
    """MiB of that kind of a server's memory, or a process's."""
    pid = process if isinstance(process, int) else process.popen.pid
    text = pathlib.Path(f"/proc/{pid}/smaps").read_text()
    return sum(int(kib) for kib in re.findall(rf"^{kind}: +(\d+) kB", text, re.M)) >> 10


def faults(server) -> int:
    return int(pathlib.Path(f"/proc/{server.popen.pid}/stat").read_text().rpartition(")")[2].split()[7])


def faults_of_requests(server, count: int = 4) -> int:
    for _ in range(2):  # what is new for the machine
        assert server.line() == SOUND
    before = faults(server)
    for _ in range(count):
        assert server.line() == SOUND
    return (faults(server) - before) // count


@needs_transparent
@pytest.mark.parametrize("mode", [RUN_E, IN_EMULATED, SNAPRUN_E2], ids=lambda mode: mode.name)
def test_a_request_finds_its_memory_in_huge_pages(serving, mode) -> None:
    server = serving(mode, *ARENA, "-v", "--check-reset")
    machines = 2 if mode is SNAPRUN_E2 else 1
    for _ in range(6):
        assert server.line() == SOUND
    harness.wait_until(lambda: mapped(server, "AnonHugePages") >= ARENA_MIB * machines, lambda: "the arena of each machine is there")
    assert server.err.count("--hugepage-requests-arena: it consists of transparent huge pages") == 1, server.err
    ended = server.stop()
    assert ended.status == 0, ended


@needs_transparent
def test_an_arena_saves_the_page_faults_of_requests(serving) -> None:
    ordinary, arena = serving(SNAPRUN_E, *LIMITS), serving(SNAPRUN_E, *ARENA)
    without, with_it = faults_of_requests(ordinary), faults_of_requests(arena)
    assert without > MIB * 256 and with_it < without / 20, (without, with_it)


def in_huge_pages(server) -> re.Match | None:
    return re.search(r"--hugepages: (\d+) of (\d+) MiB are in huge pages", server.err)


@needs_transparent
@pytest.mark.parametrize("mode", [RUN, RUN_E, SNAPRUN, IN_EMULATED], ids=lambda mode: mode.name)
def test_main_memory_is_in_huge_pages(serving, mode) -> None:
    server = serving(mode, *LIMITS, "--hugepages", "-v")
    harness.wait_until(lambda: in_huge_pages(server), lambda: server.err)
    got, wanted = map(int, in_huge_pages(server).groups())
    assert MIB <= wanted and wanted - 4 <= got <= wanted, server.err
    for _ in range(4):
        assert server.line().startswith("sound") if mode in (RUN, SNAPRUN) else server.line() == SOUND
    # Under shadow paging what a snapshot is known to need is copied for each machine ahead.
    if mode in (RUN, RUN_E) or "/dev/kvm ok (pvm" not in kvmserver("doctor").out:
        assert mapped(server, "ShmemPmdMapped") > 0


@needs_transparent
def test_only_the_first_of_main_memory_when_so_asked(serving) -> None:
    server = serving(SNAPRUN_E, *LIMITS, "--hugepage-arena-size", "7", "-v")
    harness.wait_until(lambda: in_huge_pages(server), lambda: server.err)
    assert "8 of 8 MiB are in huge pages" in server.err
    assert server.line() == SOUND


@pytest.fixture
def reserved():
    """Reserves 12 huge pages of the host while a test runs."""
    if not os.access(RESERVED, os.W_OK):
        pytest.skip(f"{RESERVED}: only root can reserve huge pages, where the kernel has them")
    before = RESERVED.read_text()
    RESERVED.write_text(str(int(before) + 12))
    try:
        if int(RESERVED.read_text()) != int(before) + 12:
            pytest.skip("the host has no 24 MiB that are not in small pieces")
        yield
    finally:
        RESERVED.write_text(before)


def free_reserved() -> int:
    return int(RESERVED.with_name("free_hugepages").read_text())


def test_reserved_huge_pages_come_first(serving, reserved) -> None:
    free = free_reserved()
    server = serving(SNAPRUN_E, *ARENA, "-v", "--check-reset")
    for _ in range(4):
        assert server.line() == SOUND
    assert "it consists of reserved huge pages" in server.err and free_reserved() == free - 8
    assert faults_of_requests(server) < MIB * 256 / 20
    second = serving(SNAPRUN_E, *ARENA, "-v")  # 8 more, of 4 that are left
    assert second.line() == SOUND
    assert "reserved huge pages" not in second.err and free_reserved() == free - 8
    assert server.stop().status == 0
    assert free_reserved() == free
    transparent = serving(SNAPRUN_E, *ARENA, "--transparent-hugepages", "-v")
    assert transparent.line() == SOUND
    assert free_reserved() == free


def test_a_host_that_gives_none_is_told_of(snapshot, monkeypatch) -> None:
    deny = pathlib.Path(__file__).with_name("without_huge_pages.py")
    monkeypatch.setattr(harness, "KVMSERVER", deny)
    server = Server(FILLS, SNAPRUN_E, *ARENA, "--transparent-hugepages", snapshot=snapshot)
    try:
        for _ in range(3):
            assert server.line() == SOUND
        harness.wait_until(lambda: "--hugepages: the host gives none" in server.err, lambda: server.err)
        assert server.err.count("--hugepage-requests-arena: too few huge pages") == 1, server.err
        assert mapped(server, "AnonHugePages") == 0
    finally:
        server.close()


def test_an_arena_larger_than_a_request_may_have_is_refused(snapshot) -> None:
    words = ["--allow-all", "--max-request-memory", "32", "--hugepage-requests-arena", "33"]
    program = harness.arguments_of(FILLS, harness.free_port())
    for command in (["snaprun", "-e", *words, snapshot], ["run", "-e", *words, *program], ["snapshot", "-o", "x", *words, *program]):
        ended = kvmserver(*command)
        assert ended.status == 2, ended
        assert ended.error == ("kvmserver: --hugepage-requests-arena: 34 MiB are more than a request may take (32 MiB); "
                               "raise --max-request-memory"), ended  # fmt: skip


@pytest.mark.parametrize("mode", [RUN, SNAPRUN], ids=lambda mode: mode.name)
def test_a_machine_that_keeps_its_state_has_no_arena(serving, mode) -> None:
    server = serving(mode, *ARENA)
    assert server.line().startswith("sound")
    assert "--hugepage-requests-arena: without effect on machines that keep their state" in server.err, server.err


@needs_transparent
def test_a_function_has_the_arena_of_its_snapshot(store, serve, program, folder) -> None:
    path, server = folder / "hello.snap", program("c-epoll")
    made = harness.make_snapshot(server, path, "--level", "1", *ARENA)
    assert made.status == 0, made
    store.deploy(path, "hello")
    daemon = serve("--threads", "1")
    assert daemon.ask("hello").status == 200
    ((pid,),) = daemon.processes().values()
    assert mapped(pid, "AnonHugePages") >= ARENA_MIB
    for _ in range(3):
        assert daemon.ask("hello").status == 200
    assert "hugepage" not in daemon.err
