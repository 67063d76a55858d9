"""What a spare process mounts before it knows its function: a function sees the host's files as they are when it starts."""
import os
import pathlib
import subprocess

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
        return [pathlib.Path(f"/proc/{pid}/mountinfo").read_text() for pid in self.spares()]

    def ready(self) -> bool:
        """Whether there are spare processes, and have mounted what they mount ahead."""
        tables = self.mounts_of_spares()
        return bool(tables) and all(" /proc/usr/lib " in table for table in tables)

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
        ahead = [line.split() for line in table.splitlines() if " /proc/" in line and " /proc/dev/" not in line and " /proc/sys" not in line]
        assert len(ahead) > 5
        for line in ahead:
            assert {"ro", "nosuid", "nodev"} <= set(line[5].split(",")), line
            assert line[6] == "-", line  # no peer, and receives nothing
