"""The template, a process from which those of functions are forked: they share memory with it, and nothing depends on it."""
import os
import pathlib
import re
import signal

import harness
import pytest
from serving import open_files


@pytest.fixture
def daemon(store, serve, program):
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    made = harness.kvmserver("snapshot", "--allow-listen=127.0.0.1", "-o", store.folder / "c.snap", *argv)
    assert made.status == 0, made
    for i in range(8):
        store.deploy(store.folder / "c.snap", f"f{i}")
    return serve()


def own_memory(pid: int, of: str) -> int:
    """KiB of mappings whose line in smaps matches, which the process shares with no other."""
    kib, counts = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = re.search(of, line) is not None
        elif counts and line.startswith("Private_Dirty:"):
            kib += int(line.split()[1])
    return kib


def test_processes_share_what_the_start_of_the_program_has_made(daemon) -> None:
    for i in range(3):
        assert daemon.ask(f"f{i}", "/").status == 200
    assert len(daemon.templates()) == 1
    for pids in daemon.processes().values():
        for pid in pids:
            # Tables with addresses that the dynamic linker has filled in.
            assert own_memory(pid, r" r--p .*/bin/kvmserver") < 64
            assert pathlib.Path(f"/proc/{pid}/status").read_text().split("PPid:\t")[1].split()[0] == str(daemon.popen.pid)


def virtual_cpus(pid: int) -> int:
    return sum("kvm-vcpu" in file for file in open_files(pid))


def test_only_a_start_with_many_pages_makes_a_second_virtual_cpu(store, serve, snapshots, program) -> None:
    for name in ("c-epoll", "node-http"):
        store.deploy(snapshots.of(program(name)), name)
    daemon = serve()
    for name in ("c-epoll", "node-http"):
        assert daemon.ask(name, "/").status == 200
    found = {name: [virtual_cpus(pid) for pid in pids] for name, pids in daemon.processes().items()}
    shares = "/dev/kvm ok (pvm" in harness.kvmserver("doctor").out and (os.cpu_count() or 1) > 1
    assert found == {"c-epoll v1": [1], "node-http v1": [2 if shares else 1]}


def test_a_template_that_was_killed_is_made_anew(daemon) -> None:
    assert daemon.ask("f0", "/").status == 200
    (first,) = daemon.templates()
    os.kill(first, signal.SIGKILL)
    for i in range(1, 8):
        assert daemon.ask(f"f{i}", "/").status == 200
    assert daemon.ask("f0", "/").status == 200  # what came from it goes on
    (second,) = daemon.templates()
    assert second != first
    assert len(daemon.processes()) == 8


def test_a_template_ends_with_the_daemon(daemon) -> None:
    assert daemon.ask("f0", "/").status == 200
    (pid,) = daemon.templates()
    daemon.popen.kill()
    daemon.popen.wait()

    def ended() -> bool:
        try:
            return b"--function-forking" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return True

    harness.wait_until(ended, "the template has ended")


def test_a_process_has_room_for_the_descriptors_of_many_pieces_before_it_has_threads(daemon, store) -> None:
    """With threads, the kernel lets the first one beyond the table wait for 7 to 14 ms."""
    path = store.folder / "shelf.snap"
    harness.make_snapshot(harness.guest("shelf", "64", "{port}"), path, "--level", "1", "--warmup", "0")
    store.deploy(path, "shelf")
    assert daemon.ask("shelf", "/").status == 200
    (pid,) = daemon.processes()["shelf v1"]
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    assert len(os.listdir(f"/proc/{pid}/fd")) > 64
    assert int(status.split("FDSize:")[1].split()[0]) >= 512
