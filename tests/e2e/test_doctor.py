"""kvmserver doctor: one line a check, and what --fix may do."""
import os
import subprocess

import harness
import pytest
from harness import kvmserver


def test_says_what_is_there(folder) -> None:
    done = kvmserver("doctor", "--store", folder / "store")
    assert done.status == 0, done
    lines = done.out.splitlines()
    assert any(line.startswith("/dev/kvm ok (") for line in lines), done
    assert any(line.startswith(f"store {folder}/store ok, made by the first deploy (") for line in lines), done
    assert not (folder / "store").exists()
    fixed = kvmserver("doctor", "--fix", "--store", folder / "store")
    assert fixed.status == 0 and fixed.out.splitlines()[-1] == "fix: nothing here that it may mend"


def test_limits(folder) -> None:
    wrapper = ["/bin/sh", "-c", 'ulimit -n 200; exec "$@"', "sh"]
    done = kvmserver("doctor", wrapper=wrapper)
    assert done.status == 0 and "open files 200: few for many functions: ulimit -n 65536" in done.out, done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_rights(folder) -> None:
    mode = os.stat("/dev/kvm").st_mode
    if mode & 0o006:
        pytest.skip("/dev/kvm is open to everybody here")
    binary = f"/proc/{os.getpid()}/fd/{os.open(harness.KVMSERVER, os.O_RDONLY)}"
    words = [f"exec 9<{binary}; exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/9 doctor --fix"]
    env = {**harness.BASE_ENVIRONMENT}
    done = subprocess.run(["/bin/sh", "-c", *words], capture_output=True, text=True, env=env, timeout=harness.PATIENCE)
    assert done.returncode == 8, done
    assert "/dev/kvm not permitted (Permission denied): " in done.stdout and ("sudo usermod -aG kvm nobody" in done.stdout or "--group-add" in done.stdout)
