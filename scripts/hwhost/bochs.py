#!/usr/bin/python3
"""Runs Bochs for hwhost.sh --vendor intel: bochs.py FOLDER TIMEOUT BOOT_TIMEOUT VERBOSE.

FOLDER holds bochsrc and debugger.rc; the machine's serial lines are its files console and frames (relay.c says what
they hold). Copies the command's streams to ours and exits with its status; 124: time-out, 125: no host, or it died.
"""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
import tty

TIMED_OUT, NO_HOST = 124, 125
HEAD = re.compile(rb"([uoex])(\d+)\n")
# Its kernel waits then (panic=0), and would do so until the time-out.
DEAD = re.compile(rb"Kernel panic|hwhost: cannot")


def say(text: str) -> None:
    print(f"hwhost: {text}", file=sys.stderr, flush=True)


def drain(fd: int, seen: list[bytes] | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(fd, 65536):
            if seen is not None:
                seen.append(data)


class Bochs:
    """The emulator, in a terminal of its own: its display wants one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.said: list[bytes] = []
        self.screen: int | None = None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # It must not outlive this program, however that ends.
            os.chdir(folder)
            os.execvp("setpriv", ["setpriv", "--pdeathsig", "KILL", "env", "TERM=xterm", "HOME=/nonexistent",
                                  "bochs", "-q", "-f", "bochsrc", "-rc", "debugger.rc"])  # fmt: skip
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
        threading.Thread(target=drain, args=(self.terminal, self.said), daemon=True).start()

    def look_for_screen(self) -> None:
        """The debugger's build shows the machine's screen on a terminal of its own making, which stops it once full."""
        found = re.search(rb'connected to screen "?(/dev/pts/\d+)', b"".join(self.said))
        if self.screen is not None or not found:
            return
        self.screen = os.open(found[1].decode(), os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.screen)  # no echo: that would be typed
        threading.Thread(target=drain, args=(self.screen,), daemon=True).start()

    def running(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Frames:
    def __init__(self, path: pathlib.Path) -> None:
        self.file = path.open("rb")
        self.rest = b""

    def read(self):
        self.rest += self.file.read()
        while head := HEAD.match(self.rest):
            end = head.end() + int(head[2])
            if len(self.rest) < end:
                return
            yield head[1], self.rest[head.end():end]
            self.rest = self.rest[end:]


def run(folder: pathlib.Path, limit: float, boot_limit: float, verbose: bool) -> int:
    console = folder / "console"
    for name in ("console", "frames"):
        (folder / name).touch()
    frames, bochs = Frames(folder / "frames"), Bochs(folder)
    began, up, streams = time.monotonic(), False, {b"o": sys.stdout.buffer, b"e": sys.stderr.buffer}
    try:
        while True:
            alive = bochs.running()
            for kind, data in frames.read():
                if kind == b"u":
                    if verbose:
                        say(f"booted in {time.monotonic() - began:.1f} s")
                    began, up = time.monotonic(), True
                elif kind == b"x":
                    if verbose:
                        say(f"command took {time.monotonic() - began:.1f} s, status {data.decode()}")
                    return int(data)
                else:
                    streams[kind].write(data)
                    streams[kind].flush()
            if not alive or DEAD.search(console.read_bytes()):
                say("the emulated host died" + (" while the command ran" if up else ""))
                lines = console.read_bytes().splitlines()[-25:] + b"".join(bochs.said).splitlines()[-5:]
                sys.stderr.buffer.write(b"\n".join(lines) + b"\n")
                return NO_HOST
            if time.monotonic() - began > (limit if up else boot_limit):
                say(f"timed out after {limit:.0f} s" if up else f"the emulated host did not boot in {boot_limit:.0f} s")
                return TIMED_OUT if up else NO_HOST
            bochs.look_for_screen()
            select.select([], [], [], 0.05)
    finally:
        bochs.end()
        (folder / "bochs.said").write_bytes(b"".join(bochs.said))


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    sys.exit(run(pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "1"))
