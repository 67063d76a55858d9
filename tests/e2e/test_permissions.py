"""Nothing is allowed by default; what is allowed is only that; verbose mode names the flag."""
import socket
import subprocess
import threading

import pytest
from harness import BASE_ENVIRONMENT, GUESTS, KVMSERVER, PATIENCE, Process, free_port, kvmserver, wait_until

PERMIT = str(GUESTS / "permit")


@pytest.fixture
def tree(folder):
    (folder / "allowed/sub").mkdir(parents=True)
    (folder / "allowed/file").write_text("open")
    (folder / "allowed/sub/file").write_text("open")
    (folder / "secret").mkdir()
    (folder / "secret/file").write_text("hidden")
    (folder / "allowed/out").symlink_to("../secret")
    (folder / "allowed/absolute").symlink_to(folder / "secret/file")
    (folder / "allowed/inside").symlink_to("sub/file")
    return folder


def outcomes(options: list[str], *tries: str, cwd=None) -> list[str]:
    """What the program said of each pair of words: "ok" or an error's name."""
    ended = kvmserver("run", *options, PERMIT, *tries, cwd=cwd)
    assert ended.status == 0, ended
    return [line.rsplit(": ", 1)[1] for line in ended.out.splitlines()]


def refused(outcome: str) -> bool:
    return outcome in ("EACCES", "EPERM", "ENOENT", "EROFS", "EXDEV")


def test_files_are_refused_by_default(tree) -> None:
    file = str(tree / "allowed/file")
    got = outcomes([], "read", file, "stat", file, "list", str(tree), "write", file, "write", str(tree / "new"), "read", "/etc/shadow")
    assert all(map(refused, got)), got
    assert not (tree / "new").exists() and (tree / "allowed/file").read_text() == "open"


def test_verbose_names_the_flag(tree) -> None:
    file = str(tree / "allowed/file")
    read = kvmserver("run", "-v", PERMIT, "read", file)
    assert f"--allow-read={file}" in read.err, read.err
    write = kvmserver("run", "-v", "--allow-read", PERMIT, "write", file)
    assert f"--allow-write={file}" in write.err, write.err
    listen = kvmserver("run", "-v", PERMIT, "listen", "8099")
    assert "--allow-listen=127.0.0.1:8099" in listen.err, listen.err
    connect = kvmserver("run", "-v", PERMIT, "connect", "8099")
    assert "--allow-connect=127.0.0.1:8099" in connect.err, connect.err
    assert kvmserver("run", PERMIT, "read", file).err == "", "without -v a refusal is silent"


def test_reading_does_not_allow_writing(tree) -> None:
    file, new = str(tree / "allowed/file"), str(tree / "allowed/new")
    got = outcomes(["--allow-read"], "read", file, "list", str(tree), "stat", file, "write", file, "write", new, "unlink", file,
                   "mkdir", new)  # fmt: skip
    assert got[:3] == ["ok"] * 3 and all(map(refused, got[3:])), got
    assert outcomes([f"--allow-write={tree}/allowed"], "write", new, "read", file, "unlink", new, "mkdir", new) == ["ok"] * 4
    assert (tree / "allowed/new").is_dir()


@pytest.mark.parametrize("way", [
    "secret/file", "allowed/../secret/file", "allowed/sub/../../secret/file", "allowed/out/file", "allowed/absolute",
])  # fmt: skip
def test_ways_out_of_an_allowed_folder(tree, way: str) -> None:
    allow = [f"--allow-read={tree}/allowed"]
    ways = [f"{tree}/{way}", way, f"/proc/self/root{tree}/{way}", f"/proc/self/cwd/{way}", f"//{tree}/./{way}"]
    got = outcomes(allow, *(word for path in ways for word in ("read", path)), cwd=tree)
    assert all(map(refused, got)), dict(zip(ways, got))


def test_ways_within_an_allowed_folder(tree) -> None:
    ways = ["allowed/file", "allowed/inside", "allowed/sub/../file", "allowed/./sub//file"]
    got = outcomes([f"--allow-read={tree}/allowed"], *(word for path in ways for word in ("read", f"{tree}/{path}")))
    assert got == ["ok"] * len(ways), dict(zip(ways, got))


def test_only_the_file_that_is_allowed(tree) -> None:
    got = outcomes([f"--allow-read={tree}/allowed/file"], "read", f"{tree}/allowed/file", "read", f"{tree}/allowed/sub/file",
                   "read", f"{tree}/allowed/file2")  # fmt: skip
    assert got[0] == "ok" and all(map(refused, got[1:])), got


def test_a_link_that_the_program_makes_leads_nowhere(tree) -> None:
    options = [f"--allow-write={tree}/allowed", f"--cwd={tree}/allowed"]
    got = outcomes(options, "symlink-to", f"{tree}/secret/file", "read", "made-link", "write", "made-link")
    assert all(map(refused, got[1:])), got
    assert (tree / "secret/file").read_text() == "hidden"


def test_a_folder_that_is_moved_while_it_is_open(tree) -> None:
    """A descriptor of an allowed folder is no way to what lies beside the folder's new place."""
    argv = [str(KVMSERVER), "run", f"--allow-read={tree}/allowed", PERMIT, "folder", f"{tree}/allowed/sub", "below", "file",
            "wait-for", f"{tree}/allowed/moved", "below", "../file"]  # fmt: skip
    process = Process(argv, env=BASE_ENVIRONMENT)
    try:
        wait_until(lambda: "below file" in process.out or not process.running(), f"the folder is open: {process.err}")
        (tree / "allowed/sub").rename(tree / "secret/sub")
        (tree / "allowed/moved").touch()
        ended = process.wait()
    finally:
        process.close()
    assert refused(ended.out.splitlines()[-1].rsplit(": ", 1)[1]), ended


def test_volume(tree) -> None:
    options = [f"--volume={tree}/allowed:/data"]
    got = outcomes(options, "read", "/data/file", "read", f"{tree}/allowed/file", "write", "/data/file", "read", "/data/../secret/file",
                   "read", "/data/out/file")  # fmt: skip
    assert got[0] == "ok" and all(map(refused, got[1:])), got
    assert outcomes([f"--volume={tree}/allowed:/data:rw"], "write", "/data/new") == ["ok"]
    assert (tree / "allowed/new").read_text() == "written"


def test_environment() -> None:
    ended = kvmserver("run", "--allow-env=A", PERMIT, "env", "A", "env", "B", env={"A": "1", "B": "2"})
    assert ended.out.splitlines() == ["env A: A is '1': ok", "env B: B is '': ENODATA"]


def test_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, other = str(server.getsockname()[1]), str(free_port())
        threading.Thread(target=server.accept, daemon=True).start()
        assert all(map(refused, outcomes([], "connect", port, "listen", other)))
        got = outcomes([f"--allow-connect=127.0.0.1:{port}"], "connect", port, "connect", other, "listen", other)
        assert got[0] == "ok" and got[1] != "ECONNREFUSED" and refused(got[2]), got
        got = outcomes([f"--allow-listen=:{other}"], "listen", other, "connect", port, "listen", str(free_port()))
        assert got[0] == "ok" and all(map(refused, got[1:])), got
        assert outcomes(["--allow-net"], "connect", port, "listen", other) == ["ok", "ok"]


def test_a_server_needs_permission_to_listen(program) -> None:
    """The program's own complaint, and in verbose mode ours."""
    c_epoll = program("c-epoll")
    port = str(free_port())
    ended = kvmserver("run", "-v", c_epoll["argv"][0], port)
    assert ended.status == 1 and "cannot listen" in ended.err and f"--allow-listen=127.0.0.1:{port}" in ended.err, ended


# Names are looked up in a hosts file of its own, and the addresses are in a network of its own. Nothing listens there:
# what is permitted is refused by nobody but the network (ECONNREFUSED).
BY_NAME = r"""
ip link set lo up; mount --bind "$1" /etc/hosts || exit 9
shift
"$@" & server=$!
ask() { curl -s "http://127.0.0.1:7000/connect/$1:81"; }
for i in $(seq 400); do ask 127.0.0.9 >/dev/null && break; sleep 0.05; done
echo "$(ask 127.0.0.2) $(ask 127.0.0.3)"
echo "127.0.0.3 db.test" >/etc/hosts
for i in $(seq 400); do [ "$(ask 127.0.0.3)" != EACCES ] && break; sleep 0.05; done
echo "$(ask 127.0.0.2) $(ask 127.0.0.3)"
kill $server
wait
"""


def test_a_name_is_looked_up_when_it_is_connected_to(folder) -> None:
    (folder / "hosts").write_text("127.0.0.2 db.test\n")
    server = [KVMSERVER, "run", "-e", "--allow-listen=127.0.0.1:7000", "--allow-connect=db.test:81", GUESTS / "reaches", "7000"]
    done = subprocess.run(["unshare", "-n", "-m", "/bin/sh", "-c", BY_NAME, "sh", folder / "hosts", *server],
                          capture_output=True, text=True, env=BASE_ENVIRONMENT, timeout=PATIENCE * 3)  # fmt: skip
    answers = [line for line in done.stdout.splitlines() if line.startswith("E")]
    assert answers == ["ECONNREFUSED EACCES", "EACCES ECONNREFUSED"], done
