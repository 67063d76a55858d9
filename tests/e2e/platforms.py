"""A store of a test's own, and manifests. Used by the tests of the commands over a store."""
import hashlib
import json
import pathlib

import harness
from harness import Ended, kvmserver


class Platform:
    """A store of the test's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def __call__(self, *words, stdin: bytes = b"", env: dict | None = None, cwd: pathlib.Path | None = None) -> Ended:
        patience = harness.PATIENCE * 6
        return kvmserver(*words, "--store", self.store, stdin=stdin, env=env, cwd=cwd, patience=patience)

    def ok(self, *words, **more) -> str:
        """Its last line."""
        done = self(*words, **more)
        assert done.status == 0, done
        return (["", *done.out.splitlines()])[-1]

    def json(self, *words):
        done = self(*words, "--json")
        assert done.status == 0, done
        return done.result

    def live(self, name: str) -> list[dict]:
        return self.json("describe", name)["live"]

    def files(self) -> dict[str, str]:
        """Every file of the store but the index's own, with its digest."""
        kept = [path for path in self.store.rglob("*") if path.is_file() and not path.name.startswith(("index.", "sweep."))]
        return {str(path.relative_to(self.store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}

    def fails(self, status: int, *words, **more) -> str:
        """Its one line of error."""
        done = self(*words, **more)
        assert done.status == status, done
        return done.error


def quoted(words: list[str]) -> str:
    return json.dumps(words)  # TOML's arrays of strings look the same


def manifest(folder: pathlib.Path, program: dict, function: str, top: str = "") -> pathlib.Path:
    argv = harness.arguments_of(program, harness.free_port())
    text = f"allow-all = true\nlevel = 1\nwarmup = 0\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {quoted(argv[1:])}\n"
    path = folder / "kvmserver.toml"
    folder.mkdir(exist_ok=True)
    path.write_text(text + "[function]\n" + function)
    return path
