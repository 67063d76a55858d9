"""kvmserver init: every template is deployed as it stands, and serves."""
import os
import pathlib
import shutil
import subprocess

import harness
import pytest
from harness import Process, kvmserver
from test_platform import Platform, platform  # noqa: F401  a fixture

LANGUAGES = {"c": "C", "rust": "Rust", "go": "Go", "python": "Python", "node": "Node", "deno": "Deno"}
TOOLS = {"c": "cc", "rust": "cargo", "go": "go", "python": "/usr/bin/python3", "node": "node", "deno": "deno"}


def environment() -> dict:
    """As a user's: the toolchains are found, and find their caches. (pyenv's python3 is a shell script.)"""
    deno = harness.ROOT / "build/functions/runtimes/deno/node_modules/@deno/linux-x64-glibc"
    path = ["/usr/bin", "/bin", str(deno), *os.environ["PATH"].split(":")]
    return {**os.environ, "PATH": ":".join(path)}


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


@pytest.mark.parametrize("template", LANGUAGES)
def test_template(platform, template: str) -> None:  # noqa: F811
    env = environment()
    if not shutil.which(TOOLS[template], path=env["PATH"]):
        pytest.skip(f"{TOOLS[template]} is not installed: scripts/setup.sh --tests, scripts/functions.sh")
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
        assert function.get("/") == f"Hello world from {LANGUAGES[template]}\n".encode()
        assert function.get("/?name=you") == f"Hello you from {LANGUAGES[template]}\n".encode()


def test_all_of_templates_is_in_the_binary(folder: pathlib.Path) -> None:
    for template in LANGUAGES:
        listed = subprocess.run(["git", "ls-files", f"templates/{template}"], cwd=harness.ROOT, capture_output=True, text=True)
        if listed.returncode != 0:
            pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
        files = {line.split("/", 2)[2].replace("dot_", ".") for line in listed.stdout.splitlines()}
        made = kvmserver("init", "--template", template, folder / template)
        assert files == {line.removeprefix("Created ") for line in made.out.splitlines()}


def test_nothing_is_overwritten(folder: pathlib.Path) -> None:
    (folder / "server.js").write_text("mine")
    done = kvmserver("init", "--template", "node", folder)
    assert done.status == 5 and str(folder / "server.js") in done.error, done
    assert [path.name for path in folder.iterdir()] == ["server.js"]
    assert (folder / "server.js").read_text() == "mine"
    (folder / "kvmserver.toml").symlink_to("nowhere")
    assert kvmserver("init", folder).status == 5
    (folder / "file").write_text("")
    assert kvmserver("init", "--template", "c", folder / "file").status == 5


@pytest.mark.parametrize(("files", "wanted"), [
    ({"Cargo.toml": '[package]\nname = "shop"\n'}, 'program = "target/release/shop"'),
    ({"go.mod": "module x\n", "main.go": ""}, 'command = "CGO_ENABLED=0 go build -o server ."'),
    ({"package.json": '{"main": "lib/a.js"}', "lib/a.js": ""}, 'args = ["lib/a.js"]'),
    ({"package.json": "{}", "index.js": ""}, 'args = ["index.js"]'),
    ({"deno.json": "{}", "main.ts": "", "package.json": "{}"}, 'args = ["run", "--allow-net", "main.ts"]'),
    ({"app.py": ""}, 'args = ["app.py"]'),
    ({"main.c": ""}, 'command = "cc -O2 -Wall -Wextra -o server main.c"'),
])  # fmt: skip
def test_a_program_that_is_there(folder: pathlib.Path, files: dict, wanted: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    done = kvmserver("init", cwd=folder)
    assert done.status == 0 and done.out == "Created kvmserver.toml\n", done
    assert wanted in (folder / "kvmserver.toml").read_text()
    dry = kvmserver("deploy", "--dry-run", "--name", "x", "--store", folder / "store", cwd=folder)
    assert dry.status == 0 and "ignored" not in dry.err, dry


def test_bad_input(folder: pathlib.Path) -> None:
    empty = kvmserver("init", cwd=folder)
    assert empty.status == 2 and "--template" in empty.error
    assert "did you mean node?" in kvmserver("init", "--template", "nod", cwd=folder).error
    assert kvmserver("init", "--template", "c", "--name", "No!", cwd=folder).status == 2
    assert kvmserver("init", "a", "b", cwd=folder).status == 2
    (folder / "package.json").write_text("{}")
    missing = kvmserver("init", cwd=folder)
    assert missing.status == 3 and "server.js" in missing.error
    assert [path.name for path in folder.iterdir()] == ["package.json"]
    listed = kvmserver("init", "--list").out
    assert [line.split()[0] for line in listed.splitlines()] == list(LANGUAGES)
