"""The walls that `run` and `snaprun` put up around themselves: what somebody reaches who has broken out of their machine."""
import contextlib
import os
import re
import signal
import socket
import subprocess

import harness
import pytest
import serving

BACK_DOOR = harness.BUILD / "tests/jail/kvmserver_with_back_door"
ATTACKS = subprocess.run([BACK_DOOR, "--attacks"], capture_output=True, text=True, check=True).stdout.split() if BACK_DOOR.exists() else []
# Root stays root, with its rights to files: of its own file, the snapshot, it may change the mode.
OF_ITS_USER = {"pieces-changed"} if os.geteuid() == 0 else {"pieces-changed", "user-namespace"}


@pytest.fixture(scope="module")
def made(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("own-jail") / "app.snap"
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    done = harness.kvmserver("snapshot", "--allow-listen", "-o", path, *argv)
    assert done.status == 0, done
    return path


@pytest.fixture(scope="module")
def facts(made, tmp_path_factory):
    """A host that has something to lose: a store and its daemon, another function, a cache, a file, sockets."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret").write_text("of the host")
    (folder / "cache/kvmserver").mkdir(parents=True, mode=0o700)
    store = serving.Store(folder)
    store.deploy(made, "victim")
    abstract = f"kvmserver-test-own-{os.getpid()}"
    with contextlib.closing(serving.Daemon(store)) as daemon, socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + abstract)
        listener.listen()
        assert daemon.ask("victim", "/").status == 200
        [victim] = daemon.processes()["victim v1"]
        yield {"STORE": store.path, "CACHE": folder / "cache/kvmserver", "SECRET": folder / "secret", "DAEMON": daemon.popen.pid,
               "VICTIM": victim, "FRONT": daemon.port, "ABSTRACT": abstract}


def words_of(command: str, made, program) -> list[str]:
    port = harness.free_port()
    if command == "snaprun":
        return ["snaprun", "--listen", f"127.0.0.1:{port}", str(made)]
    return ["run", "--allow-listen", *harness.arguments_of(program("c-epoll"), port)]


@pytest.mark.parametrize("command", ["run", "snaprun"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_who_breaks_out_of_a_machine_gets_nowhere(facts, made, program, attack, command):
    if attack in OF_ITS_USER:
        pytest.skip("its user's own, without a user of its own")
    environment = {**harness.BASE_ENVIRONMENT, "XDG_CACHE_HOME": str(facts["CACHE"].parent), "KVMSERVER_STORE": str(facts["STORE"]),
                   "ATTACK": ";".join([attack, *(f"{key}={value}" for key, value in facts.items())])}
    process = harness.Process([str(BACK_DOOR), *words_of(command, made, program)], env=environment)
    try:
        pattern = re.compile(rf"attack {attack}: .*")
        harness.wait_until(lambda: pattern.search(process.err) or not process.running(), f"what came of {attack}; stderr: {process.err[-1500:]}")
        came = pattern.search(process.err)
        if came:
            assert came[0].startswith(f"attack {attack}: nothing"), came[0]
        else:
            assert process.popen.returncode == -signal.SIGSYS, process.err
    finally:
        process.close()
    assert not list(facts["CACHE"].glob("left-behind*")) and not (facts["STORE"] / "left-behind").exists()


def test_strict_starts_nothing_without_a_wall(made):
    """As where namespaces are forbidden."""
    if os.geteuid() != 0:
        pytest.skip("only root can forbid them for itself")
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    for how, status in (("strict", 4), ("auto", None)):
        argv = [*without_rights, str(harness.KVMSERVER), "snaprun", f"--jail={how}", "--listen", f"127.0.0.1:{harness.free_port()}", str(made)]
        process = harness.Process(argv, env=harness.BASE_ENVIRONMENT)
        try:
            harness.wait_until(lambda: "' loaded." in process.out or not process.running(), "it serves or ends")
            if status is None:
                assert process.running() and process.err.count("walls that this host does not allow: mounts") == 1, process.err
            else:
                assert process.popen.returncode == status and "--jail=strict: this host lacks walls: mounts" in process.err, process.err
                assert process.err.count("\n") == 1, process.err
        finally:
            process.close()


@pytest.mark.parametrize("how", ["auto", "off"])
def test_what_is_permitted_works_in_the_jail(folder, program, made, how):
    """Files by name, new files in a folder, a folder by a link, and nothing else."""
    (folder / "data").mkdir()
    (folder / "data/old").write_text("old")
    (folder / "by").symlink_to("data")
    (folder / "one").write_text("one")
    (folder / "two").write_text("two")
    script = f"""
import os
def attempt(what, do):
    try:
        print(what, do())
    except OSError as error:
        print(what, error.strerror)
attempt("old", lambda: open({str(folder / 'by/old')!r}).read())
attempt("one", lambda: open({str(folder / 'one')!r}).read())
attempt("two", lambda: open({str(folder / 'two')!r}).read())
attempt("new", lambda: open({str(folder / 'data/new')!r}, "w").write("new"))
attempt("rename", lambda: os.rename({str(folder / 'data/new')!r}, {str(folder / 'data/newer')!r}))
attempt("remove", lambda: os.remove({str(folder / 'data/old')!r}))
"""
    done = harness.kvmserver("run", f"--jail={how}", f"--allow-write={folder}/by", f"--allow-read={folder}/one", "/usr/bin/python3", "-c", script)
    assert done.out.splitlines() == ["old old", "one one", "two No such file or directory", "new 3", "rename None", "remove None"], done
    assert sorted(os.listdir(folder / "data")) == ["newer"]


def test_a_wrong_mode_is_told(made):
    done = harness.kvmserver("snaprun", "--jail=of", made)
    assert done.status == 2 and "--jail: 'of' is not auto, strict, off" in done.error and "did you mean" in done.error, done
