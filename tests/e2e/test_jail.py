"""The walls around the process of a function: what somebody reaches who has broken out of a machine, and that functions work behind them."""
import contextlib
import ctypes
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


# Listens at abstract names and at a port, says the port, and answers what comes there until its input ends.
NEIGHBOUR = """import select, socket, sys
stream, messages, port = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
stream.bind("\\0" + sys.argv[1]); stream.listen()
messages.bind("\\0" + sys.argv[1] + "-messages")
port.bind(("0.0.0.0", 0))
print(port.getsockname()[1], flush=True)
while port in select.select([port, sys.stdin], [], [])[0]:
    port.sendto(*port.recvfrom(9))
"""


@contextlib.contextmanager
def neighbour(pid: int, name: str):
    """One that listens in the network namespace of a process, as another function there could. Yields its port."""
    inside = [] if os.geteuid() != 0 else ["nsenter", f"--net=/proc/{pid}/ns/net"]
    with subprocess.Popen([*inside, "python3", "-c", NEIGHBOUR, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        yield int(other.stdout.readline())
        other.stdin.close()


RIGHTS = {"few": ["--allow-listen"], "all": ["--allow-all"]}
# What --allow-all gives by its own meaning.
GIVEN = {"secret", "climb", "write-anywhere", "front", "abstract-socket"}


def shares_networks() -> bool:
    """Whether functions without network share a network namespace here: root, and Linux 6.12."""
    landlock_create_ruleset = 444
    return os.geteuid() == 0 and ctypes.CDLL(None).syscall(landlock_create_ruleset, None, 0, 1) >= 6


def network_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


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
            BackDoor(store, env={"XDG_CACHE_HOME": str(cache)})) as daemon, contextlib.ExitStack() as ends:
        assert daemon.ask("victim", "/").status == 200
        [victim] = daemon.processes()["victim v1"]
        port = ends.enter_context(neighbour(victim, abstract + "-neighbour"))
        facts = {"STORE": store.path, "CACHE": cache / "kvmserver", "SECRET": secret, "DAEMON": daemon.popen.pid, "VICTIM": victim,
                 "FRONT": daemon.port, "ABSTRACT": abstract, "NEIGHBOUR": abstract + "-neighbour", "NEIGHBOUR_PORT": port}
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
    if attack.startswith("neighbour"):
        [pid] = daemon.processes()[f"{attack}-{rights} v1"]
        assert (network_of(pid) == network_of(facts["VICTIM"])) == (rights == "few" and shares_networks())
    assert daemon.ask("victim", "/").status == 200
    assert not list(pathlib.Path(facts["CACHE"]).glob("left-behind*")) and not (store.path / "left-behind").exists()


@pytest.mark.emulated(nightly=True)
def test_functions_that_listen_share_a_network_and_do_not_see_it(folder):
    """They may not connect, so nobody reaches what they listen at but themselves. Each has all ports. (In the emulated hosts, which have an older Linux, each has a network of its own.)"""
    store = serving.Store(folder)
    port, datagrams = str(harness.free_port()), str(harness.free_port())
    rights = {"one": ["--allow-listen"], "two": ["--allow-listen"], "none": [f"--allow-listen=127.0.0.1:{port}"],
              "own": ["--allow-listen=unix:@kvmserver-test", "--allow-listen=127.0.0.1"]}
    for name, options in rights.items():
        at = [datagrams] if name in {"one", "two"} else []
        done = harness.kvmserver("snapshot", *options, "-o", folder / f"{name}.snap", str(harness.GUESTS / "reaches"), port, *at)
        assert done.status == 0, done
        store.deploy(folder / f"{name}.snap", name)
    with contextlib.closing(serving.Daemon(store)) as daemon:
        def answers(path: str) -> dict[str, str]:
            return {name: daemon.ask(name, path).body.decode() for name in rights}

        assert answers("/bind/5353") == {"one": "ok", "two": "ok", "none": "EACCES", "own": "ok"}
        assert answers(f"/bind/{datagrams}") == {"one": "EADDRINUSE", "two": "EADDRINUSE", "none": "EACCES", "own": "ok"}
        assert answers("/receive") == {"one": "EAGAIN", "two": "EAGAIN", "none": "EBADF", "own": "EBADF"}
        assert answers("/listen/5354") == {"one": "ok", "two": "ok", "none": "EACCES", "own": "ok"}
        assert set(answers("/loopback").values()) == {"ok"}
        networks = {name.split()[0]: network_of(pid) for name, [pid] in daemon.processes().items()}
        assert (networks["one"] == networks["two"] == networks["none"]) == shares_networks()
        assert networks["own"] not in {networks["one"], network_of(daemon.popen.pid)}


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
