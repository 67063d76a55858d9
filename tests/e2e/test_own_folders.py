"""The machine's own /tmp and /dev/shm: in memory, reset with the machine, replaced by what permissions name."""
import pathlib

import harness
import pytest
from harness import RUN_E, SNAPRUN_E, SNAPRUN_E2, Mode, guest, kvmserver

PYTHON = "/usr/bin/python3"


def own_server(mode: Mode) -> dict:
    return {**guest("own", "{port}"), "name": f"own-{mode.name}", "permissions": ["--allow-listen"]}


def run(script: str, *options: str, cwd: str = "/") -> harness.Ended:
    readable = ["--allow-read=/usr,/lib,/lib64,/etc"]
    return kvmserver("run", *readable, *options, *harness.LIMITS, PYTHON, "-c", script, cwd=cwd)


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E, SNAPRUN_E2], ids=lambda mode: mode.name)
def test_each_invocation_finds_what_the_boot_left(start, mode: Mode) -> None:
    server = start(own_server(mode), mode, "--check-reset")
    first = server.line()
    assert first == (
        "3 names; 13 bytes: from the boot; 1 names of it; by the link 13: from the boot; shared pristine; -1 of events; below 1 MiB: -1\n"
    )
    for n in range(30):
        assert server.line() == first, f"at connection {n + 2}"
    assert server.running()
    ended = server.stop()
    assert ended.status == 0 and "reset differs" not in ended.err, ended.err[-2000:]


def test_a_request_that_fills_it_is_told_so(start) -> None:
    server = start(own_server(SNAPRUN_E), SNAPRUN_E, "--check-reset", "--max-request-memory", "64")
    first = server.line()
    for _ in range(3):
        with server.client() as client:
            client.send(b"fill\n")
            error, _, size, _ = client.reader.readline().decode().split()
            assert error == "ENOSPC" and 16 <= int(size) <= 32
        assert server.line() == first


def test_nothing_of_it_is_the_hosts(tmp_path: pathlib.Path) -> None:
    mark = pathlib.Path("/tmp/kvmserver-own-folder-test")
    script = f"open('{mark}', 'w').write('x'); import os, tempfile; print(os.listdir('/tmp'), tempfile.gettempdir(), os.path.exists('{tmp_path}'))"
    ended = run(script)
    assert ended.out == f"['{mark.name}'] /tmp False\n", ended.err
    assert not mark.exists()


def test_a_volume_and_a_permission_replace_it(tmp_path: pathlib.Path) -> None:
    assert run("open('/tmp/in-volume', 'w').write('x')", f"--volume={tmp_path}:/tmp:rw").status == 0
    assert (tmp_path / "in-volume").read_text() == "x"
    ended = run(f"open('{tmp_path}/in-volume', 'a').write('y')", "--allow-write=/tmp")
    assert ended.status == 0 and (tmp_path / "in-volume").read_text() == "xy", ended.err


def test_what_a_permission_names_beneath_it_is_the_hosts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "seen").write_text("of the host")
    (tmp_path / "unseen").write_text("of the host")
    (tmp_path / "written").mkdir()
    script = f"""
import os
print(open('{tmp_path}/seen').read(), os.path.exists('{tmp_path}/unseen'))
open('{tmp_path}/written/file', 'w').write('by the machine')
open('/tmp/own', 'w').write('x')
try:
    os.rename('/tmp/own', '{tmp_path}/written/own')
except OSError as error:
    print(error.strerror)
"""
    ended = run(script, f"--allow-read={tmp_path}/seen", f"--allow-write={tmp_path}/written")
    assert ended.out == "of the host False\nInvalid cross-device link\n", ended.err
    assert (tmp_path / "written/file").read_text() == "by the machine"


def test_paths_that_lead_there_in_a_roundabout_way(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    script = f"""
import os
os.mkdir('/tmp/folder')
open('/usr/../tmp/folder/a', 'w').close()
os.chdir('/usr/lib')
open('../../tmp/folder/b', 'w').close()
os.chdir('/tmp/folder')
open('../../tmp/folder/c', 'w').close()
os.symlink('/usr/lib', 'out')
print(os.path.isdir('out/..'), os.getcwd(), sorted(os.listdir('.')), os.path.samefile('/tmp', '/usr/../tmp/'))
os.chdir('out')
print(os.getcwd(), os.path.exists('/mnt/link/folder/a'))
open('/mnt/link/folder/d', 'w').close()
print(sorted(os.listdir('/tmp/folder')))
"""
    ended = run(script, f"--volume={tmp_path}:/mnt:r")
    assert ended.out == "True /tmp/folder ['a', 'b', 'c', 'out'] True\n/usr/lib True\n['a', 'b', 'c', 'd', 'out']\n", ended.err


def test_the_way_back_from_what_is_the_hosts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    script = f"""
import os
for path in '{tmp_path}/data/..', '{tmp_path}/data/../..', '/not/on/the/host/..', '/not/on/the/host/../..':
    os.chdir(path)
    print(os.path.isdir(path), os.getcwd())
"""
    ended = run(script, f"--allow-read={tmp_path}/data", f"--volume={tmp_path}/data:/not/on/the/host")
    assert ended.out == f"True {tmp_path}\nTrue {tmp_path.parent}\nTrue /not/on/the\nTrue /not/on\n", ended.err


def test_what_tempfile_and_multiprocessing_do() -> None:
    script = """
import mmap, multiprocessing, os, tempfile
with tempfile.NamedTemporaryFile() as named, tempfile.TemporaryFile() as unnamed, tempfile.TemporaryDirectory() as folder:
    named.write(b'named'); named.flush()
    unnamed.write(b'unnamed'); unnamed.seek(0)
    open(os.path.join(folder, 'file'), 'w').close()
    print(open(named.name, 'rb').read(), unnamed.read(), os.listdir(folder))
with open('/dev/shm/memory', 'w+b') as file:
    file.truncate(10000)
    one, other = mmap.mmap(file.fileno(), 10000), mmap.mmap(file.fileno(), 10000)
    one[5000] = 7
    file.seek(5000)
    print(other[5000], file.read(1), os.listdir('/dev/shm'))
lock = multiprocessing.Lock()
print(lock.acquire(), lock.acquire(block=False), os.listdir('/tmp'))
"""
    ended = run(script)
    assert ended.out.startswith("b'named' b'unnamed' ['file']\n"), ended.err
    assert ended.out.endswith("7 b'\\x07' ['memory']\nTrue False []\n"), ended.out + ended.err
