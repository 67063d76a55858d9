"""What programs have put off, when the image is taken, and what machines cost while nobody asks."""
import contextlib
import email.utils
import http.client
import pathlib
import shutil
import time

import harness
import pytest
from harness import RUN, RUN_E, SNAPRUN_E, kvmserver

NODE = shutil.which("node") or "/usr/bin/node"
SERVER = "require('http').createServer((_, r) => r.end(String(state) + '\\n')).listen(process.argv[1], '127.0.0.1')"


def node(script: str) -> dict:
    return {"name": "timers", "lang": "Node", "argv": [NODE, "-e", f"let state = 0; {SERVER}; {script}", "{port}"], "cwd": "/", "env": {}, "serial": False}


@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E], ids=str)
def test_what_is_due_soon_is_done_before_the_image(start, mode) -> None:
    """What lasts a second would else never end: the clock of every request begins where that of the image stopped."""
    server = start(node("setTimeout(() => setTimeout(() => { state = 'done' }, 900), 900); setTimeout(() => { state = 'late' }, 60000)"), mode)
    assert [server.get("/", "Connection: close") for _ in range(3)] == [b"done\n"] * 3


@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E], ids=str)
def test_where_the_clock_continues_what_is_due_in_minutes_is_done_before_the_image(tmp_path: pathlib.Path, mode) -> None:
    """V8 collects garbage some seconds after its last work: in an image, that is not left to every invocation."""
    program = node("setTimeout(() => setTimeout(() => { state = 'done' }, 60000), 90000); setTimeout(() => { state = 'late' }, 600000)")
    made = harness.make_snapshot(program, tmp_path / "app.snap", "--clock=continues", "--level", "1")
    assert made.status == 0, made.error
    with contextlib.closing(harness.Server(program, mode, "--clock=continues", snapshot=tmp_path / "app.snap")) as server:
        assert [server.get("/", "Connection: close") for _ in range(3)] == [b"done\n"] * 3


def test_a_machine_that_keeps_its_state_waits_for_its_timers(start) -> None:
    server = start(node("setTimeout(() => { state = 'done' }, 60000)"), RUN)
    assert server.get("/", "Connection: close") == b"0\n"


def test_a_heartbeat_does_not_hold_the_image_up(start) -> None:
    """Its timers never end: two seconds of them must do."""
    begin = time.monotonic()
    server = start(node("setInterval(() => { ++state }, 30)"), RUN_E, "--clock=continues")
    beats = int(server.get("/", "Connection: close"))
    assert beats > 100, "no time has passed for it"
    assert time.monotonic() - begin < 30 * harness.SLOWNESS  # not the three minutes that timers are waited for


def test_a_server_that_gives_up_is_refused(tmp_path: pathlib.Path) -> None:
    snap = tmp_path / "app.snap"

    def snapshot(ms: int, *options: str) -> harness.Ended:
        program = node(f"setTimeout(() => process.exit(0), {ms})")
        return kvmserver("snapshot", "--allow-all", *options, "--level", "1", "-o", snap, *harness.arguments_of(program, harness.free_port()))

    for ms, seconds, options in ((1000, 2, []), (60000, 180, ["--clock=continues"])):
        ended = snapshot(ms, *options)
        assert ended.status == 1
        assert f": ended when its timers of the next {seconds} s ran out" in ended.error
        assert not snap.exists()
    assert snapshot(60000).status == 0  # no request will see that moment


BUSY = "let n = 0; require('http').createServer((_, r) => { const end = Date.now() + (++n % 5 ? 0 : 60); while (Date.now() < end); r.end(n + '\\n') }).listen(process.argv[1], '127.0.0.1')"


@pytest.mark.parametrize(("warmup", "least"), [("3", 4), ("4", 6)], ids=["cheap", "dear"])
def test_the_image_is_not_taken_before_a_dear_request(start, tmp_path: pathlib.Path, warmup: str, least: int) -> None:
    """After four requests each invocation would be the fifth, which takes 60 ms: more are sent. How many more depends on what they cost."""
    program = {"name": "busy", "lang": "Node", "argv": [NODE, "-e", BUSY, "{port}"], "cwd": "/", "env": {}, "serial": False}

    def check(server) -> None:
        which = {int(server.get("/", "Connection: close")) for _ in range(3)}
        assert len(which) == 1 and min(which) >= least and min(which) % 5 != 0, which

    server = start(program, RUN_E, "-w", warmup)
    check(server)
    server.close()

    made = harness.make_snapshot(program, tmp_path / "busy.snap", "-w", warmup, "--level", "1")
    assert made.status == 0, made.error
    with contextlib.closing(harness.Server(program, SNAPRUN_E, snapshot=tmp_path / "busy.snap")) as server:
        check(server)


def test_dates_are_of_now_in_a_warm_image(start) -> None:
    """Node keeps the text of the Date header for a second: a timer that an image has pending."""
    server = start(harness.programs()["node-http"], RUN_E, "-w", "3")
    time.sleep(2.5)  # what is kept would be this old

    def age() -> float:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=harness.PATIENCE)
        connection.request("GET", "/", headers={"Connection": "close"})
        date = connection.getresponse().getheader("Date")
        return time.time() - email.utils.parsedate_to_datetime(date).timestamp()

    assert all(-0.1 < age() < 1.2 for _ in range(5))


def test_an_idle_server_does_not_wake_up(start, program) -> None:
    server = start(program("c-epoll"), RUN_E)
    server.get("/", "Connection: close")

    def wakeups() -> int:
        tasks = pathlib.Path(f"/proc/{server.popen.pid}/task").iterdir()
        return sum(int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks)

    time.sleep(1)  # half a second after the last request it goes to sleep
    before = wakeups()
    time.sleep(1)
    assert wakeups() - before < 10  # 100 ticks a second otherwise
