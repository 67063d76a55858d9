"""kvmserver init: every template is deployed as it stands, and serves.

INIT_TEMPLATES=all: also those that download much."""
import os
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import harness
import pytest
from harness import Process, kvmserver
from platforms import Platform

ALL = os.environ.get("INIT_TEMPLATES") == "all"
# Of what a template's dependencies depend on.
CONSTRAINTS = pathlib.Path(__file__).parent / "guests/templates/constraints.txt"


class Case(NamedTuple):
    name: str
    words: str  # it says "Hello world from" them
    tools: list[str]  # what it is built and run with
    how: str = "scripts/setup.sh --tests, scripts/functions.sh"  # to get them
    nightly: str = ""  # why the test is only for long runs


PYTHON_PROJECTS = {"flask", "fastapi", "django"}  # in a virtual environment
CASES = {
    case.name: case
    for case in [
        Case("c", "C", ["cc"]),
        Case("rust", "Rust", ["cargo"], nightly="takes 15 s to build"),
        Case("go", "Go", ["go"], nightly="takes a minute"),
        Case("python", "Python", ["/usr/bin/python3"]),
        Case("node", "Node", ["node"], nightly="takes half a minute"),
        Case("deno", "Deno", ["deno"], nightly="takes 40 s"),
        Case("flask", "Flask", ["/usr/bin/python3"], nightly="takes half a minute"),
        Case("fastapi", "FastAPI", ["/usr/bin/python3"], nightly="takes half a minute"),
        Case("django", "Django", ["/usr/bin/python3"], nightly="takes 45 s"),
        Case("express", "Express", ["node", "npm"], nightly="takes 40 s"),
        Case("next", "Next.js", ["node", "npm"], nightly="installs 340 MB"),
        Case("bun", "Bun", ["bun"], "scripts/functions.sh runtimes"),
        Case("php", "PHP", ["php"], nightly="takes 20 s"),
        Case("ruby", "Ruby", ["ruby"], nightly="takes 10 s"),
        Case("rack", "Rack", ["ruby", "bundle", "puma", "rackup"], "scripts/setup.sh --nightly"),
        Case("java", "Java", ["java", "javac", "mvn"], "scripts/setup.sh --nightly", "downloads Maven's plugins"),
        Case("java-gradle", "Java", ["java", "javac", "gradle"], "scripts/setup.sh --nightly", "takes half a minute"),
    ]
}


def missing(case: Case, env: dict) -> list[str]:
    lacks = [tool for tool in case.tools if not shutil.which(tool, path=env["PATH"])]
    if not lacks and case.name in PYTHON_PROJECTS and subprocess.run(["/usr/bin/python3", "-c", "import ensurepip"]).returncode:
        lacks.append("python3-venv")
    return lacks


def environment() -> dict:
    """As a user's: the toolchains are found, and find their caches. (pyenv's python3 is a shell script.)"""
    runtimes = harness.ROOT / "build/functions/runtimes"
    deno, bun = runtimes / "deno/node_modules/@deno/linux-x64-glibc", runtimes / "bun/node_modules/@oven/bun-linux-x64/bin"
    path = ["/usr/bin", "/bin", str(deno), str(bun), *os.environ["PATH"].split(":")]
    return {**os.environ, "PATH": ":".join(path), "PIP_CONSTRAINT": str(CONSTRAINTS), "npm_config_before": "2026-11-24",
            "GRADLE_OPTS": "-Dorg.gradle.daemon=false"}  # or it is still there when the test is over  # fmt: skip


class Deployed:
    """A function restored from the store, in HTTP mode."""

    def __init__(self, store: Platform, name: str) -> None:
        snap = store.folder / "pulled.snap"
        store.ok("pull", name, "-o", snap)
        self.port = harness.free_port()
        listen = f"127.0.0.1:{self.port}"
        self.process = Process([str(harness.KVMSERVER), "snaprun", "--http", "--listen", listen, str(snap)], cwd="/")

    def __enter__(self) -> "Deployed":
        harness.wait_until(lambda: "' loaded." in self.process.out or not self.process.running(), "it is restored")
        assert self.process.running(), self.process.err
        return self

    def __exit__(self, *exc) -> None:
        self.process.close()

    def get(self, path: str) -> bytes:
        with harness.Client(self.port) as client:
            return client.ask(path, None)


@pytest.mark.parametrize("template", CASES)
def test_template(platform, template: str) -> None:
    case, env = CASES[template], environment()
    if case.nightly and not ALL:
        pytest.skip(f"{case.nightly}: INIT_TEMPLATES=all")
    if lacks := missing(case, env):
        pytest.skip(f"not installed: {' '.join(lacks)}: {case.how}")
    made = kvmserver("init", "--template", template, "Hello_World", cwd=platform.folder)
    assert made.status == 0 and made.out.splitlines()[-1] == "Created kvmserver.toml", made
    folder = platform.folder / "Hello_World"
    assert sorted(line.removeprefix("Created ") for line in made.out.splitlines()) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
    assert (folder / "README.md").read_text().startswith("# hello-world\n")
    assert "{{" not in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert platform.ok("deploy", cwd=folder, env=env) == "hello-world v1 stored; not served: start kvmserver serve"
    with Deployed(platform, "hello-world") as function:
        assert f"Hello world from {case.words}" in function.get("/").decode()
        assert f"Hello you from {case.words}" in function.get("/?name=you").decode()


def test_all_of_templates_is_in_the_binary(folder: pathlib.Path) -> None:
    for template in CASES:
        listed = subprocess.run(["git", "ls-files", f"templates/{template}"], cwd=harness.ROOT, capture_output=True, text=True)
        if listed.returncode != 0:
            pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
        files = {line.split("/", 2)[2].replace("dot_", ".") for line in listed.stdout.splitlines()}
        made = kvmserver("init", "--template", template, folder / template)
        assert files == {line.removeprefix("Created ") for line in made.out.splitlines()}


def test_nothing_is_overwritten(folder: pathlib.Path) -> None:
    (folder / "README.md").write_text("mine")
    done = kvmserver("init", "--template", "node", folder)
    assert done.status == 5 and str(folder / "README.md") in done.error, done
    assert [path.name for path in folder.iterdir()] == ["README.md"]
    assert (folder / "README.md").read_text() == "mine"
    (folder / "server.js").write_text("mine")
    (folder / "kvmserver.toml").symlink_to("nowhere")
    assert kvmserver("init", folder).status == 5
    (folder / "file").write_text("")
    assert kvmserver("init", "--template", "c", folder / "file").status == 5


def test_bad_input(folder: pathlib.Path) -> None:
    empty = kvmserver("init", cwd=folder)
    assert empty.status == 2 and f"--template {'|'.join(CASES)}" in empty.error
    assert "server.py, app.py, main.py" in empty.error and "--program FILE" in empty.error, empty
    assert "did you mean node?" in kvmserver("init", "--template", "nod", cwd=folder).error
    assert kvmserver("init", "--template", "c", "--name", "No!", cwd=folder).status == 2
    assert kvmserver("init", "a", "b", cwd=folder).status == 2
    dotnet = kvmserver("init", "--template", "dotnet", cwd=folder)
    assert dotnet.status == 2 and ".NET is not supported" in dotnet.error
    (folder / "package.json").write_text("{}")
    missing = kvmserver("init", cwd=folder)
    assert missing.status == 3 and "server.js" in missing.error
    assert [path.name for path in folder.iterdir()] == ["package.json"]
    listed = kvmserver("init", "--list").out
    assert [line.split()[0] for line in listed.splitlines()] == list(CASES)
