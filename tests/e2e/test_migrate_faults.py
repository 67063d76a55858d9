"""A migration that fails at any point leaves exactly one live function, with what it kept."""
import contextlib
import http.client
import http.server
import os
import random
import signal
import threading

import harness
import pytest
from test_kept import KEPT, node  # noqa: F401: a fixture
from test_migrate import SUSPENDS, Side, deploy, two  # noqa: F401: fixtures

STEPS = ["info", "present", "missing", "upload", "bytes", "version", "ahead", "state", "take-over"]  # requests to the other daemon
MOMENTS = ["before", "after"]  # the request is not sent; its reply is not received
NIGHTLY = os.environ.get("MIGRATIONS") == "all"


def step_of(method: str, path: str, body: bytes) -> str:
    if path == "/v1/info":
        return "info"
    if path == "/v1/snapshots/missing":
        return "present" if b'"pieces":[]' in body else "missing"
    if path.startswith("/v1/uploads"):
        return "upload" if method == "POST" else "bytes"
    if method == "DELETE":
        return "give up"
    if "more=true" in path:
        return "ahead"
    return {"state": "state", "take-over": "take-over"}.get(path.split("?")[0].split("/")[-1], "version")


class Between:
    """What is between the daemons: does something at one moment of one step, once, and loses that request or its reply."""

    def __init__(self, to: int) -> None:
        outer = self
        self.to, self.at, self.act, self.seen = to, None, lambda: None, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                step = step_of(self.command, self.path, body)
                outer.seen.append(step)
                if outer.struck(step, "before"):
                    return self.lose()
                headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "expect")}
                try:
                    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", outer.to, timeout=harness.PATIENCE)) as there:
                        there.request(self.command, self.path, body, headers)
                        reply = there.getresponse()
                        text = reply.read()
                except OSError:  # it was killed
                    return self.lose()
                if outer.struck(step, "after"):
                    return self.lose()
                self.send_response_only(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text if self.command != "HEAD" else b"")

            def lose(self) -> None:
                self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = pass_on

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def struck(self, step: str, moment: str) -> bool:
        if (step, moment) != self.at:
            return False
        self.at = None
        self.act()
        return True

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def between(two):
    proxy = Between(two[1].admin_port)
    yield proxy
    proxy.close()


def settled(a: Side, name: str) -> int:
    """What the first request gets that is answered."""
    replies = []

    def answered() -> bool:
        replies.append(a.daemon.ask(name))
        assert replies[-1].status in (200, 502, 503), replies[-1]
        return replies[-1].status == 200

    harness.wait_until(answered, f"{name} is live")
    return int(replies[-1].body)


def exactly_one(a: Side, b: Side, name: str, expected: set[int]) -> bool:
    """Whether it has moved."""
    first = settled(a, name)
    assert first in expected, (first, expected)
    moved = a.store.json("describe", name).get("moved")
    there = b.daemon.ask(name)
    if moved:
        assert moved["confirmed"] and there.status == 200 and int(there.body) == first + 1, (moved, there)
        assert a.text(name) == f"{first + 2}\n" and not a.serves(name)
        return True
    assert there.status in (404, 503) and not b.serves(name), there
    assert a.text(name) == f"{first + 1}\n"
    again = a.migrate(b, name)  # nothing is in the way
    assert again.status == 0 and [a.text(name), b.text(name)] == [f"{first + 2}\n", f"{first + 3}\n"], again
    return False


def one_case(a: Side, b: Side, between: Between, name: str, step: str, moment: str, killed: Side | None) -> None:
    deploy(a, name=name, top=f"warmup = 0\nmax-request-time = {100 + len(between.seen)}\n")  # no snapshot is there already
    assert [a.text(name) for _ in range(3)] == ["1\n", "2\n", "3\n"]
    a.store.ok("suspend", name)
    assert a.text(name) == "4\n"
    between.act = (lambda: killed.daemon.popen.send_signal(signal.SIGKILL)) if killed else (lambda: None)
    between.at = (step, moment)
    between.seen.clear()
    done = a.store("migrate", name, "--to", between.url, "--to-token-file", b.token_file)
    assert between.at is None, between.seen
    if killed:
        killed.daemon.wait()
        killed.start()
    moved = exactly_one(a, b, name, {5} if killed is not a else {4, 5})
    if not killed:
        assert moved == (done.status == 0), done
        assert done.status == 0 or len(done.said) == 1, done


def killed_after(command, seconds: float, victim: Side):
    """What the command says of which the victim dies in the middle, or not quite."""
    timer = threading.Timer(seconds, lambda: victim.daemon.popen.send_signal(signal.SIGKILL))
    timer.start()
    done = command()
    timer.join()
    victim.daemon.wait()
    victim.start()
    return done


def test_killed_at_any_moment(two) -> None:
    """Suspended, moved and moved back again and again; nightly.sh has 200 rounds."""
    random_ = random.Random(20261127)
    at, other = two
    deploy(at)
    saved = last = 0  # what was suspended last; what was answered last
    for round in range(int(os.environ.get("KILLS", "8"))):
        for _ in range(random_.randint(1, 3)):
            last += 1
            assert at.text() == f"{last}\n", round
        delay = random_.uniform(0, 0.15)
        if random_.random() < 0.4:
            killed_after(lambda: at.store("suspend", "keeps"), delay, at)
            victim = at
        else:
            victim = random_.choice(two)
            killed_after(lambda: at.migrate(other), delay, victim)
        number = settled(at, "keeps")
        # One whose machine was lost goes on from what was saved last.
        assert (saved < number <= last + 1) if victim is at else number == last + 1, (round, saved, number, last)
        moved = at.store.json("describe", "keeps").get("moved")
        if moved:
            assert moved["confirmed"], moved
            at, other = other, at
        last = number + 1
        assert at.text() == f"{last}\n" and not other.serves(), round
        if not at.store("suspend", "keeps").status:
            saved = last


def cases() -> list:
    few = {("ahead", "after"), ("state", "after"), ("take-over", "before"), ("take-over", "after"), ("version", "after")}
    return [pytest.param(step, moment, id=f"{step}-{moment}") for step in STEPS for moment in MOMENTS
            if NIGHTLY or (step, moment) in few]


@pytest.mark.nightly
def test_a_connection_that_breaks(two, between) -> None:
    a, b = two
    for step in STEPS:
        for moment in MOMENTS:
            one_case(a, b, between, f"{step}-{moment}", step, moment, None)


@pytest.mark.parametrize("step, moment", cases())
def test_the_other_daemon_dies(two, between, step, moment) -> None:
    one_case(*two, between, "keeps", step, moment, two[1])


@pytest.mark.parametrize("step, moment", cases())
def test_this_daemon_dies(two, between, step, moment) -> None:
    one_case(*two, between, "keeps", step, moment, two[0])


def test_stopped_at_any_moment(two, node) -> None:
    """A daemon that is told to end loses nothing, whatever a migration is doing."""
    at, other = two
    at.store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    number = 0
    for round in range(8):
        if round % 4 == 0:
            at.text("probe", "/grow/40")
            kept = at.text("probe", "/sum")
        timer = threading.Timer(0.06 + 0.08 * round, lambda: at.daemon.popen.send_signal(signal.SIGTERM))
        timer.start()
        at.migrate(other, "probe")
        timer.join()
        at.daemon.wait()
        at.start()
        number += 1
        harness.wait_until(lambda: at.daemon.ask("probe", "/name").status == 200, "it is live")
        assert at.text("probe", "/count") == str(number) and at.text("probe", "/sum") == kept, round
        if at.store.json("describe", "probe").get("moved"):
            at, other = other, at
