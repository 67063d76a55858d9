"""kvmserver serve: a function that may have 32 MiB makes the host use no more than 48, whatever it does; and the control
group that bounds it where the kernel has cgroup v2."""
import contextlib
import os
import pathlib

import harness
import pytest
from harness import kvmserver

MIB = 1 << 20
MAY_HAVE, MAY_COST = 32, 48  # MiB
LIMITS = ["--max-main-memory", f"{MAY_HAVE}", "--max-request-memory", f"{MAY_HAVE}"]
V1 = pathlib.Path("/sys/fs/cgroup/memory")
V2 = pathlib.Path("/sys/fs/cgroup")
WAYS = ["touch", "rewrite", "memfd", "mapped-memfds", "tmp", "names", "shm", "system-v", "messages", "pipes", "pairs", "connections",
        "regions", "sparse", "threads", "watches", "print", "answer"]  # fmt: skip


def deploy(store, name: str, *options: str, at_start: int = 0) -> None:
    program = harness.guest("hoards", f"{at_start}", "{port}")
    file = store.folder / f"{name}.snap"
    made = kvmserver("snapshot", "-o", file, "--allow-listen", *options, *harness.arguments_of(program, harness.free_port()))
    assert made.status == 0, made
    store.deploy(file, name)


def has_v2() -> bool:
    with contextlib.suppress(OSError):
        return "memory" in (V2 / "cgroup.controllers").read_text().split()
    return False


needs_v2 = pytest.mark.skipif(not has_v2(), reason="no cgroup v2 with a memory controller at /sys/fs/cgroup")


def group_of(pid: int) -> pathlib.Path:
    (line,) = [line for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    return V2 / line[4:]


@pytest.fixture
def measured(serve):
    """measured(): a daemon, and a function of no arguments that tells what it and its processes have used at most since
    the function was called last, and what they use."""
    if has_v2() or not os.access(V1 / "cgroup.procs", os.W_OK):
        pytest.skip("the host's use can be measured by cgroup v1 only, as root")
    group = V1 / f"kvmserver-test-{os.getpid()}"
    group.mkdir()

    def peak() -> tuple[int, int]:
        most = int((group / "memory.max_usage_in_bytes").read_text())
        (group / "memory.max_usage_in_bytes").write_text("0")
        return most, int((group / "memory.usage_in_bytes").read_text())

    def started():
        (group / "cgroup.procs").write_text("0")  # what we start is there, too
        try:
            return serve("--threads", "1", "--idle", "600"), peak
        finally:
            (V1 / "cgroup.procs").write_text("0")

    yield started
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (V1 / "cgroup.procs").write_text(pid)
    (group / "memory.force_empty").write_text("0")
    group.rmdir()


@pytest.mark.nightly
def test_a_function_makes_the_host_use_little_more_than_it_may_have(store, measured) -> None:
    deploy(store, "hoards", *LIMITS)
    deploy(store, "other", *LIMITS)
    daemon, peak = measured()
    for _ in range(2):  # what the daemon needs for any function is there then
        daemon.text("other", "/answer")
    harness.wait_until(lambda: len(daemon.spares()) == 2, "two processes wait for functions")
    _, without = peak()
    assert daemon.text("hoards", "/") == "0\n"
    used = {}
    for way in WAYS:
        peak()
        daemon.ask("hoards", f"/{way}")
        used[way] = (peak()[0] - without) / MIB
        assert daemon.text("hoards", "/") == "0\n", way  # of another request nothing is left
    print({way: round(mib, 1) for way, mib in used.items()})
    assert max(used.values()) <= MAY_COST, {way: round(mib, 1) for way, mib in used.items()}


@needs_v2
@pytest.mark.emulated(nightly=True)
def test_a_process_of_a_function_has_a_control_group_with_its_limits(store, serve) -> None:
    deploy(store, "hoards", *LIMITS, at_start=4)
    daemon = serve("--threads", "1", "--cgroup", "strict")
    assert daemon.text("hoards", "/") == "0\n"
    (pid,) = daemon.processes()["hoards v1"]
    group = group_of(pid)
    assert str(pid) in (group / "cgroup.procs").read_text().split()  # and a thread of KVM's own, on some hosts
    assert int((group / "memory.max").read_text()) == MAY_COST * MIB
    assert (group / "memory.oom.group").read_text() == "1\n"
    assert 0 < int((group / "pids.max").read_text()) < 1000
    for way in WAYS:
        daemon.ask("hoards", f"/{way}")
        assert daemon.text("hoards", "/") == "0\n", way
    (now,) = daemon.processes()["hoards v1"]
    assert now == pid, f"its process was ended: {daemon.err[-2000:]}"
    assert int((group / "memory.peak").read_text()) <= MAY_COST * MIB
    spares = {group_of(spare) for spare in daemon.spares()}
    assert daemon.stop().status == 0
    assert not [folder for folder in {group, *spares} if folder.exists()]


@needs_v2
@pytest.mark.emulated(nightly=True)
def test_a_process_that_overruns_its_group_is_ended_and_told_of(store, serve) -> None:
    deploy(store, "hoards")
    daemon = serve("--threads", "1")
    assert daemon.text("hoards", "/") == "0\n"
    (pid,) = daemon.processes()["hoards v1"]
    (group_of(pid) / "memory.max").write_text(f"{32 * MIB}")  # far less than the 128 MiB that a request may have
    assert daemon.ask("hoards", "/touch").status == 502
    assert daemon.text("hoards", "/") == "0\n"  # by another process
    assert "ended by the kernel" in daemon.err and "MiB" in daemon.err, daemon.err


@pytest.mark.skipif(has_v2(), reason="this host has cgroup v2 with a memory controller")
def test_without_control_groups_it_is_said_once_and_strict_refuses(store, serve) -> None:
    daemon = serve()
    lines = [line for line in daemon.err.splitlines() if "control group" in line]
    assert len(lines) == 1 and lines[0].startswith("kvmserver: functions run with the limits of their machines only, without control groups: "), lines
    assert daemon.stop().status == 0
    off = serve("--cgroup", "off")
    assert "control group" not in off.err
    assert off.stop().status == 0
    ended = kvmserver("serve", "--store", store.path, "--listen", f"127.0.0.1:{harness.free_port()}", "--cgroup", "strict")
    assert ended.status == 4 and "--cgroup=strict: " in ended.err and len(ended.err.splitlines()) == 1, ended
    doctor = kvmserver("doctor")
    assert any(line.startswith("control groups: ") for line in doctor.out.splitlines()), doctor
