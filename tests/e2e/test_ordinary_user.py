"""A daemon of a user who is not root: its functions' walls are those of a user namespace."""
import contextlib
import os
import pathlib
import shutil
import stat
import subprocess

import harness
import pytest
import serving
from harness import kvmserver

USER = "65534"


@pytest.fixture
def as_user() -> list[str]:
    """Words before a command: it runs as a user for whom there is /dev/kvm."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, and setpriv to become another user")
    device = os.stat("/dev/kvm").st_rdev
    node = f"mknod /mnt/kvm c {os.major(device)} {os.minor(device)} && chmod 666 /mnt/kvm"
    words = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none /mnt && {node} && mount --bind /mnt/kvm /dev/kvm && exec "$@"', "sh",
             "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]  # fmt: skip
    tried = subprocess.run([*words, "sh", "-c", ": <>/dev/kvm"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this host permits no device of one's own: {tried.stderr.strip()}")
    return words


def home_of_user(folder: pathlib.Path) -> pathlib.Path:
    for part in (folder, *folder.parents):
        part.chmod(stat.S_IMODE(part.stat().st_mode) | 0o005)
    home = folder / "home"
    home.mkdir()
    os.chown(home, int(USER), int(USER))
    return home


def served(home: pathlib.Path, as_user: list[str], port: int) -> serving.Process:
    """The user's daemon."""
    daemon = serving.Process([*as_user, str(harness.KVMSERVER), "serve", "--store", str(home / "store"), "--listen", f"127.0.0.1:{port}"],
                             str(home), {**harness.BASE_ENVIRONMENT, "HOME": str(home)})  # fmt: skip
    try:
        harness.wait_until(lambda: "Serving " in daemon.out, "the daemon serves")
    except BaseException:
        daemon.close()
        raise
    return daemon


@pytest.mark.parametrize("rights", ["--allow-listen", "--allow-all"])
def test_a_function_goes_live_within_its_walls(rights, folder, program, as_user) -> None:
    home = home_of_user(folder)
    made = kvmserver("snapshot", rights, "-o", folder / "a.snap", *harness.arguments_of(program("c-epoll"), harness.free_port()))
    assert made.status == 0, made
    (folder / "a.snap").chmod(0o644)
    port = harness.free_port()
    with contextlib.closing(served(home, as_user, port)) as daemon:
        done = kvmserver("deploy", "--store", home / "store", "--name", "a", folder / "a.snap", wrapper=as_user, env={"HOME": str(home)})
        assert done.status == 0 and "a v1 live" in done.out, done
        assert serving.ask(port, "a", "/").status == 200
        [function] = [pid for pid in descendants(daemon.popen.pid) if b"a v1" in words_of(pid)]
        root = pathlib.Path(f"/proc/{function}/root")
        assert list((root / "sys").iterdir() if (root / "sys").exists() else []) == [], "the host's /sys"
        assert not (root / "dev/kvm").exists()
        if rights == "--allow-all":
            assert (root / "etc/passwd").exists()
        store = root / str(home / "store").lstrip("/")
        assert not store.exists() or list(store.iterdir()) == [], "the store is hidden"


def test_root_leaves_no_file_of_its_own_in_a_users_store(folder, program, as_user) -> None:
    home = home_of_user(folder)
    made = kvmserver("snapshot", "--allow-listen", "-o", folder / "a.snap", *harness.arguments_of(program("c-epoll"), harness.free_port()))
    assert made.status == 0, made
    port = harness.free_port()
    with contextlib.closing(served(home, as_user, port)):
        done = kvmserver("deploy", "--store", home / "store", "--name", "a", folder / "a.snap")
        assert done.status == 0 and "a v1 live" in done.out, done
        assert serving.ask(port, "a", "/").status == 200
        others = [path for path in (home / "store").rglob("*") if path.lstat().st_uid != int(USER)]
        assert not others


def words_of(pid: int) -> bytes:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def descendants(pid: int) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found
