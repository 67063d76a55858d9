"""What commands ask on a terminal, what a shell completes, and the examples of --help."""
import contextlib
import os
import pty
import re
import select
import subprocess
import termios

import harness
import pytest
from harness import kvmserver


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


@contextlib.contextmanager
def on_terminal(*words):
    """A command whose stdin and stderr are a terminal of ours."""
    ours, theirs = pty.openpty()
    argv = [str(harness.KVMSERVER), *map(str, words)]
    with subprocess.Popen(argv, env=harness.BASE_ENVIRONMENT, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as client:
        try:
            yield client, ours, theirs
        finally:
            client.kill()
            os.close(theirs)
            os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    said = b""
    while text not in said:
        assert select.select([terminal], [], [], harness.PATIENCE)[0], said
        said += os.read(terminal, 4096)
    return said


def test_a_secret_is_asked_for_and_not_shown(store, snap) -> None:
    store.deploy(snap, "hello")
    with on_terminal("secret", "set", "hello", "KEY", "--store", store.path) as (client, ours, theirs):
        read_until(ours, b"Value of KEY: ")
        harness.wait_until(lambda: not termios.tcgetattr(theirs)[3] & termios.ECHO, "nothing is shown")
        os.write(ours, b"hunter2\n")
        assert client.wait(harness.PATIENCE) == 0 and client.stdout.read() == b"Set KEY\n"
        assert termios.tcgetattr(theirs)[3] & termios.ECHO
        os.set_blocking(ours, False)
        assert b"hunter2" not in os.read(ours, 4096)
    header, row = store("secret", "list", "hello").out.splitlines()
    assert header.split() == ["NAME", "CHANGED", "FOR"] and re.fullmatch(r"KEY   \d+ s ago +-", row)
    assert "--stdin" in store("secret", "set", "hello", "KEY").error


@pytest.mark.parametrize(("answer", "live"), [(b"n\n", "v2"), (b"y\n", "v1")])
def test_a_roll_back_asks(store, snap, answer: bytes, live: str) -> None:
    for _ in range(2):
        store.deploy(snap, "hello")
    with on_terminal("rollback", "hello", "--store", store.path) as (client, ours, _):
        assert b"Roll back hello from v2 to v1" in read_until(ours, b"[y/N]")
        os.write(ours, answer)
        assert client.wait(harness.PATIENCE) == (0 if live == "v1" else 1)
    assert store.ok("traffic", "hello") == f"hello {live}"


def test_a_roll_back_in_a_script_needs_yes(store, snap) -> None:
    """As `delete` does: what is piped is no answer."""
    for _ in range(2):
        store.deploy(snap, "hello")
    refused = store("rollback", "hello")
    assert refused.status == 2 and "-y says yes" in refused.error, refused
    assert store.ok("traffic", "hello") == "hello v2"
    assert store.ok("rollback", "hello", "-y") == "hello v2 -> v1"


def test_bash_completes_names_of_the_store(store, snap, folder) -> None:
    for name in ("hello", "help-desk", "other"):
        store.deploy(snap, name)
    store.deploy(snap, "hello")
    script = folder / "script"
    script.write_text(f"""PATH={harness.KVMSERVER.parent}:$PATH; eval "$(kvmserver completion bash)"
offers() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvmserver; echo "${{COMPREPLY[*]}}"; }}
offers kvmserver describe he
offers kvmserver rollback hello ''
offers kvmserver env set o
offers kvmserver env ''
offers kvmserver logs -f --tail 3 oth
""")
    env = {**harness.BASE_ENVIRONMENT, "KVMSERVER_STORE": str(store.path)}
    done = subprocess.run(["bash", "--norc", script], capture_output=True, text=True, env=env, timeout=harness.PATIENCE)
    assert done.stdout.splitlines() == ["hello help-desk", "v2 v1", "other", "set list unset", "other"], done


def commands() -> list[str]:
    return re.findall(r"^  ([a-z]+)\b", kvmserver("--help").out.partition("Commands:\n")[2], re.M)


def test_every_command_has_an_example_of_its_own_options() -> None:
    assert len(commands()) > 25
    for name in commands():
        shown = kvmserver(name, "--help-all").out
        examples = shown.partition("\nExamples:\n")[2]
        assert f"kvmserver {name}" in examples, name
        options = shown.partition("\nExamples:\n")[0]
        for line in re.findall(r"^  (\S.*)$", examples, re.M):
            ours = line.partition(f"kvmserver {name}")[2].partition(" node ")[0].partition("&&")[0]
            for option in re.findall(r" (--?[a-z][a-z-]*)", ours):
                assert re.search(rf"(^|\s|, ){option}[ =\[,\n]", options, re.M), (name, line, option)


SLOW = """import http.server, time
time.sleep({seconds})
http.server.HTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def slow_server(folder, seconds: float) -> list[str]:
    (folder / "slow.py").write_text(SLOW.format(seconds=seconds, port=harness.free_port()))
    return ["snapshot", "-o", folder / "app.snap", "--allow-all", "/usr/bin/python3", folder / "slow.py"]


def test_what_takes_long_is_told(folder) -> None:
    done = kvmserver(*slow_server(folder, 2.5), patience=harness.PATIENCE * 3)
    assert done.status == 0 and re.match(r"kvmserver: booting python3\S* \.\.\.\n", done.err), done


def test_what_takes_long_is_one_line_of_a_terminal(folder) -> None:
    words = slow_server(folder, 3.5)
    with on_terminal(*words) as (client, ours, _):
        said = read_until(ours, b", 2 s\r")
        assert re.search(rb"\r\x1b\[Kbooting python3\S*, 1 s\r", said) and b"\n" not in said, said
        assert client.wait(harness.PATIENCE * 3) == 0
        os.set_blocking(ours, False)
        assert os.read(ours, 1 << 16).endswith(b"\r\x1b[K"), "it is erased at the end"
