"""What a spare process mounts before it knows its function: a function sees the host's files as they are when it starts."""
import contextlib
import os
import pathlib
import subprocess
import sys

import harness
import pytest
import serving

# A mount namespace whose mounts propagate, as on a host with systemd, and an /etc of its own.
HOST = """set -e
mount -t tmpfs none /mnt
mount --make-shared /mnt
mkdir /mnt/volume
cp -a /etc /mnt/etc
mount --bind /mnt/etc /etc
exec "$@"
"""


# Prints the mounts of process argv[1] as it would see them with the folder argv[2] as its root; "": that of its namespace.
TABLE = """import ctypes, os, sys
processes = os.open("/proc", os.O_PATH)
root, namespace = os.open(sys.argv[2] or "/", os.O_PATH), os.open(f"/proc/{sys.argv[1]}/ns/mnt", os.O_RDONLY)
assert ctypes.CDLL(None).setns(namespace, 0x20000) == 0
if sys.argv[2]:
    os.fchdir(root)
    os.chroot(".")
print(open(os.open("self/mountinfo", os.O_RDONLY, dir_fd=processes)).read())
"""


def table_of(pid: int, root: os.PathLike | str) -> str:
    return subprocess.run([sys.executable, "-c", TABLE, str(pid), root], check=True, capture_output=True, text=True).stdout


def mounted_beneath(pid: int) -> str:
    """What lies beneath the root of this process, in a folder to which it has an open file; "": nothing."""
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if (file / "root/usr/lib").is_dir():
                return table_of(pid, file / "root")
    return ""


class Daemon(serving.Daemon):
    """In that namespace."""

    def __init__(self, store, tmp: pathlib.Path) -> None:
        wrapper = tmp / "kvmserver"
        wrapper.write_text(f"#!/bin/sh\nexec unshare -m --propagation shared /bin/sh -c '{HOST}' sh {harness.KVMSERVER} \"$@\"\n")
        wrapper.chmod(0o755)
        self.binary = wrapper
        super().__init__(store)

    def on_host(self, *words) -> None:
        subprocess.run(["nsenter", "-t", str(self.popen.pid), "-m", *words], check=True)

    def mounts_of_spares(self) -> list[str]:
        """The tables of what they have mounted ahead, each beneath the host's root."""
        return [mounted_beneath(pid) for pid in self.spares()]

    def ready(self) -> bool:
        """Whether there are spare processes, and have mounted what they mount ahead."""
        tables = self.mounts_of_spares()
        return bool(tables) and all(" /usr/lib " in table for table in tables)

    def shown(self, function: str, path: str) -> str:
        return self.text(function, path)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        pytest.skip("needs root, and a mount namespace of one's own")
    folder = tmp_path_factory.mktemp("ahead")
    made = harness.kvmserver("snapshot", "--allow-read=/mnt/volume", "--allow-listen=127.0.0.1", "-o", folder / "shows.snap",
                             harness.GUESTS / "shows", str(harness.free_port()))  # fmt: skip
    assert made.status == 0, made
    store = serving.Store(folder)
    daemon = Daemon(store, folder)
    for name in ("first", "changed", "mounted", "beneath", "over"):
        store.deploy(folder / "shows.snap", name)
    yield daemon
    daemon.close()


def cold(host: Daemon) -> None:
    harness.wait_until(host.ready, "spare processes have mounted what nearly all functions see")


def test_a_file_that_was_replaced(host) -> None:
    host.on_host("sh", "-c", "echo old > /etc/mime.types")
    cold(host)
    assert host.shown("first", "/etc/mime.types") == "old\n"
    cold(host)
    host.on_host("sh", "-c", "echo new > /etc/new && mv /etc/new /etc/mime.types")
    assert host.shown("changed", "/etc/mime.types") == "new\n"


def test_a_volume_that_was_mounted(host) -> None:
    cold(host)
    host.on_host("sh", "-c", "mount -t tmpfs none /mnt/volume && echo inside > /mnt/volume/file")
    assert host.shown("mounted", "/mnt/volume/file") == "inside\n"


def test_a_mount_beneath_a_folder_of_the_system(host) -> None:
    cold(host)
    host.on_host("sh", "-c", "mount -t tmpfs none /usr/share/zoneinfo/Etc && echo inside > /usr/share/zoneinfo/Etc/file")
    assert host.shown("beneath", "/usr/share/zoneinfo/Etc/file") == "inside\n"


def test_what_is_mounted_ahead_cannot_be_written(host) -> None:
    cold(host)
    for table in host.mounts_of_spares():
        lines = [line.split() for line in table.strip().splitlines()]
        ahead = [line for line in lines if line[4] != "/" and not line[4].startswith("/dev/")]
        assert len(ahead) > 5
        for line in ahead:
            assert {"ro", "nosuid", "nodev"} <= set(line[5].split(",")), line
            assert line[6] == "-", line  # no peer, and receives nothing


def test_nothing_of_the_host_is_left_in_the_namespace_of_a_function(host) -> None:
    """Not even where the function cannot see it, beneath its root or on top of it."""
    cold(host)
    host.shown("first", "/etc/hostname")
    (pid,) = [pid for name, pids in host.processes().items() for pid in pids if name.startswith("first ")]
    points = sorted(line.split()[4] for line in table_of(pid, f"/proc/{pid}/root").strip().splitlines())
    assert "/usr/lib" in points and "/mnt" not in points, points
    # From the root of the namespace: itself, or an empty file system on which it stands.
    everything = sorted(line.split()[4] for line in table_of(pid, "").strip().splitlines())
    assert everything in (points, sorted(["/"] + ["/root" + point.rstrip("/") for point in points])), everything
