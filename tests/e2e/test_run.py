"""Programs that never listen, the standard streams, the environment, the command line's words."""
import contextlib
import errno
import re
import shutil
import subprocess

import harness
import pytest
from harness import BASE_ENVIRONMENT, RUN, SNAPRUN_E, guest, kvmserver


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["/bin/true"], 0),
        (["/bin/false"], 1),
        (["/bin/sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 8"], 8),
        (["/bin/sh", "-c", "kill -9 $$"], 137),
        (["/bin/sh", "-c", "kill -11 $$"], 139),
        (["/bin/busybox", "sh", "-c", "exit 9"], 9),
        (["/usr/bin/python3", "-c", "import sys; sys.exit(10)"], 10),
        (["/usr/bin/python3", "-c", "import os; os.abort()"], 134),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_status(argv: list[str], status: int) -> None:
    if not harness.pathlib.Path("/bin", argv[0]).exists():
        pytest.skip(f"there is no {argv[0]}: scripts/setup.sh --tests")
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, *argv)
    assert ended.status == status, ended
    assert ended.out == "", "nothing but the program writes to stdout"


@pytest.mark.emulated(nightly=True)
def test_streams() -> None:
    script = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('to stderr\\n')"
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "/usr/bin/python3", "-c", script, stdin=b"to be read\n" * 1000)
    assert ended == (0, "TO BE READ\n" * 1000, "to stderr\n")


def test_nobody_reads_stdout_for_a_while() -> None:
    argv = [str(harness.KVMSERVER), "run", "--allow-all", "/usr/bin/python3", "-c", "print('.' * 1_000_000)"]
    with harness.subprocess.Popen(argv, stdout=harness.subprocess.PIPE, env=BASE_ENVIRONMENT) as process:
        harness.time.sleep(1)
        assert process.stdout.read() == b"." * 1_000_000 + b"\n"
        assert process.wait(harness.PATIENCE) == 0


@pytest.mark.parametrize(
    ("script", "call", "error"),
    [
        ("import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)", "fork", "EAGAIN"),
        ("import os\ntry: os.execv('/bin/true', ['true'])\nexcept OSError as e: print(e.errno)", "execve", "EPERM"),
    ],
)
def test_another_process_is_refused(script: str, call: str, error: str) -> None:
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "/usr/bin/python3", "-c", script)
    assert ended.out == f"{getattr(errno, error)}\n"
    assert f"called {call}: a machine is one process and cannot start another; refused ({error})" in ended.err


@pytest.mark.skipif(not shutil.which("perl"), reason="no perl")
def test_who_retries_a_fork_is_told_otherwise() -> None:
    script = "my $r = system('true'); print $r, ' ', $!{EACCES} ? 'EACCES' : $!, qq{\\n}"  # perl sleeps 5 s after EAGAIN, and tries again
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "perl", "-e", script)
    assert ended.out == "-1 EACCES\n", ended


def test_refused_process_names_the_option(folder) -> None:
    (folder / "uvicorn").write_text("import os\ntry: os.fork()\nexcept OSError: pass\n")
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "/usr/bin/python3", str(folder / "uvicorn"))
    assert "uvicorn called fork" in ended.err and "--workers 1, without --reload" in ended.err, ended


def test_a_script_that_starts_a_program_is_told_which_to_name(folder) -> None:
    """And not which permission would help, since none would."""
    script = folder / "start"
    script.write_text("#!/bin/sh\ncat </etc/hostname || :\nexec /usr/bin/python3 server.py\n")
    script.chmod(0o755)
    (folder / "server.py").touch()
    ended = kvmserver("run", "-e", *harness.LIMITS, script, cwd=folder)
    assert "called execve" in ended.err and ended.err.count("name the program that the script starts: /usr/bin/python3\n") == 1, ended
    assert "permission" not in ended.err and "--allow-" not in ended.err, ended


def test_shims_of_version_managers(folder) -> None:
    """Their shims would call execve: the manager is asked what they stand for, as a program and as a script's interpreter."""
    shims = folder / "shims"
    shims.mkdir()
    manager = folder / "pyenv"
    manager.write_text('#!/bin/sh\n[ "$1 $2" = "which snake" ] && [ -f wanted ] && echo /usr/bin/python3 && exit\n'
                       'echo "pyenv: $2: command not found" >&2; exit 127\n')  # fmt: skip
    shim = shims / "snake"
    shim.write_text(f'#!/usr/bin/env bash\nset -e\nprogram="${{0##*/}}"\nexec "{manager}" exec "$program" "$@"\n')
    manager.chmod(0o755)
    shim.chmod(0o755)
    script = folder / "script"
    script.write_text("#!/usr/bin/env snake\nprint('runs')\n")
    script.chmod(0o755)
    here = folder / "here"
    here.mkdir()
    env = {"PATH": f"{shims}:{harness.BASE_ENVIRONMENT['PATH']}"}
    missing = kvmserver("run", "snake", cwd=here, env=env)
    assert missing.status == 3 and "`pyenv which snake` ended with status 127: pyenv: snake: command not found" in missing.error, missing
    (here / "wanted").touch()  # a manager chooses by the program's folder
    for words in (["snake", "-c", "print('runs')"], [script]):
        ended = kvmserver("run", "--allow-all", *harness.LIMITS, *words, cwd=here, env=env)
        assert ended.status == 0 and ended.out == "runs\n", ended
        assert f"{shim} is a shim of pyenv: using /usr/bin/python3\n" in ended.err, ended
    # Others' shims are links to one program, as mise's are.
    (folder / "mise").write_text('#!/bin/sh\n[ "$1 $2" = "which adder" ] && echo /usr/bin/python3\n')
    (folder / "mise").chmod(0o755)
    (shims / "adder").symlink_to(folder / "mise")
    linked = kvmserver("run", "--allow-all", *harness.LIMITS, "adder", "-c", "print('runs')", cwd=here, env=env)
    assert linked.out == "runs\n" and "is a shim of mise" in linked.err, linked
    # What a path leads to may be anybody's, so its manager is not run.
    refused = kvmserver("run", shim, cwd=here, env=env)
    assert refused.status == 2 and "or just snake" in refused.error, refused


def test_node_cluster_is_told_that_threads_are_fine(folder) -> None:
    (folder / "many.js").write_text("require('node:cluster').fork()")
    node = harness.programs()["node-http"]["argv"][0]
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, node, str(folder / "many.js"))
    assert "node called" in ended.err and "worker threads are fine" in ended.err, ended


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_child_process_of_node_gets_the_error() -> None:
    script = "require('child_process').exec('true', e => console.log('callback', e.code))"
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "node", "-e", script)
    assert ended.out == "callback EAGAIN\n", ended


def test_options_after_the_program_are_its_own() -> None:
    words = ["-e", "--allow-all", "-t", "5", "--", "++", "", "two words"]
    script = "import sys; print(sys.argv[1:])"
    ended = kvmserver("run", "--allow-all", *harness.LIMITS, "/usr/bin/python3", "-c", script, *words)
    assert ended.out == f"{words}\n"


def test_environment_and_folder(folder) -> None:
    script = "import os; print(os.getcwd(), os.environ.get('GIVEN'), os.environ.get('INHERITED'))"
    words = ["/usr/bin/python3", "-c", script]
    read = ["--allow-read", *harness.LIMITS]
    env = {"INHERITED": "yes"}
    assert kvmserver("run", *read, "--env", "GIVEN=a b", *words, cwd=folder, env=env).out == f"{folder} a b None\n"
    assert kvmserver("run", *read, "--allow-env", *words, cwd=folder, env=env).out == f"{folder} None yes\n"
    assert kvmserver("run", *read, "--allow-env=OTHER,INH*", *words, cwd="/", env=env).out == "/ None yes\n"
    assert kvmserver("run", *read, "--cwd", folder, *words, cwd="/", env=env).out == f"{folder} None None\n"
    assert kvmserver("run", "--allow-all", *harness.LIMITS, *words, cwd=folder, env=env).out == f"{folder} None yes\n"


@pytest.mark.parametrize("mode", [RUN, SNAPRUN_E], ids=lambda mode: mode.name)
def test_readiness_line(start, program, mode) -> None:
    server = start(program("c-epoll"), mode)
    assert [line for line in server.out.splitlines() if line.startswith("Program 'c-epoll' loaded.")], server.out


def test_output_of_a_server_passes_through(start, program) -> None:
    server = start(program("node-http"), RUN)
    assert server.out.startswith(f"listening on {server.port}\n"), server.out


def test_warm_up(start, program) -> None:
    """Requests served before the image is taken leave their mark in it; the options say which they are, however busy this host is."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            busy = stack.enter_context(subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]))
            stack.callback(busy.kill)
        server = start(program("c-epoll"), harness.RUN_E, "-w", "5", "--warmup-path", "/count")
    assert [server.count() for _ in range(3)] == [6, 6, 6]


@pytest.mark.parametrize(("mode", "options"), [(RUN, []), (RUN, ["-t", "2"]), (harness.RUN_E, [])], ids=["run", "run-t2", "run-e"])
def test_stats(start, program, mode, options) -> None:
    """--stats counts connections and exits, of machines that keep their state too."""
    server = start(program("c-epoll"), mode, "--stats", *options)
    for _ in range(10):
        server.count()
    said = server.stop().err
    summary = re.search(r"(\d+) connections, 0 failed; per connection: ([\d.]+) exits(, [\d.]+ pages copied back)?", said)
    assert summary, said
    assert 10 <= int(summary[1]) <= 11 and 1 <= float(summary[2]) <= 4, said  # one more to see whether it listens
    assert bool(summary[3]) == mode.ephemeral, said
    assert re.search(r"exits per connection: .*wait [\d.]+", said), said


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("what", ["fork", "exec"])
def test_new_processes_are_refused(what: str) -> None:
    ended = kvmserver("run", "--allow-all", "-v", *guest("boot")["argv"], what)
    assert ended.status in (21, 22), ended
    assert f"{what}" in ended.error, "the refusal does not name the call"
    assert f"{what}: " in ended.out and "made a child" not in ended.out


def test_missing_calls_are_named_once() -> None:
    script = "import ctypes; c = ctypes.CDLL(None); [print(c.syscall(999)) for _ in range(3)]"
    ended = kvmserver("run", "--allow-all", "-v", *harness.LIMITS, "/usr/bin/python3", "-c", script)
    assert ended.out == "-1\n" * 3
    assert ended.err.count("999") == 1, ended.err


@pytest.mark.emulated
@pytest.mark.parametrize("how", ["privileged", "port"])
def test_hostile_instructions_end_the_program_only(how: str) -> None:
    """A fault of the program, or the end of its machine; never of more."""
    ended = kvmserver("run", "--allow-all", *guest("boot")["argv"], how)
    assert ended.status == 139 or (how == "port" and ended.status == 1 and "port 0x80" in ended.error), ended


@pytest.mark.emulated(nightly=True)
def test_memory_limit() -> None:
    ended = kvmserver("run", "--allow-all", "--max-main-memory", "256", *harness.LIMITS, *guest("boot")["argv"], "memory")
    assert ended.status in (1, 23, 134, 137, 139), ended
    assert ended.err.startswith("kvmserver: ") or "memory: ENOMEM" in ended.out or "Cannot allocate" in ended.out, ended


def test_inherits_nothing_by_default() -> None:
    ended = kvmserver("run", *harness.LIMITS, "/usr/bin/env", env={"SECRET": "x"})
    assert ended.status == 0 and ended.out == "", ended
    assert "PATH" in BASE_ENVIRONMENT
