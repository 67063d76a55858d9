"""A machine that nobody asks for a while rests: it gives its memory back, and is made again for the next request."""
import contextlib
import json
import os
import pathlib
import re

import harness
import pytest
from serving import manifest, open_files
from test_serve_values import late_program

SERVER = pathlib.Path(__file__).parent / "guests/unique/server.py"  # answers "name=value" pairs


def has_machine(pid: int) -> bool:
    """Whether the process has a virtual machine."""
    return any("kvm-vm" in file for file in open_files(pid))


def wait_for_rest(pid: int) -> None:
    harness.wait_until(lambda: not has_machine(pid), f"process {pid} to rest")


def own_kib(pid: int) -> int:
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous:\s+(\d+)", text, re.M)[1])


def image_kib(pid: int) -> int:
    """What the process has of its image in memory of its own."""
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "kvmserver-image" in os.readlink(file):
                return file.stat().st_blocks // 2
    raise AssertionError(f"process {pid} has no image")


def the_process(daemon, name: str) -> int:
    (pid,) = daemon.processes()[f"{name} v1"]
    return pid


def deploy(store, program, name: str, scale: str) -> None:
    folder = manifest(store.folder / name, program, "level = 1\n")  # compressing it anew would take CPU time meanwhile
    with (folder / "kvmserver.toml").open("a") as file:
        file.write(f"[function.scale]\n{scale}\n")
    store.ok("deploy", folder, "-q")


def test_it_gives_its_memory_back_and_serves_as_before(store, serve, snapshots, program) -> None:
    node = program("node-http")
    store.deploy(snapshots.of(node), "awake")
    deploy(store, node, "rests", 'rest = "1ms"')
    daemon = serve("--rest=0", "--threads=1")
    first = daemon.ask("rests", "/")
    assert daemon.ask("awake", "/").body == first.body
    pid, awake = the_process(daemon, "rests"), the_process(daemon, "awake")

    def gives_back() -> bool:
        """Its own copies of pages. It may have rested before the rest of its snapshot was read."""
        wait_for_rest(pid)
        if own_kib(pid) < own_kib(awake) / 2:
            return True
        again = daemon.ask("rests", "/")
        assert again.status == 200 and again.body == first.body
        return False

    harness.wait_until(gives_back, "its memory to be given back")
    assert daemon.ask("rests", "/").body == first.body
    assert the_process(daemon, "rests") == pid
    assert has_machine(awake)


@pytest.mark.parametrize("name", ["node-http", pytest.param("c-epoll", marks=pytest.mark.emulated(nightly=True))])
def test_processes_at_rest_share_what_the_cache_has(store, serve, snapshots, program, name: str) -> None:
    server = program(name)
    deploy(store, server, "awake", 'rest = "0"\nidle = "1h"')  # it waits for the others, longer than a minute if slow
    for function in ("one", "other"):
        store.deploy(snapshots.of(server), function)
    daemon = serve("--rest=0.001", "--threads=1")
    first = daemon.ask("awake", "/")
    awake = the_process(daemon, "awake")
    for function in ("one", "other"):

        def shares() -> bool:
            """Copies are made behind the first start, by a thread that gets what others leave of the CPU."""
            assert daemon.text(function, "/count") == "1\n"
            wait_for_rest(the_process(daemon, function))
            return image_kib(the_process(daemon, function)) < image_kib(awake) / 2

        harness.wait_until(shares, f"{function} to share its image", patience=5 * harness.PATIENCE)
        again = daemon.ask(function, "/")
        assert again.status == 200 and again.body == first.body
    assert daemon.text("awake", "/count") == "1\n"


def test_random_values_differ_after_it(store, serve) -> None:
    server = {"argv": ["/usr/bin/python3", str(SERVER), "{port}"]}
    deploy(store, server, "unique", 'rest = "1ms"')
    daemon = serve("--threads=1")
    seen = []
    for _ in range(5):
        values = dict(pair.split("=", 1) for pair in daemon.text("unique", "/").split())
        seen += [value for name, value in values.items() if not name.startswith("own")]
        wait_for_rest(the_process(daemon, "unique"))
    assert len(seen) >= 20 and len(set(seen)) == len(seen)


def test_long_values_of_the_environment_are_there_after_it(store, serve, program) -> None:
    """They were written into pages that the snapshot may not have."""
    argv = late_program(program("node-http"))
    folder = store.folder / "shop"
    folder.mkdir()
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\nlevel = 1\n[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        '[function]\nname = "shop"\n[function.env]\nCOLOUR = "red"\nTOKEN = "x"\n[function.scale]\nrest = "300ms"\n')
    store.ok("deploy", folder, "-q")
    store.ok("env", "set", "shop", "COLOUR=" + "b" * 4000)
    daemon = serve("--threads=1")
    for _ in range(4):
        assert daemon.text("shop", "/") == f"x|x|{'b' * 4000}|\n"
        wait_for_rest(the_process(daemon, "shop"))


def test_machines_that_are_kept_ready_do_not_rest(store, serve, program) -> None:
    c = program("c-epoll")
    for name, scale in (("kept", "min = 1"), ("usual", ""), ("both", 'min = 1\nrest = "1ms"')):
        deploy(store, c, name, scale)
    daemon = serve("--rest=0.001", "--threads=1")
    for name in ("kept", "usual", "both"):
        assert daemon.ask(name, "/").status == 200
    for name in ("usual", "both"):
        wait_for_rest(the_process(daemon, name))
    assert has_machine(the_process(daemon, "kept"))


@pytest.mark.parametrize("scale, said", [
    ('rest = "soon"', 'function.scale.rest must be a time such as "60s"'),
    ("rest = -1", 'function.scale.rest must be a time such as "60s"'),
])
def test_what_is_no_time_is_refused(store, program, scale, said) -> None:
    folder = manifest(store.folder / "wrong", program("c-epoll"))
    with (folder / "kvmserver.toml").open("a") as file:
        file.write(f"[function.scale]\n{scale}\n")
    refused = store("deploy", folder)
    assert refused.status == 2 and said in refused.error, refused


def test_a_daemon_refuses_what_is_no_time(store) -> None:
    refused = store("serve", "--rest", "soon")
    assert refused.status == 2 and "--rest" in refused.error, refused
