"""--warmup auto: requests before the snapshot, until they help no more."""
import json
import pathlib
import re
import shutil
import time

import harness
import pytest
from harness import RUN_E, SLOWNESS, guest, kvmserver

NODE = shutil.which("node") or "/usr/bin/node"
# Answers which request it is, and who asked for what before. Its first requests take a while.
SERVER = """
let n = 0, asked = new Set();
require('http').createServer((q, r) => {
    const end = performance.now() + (++n <= SLOW ? MS : 0);
    asked.add(`${q.method} ${q.url} ${q.headers['user-agent']}`);
    while (performance.now() < end);
    r.end(JSON.stringify({n, asked: [...asked]}));
}).listen(process.argv[1], '127.0.0.1')
"""


def server_of(slow: int, ms: int) -> dict:
    script = SERVER.replace("SLOW", str(slow)).replace("MS", str(ms))
    return {"name": "warms", "lang": "Node", "argv": [NODE, "-e", script, "{port}"], "cwd": "/", "env": {}, "serial": False}


def snapshot(program: dict, file: pathlib.Path, *options: str) -> harness.Ended:
    made = kvmserver("snapshot", "--allow-all", "--level", "1", "-o", file, *options, *harness.arguments_of(program, harness.free_port()))
    assert made.status == 0, made.error
    return made


def test_it_goes_on_until_requests_are_cheap(start) -> None:
    server = start(server_of(20, 20), RUN_E, "-w", "auto")
    told = json.loads(server.get("/", "Connection: close"))
    assert told["n"] > 20
    assert "GET / kvmserver-warmup" in told["asked"] and len(told["asked"]) == 2, told


def test_a_plateau_of_some_hundred_requests_is_no_end(start) -> None:
    server = start(guest("compiles", "{port}"), RUN_E, "-w", "auto", "--max-warmup-time", str(10 * SLOWNESS))
    assert int(server.get("/", "Connection: close")) > 600


def test_what_it_did_is_told_in_one_line(tmp_path: pathlib.Path) -> None:
    made = snapshot(server_of(20, 20), tmp_path / "app.snap", "-w", "auto", "--warmup-path", "/warm?me")
    lines = [line for line in made.error.splitlines() if "warm" in line]
    assert len(lines) == 1, made.error
    found = re.fullmatch(r"kvmserver: node: warm-up: after (\d+) requests to /warm\?me an invocation takes ([\d.]+) ms of CPU, ([\d.]+) ms without", lines[0])
    assert found and int(found[1]) >= 20 and float(found[2]) < 10 <= float(found[3]), lines  # of CPU: less than 20 where others run


def test_it_takes_no_longer_than_it_may(tmp_path: pathlib.Path) -> None:
    """Requests that take half a second each, for ever."""
    program = server_of(1_000_000, 500)
    begin = time.monotonic()
    snapshot(program, tmp_path / "none.snap")
    without = time.monotonic() - begin
    begin = time.monotonic()
    made = snapshot(program, tmp_path / "some.snap", "-w", "auto", "--max-warmup-time", "3")
    assert re.search(r"warm-up: after \d requests", made.error), made.error
    # Measuring an invocation takes some requests, too.
    assert time.monotonic() - begin < without + 3 + 15 * SLOWNESS


def test_a_program_that_does_not_answer_is_left_alone(tmp_path: pathlib.Path) -> None:
    made = snapshot(guest("clocks", "{port}"), tmp_path / "app.snap", "-w", "auto")
    assert "kvmserver: clocks: no warm-up: the trial request GET / got no answer; name a path that gets one (--warmup-path" in made.error


@pytest.mark.parametrize(("top", "function", "expected"), [
    ("", "", "to / an"),
    ("", "[function.hooks]\nhealth = '/health'\n", "to /health an"),
    ("warmup-path = '/mine'\n", "[function.hooks]\nhealth = '/health'\n", "to /mine an"),
    ("warmup = 'auto'\nmax-warmup-time = 20\n", "", "to / an"),
    ("warmup = 0\n", "", None),
    ("warmup = 3\n", "", None),
], ids=["nothing", "health", "path", "auto", "none", "number"])
def test_deploy_warms_up_unless_the_manifest_says_otherwise(tmp_path: pathlib.Path, top: str, function: str, expected: str | None) -> None:
    program = harness.programs()["c-epoll"]
    argv = harness.arguments_of(program, harness.free_port())
    (tmp_path / "kvmserver.toml").write_text(f"allow-all = true\nlevel = 1\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
                                             f"[function]\nname = 'warms'\n{function}")
    done = kvmserver("deploy", tmp_path, "--store", tmp_path / "store")
    assert done.status == 0, done.error
    told = re.findall(r"warm-up: after \d+ requests (to \S+ an) invocation", done.out + done.err)
    assert told == ([expected] if expected else [])
