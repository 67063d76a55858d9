"""gdb in batch mode, and a client of its remote protocol for hosts without gdb."""
import contextlib
import pathlib
import shutil
import signal
import socket

import harness
import pytest
from harness import KVMSERVER, Process


def gdb(program: pathlib.Path, *commands: str, core: pathlib.Path | None = None, interrupt_when=None) -> str:
    """What gdb prints for these commands. It gets a Ctrl-C once interrupt_when() is true."""
    if not shutil.which("gdb"):
        pytest.skip("there is no gdb: scripts/setup.sh --tests")
    argv = ["gdb", "-nx", "-batch", str(program), *([str(core)] if core else [])]
    for command in ("set pagination off", "set confirm off", "set debuginfod enabled off", *commands):
        argv += ["-ex", command]
    environment = {**harness.BASE_ENVIRONMENT, "TERM": "dumb"}
    with contextlib.closing(Process(argv, None, environment)) as process:
        if interrupt_when:
            harness.wait_until(interrupt_when, "gdb is to be interrupted")
            process.popen.send_signal(signal.SIGINT)
        process.wait()
        return process.out + process.err


class Debugged(Process):
    """A command that waits for gdb."""

    def __init__(self, *words: str | pathlib.Path) -> None:
        super().__init__([str(KVMSERVER), *map(str, words)], None, harness.BASE_ENVIRONMENT)
        try:
            harness.wait_until(lambda: "Waiting for gdb: " in self.out or not self.running(), "it waits for gdb")
            assert self.running(), self.err
        except BaseException:
            self.close()
            raise

    @property
    def target(self) -> str:
        """What to type in gdb."""
        line = next(line for line in self.out.splitlines() if line.startswith("Waiting for gdb: "))
        return line.split("'")[1]


class Remote:
    """A client of gdb's remote protocol."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), harness.PATIENCE)
        self.left = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, payload: str) -> None:
        self.socket.sendall(f"${payload}#{sum(payload.encode()) & 0xff:02x}".encode())

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> str:
        while b"#" not in self.left or len(self.left) < self.left.index(b"#") + 3:
            got = self.socket.recv(65536)
            assert got, "the connection was closed"
            self.left += got
        begin, end = self.left.index(b"$"), self.left.index(b"#")
        payload, self.left = self.left[begin + 1 : end], self.left[end + 3 :]
        self.raw(b"+")
        return payload.decode("latin-1")

    def ask(self, payload: str) -> str:
        self.send(payload)
        return self.reply()

    def register(self, number: int) -> int:
        return int.from_bytes(bytes.fromhex(self.ask(f"p{number:x}")), "little")

    def set_register(self, number: int, value: int, size: int = 8) -> None:
        assert self.ask(f"P{number:x}={value.to_bytes(size, 'little').hex()}") == "OK"

    def auxiliary(self, wanted: int) -> int:
        data = self.ask("qXfer:auxv:read::0,1000")[1:].encode("latin-1")
        plain, escape = bytearray(), False
        for byte in data:
            if escape or byte != 0x7D:
                plain.append(byte ^ 0x20 if escape else byte)
            escape = byte == 0x7D and not escape
        for at in range(0, len(plain) - 15, 16):
            if int.from_bytes(plain[at : at + 8], "little") == wanted:
                return int.from_bytes(plain[at + 8 : at + 16], "little")
        raise AssertionError(f"no entry {wanted} in the auxiliary vector")


@contextlib.contextmanager
def remote(debugged: Debugged):
    client = Remote(int(debugged.target.rsplit(":", 1)[1]))
    try:
        yield client
    finally:
        client.close()
