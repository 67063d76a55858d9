"""What a connection does beside a request and its reply."""
import contextlib
import errno
import pathlib
import socket
import stat
import tempfile
import threading
import time

import harness
import pytest
from harness import LIMITS, RUN, RUN_E, SNAPRUN_E, Process, Server, guest, kvmserver, wait_until

SECONDS = 4


@pytest.mark.parametrize("what", ["close", "keep"])
@pytest.mark.parametrize("mode", [RUN, RUN_E, SNAPRUN_E], ids=lambda mode: mode.name)
def test_what_was_said_leaves_while_the_program_computes(mode, what, snapshots) -> None:
    program = guest("goes_on", "{port}", str(SECONDS))
    server = Server(program, mode, snapshot=snapshots.of(program) if mode.command == "snaprun" else None)
    try:
        with server.client() as client:
            begin = time.monotonic()
            client.send(what.encode())
            assert client.reader.read(4) == b"said"
            assert time.monotonic() - begin < 0.8 * SECONDS, "it was kept back until the program waited"
            assert client.reader.read() == b""
            took = time.monotonic() - begin
            assert took < 0.8 * SECONDS if what == "close" else took >= SECONDS, "the end of the connection is the program's close"
    finally:
        server.close()




def ask(path) -> str:
    """The body that the server at a Unix socket answers with."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(harness.PATIENCE)
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        return client.makefile("rb").read().partition(b"\r\n\r\n")[2].decode()


@contextlib.contextmanager
def started(*words: str):
    process = Process([str(harness.KVMSERVER), *map(str, words)], env=harness.BASE_ENVIRONMENT)
    try:
        wait_until(lambda: "Program '" in process.out or not process.running(), f"it serves; {process.err[-1000:]}")
        assert process.running(), process.err
        yield process
        assert process.stop().status == 0
    finally:
        process.close()


@pytest.fixture
def here():
    folder = tempfile.mkdtemp(prefix="kvms-", dir="/var/tmp")  # short, as a Unix socket's path, and not in the machine's own /tmp
    yield pathlib.Path(folder)
    harness.remove(folder)


SERVER = str(harness.GUESTS / "unix_server")


@pytest.mark.parametrize("options", [[], ["-e"], ["-e", "--http"], ["-e", "-t", "2", "-w", "3", "--check-reset"]], ids=" ".join)
def test_a_unix_socket(options, here) -> None:
    path = here / "sock"
    with started("run", f"--allow-listen=unix:{path}", *options, *LIMITS, SERVER, path) as process:
        assert f"on unix:{path}" in process.out
        assert stat.S_IMODE(path.stat().st_mode) == 0o640, "what the program made of it"
        answers = [ask(path) for _ in range(3)]
        assert all(f" at {path} of family 1 from family 1\n" in answer for answer in answers), answers
        assert (len(set(answers)) == 1) == bool(options), "each request has a clean machine, or one that goes on"
        assert "reset differs" not in process.err
    assert not path.exists(), "the name goes with the server"


def test_a_unix_socket_of_a_snapshot(here) -> None:
    path, snapshot = here / "sock", here / "snap"
    done = kvmserver("snapshot", f"--allow-listen=unix:{path}", "-w", "2", "-o", snapshot, *LIMITS, SERVER, path, patience=harness.PATIENCE + 100)
    assert done.status == 0, done
    assert not path.exists()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with started("snaprun", "-e", *LIMITS, snapshot) as process:
        assert f"on unix:{path}" in process.out
        assert ask(path) == ask(path) == f"request 3 at {path} of family 1 from family 1\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        second = kvmserver("snaprun", "-e", *LIMITS, snapshot)
        assert second.status != 0 and "Address already in use" in second.error
        assert ask(path), "the first serves on"
    path.write_text("a file")
    refused = kvmserver("snaprun", "-e", *LIMITS, snapshot)
    assert refused.status != 0 and path.read_text() == "a file"


def test_listen_at_a_unix_socket_and_the_other_way(here, snapshots) -> None:
    path, elsewhere = here / "sock", here / "elsewhere"
    program = guest("goes_on", "{port}", "0")
    with started("snaprun", "-e", "--listen", f"unix:{elsewhere}", *LIMITS, snapshots.of(program)):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(elsewhere))
            client.sendall(b"close")
            assert client.makefile("rb").read() == b"said"
    assert not elsewhere.exists()
    port = harness.free_port()
    with started("run", "-e", "--listen", f"127.0.0.1:{port}", f"--allow-listen=unix:{path}", *LIMITS, SERVER, path):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"of family 1 from family 1" in client.makefile("rb").read()


def test_a_unix_socket_needs_permission(here) -> None:
    path = here / "sock"
    for allowed in [], [f"--allow-listen=unix:{here}/other"], ["--allow-listen"], [f"--allow-write={here}"]:
        ended = kvmserver("run", *allowed, *LIMITS, SERVER, path)
        assert ended.status == 1 and f"--allow-listen=unix:{path} would allow it" in ended.err, (allowed, ended)
        assert not path.exists()
    for wrong in "unix:", "unix:@", "unix:/":
        assert kvmserver("run", f"--allow-listen={wrong}", SERVER, path).status == 2, wrong
    assert kvmserver("run", "--allow-connect=unix:/x", SERVER, path).status == 2


def say(port: int, text: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(harness.PATIENCE)
        client.sendto(text.encode(), ("127.0.0.1", port))
        return client.recv(4096).decode()


def tcp(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), harness.PATIENCE) as client:
        client.sendall(b"go\n")
        return client.makefile("rb").read().decode()


@pytest.mark.parametrize(
    "how", ["run", pytest.param("run -e", marks=pytest.mark.nightly), "run -e -t 2 --check-reset", "snaprun -e", "snaprun"]
)
def test_datagrams_are_answered(how, tmp_path) -> None:
    port = harness.free_port()
    rights, argv = "--allow-net", [str(harness.GUESTS / "datagrams"), str(port)]
    words = how.split()
    if words[0] == "snaprun":
        done = kvmserver("snapshot", rights, "-o", tmp_path / "snap", *LIMITS, *argv, patience=harness.PATIENCE + 100)
        assert done.status == 0, done
        words += [*LIMITS, str(tmp_path / "snap")]
    else:
        words += [rights, *LIMITS, *argv]
    with started(*words) as process:
        said = [say(port, f"hello {n}") for n in range(3)] + [say(port, "x" * 2000)]
        clean = "-e" in words
        assert said == [f"{1 if clean else n + 1} hello {n}" for n in range(3)] + [f"{1 if clean else 4} " + "x" * 2000]
        assert tcp(port) == ("1" if clean else "5")
        assert say(port, "again") == ("1 again" if clean else "6 again")
        if clean:  # a real socket's datagram would be tried again and again
            assert say(port, "lost") == "1 EFAULT"
            assert say(port, "more") == "1 more"
        assert "reset differs" not in process.err


def served_by(how: str, argv: list[str], tmp_path, *more: str) -> list[str]:
    """The words that serve the program with the permission to use the network, by a snapshot of it if need be."""
    words = [*how.split(), *more, *LIMITS]
    if words[0] != "snaprun":
        return [*words, "--allow-net", *argv]
    done = kvmserver("snapshot", "--allow-net", "-o", tmp_path / "snap", *LIMITS, *argv, patience=harness.PATIENCE + 100)
    assert done.status == 0, done
    return [*words, str(tmp_path / "snap")]


@pytest.mark.parametrize("how", ["run", "run -e", "run -e -t 2 --check-reset", "snaprun -e", "snaprun"])
def test_datagram_sockets_opened_at_the_start_go_on(how, tmp_path) -> None:
    port, asked = harness.free_port(), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.settimeout(harness.PATIENCE)

        def answer() -> None:
            while len(asked) < 8:
                source = other.recvfrom(100)[1]
                asked.append(source)
                other.sendto(str(len(asked)).encode(), source)

        threading.Thread(target=answer, daemon=True).start()
        argv = [str(harness.GUESTS / "asks"), str(port), str(other.getsockname()[1])]
        with started(*served_by(how, argv, tmp_path)) as process:
            assert [tcp(port) for _ in range(4)] == [f"{n} {n + 1} 0" for n in (1, 3, 5, 7)], process.err
            # A socket of its own for each invocation: what comes late for one is not another's.
            assert len(set(asked)) > 4 if "-e" in how else len(set(asked)) == 2, asked
            assert "reset differs" not in process.err


@pytest.mark.parametrize("how", ["run", "run -e", "snaprun -e"])
def test_datagrams_are_forwarded(how, tmp_path) -> None:
    """The machine waits for the reply of whom it asks, and for nothing once it has answered: it still looks at the socket that it asks by."""
    port = harness.free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    said, source = other.recvfrom(100)
                    other.sendto(said + b" there", source)

        threading.Thread(target=answer, daemon=True).start()
        argv = [str(harness.GUESTS / "forwards"), str(port), str(other.getsockname()[1])]
        with started(*served_by(how, argv, tmp_path)) as process:
            for n in range(1, 6):
                assert say(port, f"hello {n}") == f"{1 if '-e' in how else n} hello {n} there", process.err
            assert "a request" not in process.err  # ended by a limit


@pytest.mark.parametrize("how", ["run", "run -e", "run -e -t 2 --check-reset", "snaprun -e"])
def test_server_first(how, tmp_path) -> None:
    port = harness.free_port()
    argv = [str(harness.GUESTS / "greets"), str(port)]
    with started(*served_by(how, argv, tmp_path, "--server-first")) as process:
        for n in range(1, 4):
            with socket.create_connection(("127.0.0.1", port), harness.PATIENCE) as client, client.makefile("rb") as lines:
                assert lines.readline() == (b"1 ready\n" if "-e" in how else b"%d ready\n" % n)
                client.sendall(b"hello\n")
                assert lines.readline() == b"hello\n"
        assert "reset differs" not in process.err
    assert kvmserver("run", "--http", "--server-first", *argv).status == 2


@pytest.mark.parametrize("how", ["run", "run -e", "snaprun -e"])
def test_a_port_of_both_families_is_taken(how, tmp_path) -> None:
    port = harness.free_port()
    with started(*served_by(how, [str(harness.GUESTS / "families"), str(port)], tmp_path)):
        assert tcp(port) == f"0 {errno.EADDRINUSE} 0 0"
