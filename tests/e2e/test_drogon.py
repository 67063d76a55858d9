"""examples/drogon: built and run in a Debian 13, which scripts/nightly.sh makes (DEBIAN13 names its folder)."""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import harness
import pytest

ROOT = pathlib.Path(os.environ.get("DEBIAN13", "/nonexistent"))
pytestmark = pytest.mark.skipif(not ROOT.exists(), reason="needs a Debian 13 with libdrogon-dev: scripts/nightly.sh drogon")


def run(*words) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built() -> str:
    """Its build folder, inside of the root."""
    for folder in ["opt/tinykvm", "examples", "drogon"]:
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    run("cmake", "--install", harness.BUILD, "--prefix", ROOT / "opt/tinykvm", "--component", "tinykvm")
    shutil.copytree(harness.ROOT / "examples", ROOT / "examples")
    run("chroot", ROOT, "cmake", "-S", "/examples/drogon", "-B", "/drogon", "-DCMAKE_PREFIX_PATH=/opt/tinykvm")
    run("chroot", ROOT, "cmake", "--build", "/drogon")
    return "/drogon"


@pytest.fixture
def server(built):
    """The port of a new server with one tenant of each kind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inside = (f"mount --bind /dev {ROOT}/dev && mount -t proc proc {ROOT}/proc && exec chroot {ROOT} sh -c "
              f"'cd {built} && exec ./server {port} clean.test=./counter keep.test=./counter,keep'")  # fmt: skip
    process = subprocess.Popen(["unshare", "-m", "sh", "-c", inside], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def listens() -> bool:
        assert process.poll() is None, process.stdout.read().decode()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    harness.wait_until(listens, "the server to listen")
    yield port
    process.send_signal(signal.SIGTERM)
    assert process.wait(harness.PATIENCE) == 0, process.stdout.read().decode()


def fetch(port: int, tenant: str, path: str) -> tuple[int, str]:
    done = subprocess.run(["curl", "-s", "-m", "20", "-w", "%{http_code}", "-H", f"Host: {tenant}.test", f"http://127.0.0.1:{port}{path}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    return int(done.stdout[-3:]), done.stdout[:-3]


def test_one_tenant_forgets_and_the_other_remembers(server) -> None:
    for number in range(1, 6):
        assert fetch(server, "clean", "/a") == (200, "visitor 1 of /a\n")
        assert fetch(server, "keep", "/a") == (200, f"visitor {number} of /a\n")
    assert fetch(server, "other", "/a") == (404, "no such tenant\n")


def test_what_a_tenant_does_harms_nobody_else(server) -> None:
    assert fetch(server, "keep", "/a") == (200, "visitor 1 of /a\n")
    assert fetch(server, "clean", "/crash") == (500, "the tenant failed\n")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loop = pool.submit(fetch, server, "clean", "/loop")
        while not loop.done():
            assert fetch(server, "keep", "/b")[0] == 200
        assert loop.result() == (504, "the tenant took too long\n")
    assert time.monotonic() - begin < harness.PATIENCE
    assert fetch(server, "clean", "/a") == (200, "visitor 1 of /a\n")
    assert fetch(server, "keep", "/crash") == (500, "the tenant failed\n")
    assert fetch(server, "keep", "/a") == (200, "visitor 1 of /a\n")  # it began anew


def test_no_visitor_is_lost(server) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: fetch(server, "keep", "/n"), range(100)))
    assert sorted(int(text.split()[1]) for _, text in replies) == list(range(1, 101))
