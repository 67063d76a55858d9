"""Deploys that are refused, fail or are interrupted: what is said, and that nothing is left."""
import signal
import subprocess

import harness
import pytest
from platforms import manifest


def test_bad_input(platform, snap) -> None:
    bad = platform.folder / "bad.snap"
    bad.write_bytes(b"no snapshot at all")
    platform.fails(7, "deploy", bad)
    data = bytearray(snap.read_bytes())
    data[len(data) // 3] ^= 1
    bad.write_bytes(data)
    platform.fails(7, "deploy", bad, "--dry-run")
    platform.fails(7, "deploy", bad)
    platform.fails(7, "push", bad)
    bad.write_bytes(snap.read_bytes()[:-5])
    platform.fails(7, "push", bad)
    platform.fails(3, "deploy", platform.folder / "missing.snap")
    platform.fails(3, "deploy", platform.folder)
    for name in ("Hello", "-x", "a.b", "x" * 64):
        platform.fails(2, "deploy", snap, f"--name={name}")
    platform.fails(2, "deploy", snap, "--route", "no route")
    platform.fails(2, "deploy", snap, "--if-version", "x")
    platform.fails(2, "deploy", snap, snap)
    assert platform("list").out == ""
    for words in (["describe", "x"], ["versions", "x"], ["rollback", "x"], ["traffic", "x", "1=100"], ["delete", "-y", "x"], ["delete", "x"]):
        platform.fails(3, *words)


@pytest.mark.parametrize(("text", "error"), [
    ("[run]\nargs = []\n", "[run] program is missing"),
    ('[run]\nprogram = "x"\n[function]\nname = 3\n', ":4: function.name must be a string"),
    ('[run]\nprogram = "x"\n[function]\nroutes = "x"\n', ":4: function.routes must be an array"),
    ('[run]\nprogram = "x"\n[function]\nroutes = ["a b"]\n', ":4: route"),
    ('[run]\nprogram = "x"\n[function.hooks]\nhealth = "x"\n', ":4: function.hooks.health must begin with /"),
    ('[run]\nprogram = "x"\n[function.hooks]\nhealth = "/ x"\n', "space"),
    ('[run]\nprogram = "x"\n[function.env]\nA = 1\n', ":4: function.env.A must be a string"),
    ('[run]\nprogram = "x"\n[function]\nenv = 1\n', ":4: function.env must be a table"),
    ('[run]\nprogram = "x"\n[function.env]\n"A.B" = "1"\n', ":4: "),
    ('[run]\nprogram = "x"\n[function]\nsecrets = [1]\n', ":4: function.secrets must be an array"),
    ('[run]\nprogram = "x"\n[[function]]\n', "function must be a table"),
    ('[run]\nprogram = "x"\n[function.scale]\nmax = 0\n', ":4: function.scale.max must be a whole number from 1"),
    ('[run]\nprogram = "x"\n[function.scale]\nmin = 3\nmax = 2\n', ":5: function.scale.max must be at least function.scale.min"),
    ('[run]\nprogram = "x"\n[function.scale]\nmin = 1\nidle = "soon"\n', ":5: function.scale.idle must be a time"),
    ('[run]\nprogram = "x"\n[function.scale]\nqueue-timeout = -1\n', ":4: function.scale.queue-timeout must be a time"),
    ('[run]\nprogram = "x"\n[function.versions]\nkeep = 0\n', ":4: function.versions.keep must be a whole number from 1"),
    ('[run]\nprogram = "x"\n[function]\nscale = 1\n', ":4: function.scale must be a table"),
    ("[run\n", ":1: "),
])  # fmt: skip
def test_bad_manifest(platform, text: str, error: str) -> None:
    (platform.folder / "kvmserver.toml").write_text(text)
    assert error in platform.fails(2, "deploy", platform.folder, "--name", "x")
    assert not platform.store.exists()


def test_unknown_keys_are_named(platform, program) -> None:
    folder = platform.folder / "app"
    manifest(folder, program("c-epoll"), 'nmae = "x"\n[function.hooks]\nhealht = "/"\n')
    done = platform("deploy", folder, "--dry-run")
    assert done.status == 0 and "'function.nmae'; ignored; did you mean name?" in done.err
    assert "'function.hooks.healht'" in done.err


def test_values_that_do_not_reach_the_program_are_named(platform, program) -> None:
    """Python copies its environment at its start; a value may be too long for the room there is; a name may be none."""
    folder, values = platform.folder / "app", 'secrets = ["KEY"]\n[function.env]\nA = "1"\n'
    manifest(folder, program("python-http"), values)
    done = platform("deploy", folder, "--dry-run")
    assert done.status == 0 and "copies its environment when it starts, before function.secrets have values" in done.err
    manifest(folder, program("python-http"), values.replace('secrets = ["KEY"]', ""))
    assert platform("deploy", folder, "--dry-run").err == ""  # its snapshot is made with these
    for name, more in (("python-http", '[function.hooks]\nafter-restore = "/r"\n'), ("c-epoll", "")):
        manifest(folder, program(name), values + more)
        assert "after-restore" not in platform("deploy", folder, "--dry-run").err
    manifest(folder, program("c-epoll"), f'[function.env]\nA = "{"x" * 5000}"\n')
    done = platform("deploy", folder, "--dry-run")
    assert done.status == 0 and "function.env.A is too long for the program's environment (4095 bytes with its name)" in done.err
    manifest(folder, program("c-epoll"), 'secrets = ["A=B"]\n')
    done = platform("deploy", folder, "--dry-run")
    assert done.status == 2 and "function.secrets" in done.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_deploy_leaves_nothing(platform, how: int) -> None:
    folder, temporary = platform.folder / "app", platform.folder / "tmp"
    temporary.mkdir()
    folder.mkdir()
    (folder / "kvmserver.toml").write_text('max-boot-time = 1000\n[run]\nprogram = "/bin/sleep"\nargs = ["1000"]\n')
    words = [str(harness.KVMSERVER), "deploy", str(folder), "--store", str(platform.store)]
    client = harness.Process(words, env={**harness.BASE_ENVIRONMENT, "TMPDIR": str(temporary)})
    harness.wait_until(lambda: list(temporary.iterdir()) != [], "it boots")
    client.popen.send_signal(how)
    assert client.popen.wait(harness.PATIENCE) == -how, client.err
    assert list(temporary.iterdir()) == []
    client.close()


def test_how_the_snapshot_failed_is_the_status(platform) -> None:
    folder = platform.folder / "app"
    folder.mkdir()
    silent = platform.folder / "silent.c"
    silent.write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    subprocess.run(["musl-gcc", "-static", "-o", platform.folder / "silent", silent], check=True)
    (folder / "kvmserver.toml").write_text(f'max-boot-time = 0.5\n[run]\nprogram = "{platform.folder}/silent"\n')
    assert "nothing was stored" in platform.fails(6, "deploy", folder, "--name", "x")
    assert platform("list").out == ""
