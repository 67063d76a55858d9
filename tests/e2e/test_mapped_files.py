"""Shared mappings that a program made before its image was taken: files of the host are one for all machines and for the host,
memory is each invocation's own."""
import pathlib
import re

import harness
import pytest
from harness import RUN, RUN_E, SNAPRUN_E2, Mode, guest

START = {"data": "old", "file": "old", "read": "before", "memory": "memory", "held": "memory", "closed": "closed", "segment": "segment"}


class Mapped:
    def __init__(self, start, folder: pathlib.Path, mode: Mode, *options: str) -> None:
        self.data, self.read = folder / "data", folder / "read"
        self.data.write_bytes(b"old".ljust(100, b"\0"))
        self.read.write_bytes(b"before".ljust(4096, b"\0"))
        program = guest("mapped", "{port}", str(self.data), str(self.read))
        check = ["--check-reset"] if mode.ephemeral else []
        self.server = start({**program, "name": f"mapped-{folder.name}"}, mode, *check, *options)

    def ask(self, line: str = "show") -> dict[str, str]:
        with self.server.client() as client:
            client.send(line.encode() + b"\n")
            return dict(re.findall(r"(\w+)=(\S*)", client.reader.read().decode()))

    def stop(self) -> None:
        assert self.server.running(), self.server.err[-2000:]
        ended = self.server.stop()
        assert "reset differs" not in ended.err, ended.err[-2000:]


@pytest.fixture
def mapped(start, tmp_path_factory):
    return lambda mode: Mapped(start, tmp_path_factory.mktemp(f"mapped-{mode.name}"), mode)


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E2], ids=lambda mode: mode.name)
def test_files_are_shared_and_memory_is_not(mapped, mode: Mode) -> None:
    m = mapped(mode)
    assert m.ask() == START
    assert m.ask("data new") == {**START, "data": "new", "file": "new"}
    assert m.data.read_bytes().startswith(b"new\0")
    for _ in range(6):
        assert m.ask() == {**START, "data": "new", "file": "new"}
    with open(m.data, "r+b") as file:
        file.write(b"host")
    for _ in range(6):
        assert m.ask() == {**START, "data": "host", "file": "host"}
    for name, other in (("memory", "held"), ("closed", None), ("segment", None)):
        changed = {name: "changed"} | ({other: "changed"} if other else {})
        assert m.ask(f"{name} changed") == {**START, "data": "host", "file": "host", **changed}
        assert m.ask() == {**START, "data": "host", "file": "host"}
    m.stop()


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E2], ids=lambda mode: mode.name)
def test_a_file_that_is_only_read_is_followed(mapped, mode: Mode) -> None:
    m = mapped(mode)
    assert m.ask()["read"] == "before"
    assert m.ask("open")["read"] == "within"
    for _ in range(4):
        assert m.ask()["read"] == "within"
    with open(m.read, "r+b") as file:
        file.write(b"after\0")
    for _ in range(4):
        assert m.ask()["read"] == "after"
    m.stop()


def test_memory_in_files_counts_as_the_request_s(start, tmp_path_factory) -> None:
    m = Mapped(start, tmp_path_factory.mktemp("hog"), RUN_E, "--max-request-memory", "32")
    for _ in range(2):
        assert 16 <= int(m.ask("hog")["made"]) <= 31
    for cut in range(3):
        assert m.ask(f"refill {cut}") == {}, "it had twice its memory"
        assert m.server.err.count("took more than --max-request-memory") == cut + 1
    assert m.ask() == START
    m.stop()


def test_mappings_do_not_each_hold_a_descriptor_of_the_host(start, tmp_path_factory) -> None:
    m = Mapped(start, tmp_path_factory.mktemp("descriptors"), RUN)
    descriptors = pathlib.Path(f"/proc/{m.server.popen.pid}/fd")
    before = len(list(descriptors.iterdir()))
    assert m.ask("many 3000") == {"made": "3000"}
    assert len(list(descriptors.iterdir())) <= before + 8
    made = int(m.ask("files 3000")["made"])
    assert 1000 <= made <= 1024
    assert len(list(descriptors.iterdir())) <= before + 1032
    assert m.ask() == START
    m.stop()


def test_a_machine_that_keeps_its_state(mapped) -> None:
    m = mapped(RUN)
    m.ask("memory one"), m.ask("closed two"), m.ask("segment three")
    want = {**START, "memory": "one", "held": "one", "closed": "two", "segment": "three"}
    assert m.ask() == want
    m.stop()


@pytest.mark.emulated(nightly=True)
def test_a_file_that_was_cut_is_an_error_of_the_program(mapped) -> None:
    m = mapped(RUN_E)
    assert m.ask() == START
    m.data.write_bytes(b"")
    with m.server.client() as client:
        client.send(b"show\n")
        assert client.reader.read() == b""
    harness.wait_until(lambda: "SIGBUS" in m.server.err, "the report of the signal")
    m.data.write_bytes(b"again")
    assert m.ask()["data"] == "again"
    m.stop()


def test_a_file_that_is_gone_is_told_when_the_snapshot_starts(start, snapshots, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("gone")
    (folder / "data").write_bytes(b"old".ljust(100, b"\0"))
    (folder / "read").write_bytes(b"before")
    program = {**guest("mapped", "{port}", str(folder / "data"), str(folder / "read")), "name": "mapped-gone"}
    snapshots.of(program)
    (folder / "data").unlink()
    (folder / "read").unlink()  # what was only read is as it was
    server = start(program, SNAPRUN_E2)
    assert str(folder / "data") in server.err
    with server.client() as client:
        client.send(b"show\n")
        assert client.reader.read() == b""
    harness.wait_until(lambda: "SIGBUS" in server.err, "the report of the signal")
