"""The walls around the process of a function: what somebody reaches who has broken out of a machine, and that functions work behind them."""
import contextlib
import os
import pathlib
import re
import socket
import subprocess

import harness
import pytest
import serving

BACK_DOOR = harness.BUILD / "tests/jail/kvmserver_with_back_door"
ATTACKS = subprocess.run([BACK_DOOR, "--attacks"], capture_output=True, text=True, check=True).stdout.split() if BACK_DOOR.exists() else []


class BackDoor(serving.Daemon):
    """The daemon whose processes of functions run what ATTACK in their environment says."""
    binary = BACK_DOOR


@contextlib.contextmanager
def listening(address: str):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        yield


RIGHTS = {"few": ["--allow-listen"], "all": ["--allow-all"]}
# What --allow-all gives by its own meaning.
GIVEN = {"secret", "climb", "write-anywhere", "front", "abstract-socket"}


@pytest.fixture(scope="module")
def made(program, tmp_path_factory):
    """Snapshots of one program with few permissions and with all."""
    folder = tmp_path_factory.mktemp("rights")
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    for name, options in RIGHTS.items():
        done = harness.kvmserver("snapshot", *options, "-o", folder / f"{name}.snap", *argv)
        assert done.status == 0, done
    return {name: folder / f"{name}.snap" for name in RIGHTS}


@pytest.fixture(scope="module")
def broken(made, tmp_path_factory):
    """A daemon that serves `victim`, and a store of which one function after the other is broken into."""
    folder = tmp_path_factory.mktemp("broken")
    cache = folder / "cache"
    secret = folder / "secret"
    secret.write_text("of the host")
    store = serving.Store(folder)
    store.deploy(made["few"], "victim")
    abstract = f"kvmserver-test-{os.getpid()}"
    with listening("\0" + abstract), contextlib.closing(
            BackDoor(store, env={"XDG_CACHE_HOME": str(cache)})) as daemon:
        assert daemon.ask("victim", "/").status == 200
        [victim] = daemon.processes()["victim v1"]
        facts = {"STORE": store.path, "CACHE": cache / "kvmserver", "SECRET": secret, "DAEMON": daemon.popen.pid, "VICTIM": victim,
                 "FRONT": daemon.port, "ABSTRACT": abstract}
        yield daemon, store, facts


@pytest.fixture(scope="module")
def broken_under_ceilings(made, tmp_path_factory):
    """The same where nothing of the host is granted."""
    folder = tmp_path_factory.mktemp("ceilings")
    (folder / "secret").write_text("of the host")
    (folder / "ceilings.toml").write_text("allow-read = []\nallow-connect = []\n")
    store = serving.Store(folder)
    abstract = f"kvmserver-test-ceilings-{os.getpid()}"
    with listening("\0" + abstract), contextlib.closing(
            BackDoor(store, "--ceilings", str(folder / "ceilings.toml"),
                     env={"XDG_CACHE_HOME": str(folder / "cache")})) as daemon:
        yield daemon, store, {"SECRET": folder / "secret", "FRONT": daemon.port, "ABSTRACT": abstract}


def outcome(broken, snapshot, attack: str, name: str) -> str:
    daemon, store, facts = broken
    store.deploy(snapshot, name, "--clamp")
    store.ok("env", "set", name, "ATTACK=" + ";".join([attack, *(f"{key}={value}" for key, value in facts.items())]))
    daemon.ask(name, "/")
    pattern = re.compile(rf"\[{name} v1\] (attack {attack}: .*|.*killed by signal.*)")
    harness.wait_until(lambda: pattern.search(daemon.err), f"what came of {attack}; stderr: {daemon.err[-1500:]}")
    return pattern.search(daemon.err)[1]


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_who_breaks_out_of_a_machine_gets_nowhere(broken, made, attack, rights):
    if rights == "all" and attack in GIVEN:
        pytest.skip("--allow-all gives it")
    daemon, store, facts = broken
    came = outcome(broken, made[rights], attack, f"{attack}-{rights}")
    assert came.startswith(f"attack {attack}: nothing") or "signal 31" in came, came
    assert daemon.ask("victim", "/").status == 200
    assert not list(pathlib.Path(facts["CACHE"]).glob("left-behind*")) and not (store.path / "left-behind").exists()


@pytest.mark.parametrize("attack", sorted(GIVEN))
def test_what_the_operator_does_not_grant_the_jail_does_not_show(broken_under_ceilings, made, attack):
    """Though the snapshot has --allow-all."""
    came = outcome(broken_under_ceilings, made["all"], attack, attack)
    assert came.startswith(f"attack {attack}: nothing"), came


def test_there_are_attacks():
    assert len(ATTACKS) >= 30, f"{BACK_DOOR} lacks attacks, or is not built"


@pytest.mark.parametrize("way", ["connect", "through a volume", "through a link"])
def test_no_program_reaches_the_administrators_socket(folder, way):
    """Whatever it is permitted, and though it runs as the user that administers."""
    store = serving.Store(folder)
    (folder / "link").symlink_to(store.path)
    at, options = {"connect": (store.path, []), "through a volume": (pathlib.Path("/mnt/all/store"), [f"--volume={folder}:/mnt/all:rw"]),
                   "through a link": (folder / "link", [])}[way]
    with contextlib.closing(serving.Daemon(store)) as daemon:
        program = ["python3", "-c", "import os, socket, sys\n"
                   "s = socket.socket(socket.AF_UNIX)\n"
                   f"print('entries', os.path.exists({str(at)!r}))\n"
                   f"s.connect({str(at / 'admin.sock')!r}); print('connected')"]
        rights = ["--allow-read=/", "--allow-write=/"] if options else ["--allow-all"]
        done = harness.kvmserver("run", *rights, *options, *program, env={"KVMSERVER_STORE": str(store.path)})
        assert "entries False" in done.out and "connected" not in done.out, done
        assert daemon.running()


def test_a_process_that_runs_a_machine_is_no_administrator(folder):
    """The socket trusts processes, not users."""
    store = serving.Store(folder)
    with contextlib.closing(serving.Daemon(store)):
        ask = ("import http.client, socket, sys\n"
               "def status():\n"
               "    client = http.client.HTTPConnection('localhost')\n"
               "    client.sock = socket.socket(socket.AF_UNIX); client.sock.connect(sys.argv[1])\n"
               "    client.request('GET', '/v1/functions'); return client.getresponse().status\n"
               "print(status())\n"
               "import fcntl, os\n"
               "machine = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xae01, 0)\n"
               "print(status())\n")
        done = subprocess.run(["python3", "-c", ask, store.path / "admin.sock"], capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == ["200", "401"], done
