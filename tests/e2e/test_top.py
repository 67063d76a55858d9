"""`kvmserver top` on a terminal of ours: what it shows, its keys, and that the terminal is given back."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import harness
import pytest
from serving import Daemon, Store, ask

ENTER, LEAVE = b"\33[?1049h", b"\33[?1049l"


class Top:
    """The command, with the terminal as its own: ^C and changes of the window reach it as signals."""

    def __init__(self, store: Store, rows: int = 24, columns: int = 120, **env: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.theirs)
        self.said = b""
        argv = [str(harness.KVMSERVER), "top", "--store", str(store.path)]
        self.popen = subprocess.Popen(argv, env={**harness.BASE_ENVIRONMENT, "TERM": "xterm", **env}, stdin=self.theirs, stdout=self.theirs,
                                      stderr=self.theirs, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> None:
        assert select.select([self.ours], [], [], harness.PATIENCE)[0], f"it says no more: {self.said!r}"
        self.said += os.read(self.ours, 65536)

    def frame(self) -> str:
        """The next whole screen, with its colours."""
        self.said = self.said.rpartition(b"\33[H")[2]
        while b"\33[J" not in self.said.partition(b"\33[H")[2]:
            self.read()
        return self.said.partition(b"\33[H")[2].partition(b"\33[J")[0].replace(b"\33[K", b"").decode()

    def until(self, shown) -> list[str]:
        """Lines of the first screen for which `shown` holds."""
        lines: list[str] = []

        def reached() -> bool:
            lines[:] = plain(self.frame())
            return shown(lines)

        harness.wait_until(reached, "the screen shows it")
        return lines

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def end(self) -> int:
        """Its exit status, after it gave the terminal back."""
        while LEAVE not in self.said:
            self.read()
        status = self.popen.wait(harness.PATIENCE)
        assert termios.tcgetattr(self.theirs) == self.before
        assert b"\33[?25h" in self.said  # the cursor
        return status

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        os.close(self.ours)
        os.close(self.theirs)


def plain(frame: str) -> list[str]:
    return re.sub(r"\x1b\[\d*m", "", frame).split("\r\n")


@pytest.fixture
def store(folder) -> Store:
    return Store(folder)


@pytest.fixture
def daemon(store, snapshots, program):
    for name in ("a", "b", "c", "d", "z"):
        store.deploy(snapshots.of(program("c-epoll")), name)
    daemon = Daemon(store)
    yield daemon
    daemon.close()


@pytest.fixture
def top(store, daemon):
    shown = []

    def started(*window: int, **env: str) -> Top:
        shown.append(Top(store, *window, **env))
        return shown[-1]

    yield started
    for one in shown:
        one.close()


def test_keys(top) -> None:
    shown = top()
    lines = shown.until(lambda lines: "requests/s" in lines[0])
    assert lines[0].startswith("5 functions, 0 failing") and " ERR/S* " in lines[1] and len(lines) == 8, lines
    assert [line.split()[0] for line in lines[2:7]] == ["a", "b", "c", "d", "z"]
    for key, column in ((b"s", "MEAN MS*"), (b"\33[D", "ERR/S*"), (b"\33[D", "REQ/S*"), (b"\33OC", "ERR/S*"), (b"x\33[A", "ERR/S*")):
        shown.press(key)
        shown.until(lambda lines: column in lines[1])
    shown.press(b"q")
    assert shown.end() == 0


def test_a_window_and_what_fails(top, daemon) -> None:
    shown = top(6, 60)
    lines = shown.until(lambda lines: len(lines) == 6)
    assert lines[5].startswith("2 more") and all(len(line) <= 60 for line in lines), lines
    while not re.search(r"\r\n\x1b\[31mz +v1", frame := shown.frame()):
        assert ask(daemon.port, "z", "/crash").status == 502
    assert plain(frame)[2].startswith("z ") and "1 failing" in frame
    shown.resize(20, 120)
    lines = shown.until(lambda lines: len(lines) == 8)
    assert {line.split()[0] for line in lines[2:7]} == {"a", "b", "c", "d", "z"} and "FAILED" in lines[1]


def test_no_colours(top, daemon) -> None:
    shown = top(NO_COLOR="1")
    while " 1 failing" not in (frame := shown.frame()):
        assert ask(daemon.port, "z", "/crash").status == 502
    assert plain(frame)[2].startswith("z ") and not re.search(r"\x1b\[\d*m", frame)


@pytest.mark.parametrize("how", ["^C", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_given_back_after_a_signal(top, how) -> None:
    shown = top()
    shown.frame()
    if how == "^C":
        shown.press(b"\3")
    else:
        shown.popen.send_signal(how)
    assert shown.end() == -(signal.SIGINT if how == "^C" else how)


def test_the_terminal_is_given_back_while_it_is_stopped(top) -> None:
    shown = top()
    shown.frame()
    shown.popen.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(shown.popen.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status) and termios.tcgetattr(shown.theirs) == shown.before
    shown.popen.send_signal(signal.SIGCONT)
    while ENTER not in shown.said.partition(LEAVE)[2]:
        shown.read()
    shown.press(b"q")
    assert shown.end() == 0


def test_an_end_of_the_daemon_gives_the_terminal_back(top, daemon) -> None:
    shown = top()
    shown.frame()
    assert daemon.stop().status == 0
    assert shown.end() == 6


def test_a_terminal_that_cannot_move_its_cursor(top) -> None:
    shown = top(TERM="dumb")
    assert shown.popen.wait(harness.PATIENCE) == 0
    shown.read()
    assert b"FUNCTION" in shown.said and b"\33" not in shown.said and re.search(rb"^z +v1", shown.said, re.M)
