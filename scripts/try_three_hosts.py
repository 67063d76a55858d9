#!/usr/bin/env python3
"""Types docs/howto/three-hosts.md word by word into three fresh Debian 12 hosts; compares what is seen with the page.

    scripts/try_three_hosts.py [--page FILE] [--deb FILE] [--work FOLDER] [--stay]     as root, some minutes

The first line of a ```sh block says where it is typed: `# on node1`, `# on node2 and node3`, `# on your computer`; or
`# cut the power of node3`, `# turn node3 on`. An indented block after it is what each of these hosts prints: lines that
follow each other, but where a line is `...`. Within a line `...` is anything. Ages, ids and versions may differ.

A host has namespaces of its own (mount, pid, net, uts, ipc, cgroup), systemd as PID 1, sshd, a /dev with a kvm node of
its own, and an overlay over one debootstrap as its disk. A bridge in another network namespace connects them. All they
reach besides is Debian's archive, by a relay. All is typed through ssh. The page says what differs from real machines.
Everything is in namespaces that end with this program; --stay keeps them until it is ended.
"""
import argparse
import contextlib
import itertools
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve()
MIRROR = "deb.debian.org"
NODES = {f"node{i}": f"10.77.0.{i}" for i in (1, 2, 3)}
GATEWAY = "10.77.0.254"
KEY = "/root/.ssh/id_ed25519"

# The first process of a host: $1 its name, $2 its root. It may not set anything of the kernel: /proc/sys is read-only.
BOOT = r"""
hostname "$1"; ip link set lo up; cd "$2"
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
for file in proc/sys proc/sysrq-trigger; do
    [[ ! -e $file ]] || { mount --bind $file $file; mount -o remount,ro,bind $file; }
done
mount -t tmpfs -o mode=755 tmpfs dev; mkdir dev/pts dev/shm dev/mqueue
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r node major minor <<<"$device"; mknod -m 666 dev/$node c $major $minor
done
kvm=$(stat -c '0x%t 0x%T' /dev/kvm)
mknod -m 660 dev/kvm c $kvm; chown 0:"$(sed -n 's/^kvm:x:\([0-9]*\):.*/\1/p' etc/group)" dev/kvm
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts; ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mkdir -p .old; pivot_root . .old; umount -l /.old; rmdir /.old; mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin \
    setpriv --bounding-set=-sys_time,-sys_module,-sys_boot /sbin/init
"""


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, **more)


def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def relay(listener, connect):
    """Each connection goes on where connect() leads, in threads that end with the program."""
    def serve():
        while True:
            client, _ = listener.accept()
            with contextlib.suppress(OSError):
                server = connect()
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()
    listener.listen(64)
    threading.Thread(target=serve, daemon=True).start()


def to_unix(path):
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    return made


# ---- the page ----
def steps(text):
    """(line, where it is typed, commands, lines that are seen) of each block."""
    for block in re.finditer(r"^```sh\n(.*)\n((?:.*\n)*?)```\n\n?((?:    .*\n)*)", text, re.MULTILINE):
        seen = [line.strip() for line in block[3].splitlines()]
        yield text.count("\n", 0, block.start()) + 2, block[1], block[2], seen


def plain(line):
    """Without what is another one each time."""
    line = re.sub(r"\d+ (s|min|h|d|ms) ago", "AGE", line)
    line = re.sub(r"(?<![\d.])\d+\.\d+\.\d+(-dev)?(?![\d.])", "VERSION", line)
    line = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "ID", line)
    return " ".join(line.split())


def missing(seen, printed):
    """The first line of `seen` that was not printed. Lines follow each other, but where `...` is a line."""
    text, pattern = "".join(plain(line) + "\n" for line in printed.splitlines()), ""
    for line in seen:
        parts = map(re.escape, plain(line).split("..."))
        pattern += "(?:.*\n)*?" if line == "..." else ".*" + ".*".join(parts) + ".*\n"
        if not re.search(pattern, text):
            return line
    return None


# ---- the hosts ----
class Lab:
    def __init__(self, work, cgroup):
        self.work, self.cgroup, self.running = work, cgroup, {}
        run("mount", "-t", "tmpfs", "tmpfs", "/run")  # this namespace's: ip netns keeps names there
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        listener = socket.create_server((GATEWAY, 80))
        relay(listener, lambda: to_unix(work / "archive.sock"))
        self.desk()
        for name, address in NODES.items():
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"to-{name}", "master", "bridge")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            disk = work / name
            for folder in ("upper", "work", "root"):
                (disk / folder).mkdir(parents=True)
            run("mount", "-t", "overlay", "overlay", disk / "root",
                "-o", f"lowerdir={work / 'base'},upperdir={disk / 'upper'},workdir={disk / 'work'}")
            etc = disk / "root/etc"
            (etc / "hostname").write_text(name + "\n")
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{GATEWAY} {MIRROR}\n")
            keys = disk / "root/root/.ssh"
            keys.mkdir(mode=0o700, exist_ok=True)
            shutil.copy(KEY + ".pub", keys / "authorized_keys")
            self.on(name)

    def desk(self):
        """`your computer`: this namespace, with another /root, and the names of the hosts."""
        home = self.work / "desk"
        (home / ".ssh").mkdir(mode=0o700)
        run("mount", "--bind", home, "/root")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", KEY)
        (home / ".ssh/config").write_text("StrictHostKeyChecking accept-new\nLogLevel ERROR\nConnectTimeout 5\n")
        names = self.work / "hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in NODES.items()))
        run("mount", "--bind", names, "/etc/hosts")

    def on(self, name):
        group, console = self.cgroup / name, self.work / name / "console"
        group.mkdir(exist_ok=True)
        # systemd may divide its own group only, so it begins in one of its own.
        enter = f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))} && exec \"$@\""
        self.running[name] = subprocess.Popen(
            ["sh", "-c", enter, "sh", "nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts", "--ipc",
             "--pid", "--cgroup", "--fork", "--kill-child", "bash", "-ec", BOOT, "sh", name, self.work / name / "root"],
            stdin=subprocess.DEVNULL, stdout=console.open("ab"), stderr=subprocess.STDOUT)
        run("ip", "link", "set", f"to-{name}", "up")
        for _ in range(60):
            if self.type("root@" + name, "systemctl is-system-running --wait || true")[0] == 0:
                return
            time.sleep(1)
        sys.exit(f"{name} does not start: {console.read_text()[-2000:]}")

    def type(self, target, commands):
        """(status, output) of commands that are typed on a host (root@NAME) or here (None)."""
        text = "set -o pipefail; export DEBIAN_FRONTEND=noninteractive\n" + commands
        words = ["bash", "-ec", text]
        if target:
            words = ["ssh", target, "exec bash --login -ec " + shlex.quote(text)]
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, timeout=600, cwd="/root", env={"HOME": "/root", "PATH": os.environ["PATH"]})
        return ended.returncode, ended.stdout

    def step(self, number, where, commands, seen):
        power = re.fullmatch(r"# (?:cut the power of (node\d)|turn (node\d) on)", where)
        if power:
            print(f"--- line {number}: {where[2:]}")
            if power[2]:
                self.on(power[2])
            else:
                run("ip", "link", "set", f"to-{power[1]}", "down")  # nobody is told
                self.running[power[1]].kill()
                self.running[power[1]].wait()
            return True
        targets = ["root@" + name for name in re.findall(r"node\d", where)] or [None]
        if not where.startswith("# on ") or (targets == [None] and where != "# on your computer"):
            print(f"line {number}: a block of sh that does not say where it is typed: {where}")
            return False
        for target in targets:
            print(f"--- line {number}: {target or 'your computer'}")
            status, printed = self.type(target, commands)
            print(printed + f"--- status {status}")
            line = missing(seen, printed)
            if status or line:
                print(f"FAILED: line {number}: " + (f"status {status}" if status else f"not seen: {line}"))
                return False
        return True


def inside(arguments):
    """In namespaces of our own, as their first process."""
    found = list(steps(arguments.page.read_text()))
    lab = Lab(arguments.work, arguments.cgroup)
    passed = sum(1 for _ in itertools.takewhile(lambda step: lab.step(*step), found))
    print(f"{passed} of {len(found)} blocks did what the page says")
    if arguments.stay:
        print("the hosts stay until this program is ended")
        signal.pause()
    return 0 if found and passed == len(found) else 1


def make_base(base):
    """A Debian 12 as its installer makes it with an SSH server."""
    if (base / "made").exists():
        return
    shutil.rmtree(base, ignore_errors=True)
    print(f"making a Debian 12 in {base}")
    run("debootstrap", "--include=ca-certificates,openssh-server,dbus", "bookworm", base, f"http://{MIRROR}/debian",
        stdout=subprocess.DEVNULL)
    sources = ("debian bookworm", "debian bookworm-updates", "debian-security bookworm-security")
    (base / "etc/apt/sources.list").write_text("".join(f"deb http://{MIRROR}/{source} main\n" for source in sources))
    (base / "made").touch()


def make_desk(folder, deb):
    """What the page takes from the project's folder."""
    (folder / "build").mkdir(parents=True)
    (folder / "packaging").symlink_to(ROOT / "packaging")
    (folder / "build/versitygw").symlink_to(BUILD / "versitygw")
    if deb:
        shutil.copy(deb, folder / "build")
    else:
        run("cpack", "-G", "DEB", "-B", folder / "build", cwd=BUILD, stdout=subprocess.DEVNULL)


def remove_groups(group):
    """Once the last process in them has ended, which takes some seconds after a kill."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            for below, _, _ in os.walk(group, topdown=False):
                os.rmdir(below)
            return
        time.sleep(0.1)
    print(f"{group} stays: a process is in it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/howto/three-hosts.md")
    parser.add_argument("--deb", type=pathlib.Path, help="the package (cpack makes one of the build)")
    # Not in the build, where scripts/test.sh would take the tests of Debian's packages for ours.
    parser.add_argument("--work", type=pathlib.Path, default="/var/tmp/kvmserver-three-hosts")
    parser.add_argument("--stay", action="store_true")
    parser.add_argument("--cgroup", type=pathlib.Path, help=argparse.SUPPRESS)  # said to the process inside
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    if arguments.cgroup:
        return inside(arguments)
    if os.geteuid():
        sys.exit("needs root")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not (BUILD / "versitygw").exists():
        sys.exit("there is no versitygw: scripts/setup.sh --tests")
    cache = arguments.work.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    make_base(cache / "base")
    cgroups = next(line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2")
    group = pathlib.Path(cgroups) / f"three-hosts-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="hosts-", dir=cache) as folder:
        work = pathlib.Path(folder)
        (work / "base").symlink_to(cache / "base")
        make_desk(work / "desk/kvmserver", arguments.deb)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(work / "archive.sock"))
        relay(listener, lambda: socket.create_connection((MIRROR, 80)))
        group.mkdir()
        try:
            return subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork",
                 "--mount-proc", "--kill-child", sys.executable, __file__, *sys.argv[1:], "--work", work,
                 "--cgroup", group]).returncode
        finally:
            remove_groups(group)


if __name__ == "__main__":
    sys.exit(main())
