"""The before-snapshot hook: a program is told before its machine is saved, and what it forgets then is in no machine."""
import contextlib
import json
import subprocess
import urllib.request

import harness
import pytest

SOURCE = """
let hooks = 0, asked = 0, token = "hush";
require("node:http").createServer((request, reply) => {
  if (request.method === "POST" && request.url === "/before") {
    if (process.env.REFUSE) reply.statusCode = 500;
    hooks++;
    token = "";
    return reply.end();
  }
  reply.end(`${hooks} ${asked++ > 0} [${token}]\\n`);
}).listen(process.argv[1], "127.0.0.1");
"""
TOLD = (b"1 false []\n", b"1 true []\n")  # before and after a warm-up


@pytest.fixture
def app(folder, program):
    """Writes the manifest of a program with a hook. Returns its folder."""
    def write(top: str = "", settings: str = "", hook: str = '[function.hooks]\nbefore-snapshot = "/before"\n'):
        argv = [program("node-http")["argv"][0], "-e", SOURCE, str(harness.free_port())]
        (folder / "kvmserver.toml").write_text(
            f"allow-all = true\nlevel = 1\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
            f'[function]\nname = "app"\n{settings}{hook}')
        return folder
    return write


@pytest.mark.nightly
def test_both_snapshots_of_a_deploy_have_had_it_once(store, serve, app) -> None:
    daemon = serve()
    with subprocess.Popen([str(harness.KVMSERVER), "deploy", str(app()), "-q", "--store", str(store.path)],
                          env=harness.BASE_ENVIRONMENT, stdout=subprocess.DEVNULL) as deploy:
        replies = set()
        while deploy.poll() is None:
            replies.add(daemon.ask("app", "/").body)
        assert deploy.returncode == 0
    replies = {reply for reply in replies if b"no-route" not in reply}  # it was not live yet
    assert replies and replies <= set(TOLD), replies
    assert daemon.text("app", "/") == TOLD[1].decode()  # the warmed-up one
    for path in ("/before", "/%62efore?x"):
        refused = daemon.ask("app", path, method="POST", body=b"{}")
        assert refused.problem["detail"] == "POST /before is the before-snapshot hook of app, which only kvmserver calls."
    assert daemon.text("app", "/before") == TOLD[1].decode()  # GET is the program's


def test_options_below_the_snapshot_section_are_those_of_a_deploy(store, serve, app) -> None:
    daemon = serve()
    for warmup, told in ((0, TOLD[0]), (3, TOLD[1])):
        file = app(top="warmup = 1\n") / "kvmserver.toml"
        file.write_text(file.read_text() + f"[snapshot]\nwarmup = {warmup}\n")
        store.ok("deploy", file, "-q")
        assert daemon.text("app", "/") == told.decode()


def test_a_hook_that_refuses_stores_nothing(store, app) -> None:
    store.ok("deploy", app(), "-q")
    done = store("deploy", app(settings='[function.env]\nREFUSE = "1"\n'))
    assert done.status == 1 and "the before-snapshot hook: POST /before: status 500" in done.err, done
    assert [version["version"] for version in store.json("versions", "app")["versions"]] == [1]


@pytest.mark.parametrize("command", ["snapshot", "run"])
@pytest.mark.parametrize("warmup", [(), ("-w", "3")])
def test_by_an_option(app, folder, program, tmp_path, command: str, warmup: tuple) -> None:
    server = {"name": "hook", "lang": "Node", "argv": [program("node-http")["argv"][0], "-e", SOURCE, "{port}"], "cwd": "/", "env": {}, "serial": False}
    words = [*warmup, "--before-snapshot", "/before"]
    if command == "snapshot":
        made = harness.make_snapshot(server, tmp_path / "a.snap", "--level", "1", *words)
        assert made.status == 0, made.error
        started = harness.Server(server, harness.SNAPRUN_E, snapshot=tmp_path / "a.snap")
    else:
        started = harness.Server(server, harness.RUN_E, *words)
    with contextlib.closing(started) as running:
        assert [running.get("/", "Connection: close") for _ in range(2)] == [TOLD[1 if warmup else 0]] * 2


def test_dev_asks_it_too(app, tmp_path) -> None:
    port = harness.free_port()
    words = [str(harness.KVMSERVER), "dev", str(app()), f"--port={port}"]
    with contextlib.closing(harness.Process(words, str(tmp_path), harness.BASE_ENVIRONMENT)) as dev:
        harness.wait_until(lambda: "Ready " in dev.out or not dev.running(), lambda: f"it serves: {dev.err}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=harness.PATIENCE) as reply:
            assert reply.read() == TOLD[0], dev.err


def test_a_manifest_and_the_command_line_say_where(app, tmp_path) -> None:
    assert harness.kvmserver("snapshot", "-o", tmp_path / "a.snap", cwd=app()).status == 0
    bad = harness.kvmserver("snapshot", "-o", tmp_path / "b.snap", "--before-snapshot", "before", cwd=app(hook=""))
    assert bad.status == 2 and "--before-snapshot: 'before' must start" in bad.error, bad
    bad = harness.kvmserver("snapshot", "-o", tmp_path / "b.snap", cwd=app(hook='[function.hooks]\nbefore-snapshot = "x"\n'))
    assert bad.status == 2 and "function.hooks.before-snapshot: 'x' " in bad.error, bad
    twice = harness.kvmserver("deploy", "--store", tmp_path / "s", cwd=app(top='before-snapshot = "/x"\n'))
    assert twice.status == 2 and "before-snapshot is given twice" in twice.error, twice
    kept = 'before-snapshot = "/before"\n'
    refused = harness.kvmserver("snapshot", "-o", tmp_path / "b.snap", cwd=app(top=kept, hook="", settings='[function.env]\nREFUSE = "1"\n'))
    assert refused.status == 1 and "the before-snapshot hook: POST /before: status 500" in refused.err, refused
    assert not (tmp_path / "b.snap").exists()
