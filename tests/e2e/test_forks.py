"""Servers that fork for each connection: in a machine that is reset after it, the child goes on in its parent's place."""
import errno

import harness
import pytest
from harness import BARE, RUN, RUN_E, SNAPRUN_E, guest, kvmserver, wait_until

FOLLOWED = "forker called fork: a machine is one process, so its child goes on in its place"
REFUSED = "forker called fork: a machine is one process and cannot start another; refused (EAGAIN); "
ALWAYS = {**guest("forker", "{port}"), "permissions": ["--allow-all", "--fork=always"]}


def ask(server, line: str) -> str:
    with server.client() as client:
        client.send(line.encode() + b"\n")
        return client.reader.read().decode()


EMULATED = [SNAPRUN_E]


@pytest.mark.parametrize("mode", [pytest.param(mode, id=mode.name, marks=[pytest.mark.emulated] if mode in EMULATED else [])
                                  for mode in (BARE, RUN_E, SNAPRUN_E)])  # fmt: skip
def test_the_child_answers(start, mode: harness.Mode) -> None:
    server = start(ALWAYS, mode)
    lines = ["go", "close", "twice", "thread", "go"]
    answers = [ask(server, line).split() for line in lines]
    assert {wrong for wrong, _ in answers} == {"-"}, answers
    counts = [int(n) for _, n in answers]
    assert counts == ([*range(counts[0], counts[0] + len(lines))] if mode is BARE else [1] * len(lines))
    assert ask(server, "big") == "x" * 4_000_000, "all that it wrote before it ended"
    assert ask(server, "exit") == ""
    assert ask(server, "abort") == ""
    assert ask(server, "go").startswith("- ")
    if mode is not BARE:
        assert FOLLOWED in server.err and "SIGABRT" in server.err and "exited with status" not in server.err, server.err


def test_one_that_keeps_its_state_cannot(start) -> None:
    server = start(ALWAYS, RUN)
    assert server.line() in (f"error {errno.EAGAIN}", f"error {errno.EACCES}")  # the second time
    wait_until(lambda: REFUSED + "a child answers only where the machine is reset after the connection: with -e" in server.err,
               "the log says when it could")  # fmt: skip


@pytest.mark.parametrize("option", ["auto", "follow", "refuse"])
def test_unless_it_is_known_it_must_be_said(start, option: str) -> None:
    server = start({**ALWAYS, "permissions": ["--allow-all", f"--fork={option}"]}, RUN_E)
    assert server.line() in (f"error {errno.EAGAIN}", f"error {errno.EACCES}")  # the second time
    wait_until(lambda: "refused (EAGAIN)" in server.err, "it is refused")
    assert ("if its child answers the connection: --fork always" in server.err) == (option != "refuse"), server.err


def test_a_server_that_is_known(start, folder) -> None:
    known = folder / "mini_httpd-1"
    known.write_bytes((harness.GUESTS / "forker").read_bytes())
    known.chmod(0o755)
    server = start({**ALWAYS, "argv": [str(known), "{port}"], "permissions": ["--allow-all"]}, RUN_E)
    assert server.line() == "- 1"


@pytest.mark.nightly
def test_there_is_no_warm_up(folder) -> None:
    words = ["snapshot", "-o", folder / "a.snap", "--allow-all", "--fork=always", *harness.LIMITS]
    made = kvmserver(*words, "--warmup=auto", harness.GUESTS / "forker", str(harness.free_port()))
    assert made.status == 0 and "forker: no warm-up: it forks for each connection" in made.err, made
    made = kvmserver(*words, "--warmup=2", harness.GUESTS / "forker", str(harness.free_port()))
    assert "with -e, not in a warm-up" in made.err, made


def test_deployed(store, serve, folder) -> None:
    port = harness.free_port()
    (folder / "kvmserver.toml").write_text(
        f'allow-all = true\nfork = "always"\n[run]\nprogram = "{harness.GUESTS}/forker"\nargs = ["{port}"]\n'
        f'[function]\nname = "forker"\nprotocol = "tcp"\nlisten = ["127.0.0.1:{port}"]\n')
    serve()
    store.ok("deploy", folder, "-q")
    for _ in range(3):
        with harness.Client(port) as client:
            client.send(b"twice\n")
            assert client.reader.read() == b"- 1"
