"""All that may be wrong with what we are given: one clear line, the documented exit code, nothing left behind."""
import contextlib
import re
import os
import shutil
import socket
import stat
import struct
import tempfile

import harness
import pytest
from harness import GUESTS, guest, kvmserver, make_snapshot

FAILURE, USAGE, NOT_FOUND, NOT_PERMITTED, CONFLICT, TIMED_OUT, BAD_SNAPSHOT, NO_KVM = 1, 2, 3, 4, 5, 6, 7, 8


def elf_header(bits: int = 64, machine: int = 62, kind: int = 2) -> bytes:
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1, 0]) + bytes(8)
    return (ident + struct.pack("<HHI", kind, machine, 1)).ljust(4096, b"\0")


# name: contents, mode, exit code, what the line says
BAD_FILES = {
    "text": (b"hello, world\n" * 100, 0o755, FAILURE, "not an ELF"),
    "empty": (b"", 0o755, FAILURE, "ELF"),
    "cut-short": (elf_header()[:30], 0o755, FAILURE, "truncated"),
    "headers-only": (elf_header(), 0o755, FAILURE, "program headers"),
    "32-bit": (elf_header(32, 3), 0o755, FAILURE, "32-bit"),
    "aarch64": (elf_header(64, 183), 0o755, FAILURE, "64-bit x86"),
    "object-file": (elf_header(kind=1), 0o755, FAILURE, "object file"),
    "script-without": (b"#!\necho hello\n", 0o755, FAILURE, "names no interpreter"),
    "script-missing": (b"#!/no/such/interpreter -x\n", 0o755, NOT_FOUND, "/no/such/interpreter"),
}


def assert_one_line(ended: harness.Ended, status: int, *parts: str) -> None:
    assert ended.status == status, ended
    lines = ended.said
    assert len(lines) == 1 and lines[0].startswith("kvmserver: "), f"not one line: {ended.err!r}"
    for part in parts:
        assert part in lines[0], f"'{part}' is missing in: {lines[0]}"


@pytest.fixture(params=["run", "snapshot"])
def attempt(request, folder):
    """attempt(words...): with `run`, and with `snapshot`, which must leave nothing behind."""
    target = folder / "out"
    target.mkdir()

    def attempted(*words, **how) -> harness.Ended:
        output = ["-o", target / "app.snap"] if request.param == "snapshot" else []
        ended = kvmserver(request.param, "--allow-all", *output, *words, **how)
        assert list(target.iterdir()) == [], "something was left behind"
        return ended

    attempted.command = request.param
    return attempted


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_program(attempt, folder, name: str) -> None:
    contents, mode, status, part = BAD_FILES[name]
    path = folder / name
    path.write_bytes(contents)
    path.chmod(mode)
    assert_one_line(attempt(path), status, name, part)


def test_missing_program(attempt, folder) -> None:
    assert_one_line(attempt(folder / "missing"), NOT_FOUND, "missing")
    assert_one_line(attempt("no-such-program-in-path"), NOT_FOUND, "no-such-program-in-path")
    assert_one_line(attempt(folder), FAILURE, "folder")


def test_missing_library(attempt, folder) -> None:
    for name in ("needs_library", "libvanishing.so"):
        shutil.copy(GUESTS / name, folder)
    assert kvmserver("run", "--allow-all", folder / "needs_library").status == 0
    (folder / "libvanishing.so").unlink()
    assert_one_line(attempt(folder / "needs_library"), NOT_FOUND, "needs_library", "libvanishing.so")


def test_exits_before_it_listens(folder) -> None:
    ended = make_snapshot(guest("boot", "exit", "5"), folder / "app.snap")
    assert_one_line(ended, FAILURE, "boot", "status 5")
    assert list(folder.iterdir()) == []


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize(
    ("how", "status", "parts"),
    [
        ("crash", 139, ["SIGSEGV", "0xdead0", "crash_on_purpose"]),
        ("jump", 139, ["SIGSEGV", "0xbad000"]),
        ("abort", 134, ["SIGABRT"]),
        ("term", 143, ["SIGTERM"]),
    ],
)
def test_crashes_before_it_listens(attempt, how: str, status: int, parts: list[str]) -> None:
    ended = attempt(*guest("boot")["argv"], how)
    assert ended.status == (FAILURE if attempt.command == "snapshot" else status), ended
    for part in parts:
        assert part in ended.err, f"'{part}' is missing in: {ended.err}"
    if how in ("crash", "jump"):
        assert "rip" in ended.err.lower() and "rsp" in ended.err.lower(), f"no registers: {ended.err}"


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_boots_too_long(folder, how: str) -> None:
    ended = make_snapshot(guest("boot", how), folder / "app.snap", "--max-boot-time", "1")
    assert_one_line(ended, TIMED_OUT, "--max-boot-time")
    assert list(folder.iterdir()) == []


def test_port_in_use(snapshots, program) -> None:
    c_epoll = program("c-epoll")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = kvmserver("snaprun", "-e", "--listen", f"127.0.0.1:{port}", snapshots.of(c_epoll))
        assert_one_line(ended, CONFLICT, f"127.0.0.1:{port}", "in use")
        ended = kvmserver("run", "--allow-all", *harness.arguments_of(c_epoll, port))
        assert ended.status == 1 and re.search("cannot listen: Address (already )?in use", ended.err), ended  # glibc, musl


def test_privileged_port(snapshots, program) -> None:
    nobody = as_nobody()
    limit = int(harness.pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if limit <= 80 or not os.access("/dev/kvm", os.R_OK):
        pytest.skip("port 80 is for everybody here")
    mode = stat.S_IMODE(os.stat("/dev/kvm").st_mode)
    if not mode & 0o006:
        pytest.skip("/dev/kvm is not for nobody here, so the port is not reached")
    with tempfile.TemporaryDirectory() as folder:  # unlike pytest's, others reach it
        os.chmod(folder, 0o755)
        path = harness.pathlib.Path(shutil.copy(snapshots.of(program("c-epoll")), folder))
        path.chmod(0o644)
        assert_one_line(kvmserver("snaprun", "--listen", "127.0.0.1:80", path, wrapper=nobody), NOT_PERMITTED, "127.0.0.1:80")


def as_nobody() -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not shutil.which("setpriv"):
        pytest.skip("there is no setpriv")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def in_namespace(prepare: str) -> list[str]:
    """Runs the command where the mounts are other ones."""
    who = [] if os.geteuid() == 0 else ["-r"]
    wrapper = ["unshare", *who, "-m", "sh", "-c", f'{prepare} && exec "$@"', "sh"]
    if harness.subprocess.run([*wrapper, "true"], capture_output=True).returncode != 0:
        pytest.skip("this host permits no mount namespaces")
    return wrapper


def test_kvm_is_missing(attempt) -> None:
    assert_one_line(attempt("/bin/true", wrapper=in_namespace("mount -t tmpfs none /dev")), NO_KVM, "/dev/kvm", "missing")


def test_kvm_is_something_else(attempt) -> None:
    ended = attempt("/bin/true", wrapper=in_namespace("mount --bind /dev/null /dev/kvm"))
    assert_one_line(ended, NO_KVM, "/dev/kvm")


def test_kvm_is_not_permitted(attempt, folder) -> None:
    nobody = as_nobody()
    for part in (folder, *folder.parents):
        part.chmod(stat.S_IMODE(part.stat().st_mode) | 0o005)
    (folder / "out").chmod(0o777)
    if stat.S_IMODE(os.stat("/dev/kvm").st_mode) & 0o006:
        hidden = in_namespace("install -m 600 /dev/null /run/kvm && mount --bind /run/kvm /dev/kvm")
        nobody = [*hidden, *nobody]
    assert_one_line(attempt("/bin/true", wrapper=nobody), NO_KVM, "/dev/kvm", "not permitted")


def test_kvm_is_too_old(attempt) -> None:
    ended = attempt("/bin/true", env={"LD_PRELOAD": str(GUESTS / "old_kvm.so")})
    assert_one_line(ended, NO_KVM, "KVM_CAP_SYNC_REGS")


def test_snapshot_into_a_missing_folder(folder, program) -> None:
    ended = make_snapshot(program("c-epoll"), folder / "missing/app.snap")
    assert_one_line(ended, NOT_FOUND, "missing")
    assert list(folder.iterdir()) == []


def test_snapshot_into_a_folder_that_is_not_ours(folder, program) -> None:
    nobody = as_nobody()
    if not stat.S_IMODE(os.stat("/dev/kvm").st_mode) & 0o006:
        pytest.skip("/dev/kvm is not for nobody here")
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    folder.chmod(0o755)
    ended = kvmserver("snapshot", "--allow-all", "-o", folder / "app.snap", *argv, wrapper=nobody)
    assert_one_line(ended, NOT_PERMITTED, "app.snap")


@pytest.mark.parametrize("command", ["snaprun", "inspect"])
def test_not_a_snapshot(folder, command: str) -> None:
    path = folder / "x.snap"
    for contents in (b"", b"x", b"hello, world\n" * 1000, elf_header(), bytes(100_000), os.urandom(100_000)):
        path.write_bytes(contents)
        assert_one_line(kvmserver(command, path), BAD_SNAPSHOT, "x.snap")
    assert_one_line(kvmserver(command, folder / "missing.snap"), NOT_FOUND, "missing.snap")


@pytest.mark.parametrize("command", [["snaprun"], ["inspect"], ["inspect", "--verify"]], ids=" ".join)
def test_truncated(snapshots, program, folder, command: list[str]) -> None:
    whole = snapshots.of(program("c-epoll")).read_bytes()
    path = folder / "x.snap"
    for length in (4, 16, 64, 300, 1000, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert_one_line(kvmserver(*command, path), BAD_SNAPSHOT, "x.snap")
    path.write_bytes(whole + b"more")
    assert_one_line(kvmserver(*command, path), BAD_SNAPSHOT, "x.snap")


def test_every_flipped_bit_is_noticed(snapshots, program, folder) -> None:
    whole = bytearray(snapshots.of(program("c-epoll")).read_bytes())
    path = folder / "x.snap"
    for n in range(60):
        at = n * (len(whole) - 1) // 59
        whole[at] ^= 1 << n % 8
        path.write_bytes(whole)
        whole[at] ^= 1 << n % 8
        assert_one_line(kvmserver("inspect", "--verify", path), BAD_SNAPSHOT, "x.snap")


def test_flipped_bits_never_serve_nonsense(snapshots, program, folder) -> None:
    """snaprun may start before it has read everything: then it is refused, or served rightly, or ended."""
    whole = bytearray(snapshots.of(program("c-epoll")).read_bytes())
    path = folder / "x.snap"
    for n in range(30):
        at = n * (len(whole) - 1) // 29
        whole[at] ^= 1 << n % 8
        path.write_bytes(whole)
        whole[at] ^= 1 << n % 8
        process = harness.Process(
            [str(harness.KVMSERVER), "snaprun", "-e", "--listen", f"127.0.0.1:{(port := harness.free_port())}", str(path)],
            env=harness.BASE_ENVIRONMENT,
        )
        try:
            harness.wait_until(lambda: "loaded" in process.out or not process.running(), "it is loaded or refused")
            if process.running():
                with contextlib.suppress(ConnectionError), harness.Client(port) as client:
                    client.send(harness.request("/bytes/30", None, "Connection: close"))
                    answer = client.reader.read()
                    assert answer == b"" or answer.endswith(b"\r\n\r\n" + harness.letters(30)), f"byte {at}: {answer!r}"
            harness.wait_until(lambda: "altered" in process.err or not process.running(), f"byte {at} is complained of")
            assert process.running() or process.wait().status == BAD_SNAPSHOT, f"byte {at}: {process.wait()}"
        finally:
            process.close()


def test_a_request_meets_an_altered_part(snapshots, program, folder) -> None:
    """What a request needs and was not unpacked before it: the server ends, and says why by its status too."""
    whole = bytearray(snapshots.of(program("c-epoll-dynamic")).read_bytes())
    for at in range(len(whole) * 3 // 10, len(whole) * 97 // 100, 4096):
        whole[at] ^= 1
    path = folder / "x.snap"
    path.write_bytes(whole)
    port = harness.free_port()
    process = harness.Process(
        [str(harness.KVMSERVER), "snaprun", "-e", "--listen", f"127.0.0.1:{port}", str(path)], env=harness.BASE_ENVIRONMENT
    )
    try:
        harness.wait_until(lambda: "loaded" in process.out or not process.running(), "it is loaded")
        with contextlib.suppress(ConnectionError), harness.Client(port) as client:
            client.send(harness.request("/bytes/30", None, "Connection: close"))
            assert client.reader.read() == b""
        ended = process.wait()
        assert ended.status == BAD_SNAPSHOT, ended
        assert "altered: chunk" in ended.err, ended
    finally:
        process.close()


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-option"], ["run"], ["snaprun"], ["inspect"], ["snapshot", "/bin/true"], ["no-such-command"],
        ["run", "--threads", "many", "/bin/true"], ["run", "--allow-all", "--allow-read", "/bin/true"],
        ["run", "--allow-listen=8080", "/bin/true"], ["run", "--max-request-time", "-1", "/bin/true"],
        ["run", "--volume=only-one", "/bin/true"], ["snaprun", "a.snap", "b.snap"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usage(words: list[str], folder) -> None:
    assert_one_line(kvmserver(*words, cwd=folder), USAGE)
