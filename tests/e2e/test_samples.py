"""The samples that people would deploy (functions/samples.py) are deployed as they stand and answer right, request after request.

SAMPLES=all: all of them. Otherwise only the last test, whose sample installs little."""
import os
import pathlib
import shutil

import harness
import pytest
from harness import Process, kvmserver
from serving import Daemon
from test_init import environment

import samples  # of functions/, where harness looks, too

ALL = os.environ.get("SAMPLES") == "all"
REQUESTS = 1000


def as_pinned() -> dict:
    """The environment of a user, whose pip and npm take what the sample pins and nothing else."""
    return {name: value for name, value in environment().items() if name not in ("PIP_CONSTRAINT", "npm_config_before")}


def deploy(store, name: str, manifest: str = "kvmserver.toml") -> str:
    """Of a copy, since it is built in its folder. The function's name."""
    folder = store.folder / name
    if not folder.exists():
        shutil.copytree(harness.ROOT / "functions" / name, folder, ignore=shutil.ignore_patterns("node_modules", ".venv", ".next", "data"))
    done = kvmserver("deploy", folder / manifest, "--store", store.path, env=as_pinned(), patience=600)
    assert done.status == 0, done
    return done.out.splitlines()[-1].split()[0]


def sign(daemon: Daemon, function: str, name: str) -> None:
    reply = daemon.ask(function, "/", body=f"name={name}&text=here".encode(), headers={"Content-Type": samples.FORM})
    assert reply.status == 303, reply


@pytest.mark.skipif(not ALL, reason="installs much: SAMPLES=all")
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_it_answers_right_whenever_it_is_asked(store, serve, name: str) -> None:
    questions = samples.SAMPLES[name]
    function = deploy(store, name)
    daemon = serve()
    for number in range(REQUESTS):
        questions[number % len(questions)].ask(daemon.port, f"{function}.localhost")
    snap: pathlib.Path = store.folder / "pulled.snap"
    store.ok("pull", function, "-o", snap)
    port = harness.free_port()
    argv = [str(harness.KVMSERVER), "snaprun", "-e", "--check-reset", "--listen", f"127.0.0.1:{port}", str(snap)]
    process = Process(argv, cwd="/")
    try:
        harness.wait_until(lambda: "' loaded." in process.out or not process.running(), "it is restored")
        for number in range(REQUESTS):
            questions[number % len(questions)].ask(port)
        assert "reset differs" not in process.err
    finally:
        process.close()


@pytest.mark.nightly
def test_a_database_in_the_snapshot_forgets_and_one_in_a_volume_keeps(store, serve) -> None:
    name = "python-flask-sqlite"
    functions = [deploy(store, name), deploy(store, name, "with-volume.toml")]
    daemon = serve()
    for question in samples.SAMPLES[name]:
        question.ask(daemon.port, f"{functions[0]}.localhost")
    for function in functions:
        for number in range(5):
            sign(daemon, function, f"guest{number}")
    forgetful, keeping = [daemon.text(function, "/entries") for function in functions]
    assert "Ada" in forgetful and "guest" not in forgetful
    assert all(f"guest{number}" in keeping for number in range(5)), keeping
