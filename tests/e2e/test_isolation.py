"""Requests do not see each other: what one changes is gone for the next."""
import concurrent.futures
import contextlib
import os
import pathlib
import re

import harness
import pytest
from harness import RUN, RUN_E, SNAPRUN_E, SNAPRUN_E2, Mode, guest

ONE_A_LANGUAGE = ["c-epoll", "rust-tokio-multi", "go-http", "python-asyncio", "node-http", "deno-serve"]
REQUESTS = int((1000 if harness.ALL_TESTS else 250) / harness.SLOWNESS) or 1


def counts(server: harness.Server, requests: int, at_once: int = 1) -> list[int]:
    if at_once == 1:
        return [server.count() for _ in range(requests)]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda _: server.count(), range(requests)))


def assert_all_one(seen: list[int]) -> None:
    assert seen == [1] * len(seen), f"{sum(n != 1 for n in seen)} of {len(seen)} saw another request, first {seen[:20]}"


def stop_well(server: harness.Server) -> harness.Ended:
    assert server.running(), f"the server ended: {server.err[-2000:]}"
    ended = server.stop()
    assert "reset differs" not in ended.err, ended.err[-2000:]
    assert ended.status == 0, f"status {ended.status}; {ended.err[-2000:]}"
    return ended


@pytest.mark.emulated
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ONE_A_LANGUAGE)
def test_counter_stays_one(start, program, quick, name: str, threads: int) -> None:
    server = start(program(name), SNAPRUN_E if threads == 1 else SNAPRUN_E2)
    assert_all_one(counts(server, 100 if quick else REQUESTS, 1 if threads == 1 else 4))
    stop_well(server)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ONE_A_LANGUAGE)
def test_machine_equals_its_image_after_each_reset(start, program, quick, name: str) -> None:
    server = start(program(name), SNAPRUN_E, "--check-reset")
    assert_all_one(counts(server, 50 if quick else REQUESTS))
    stop_well(server)


@pytest.mark.emulated
@pytest.mark.parametrize("reset", ["dirty-bits", "working-set"])
@pytest.mark.parametrize("name", ["c-epoll", "node-http"])
def test_each_way_to_reset(start, program, name: str, reset: str) -> None:
    try:
        server = start(program(name), SNAPRUN_E, "--check-reset", "--reset", reset)
    except AssertionError as error:
        if "kvmserver: " in str(error) and reset in str(error):
            pytest.skip(f"this kind of host cannot reset by {reset}")
        raise
    for path in ("/", "/bytes/2000000", "/"):
        server.get(path)
    assert_all_one(counts(server, 50))
    stop_well(server)


@pytest.mark.parametrize("name", ["c-thread", "rust-tokio", "python-http", "python-uvicorn", "node-react"])
def test_run_ephemeral(start, program, name: str) -> None:
    server = start(program(name), RUN_E, "--check-reset")
    assert_all_one(counts(server, 100))
    stop_well(server)


@pytest.mark.emulated
def test_run_keeps_its_state(start, program) -> None:
    server = start(program("c-epoll"), RUN)
    assert counts(server, 100) == list(range(1, 101))
    stop_well(server)


def test_two_machines_keep_a_state_each(start, program) -> None:
    server = start(program("c-epoll"), Mode("run-t2", "run", threads=2))
    seen = counts(server, 200, 4)
    assert max(seen) >= 100 and all(seen.count(n) <= 2 for n in seen), sorted(seen)
    stop_well(server)


def test_restored_without_reset_keeps_its_state(start, program) -> None:
    server = start(program("c-epoll"), harness.SNAPRUN)
    assert counts(server, 20) == list(range(1, 21))
    stop_well(server)


def test_one_connection_is_one_machine(start, program) -> None:
    server = start(program("node-http"), SNAPRUN_E)
    for _ in range(10):
        with server.client() as client:
            assert [client.ask("/count") for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
    stop_well(server)


def test_slow_reader_holds_only_its_machine(start, program) -> None:
    server = start(program("node-http"), SNAPRUN_E2)
    with server.client() as slow:
        slow.send(harness.request("/bytes/10000000"))
        for _ in range(20):
            assert server.get("/bytes/10") == harness.letters(10)
        assert slow.reply() == harness.letters(10_000_000)
    stop_well(server)


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, id=mode.name, marks=pytest.mark.emulated(nightly=mode is RUN_E)) for mode in (RUN_E, SNAPRUN_E)],
)
def test_all_that_a_process_has_is_reset(start, folder, mode: Mode, tmp_path_factory) -> None:
    file = tmp_path_factory.mktemp("dirty") / "file"
    file.write_bytes(bytes(range(200)))
    server = start({**guest("dirty", "{port}", str(file)), "name": f"dirty-{mode.name}"}, mode, "--check-reset")
    first = server.line()
    assert "lowest fd" in first
    for n in range(30):
        assert server.line() == first, f"at connection {n + 2}"
    stop_well(server)


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E], ids=lambda mode: mode.name)
def test_identity_timers_queues_and_limits_are_reset(start, mode: Mode, tmp_path_factory) -> None:
    file = tmp_path_factory.mktemp("becomes") / "file"
    file.write_text("whose?")
    server = start({**guest("becomes", "{port}", str(file)), "name": f"becomes-{mode.name}"}, mode, "--check-reset")
    first = server.line()
    assert "timer 0 1, prof 1, messages 1, named 1, signal 128 10" in first
    if os.geteuid() == 0:
        assert "uid 0 0 0, groups 2, file of 1234" in first
    for n in range(20):
        assert server.line() == first, f"at connection {n + 2}"
    assert file.stat().st_uid == os.geteuid(), "the file on the host keeps its owner"
    stop_well(server)


@pytest.mark.emulated(nightly=True)
def test_a_rolled_back_machine_has_its_own_identity(start) -> None:
    server = start(guest("unique", "{port}"), SNAPRUN_E2, "--check-reset")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lines = list(pool.map(lambda _: server.line(), range(50)))
    seen = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]
    for name in ("pid", "getrandom", "urandom", "at_random"):
        values = [one[name] for one in seen]
        assert len(set(values)) == len(values), f"{name} comes twice: {values[:10]}"
    assert {one["wiped"] for one in seen} == {"0"}, "memory under MADV_WIPEONFORK was not wiped"
    stop_well(server)


@pytest.mark.emulated(nightly=True)
def test_what_is_wiped_is_so_when_it_is_first_looked_at(start) -> None:
    server = start(guest("unique", "{port}"), SNAPRUN_E2, "--check-reset")
    for _ in range(4):
        with server.client() as client:
            client.send(b"late\n")
            assert client.reader.readline() == b"late=0 ballast=1\n", "memory under MADV_WIPEONFORK was not wiped"
    stop_well(server)


@pytest.mark.emulated
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E2], ids=str)
def test_code_is_the_files_when_it_is_written_to_or_moved(start, mode) -> None:
    """Code of files leads around SYSCALL, and has its own bytes again before it changes; each invocation anew."""
    server = start(guest("code", "{port}"), mode, "--check-reset")
    assert [server.line() for _ in range(4)] == ["calls=1 led=1 file=1 written=1 moved=1\n"] * 4
    stop_well(server)


def test_code_is_left_alone_when_asked(start) -> None:
    server = start(guest("code", "{port}"), RUN_E, "--code-as-is")
    assert server.line() == "calls=1 led=0 file=1 written=1 moved=1\n"


@pytest.mark.emulated
@pytest.mark.parametrize("clock", ["pauses", "continues"])
def test_clocks_go_on(start, clock: str) -> None:
    server = start(guest("unique", "{port}"), SNAPRUN_E, f"--clock={clock}")
    last_monotonic, last_realtime = 0, 0
    for _ in range(30):
        before = harness.time.time_ns()
        one = dict(re.findall(r"(\w+)=(\S+)", server.line()))
        after = harness.time.time_ns()
        assert before - 50_000_000 <= int(one["realtime"]) <= after + 50_000_000, "the guest's realtime is off"
        assert int(one["realtime"]) > last_realtime
        assert clock == "pauses" or int(one["monotonic"]) > last_monotonic  # test_clocks.py has what it is where it pauses
        last_monotonic, last_realtime = int(one["monotonic"]), int(one["realtime"])
    stop_well(server)


def test_a_machine_that_goes_on_serving_keeps_what_it_writes_to_only(start, program) -> None:
    """Copies that make the first invocations faster are given back: what is left are the pages that each reset copies, and little more."""
    server = start(program("node-http"), SNAPRUN_E, "--stats")
    for _ in range(200):
        server.count()
    smaps = pathlib.Path(f"/proc/{server.popen.pid}/smaps").read_text()
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", smaps, flags=re.M)
    own = sum(int(re.search(r"^Anonymous: +(\d+) kB", part, re.M)[1]) for part in parts if "memfd:kvmserver-image" in part)
    pages = re.search(r"exits, ([\d.]+) pages copied back", server.stop().err)
    assert 0 < own <= float(pages[1]) * 4 + 1024, (own, pages[0])


def asked(server: harness.Server, line: str) -> str:
    with server.client() as client, contextlib.suppress(ConnectionError):
        client.send(f"{line}\n".encode())
        return client.reader.read().decode()
    return ""


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E2], ids=lambda mode: mode.name)
def test_attributes_of_memory_files_are_the_image_s(mode, tmp_path) -> None:
    """Of a file in memory a request changes mode, times and seals: the next and other machines see the image's."""
    program, snapshot = harness.guest("leftover", "{port}"), tmp_path / "s.snap"
    if mode.command == "snaprun":
        made = harness.make_snapshot(program, snapshot, "--level", "1")
        assert made.status == 0, made.err
    with contextlib.closing(harness.Server(program, mode, snapshot=snapshot)) as server:
        first = asked(server, "look")
        memory, sealed, then, last = first.splitlines()
        assert memory.startswith("100640 ") and "5 bytes, read 1000.000000001, written 2000.000000002" in memory
        assert memory.endswith("seals 0") and sealed.endswith("seals a")
        assert then == "then sealed, the same file: 1" and last == "sealed"
        for _ in range(5):
            assert asked(server, "look") == first


def sockets_of(pid: int) -> int:
    links = []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    return sum(link.startswith("socket:") for link in links)


@pytest.mark.emulated(nightly=True)
def test_sockets_of_a_request_go_with_it() -> None:
    with contextlib.closing(harness.Server(harness.guest("leftover", "{port}"), RUN_E)) as server:
        look = asked(server, "look")
        most = 2  # where it listens, and the last client's, which may have to close yet
        for how in ("bind", "bind-crash", "bind-in"):
            assert asked(server, how) == ("bound\n" if how == "bind" else "")
            assert asked(server, "look") == look  # comes when the machine has been reset
            harness.wait_until(lambda: sockets_of(server.popen.pid) <= most, f"the sockets of {how} go")
        assert "bind" not in server.err, server.err
