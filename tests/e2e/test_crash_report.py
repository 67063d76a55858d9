"""What a report of a crash says is read only from what the program may read."""
import contextlib
import os
import pathlib
import shutil
import threading

import harness
import pytest
from harness import GUESTS, SNAPRUN_E, Server, kvmserver
from rewriting import rewritten

REACHES = GUESTS / "reaches"
SYMBOL = "where_it_crashes"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("crash") / "plain.snap"
    port = str(harness.free_port())
    made = kvmserver("snapshot", "--level", "1", f"--allow-listen=:{port}", "--cwd", "/", "-o", path, REACHES, port)
    assert made.status == 0, made
    return path


def report(plain: pathlib.Path, folder: pathlib.Path, name: str, *options: str) -> str:
    """Of a crash in a snapshot that says that its program's code is of the file `name`."""

    def renamed(machine: dict) -> None:
        for region in machine["regions"]:
            if region[4] == str(REACHES):
                region[4] = name

    snapshot = folder / "renamed.snap"
    snapshot.write_bytes(rewritten(plain, renamed))
    program = {"name": "reaches", "lang": "C", "argv": [], "cwd": "/", "env": {}, "serial": True}
    with contextlib.closing(Server(program, SNAPRUN_E, *options, snapshot=snapshot)) as server:
        with server.client() as client:
            client.send(b"GET /crash HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while client.socket.recv(4096):
                    pass
        harness.wait_until(lambda: "killed by SIGSEGV" in server.err, "it says so")
        return next(line for line in server.err.splitlines() if "killed by SIGSEGV" in line)


def test_the_programs_own_file(plain, folder) -> None:
    assert f"({SYMBOL}+" in report(plain, folder, str(REACHES))


def test_a_file_that_a_snapshot_names(plain, folder) -> None:
    secret = folder / "secret"
    shutil.copy(REACHES, secret)
    said = report(plain, folder, str(secret))
    assert SYMBOL not in said and f"({secret}+0x" in said
    link = folder / "open/link"
    link.parent.mkdir()
    link.symlink_to(secret)
    read = f"--allow-read={link.parent}"
    assert SYMBOL not in report(plain, folder, str(link), read)
    assert SYMBOL in report(plain, folder, str(secret), f"--allow-read={secret}")


def test_what_is_no_regular_file(plain, folder) -> None:
    """A program at the other end of a FIFO would notice that it is opened."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    opened = threading.Event()

    def writer() -> None:
        os.close(os.open(fifo, os.O_WRONLY))
        opened.set()

    thread = threading.Thread(target=writer, daemon=True)
    thread.start()
    assert SYMBOL not in report(plain, folder, str(fifo), f"--allow-read={folder}")
    assert not opened.is_set()
    os.close(os.open(fifo, os.O_RDONLY))
    thread.join(harness.PATIENCE)
