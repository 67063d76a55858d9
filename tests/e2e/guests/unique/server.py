"""server.py PORT [asyncio]: answers values of every generator of Python, "name=value" pairs; those named own_ were seeded on purpose.

With `asyncio` inside a running event loop."""
import asyncio
import os
import random
import secrets
import socket
import ssl
import sys
import tempfile
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../include/kvmserver"))
from entropy import Region  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

own, unseeded = random.Random(42), random.Random()
region = Region(16)
region_user = random.Random(region.bytes())  # seeded, so left alone
if numpy:
    generator, own_generator = numpy.random.default_rng(), numpy.random.default_rng(42)
    philox, sfc64 = (numpy.random.Generator(kind()) for kind in (numpy.random.Philox, numpy.random.SFC64))


def answer() -> bytes:
    if region.is_new():
        region_user.seed(region.bytes())
    values = {
        "region": region_user.random(),
        "pid": os.getpid(), "random": random.random(), "bits": random.getrandbits(64), "instance": unseeded.random(),
        "uuid4": uuid.uuid4(), "tempfile": tempfile.mktemp(), "secrets": secrets.token_hex(8), "openssl": ssl.RAND_bytes(8).hex(),
        "own": own.random(),
    }
    if numpy:
        values |= {
            "numpy": numpy.random.rand(), "numpy_default": generator.random(), "numpy_half": (generator.integers(1 << 32, dtype=numpy.uint32), generator.random()),
            "numpy_philox": philox.random(), "numpy_sfc64": sfc64.random(), "own_numpy": own_generator.random(),
        }
    text = " ".join(f"{name}={str(value).replace(' ', '')}" for name, value in values.items()).encode()
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    asyncio.get_running_loop()  # forgotten after what CPython before 3.12 takes for a fork
    await asyncio.sleep(0)
    writer.write(answer())
    await writer.drain()
    writer.close()


async def in_loop(port: int) -> None:
    async with await asyncio.start_server(handle, "127.0.0.1", port) as server:
        await server.serve_forever()


def in_thread(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection = listener.accept()[0]
            with connection:
                if connection.recv(65536):
                    connection.sendall(answer())


answer()  # seeds all of them
port = int(sys.argv[1])
if "asyncio" in sys.argv:
    asyncio.run(in_loop(port))
in_thread(port)
