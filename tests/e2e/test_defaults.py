"""What a program may do without asking, and what it is told when that was not enough."""
import os
import pathlib
import shutil
import subprocess
import sys

import harness
import pytest
from harness import GUESTS, kvmserver

PERMIT, HEAP = str(GUESTS / "permit"), str(GUESTS / "heap")


def outcomes(*tries: str) -> dict[str, str]:
    ended = kvmserver("run", PERMIT, *tries)
    assert ended.status == 0, ended
    return dict(zip(tries[1::2], [line.rsplit(": ", 1)[1] for line in ended.out.splitlines()]))


def test_what_a_distribution_ships_is_readable() -> None:
    paths = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/localtime", "/usr/share/zoneinfo/UTC", "/etc/ssl/openssl.cnf",
             "/etc/ssl/certs/ca-certificates.crt", "/etc/passwd", "/etc/group", "/etc/services", "/usr/lib/os-release"]  # fmt: skip
    there = [path for path in paths if os.path.exists(path)]
    assert len(there) > 4
    got = outcomes(*(word for path in there for word in ("read", path)))
    assert all(outcome == "ok" for outcome in got.values()), got


def test_nothing_else_is(folder) -> None:
    (folder / "file").write_text("secret")
    paths = [str(folder / "file"), "/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/etc/hostname", "/root", "/home", "/var/lib", "/usr/local/lib",
             "/etc/fstab", "/etc/machine-id", str(GUESTS / "boot")]  # fmt: skip
    got = outcomes(*(word for path in paths for word in ("read", path)))
    assert all(outcome != "ok" for outcome in got.values()), got
    got = outcomes(*(word for path in ("/etc/hosts", "/usr/lib/x") for word in ("write", path)))
    assert all(outcome != "ok" for outcome in got.values()), got


def python() -> str:
    found = pathlib.Path("/usr/bin/python3")
    if not found.exists():
        pytest.skip("no /usr/bin/python3")
    return str(found)


def test_java_reads_its_configuration(folder) -> None:
    java = shutil.which("java")
    if not java or not shutil.which("javac"):
        pytest.skip("no JDK: scripts/setup.sh --nightly")
    program = folder / "A.java"
    program.write_text('class A { public static void main(String[] a) { System.out.println(java.security.Security.getProperty("keystore.type")); } }')
    ended = kvmserver("run", "--max-boot-time", "100", os.path.realpath(java), "-XX:-UsePerfData", program, patience=harness.PATIENCE * 5)
    assert ended.out == "pkcs12\n", ended


PROBE = """
import json, ssl, sqlite3, decimal, ctypes.util, zoneinfo, socket, sys, os
zoneinfo.ZoneInfo("Europe/Berlin")
ssl.create_default_context()
"".encode("idna")
assert socket.getservbyname("http") == 80
def can(path):
    try:
        open(path).close()
        return True
    except OSError:
        return False
print(json.dumps([can(path) for path in sys.argv[1:]]))
"""


def test_an_interpreter_has_its_home_and_its_script_but_not_what_is_beside(folder) -> None:
    (folder / "probe.py").write_text(PROBE)
    (folder / ".env").write_text("KEY=1")
    ended = kvmserver("run", python(), str(folder / "probe.py"), str(folder / "probe.py"), str(folder / ".env"))
    assert ended.status == 0 and ended.out.splitlines()[-1] == "[true, false]", ended


def test_a_virtual_environment(folder) -> None:
    if subprocess.run([python(), "-m", "venv", "--without-pip", folder / "venv"], capture_output=True).returncode != 0:
        pytest.skip("python3-venv is not there")
    packages = next((folder / "venv/lib").glob("python3*")) / "site-packages"
    (packages / "mine.py").write_text("print('mine', __import__('sys').prefix)")
    (folder / "app.py").write_text("import mine, json")
    ended = kvmserver("run", str(folder / "venv/bin/python"), str(folder / "app.py"))
    assert ended.status == 0 and ended.out.splitlines()[-1] == f"mine {folder}/venv", ended


def test_modules_beside_a_node_program(folder, program) -> None:
    node = program("node-http")["argv"][0]
    module = folder / "node_modules/one"
    module.mkdir(parents=True)
    (module / "index.js").write_text("module.exports = 1")
    (folder / "package.json").write_text('{"type": "commonjs"}')
    (folder / "app").mkdir()
    (folder / "app/main.js").write_text("console.log(require('one'))")
    ended = kvmserver("run", node, str(folder / "app/main.js"))
    assert ended.status == 0 and ended.out == "1\n", ended


def test_a_boot_that_failed_says_what_it_lacked(folder) -> None:
    data = folder / "data"
    data.mkdir()
    (data / "config").write_text("x")
    script, out = folder / "app.py", "/var/tmp/kvmserver-test/out"  # /tmp is the machine's own
    script.write_text(
        f"import sys\nfor name in ('config', 'config', 'not-there'):\n    try: open({str(data)!r} + '/' + name)\n    except OSError: pass\n"
        f"try: open({out!r}, 'w')\nexcept OSError: pass\n"
        "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass\n"
        "sys.exit('I give up')\n"
    )
    ended = kvmserver("run", "-e", python(), str(script))
    assert ended.status == 1, ended
    flags = [line for line in ended.err.splitlines() if "--allow-read=" in line]
    assert len(flags) == 1, ended.err
    # Python lists the script's folder, in which the other file lies.
    for part in (f"--allow-read={folder} ", f"--allow-write={out}", "--allow-connect=127.0.0.1:9"):
        assert part in flags[0], f"{part} is missing: {ended.err}"
    assert "not-there" not in ended.err
    for line in (f'allow-read = ["{folder}"]', f'allow-write = ["{out}"]', 'allow-connect = ["127.0.0.1:9"]'):
        assert ended.err.count(line) == 1, f"{line} is missing: {ended.err}"


def test_many_files_of_a_folder_are_told_as_that() -> None:
    folder = GUESTS.parent
    names = sorted(path for path in map(str, GUESTS.iterdir()) if os.path.isfile(path))[:8]
    assert len(names) == 8 and folder
    ended = kvmserver("run", "-e", PERMIT, *(word for name in names for word in ("read", name)))
    assert f"--allow-read={GUESTS}\n" in ended.err, ended.err


def test_the_heap_is_not_made_executable() -> None:
    lines = ["heap", "heap and what is behind", "moved"]
    bare = subprocess.run([HEAP], capture_output=True, text=True).stdout
    assert kvmserver("run", HEAP).out == bare
    ended = kvmserver("run", "--no-executable-heap", HEAP)
    assert ended.out == "".join(f"{line}: EACCES\n" for line in lines) + "other memory: ok\n", ended


def test_the_trace_of_threads_is_that() -> None:
    ended = kvmserver("run", "--verbose-thread-syscalls", HEAP)
    traced = [line for line in ended.err.splitlines() if "] " in line]
    assert any("clone" in line for line in traced) and any("set_robust_list(" in line for line in traced), ended.err
    assert not any(name in ended.err for name in ("write(", "mmap(", "brk(")), ended.err


def test_options_without_effect_are_told_once() -> None:
    ended = kvmserver("run", "--shared-memory", "1", "--no-split-hugepages", HEAP)
    assert ended.err.count("without effect") == 1 and "--shared-memory --no-split-hugepages" in ended.err, ended.err
