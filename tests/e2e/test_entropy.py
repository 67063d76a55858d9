"""Entropy regions of a program's own, and what `snapshot` says of generators that would repeat (docs/UNIQUENESS.md)."""
import re

import pytest
from harness import RUN_E, SNAPRUN_E2, guest, kvmserver, make_snapshot


def sessions(server, count: int) -> list[str]:
    return [server.line() for _ in range(count)]


@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E2], ids=str)
def test_marked_state_is_filled_anew(start, mode) -> None:
    server = start(guest("seeded", "{port}", "marked"), mode, "--check-reset")
    seen = sessions(server, 200)
    assert len(set(seen)) == len(seen)
    assert "reset differs" not in server.err


def test_what_would_repeat_is_named(folder) -> None:
    path = folder / "app.snap"
    made = make_snapshot(guest("seeded", "{port}"), path)
    assert made.status == 0, made
    told = re.search(r'every request to / answers "([0-9a-f]{16})" in its body', made.err)
    assert told, made.err
    assert "docs/UNIQUENESS.md" in made.err
    shown = kvmserver("inspect", path)
    assert told[1] in shown.out, shown


def test_strict_unique_refuses(folder) -> None:
    path = folder / "app.snap"
    made = make_snapshot(guest("seeded", "{port}"), path, "--strict-unique")
    assert made.status == 1 and "--strict-unique" in made.error, made
    assert list(folder.iterdir()) == []
    # As a snapshot that was made without: it says so itself.
    assert make_snapshot(guest("seeded", "{port}"), path).status == 0
    refused = kvmserver("deploy", path, "--strict-unique", "--store", folder / "store")
    assert refused.status == 1 and "--strict-unique: every request to / answers" in refused.error, refused
    refused = kvmserver("deploy", path, "--strict-unique", "--dry-run", "--store", folder / "store")
    assert refused.status == 1 and "--strict-unique: every request to / answers" in refused.error, refused
    told = kvmserver("deploy", path, "--store", folder / "store")
    assert told.status == 0 and "every request to / answers" in told.err, told


@pytest.mark.nightly
def test_strict_unique_refuses_what_does_not_answer(folder) -> None:
    listens = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nwhile True: c, _ = s.accept(); c.recv(1); s.accept()"
    silent = {"name": "silent", "lang": "Python", "argv": ["/usr/bin/python3", "-c", listens, "{port}"], "cwd": "/", "env": {}, "serial": True}
    made = make_snapshot(silent, folder / "app.snap", "--strict-unique")
    assert made.status == 1 and "--strict-unique: the trial request GET / got no answer" in made.error, made
    path = folder / "app.snap"
    assert make_snapshot(silent, path).status == 0
    assert "whether random values repeat is not known" in kvmserver("inspect", path).out


def test_marked_program_passes(folder) -> None:
    path = folder / "app.snap"
    made = make_snapshot(guest("seeded", "{port}", "marked"), path, "--strict-unique", "-v")
    assert made.status == 0, made
    assert "entropy region of the program: 8 bytes" in made.err
    assert "entropy region of the program" in kvmserver("inspect", path).out


# Their clocks, counters and dates are no random values.
@pytest.mark.parametrize("name", ["c-epoll", "c-epoll-dynamic", "c-poll", "c-select", "c-blocking", "c-thread", "rust-tokio", "rust-tokio-multi",
                                  "go-http", "python-http", "python-asyncio", "python-uvicorn", "node-http", "node-react", "deno-serve"])
def test_examples_are_not_blamed(folder, program, name: str) -> None:
    made = make_snapshot(program(name), folder / "app.snap", "--level", "1", "-w", "3", "--strict-unique")
    assert made.status == 0, made
    assert not [line for line in made.said if "answers" in line], made.err


def test_an_unseeded_generator_among_many_seeded(start) -> None:
    script = ("import random, sys, http.server\n"
              "seeded = [random.Random(i) for i in range(300)]\n"
              "own = random.Random()\n"
              "class Handler(http.server.BaseHTTPRequestHandler):\n"
              "    protocol_version = 'HTTP/1.1'\n"
              "    def do_GET(self):\n"
              "        body = f'{own.random()} {seeded[7].random()}\\n'.encode()\n"
              "        self.send_response(200)\n"
              "        self.send_header('Content-Length', str(len(body)))\n"
              "        self.end_headers()\n"
              "        self.wfile.write(body)\n"
              "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()")  # fmt: skip
    program = {"name": "many", "lang": "Python", "argv": ["/usr/bin/python3", "-c", script, "{port}"], "cwd": "/", "env": {}, "serial": True}
    server = start(program, RUN_E)
    answers = [server.get("/", "Connection: close").split() for _ in range(5)]
    assert len({own for own, _ in answers}) == 5
    assert len({seeded for _, seeded in answers}) == 1
