"""What a connection does beside a request and its reply."""
import time

import pytest
from harness import RUN, RUN_E, SNAPRUN_E, Server, guest

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
            assert time.monotonic() - begin < SECONDS / 2, "it was kept back until the program waited"
            assert client.reader.read() == b""
            took = time.monotonic() - begin
            assert took < SECONDS / 2 if what == "close" else took >= SECONDS, "the end of the connection is the program's close"
    finally:
        server.close()


