"""What is installed: the .deb made of the build that is there, and cmake --install."""
import configparser
import gzip
import os
import pathlib
import re
import shutil
import subprocess

import harness
import pytest
from harness import BASE_ENVIRONMENT, kvmserver

PACKAGING = harness.ROOT / "packaging"
pytestmark = pytest.mark.skipif(not (harness.BUILD / "share/man1/kvmserver.1.gz").exists(),
                                reason="no manual was made: scripts/build.sh; a build with a sanitizer is not packaged")  # fmt: skip


def run(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=harness.PATIENCE * 6, **more)


def need(*tools: str) -> None:
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")


@pytest.fixture(scope="module")
def deb(tmp_path_factory) -> pathlib.Path:
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    folder = tmp_path_factory.mktemp("deb")
    made = run("cpack", "-G", "DEB", "--config", harness.BUILD / "CPackConfig.cmake", "-B", folder)
    assert made.returncode == 0, made.stdout + made.stderr
    (package,) = folder.glob("*.deb")
    return package


@pytest.fixture(scope="module")
def unpacked(deb, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("unpacked")
    done = run("dpkg-deb", "-x", deb, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_what_the_package_says(deb) -> None:
    field = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", deb).stdout.splitlines() if re.match(r"[A-Z][\w-]*: ", line))
    assert deb.name == f"kvmserver_{field['Version']}_{field['Architecture']}.deb"
    depends = [each.split(" ")[0] for each in field["Depends"].split(", ")]
    assert {"adduser", "libc6", "libcurl4"} == set(depends)


@pytest.mark.nightly
def test_lintian_finds_no_error_and_no_warning(deb) -> None:
    need("lintian")
    checked = run("lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", deb)
    assert checked.returncode == 0 and not re.search("^[EW]:", checked.stdout, re.M), checked


def test_what_debian_wants_is_in_it(unpacked) -> None:
    names = {file.name for file in (harness.BUILD / "share/man1").iterdir()}
    assert {file.name for file in (unpacked / "usr/share/man/man1").iterdir()} == names and len(names) > 25
    doc = unpacked / "usr/share/doc/kvmserver"
    assert (doc / "copyright").read_text() == (PACKAGING / "debian/copyright").read_text()
    assert (doc / "THIRD_PARTY_NOTICES").read_bytes() == (harness.ROOT / "THIRD_PARTY_NOTICES").read_bytes()
    assert gzip.decompress((doc / "changelog.gz").read_bytes()).startswith(b"kvmserver (")


def test_the_dashboard_and_the_alerts_are_in_it(unpacked) -> None:
    folder = unpacked / "usr/share/kvmserver/grafana"
    assert {file.name for file in folder.iterdir()} == {"dashboard.json", "alerts.yaml", "prometheus.yaml"}
    for file in folder.iterdir():
        assert file.read_bytes() == (PACKAGING / "grafana" / file.name).read_bytes()


def test_what_a_cluster_needs_is_in_it(unpacked) -> None:
    for name in ("cluster", "helm"):
        source, folder = PACKAGING / name, unpacked / "usr/share/kvmserver" / name
        files = {file.relative_to(source) for file in source.rglob("*") if file.is_file()}
        assert files == {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()} and files
        for file in files:
            assert (folder / file).read_bytes() == (source / file).read_bytes()


def test_what_a_start_loads(unpacked) -> None:
    headers = run("objdump", "-p", unpacked / "usr/bin/kvmserver").stdout
    needed = {line.split()[1] for line in headers.splitlines() if line.split()[:1] == ["NEEDED"]}
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, "a start gets slower: libcurl is loaded late"


@pytest.mark.nightly
def test_the_binary_runs_from_there(unpacked, folder) -> None:
    binary = unpacked / "usr/bin/kvmserver"
    version = run(binary, "version", env=BASE_ENVIRONMENT)
    assert version.returncode == 0 and version.stdout == kvmserver("version").out
    begun = run(binary, "init", "--template", "python", folder / "app", env=BASE_ENVIRONMENT)
    assert begun.stdout.splitlines()[-1] == "Created kvmserver.toml", begun
    saved = run(binary, "snapshot", "-c", folder / "app/kvmserver.toml", "-o", folder / "a.snap", "/usr/bin/python3", "server.py",
                env=BASE_ENVIRONMENT, cwd=folder / "app")  # fmt: skip
    assert saved.returncode == 0, saved
    assert run(binary, "inspect", "--verify", folder / "a.snap").stdout.endswith("compatible: yes\n")


def test_completions(unpacked) -> None:
    share = unpacked / "usr/share"
    files = {"bash": "bash-completion/completions/kvmserver", "zsh": "zsh/vendor-completions/_kvmserver",
             "fish": "fish/vendor_completions.d/kvmserver.fish"}  # fmt: skip
    for shell, file in files.items():
        assert (share / file).read_text() == kvmserver("completion", shell).out
        if shutil.which(shell):
            assert run(shell, "-n", share / file).returncode == 0
    source = f"source {share / files['bash']}; COMP_WORDS=(kvmserver init --template py); COMP_CWORD=3; _kvmserver; echo ${{COMPREPLY[@]}}"
    assert run("bash", "-c", source).stdout == "python\n"


def unit_of(prefix: pathlib.Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(prefix / "lib/systemd/system/kvmserver.service")
    return unit


def test_the_unit_needs_no_root(unpacked) -> None:
    service = unit_of(unpacked / "usr")["Service"]
    assert service["ExecStart"].startswith("/usr/bin/kvmserver serve ")
    assert (service["User"], service["SupplementaryGroups"], service["StateDirectory"]) == ("kvmserver", "kvm", "kvmserver")
    assert service["NoNewPrivileges"] == "yes" and service["CapabilityBoundingSet"] == ""
    assert "RestrictSUIDSGID" not in service  # nothing could be deployed: it refuses openat2
    assert (service["ProtectSystem"], service["DevicePolicy"], service["DeviceAllow"]) == ("strict", "closed", "/dev/kvm rw")


def test_the_unit_leaves_functions_their_walls(unpacked) -> None:
    """What src/jail and src/daemon/control_groups.cpp need."""
    service = unit_of(unpacked / "usr")["Service"]
    assert set(service["RestrictNamespaces"].split()) == {"user", "mnt", "pid", "ipc", "uts", "net"}
    assert {"memory", "pids", "cpu", "io"} == set(service["Delegate"].split()) and "ProtectControlGroups" not in service
    need("systemd-analyze")
    groups: dict[str, list[str]] = {}
    for line in run("systemd-analyze", "syscall-filter").stdout.splitlines():
        if line.startswith("@"):
            words = groups[line.split()[0]] = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            words.append(line.strip())

    def calls(name: str) -> set[str]:
        return set().union(*map(calls, groups[name])) if name in groups else {name}

    allowed = set().union(*map(calls, service["SystemCallFilter"].split()))
    needed = {"clone", "unshare", "setns", "open_tree", "move_mount", "mount_setattr", "fsopen", "fsconfig", "fsmount", "pivot_root",
              "umount2", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp", "prctl", "capset",
              "setresuid", "setresgid", "setgroups", "setrlimit", "memfd_create", "openat2"}  # fmt: skip
    assert needed <= allowed, needed - allowed


def test_systemd_accepts_the_unit(unpacked, folder) -> None:
    need("systemd-analyze")
    text = (unpacked / "usr/lib/systemd/system/kvmserver.service").read_text()
    unit = folder / "kvmserver.service"
    unit.write_text(text.replace("/usr/bin/kvmserver", f"{unpacked}/usr/bin/kvmserver"))
    verified = run("systemd-analyze", "verify", "--man=no", unit)
    if "Failed to initialize manager" in verified.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {verified.stderr.strip()}")
    about_it = [line for line in verified.stderr.splitlines() if "kvmserver" in line]  # it loads this host's units as well
    assert verified.returncode == 0 and not about_it, verified


def test_what_the_unit_forbids_is_not_needed(unpacked, snapshots, program) -> None:
    """No capability, no new privileges, no memory that is written and then run: as in the unit."""
    need("setpriv")
    snap = snapshots.of(program("c-epoll"))
    port = harness.free_port()
    refuse = "import ctypes, os, sys; sys.exit(3) if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) else os.execv(sys.argv[1], sys.argv[1:])"
    words = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "/usr/bin/python3", "-c", refuse,
             f"{unpacked}/usr/bin/kvmserver", "snaprun", "--http", "--listen", f"127.0.0.1:{port}", str(snap)]  # fmt: skip
    process = harness.Process(words if os.geteuid() == 0 else words[4:], cwd="/", env=BASE_ENVIRONMENT)
    try:
        harness.wait_until(lambda: "' loaded." in process.out or not process.running(), "it serves")
        if not process.running() and process.popen.returncode == 3:
            pytest.skip("this kernel has no PR_SET_MDWE")
        with harness.Client(port) as client:
            assert client.ask("/", None) == b"Hello from C\n", process.err
    finally:
        process.close()


def test_maintainer_scripts(deb, folder) -> None:
    run("dpkg-deb", "-e", deb, folder / "control")
    for name in ("postinst", "prerm", "postrm"):
        script = folder / "control" / name
        assert os.access(script, os.X_OK) and run("sh", "-n", script).returncode == 0
        for action in ("upgrade", "abort-upgrade"):  # not theirs
            assert run("sh", script, action, env={"PATH": "/nonexistent:/bin"}).returncode == 0
    # What postinst does, with commands that only tell.
    tools = folder / "tools"
    tools.mkdir()
    for tool in ("adduser", "addgroup", "systemctl"):
        (tools / tool).write_text(f'#!/bin/sh\necho {tool} "$@"\n')
        (tools / tool).chmod(0o755)
    done = run("sh", folder / "control/postinst", "configure", env={"PATH": f"{tools}:/usr/bin:/bin"})
    lines = [line for line in done.stdout.splitlines() if not line.startswith("systemctl")]
    assert "--system --group" in lines[-2] and lines[-1] == "adduser --quiet kvmserver kvm", done


def test_cmake_install(folder) -> None:
    need("cmake")
    prefix = folder / "prefix"
    done = run("cmake", "--install", harness.BUILD, "--prefix", prefix)
    assert done.returncode == 0, done.stderr
    assert run(prefix / "bin/kvmserver", "version").stdout == kvmserver("version").out
    assert unit_of(prefix)["Service"]["ExecStart"].startswith(f"{prefix}/bin/kvmserver serve ")
    assert (prefix / "share/zsh/site-functions/_kvmserver").exists()
    need("man")
    shown = run("man", "-l", prefix / "share/man/man1/kvmserver.1.gz", env={**BASE_ENVIRONMENT, "MANWIDTH": "100"})
    assert shown.returncode == 0 and "KVMSERVER(1)" in shown.stdout and shown.stderr == "", shown


def test_the_container_file_names_what_is_there() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    for source in re.findall(r"^COPY (?!\.)(\S+) ", text, re.M) + re.findall(r"(scripts/\S+\.sh)", text):
        assert (harness.ROOT / source).exists(), source
    stages = text.split("\nFROM ")
    assert "\nUSER kvmserver\n" in stages[-1] and stages[-1].index("USER") < stages[-1].index("ENTRYPOINT")


INSTALLED = r"""
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
base=$1
mount -t tmpfs none "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay none -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root" || exit 77
cp "$2" "$base/root/kvmserver.deb"
cd "$base/root"
mount -t tmpfs -o mode=755 none dev
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/urandom c 1 9
mknod -m 600 dev/kvm c 10 232
mount -t proc none proc
chroot . sh -ec '
    dpkg -i kvmserver.deb
    chgrp kvm /dev/kvm && chmod 660 /dev/kvm # as udev does
    echo "id: $(id -nG kvmserver)"
    setpriv --reuid kvmserver --regid kvmserver --init-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
        kvmserver doctor --store /var/lib/kvmserver
    mkdir -p /var/lib/kvmserver
    dpkg -i kvmserver.deb
    dpkg -P kvmserver
    ls -d /var/lib/kvmserver
    ! ls /usr/bin/kvmserver
'
"""


@pytest.mark.nightly
def test_install_and_purge(deb, folder) -> None:
    """By dpkg itself, on a copy of this system that is gone afterwards; machines run as the package's user."""
    need("unshare", "setpriv", "adduser")
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay of /")
    done = run("unshare", "--mount", "--propagation", "private", "sh", "-c", INSTALLED, "sh", folder, deb)
    if done.returncode in (77, 32) or "Operation not permitted" in done.stderr:
        pytest.skip(f"no overlay of / here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done
    assert "id: kvmserver kvm\n" in done.stdout and "/dev/kvm ok (" in done.stdout
    assert done.stdout.endswith("/var/lib/kvmserver\n") and "are kept" in done.stderr
    assert not os.path.exists("/usr/bin/kvmserver") or run("dpkg", "-S", "/usr/bin/kvmserver").returncode == 0
