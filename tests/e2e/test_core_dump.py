"""--core-dump: a core file of a program that a signal ended, as gdb reads it."""
import re

import harness
import pytest
from debugging import gdb
from harness import GUESTS, SNAPRUN_E, Server, kvmserver

SIGSEGV = 139


def cores(folder) -> list:
    return sorted(folder.glob("*.core"))


def crash(folder, name: str = "debugged", *options: str) -> harness.Ended:
    return kvmserver("run", "--allow-all", f"--core-dump={folder}", *options, GUESTS / name, str(harness.free_port()), "crash")


@pytest.mark.parametrize("name", ["debugged", "debugged_static"])
def test_gdb_shows_where_it_was(folder, name: str) -> None:
    ended = crash(folder, name)
    assert ended.status == SIGSEGV, ended
    (core,) = cores(folder)
    assert re.fullmatch(name + r"-[0-9]+-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z\.core", core.name)
    assert core.stat().st_mode & 0o777 == 0o600 and list(folder.iterdir()) == [core]
    assert f"{name}: core file {core} (" in ended.err
    said = gdb(GUESTS / name, "bt", "info threads", "p numbers", "p $_siginfo._sifields._sigfault.si_addr",
               "thread apply all -s bt", "p $ymm0.v4_int64", "info auxv", core=core)  # fmt: skip
    assert "#0  fault_here (where=" in said and re.search(r"#1 .* in main \(argc=3", said), said
    assert said.count("pthread_cond_wait") >= 2 and "waits (name=" in said, said
    assert "{1.5, 2.5, 3.5, 4.5}" in said and "(void *) 0xdead0" in said and "AT_SYSINFO_EHDR" in said, said
    assert "warning" not in said.lower(), said


def test_a_request_of_a_snapshot(folder, snapshots) -> None:
    """Its code is patched in memory, and its regions have forgotten their files' offsets: gdb sees the files."""
    program = harness.guest("debugged", "{port}")
    server = Server(program, SNAPRUN_E, f"--core-dump={folder}", snapshot=snapshots.of(program))
    try:
        with server.client() as client:
            client.send(b"crash\n")
            assert client.reader.read() == b""
        assert server.line() == "3\n"
    finally:
        ended = server.stop()
    (core,) = cores(folder)
    assert ended.err.count("core file") == 1
    said = gdb(GUESTS / "debugged", "bt", "info sharedlibrary", "x/i accept", "thread apply all -s bt", core=core)
    assert "#0  fault_here (where=" in said and "in answer (line=" in said and "in serve (" in said, said
    assert "libc.so.6" in said and "waits (name=" in said, said


def test_no_more_than_ten(folder) -> None:
    for n in range(10):
        (folder / f"{n}.core").touch()
    ended = crash(folder)
    assert ended.status == SIGSEGV and len(cores(folder)) == 10 == len(list(folder.iterdir()))
    assert f"debugged: no core file: {folder} holds 10 already; remove some" in ended.err


def test_a_folder_that_cannot_be_used(folder) -> None:
    ended = crash(folder / "missing")
    assert ended.status == 2 and f"--core-dump: {folder}/missing: No such file or directory" in ended.error


def test_no_program_sees_the_folder(folder) -> None:
    """A core file holds what another request, or another program, kept for itself."""
    (folder / "old.core").write_text("secret")
    cat = ["--allow-all", "--", "/bin/cat", str(folder / "old.core")]
    assert kvmserver("run", *cat).out == "secret"
    hidden = kvmserver("run", f"--core-dump={folder}", *cat)
    assert hidden.out == "" and hidden.status == 1, hidden


def test_a_program_that_exits_leaves_none(folder) -> None:
    assert kvmserver("run", f"--core-dump={folder}", "--allow-all", "/bin/false").status == 1
    assert not list(folder.iterdir())
