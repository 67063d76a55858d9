"""What the samples that people would deploy (functions.sh --more) are asked, and what they must answer.

How a sample is built and started says only its kvmserver.toml. Standard library only.
"""
import dataclasses
import http.client
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import time
import tomllib
import urllib.parse
import zlib
from collections.abc import Callable

BUILT = pathlib.Path(__file__).resolve().parent.parent / "build/functions"
PORT = "8080"  # of every manifest


@dataclasses.dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclasses.dataclass(frozen=True)
class Question:
    """A request, and what says of its reply whether it is right."""

    path: str
    right: Callable[[Reply], bool]
    body: bytes | None = None
    type: str = "application/octet-stream"
    status: int = 200

    def fetch(self, port: int, host: str = "localhost", timeout: float = 60) -> Reply:
        """On a connection of its own."""
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            headers = {"Host": host, "Connection": "close"}
            if self.body is not None:
                headers["Content-Type"] = self.type
            client.request("GET" if self.body is None else "POST", self.path, self.body, headers)
            got = client.getresponse()
            return Reply(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
        finally:
            client.close()

    def ask(self, port: int, host: str = "localhost", timeout: float = 60) -> Reply:
        reply = self.fetch(port, host, timeout)
        self.check(reply)
        return reply

    def check(self, reply: Reply) -> None:
        """Raises AssertionError when the reply is wrong."""
        if reply.status != self.status or not self.right(reply):
            raise AssertionError(f"{self.path} answers status {reply.status} and {reply.body[:200]!r}")


def says(*words: str) -> Callable[[Reply], bool]:
    return lambda reply: all(word in reply.body.decode() for word in words)


def size_of_jpeg(data: bytes) -> tuple[int, int]:
    """Width and height, of the first frame header (SOF0 to SOF2; ITU-T T.81, B.2.2)."""
    at = 2
    while data[at] == 0xFF and data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    height, width = struct.unpack_from(">HH", data, at + 5)
    return width, height


def png(width: int, height: int) -> bytes:
    """A grey picture."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes(x % 256 for x in range(width))) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def is_png(width: int, height: int) -> Callable[[Reply], bool]:
    return lambda reply: reply.body[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack_from(">II", reply.body, 16) == (width, height)


def pdf_says(*words: str) -> Callable[[Reply], bool]:
    def right(reply: Reply) -> bool:
        streams = re.findall(rb"stream\n(.*?)\nendstream", reply.body, re.S)
        text = b"".join(zlib.decompress(data) for data in streams if data[:1] == b"x").decode("latin-1")
        return reply.body.startswith(b"%PDF-1.") and reply.body.rstrip().endswith(b"%%EOF") and all(word in text for word in words)

    return right


def label(wanted: str) -> Callable[[Reply], bool]:
    return lambda reply: json.loads(reply.body)["label"] == wanted


INVOICE = {"number": "7", "customer": "José", "items": [{"text": "Chair", "count": 3, "price": "19.99"}]}
FORM = "application/x-www-form-urlencoded"
SCRIPT = b"#!/bin/sh\nset -e\nfor name in *.txt; do\n    echo \"$name\"\n    gzip -k \"$name\"\ndone\n"

# The first is what is measured, and the path of the warm-up.
SAMPLES: dict[str, list[Question]] = {
    "node-sharp": [
        Question("/", lambda reply: size_of_jpeg(reply.body) == (320, 213)),
        Question("/?width=200", lambda reply: size_of_jpeg(reply.body) == (200, 133)),
        Question("/?width=100&format=png", is_png(100, 50), png(400, 200), "image/png"),
        Question("/?width=64&format=webp", lambda reply: reply.body[8:12] == b"WEBP", png(400, 200), "image/png"),
        Question("/?width=0", says("must be >= 1"), status=400),
        Question("/", says("unsupported image format"), b"no picture", status=415),
    ],
    "python-pdf": [
        Question("/", pdf_says("(Invoice 2026-0042)", "(Part 40)", "(Total 220293.00 EUR)")),
        Question("/", pdf_says("(Invoice 7)", "(Total 59.97 EUR)"), json.dumps(INVOICE).encode(), "application/json"),
        Question("/", says("at least 1 item"), json.dumps({**INVOICE, "items": []}).encode(), "application/json", 422),
        Question("/", says("the font has no"), json.dumps({**INVOICE, "customer": "山田"}).encode(), "application/json", 422),
    ],
    "node-next": [
        Question("/", says("60 products", "Lamp 1<", "Basket: 0")),
        Question("/?q=lamp", says("12 products")),
        Question("/products/7", says("Chair 7", "€ 24.95")),
        Question("/products/99", says("404"), status=404),
        Question("/api/products?q=clock", lambda reply: len(json.loads(reply.body)) == 12),
    ],
    "python-flask-sqlite": [
        Question("/", says("The first to sign")),
        Question("/", says("Redirecting"), urllib.parse.urlencode({"name": "Bob", "text": "<b>"}).encode(), FORM, 303),
        Question("/entries", lambda reply: json.loads(reply.body)[-1]["name"] == "Ada"),
        Question("/", says("name and text are needed"), b"name=Bob", FORM, 400),
    ],
    "python-magika": [
        Question("/", label("python")),
        Question("/", label("png"), png(40, 20)),
        Question("/", label("shell"), SCRIPT),
    ],
}


def bare(name: str, port: int, scratch: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the program as its manifest has them, but at this port; what it writes is in `scratch`."""
    folder = BUILT / name
    manifest = tomllib.loads((folder / "kvmserver.toml").read_text())

    def here(word: str) -> str:
        return word.replace(PORT, str(port)).replace("/tmp/", f"{scratch}/")

    program = manifest["run"]["program"]
    found = str(folder / program) if "/" in program else program
    environment = dict(here(word).split("=", 1) for word in manifest["env"])
    return [found, *map(here, manifest["run"]["args"])], {"PATH": os.environ["PATH"], "HOME": "/", **environment}


def wait_ready(port: int, process: subprocess.Popen, patience: float = 30) -> None:
    """Until somebody listens there."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"it ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.001)  # not listening yet
    raise AssertionError(f"it does not listen within {patience:.0f} s")
