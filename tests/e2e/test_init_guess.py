"""kvmserver init in the folder of a program: what it recognizes, and the manifest that it writes."""
import pathlib
from typing import NamedTuple

import pytest
from harness import kvmserver


class Case(NamedTuple):
    files: dict[str, str]
    recognized: str  # as init says it
    wanted: list[str]  # in the manifest


VENV = "python3 -m venv .venv && .venv/bin/pip install -q"
FLASK_APP = "from flask import Flask\napp = Flask(__name__)\n"

CASES = {
    "rust": Case({"Cargo.toml": '[package]\nname = "shop"\n'}, "rust: Cargo.toml", ['program = "target/release/shop"']),
    "go": Case({"go.mod": "module x\n", "main.go": ""}, "go: go.mod", ['command = "CGO_ENABLED=0 go build -o server ."']),
    "node-main": Case({"package.json": '{"main": "lib/a.js"}', "lib/a.js": ""}, "node: package.json", ['args = ["lib/a.js"]']),
    "node-index": Case({"package.json": "{}", "index.js": ""}, "node: package.json", ['args = ["index.js"]']),
    "deno": Case({"deno.json": "{}", "main.ts": "", "package.json": "{}"}, "deno: deno.json",
                 ['args = ["run", "--allow-net", "main.ts"]']),
    "python": Case({"app.py": ""}, "python: app.py", ['args = ["app.py"]']),
    "c": Case({"main.c": ""}, "c: main.c", ['command = "cc -O2 -Wall -Wextra -o server main.c"']),
    "flask": Case({"requirements.txt": "# web\nFlask[async]>=3\nwaitress\n", "app.py": FLASK_APP}, "flask: requirements.txt names flask",
                  ['8080", "app:app"]', f'"{VENV} -r requirements.txt"', 'program = ".venv/bin/python"']),
    "flask-pyproject": Case({"pyproject.toml": '[project]\ndependencies = ["flask >= 3"]\n', "shop/__init__.py": "web: Flask = flask.Flask(__name__)\n"},
                            "flask: pyproject.toml names flask", ['8080", "shop:web"]', f'"{VENV} . waitress"']),
    "flask-factory": Case({"requirements.txt": "flask\n", "shop/app.py": "def create_app():\n    app = Flask(__name__)\n"},
                          "flask: requirements.txt names flask", ['8080", "--call", "shop.app:create_app"]', "-r requirements.txt waitress"]),
}  # fmt: skip


def fill(folder: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_is_there(folder: pathlib.Path, name: str) -> None:
    case = CASES[name]
    fill(folder, case.files)
    done = kvmserver("init", cwd=folder)
    assert done.status == 0 and done.out == "Created kvmserver.toml\n", done
    assert f"kvmserver: recognized {case.recognized}\n" in done.err
    manifest = (folder / "kvmserver.toml").read_text()
    assert [text for text in case.wanted if text not in manifest] == [], manifest
    assert "{{" not in manifest and "allow-listen = true" in manifest
    dry = kvmserver("deploy", "--dry-run", "--name", "x", "--store", folder / "store", cwd=folder)
    assert dry.status == 0 and "ignored" not in dry.err, dry


# What is there, and what the line names that says why it cannot be started.
REFUSED = {
    "flask-without-app": ({"requirements.txt": "flask\n", "app.py": ""}, "app = Flask(...)"),
    "pyproject-no-toml": ({"pyproject.toml": "[", "app.py": ""}, "it is no TOML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_it_cannot_start(folder: pathlib.Path, name: str) -> None:
    files, why = REFUSED[name]
    fill(folder, files)
    done = kvmserver("init", cwd=folder)
    assert done.status == 3 and why in done.error and done.out == "", done
    assert not (folder / "kvmserver.toml").exists()
