"""Environment and secrets: with the after-restore hook, and where the program's own lie."""
import contextlib
import json
import pathlib
import re
import sqlite3

import harness
import pytest

HOOK = '[function.hooks]\nafter-restore = "/restored"\n'


@pytest.fixture
def node(program):
    return program("node-http")


def test_values_reach_the_program(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=f'secrets = ["SHARED"]\n[function.env]\nCOLOUR = "red"\n{HOOK}')
    store.ok("secret", "set", "shop", "TOKEN", "--stdin", stdin=b"hush\n")
    store.ok("secret", "set", "SHARED", "--stdin", stdin=b"everybody\n")
    store.ok("secret", "set", "OTHER", "--stdin", stdin=b"not asked for\n")
    daemon = serve()
    for _ in range(3):
        values = json.loads(daemon.text("shop", "/values"))
        assert values == {"env": {"COLOUR": "red"}, "secrets": {"TOKEN": "hush", "SHARED": "everybody"}, "method": "POST", "type": "application/json"}
        assert daemon.text("shop", "/env/TOKEN") == "hush"
        assert daemon.text("shop", "/count") == "1"  # each from the state after the hook
    body = harness.letters(1_000_000)
    assert daemon.ask("shop", "/echo", body=body).body == body
    store.ok("env", "set", "shop", "COLOUR=blue")
    harness.wait_until(lambda: daemon.text("shop", "/env/COLOUR") == "blue", "the change is seen")
    store.ok("secret", "set", "shop", "TOKEN", "--stdin", stdin=b"new\n")
    harness.wait_until(lambda: daemon.text("shop", "/env/TOKEN") == "new", "the new secret is seen")


LATE = "require('http').createServer((_, r) => r.end([early, process.env.TOKEN, process.env.COLOUR, process.env.OTHER].join('|') + '\\n')).listen(process.argv[1], '127.0.0.1')"


def late_program(node: dict) -> list[str]:
    return [node["argv"][0], "-e", f"const early = process.env.TOKEN; {LATE}", str(harness.free_port())]


def test_values_reach_a_program_without_a_hook(store, serve, node, folder) -> None:
    """What it looks up when it needs it. Secrets are not in the snapshot."""
    argv = late_program(node)
    run = f"allow-all = true\nlevel = 1\n[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
    (folder / "kvmserver.toml").write_text(f'{run}[function]\nname = "shop"\nsecrets = ["TOKEN"]\n[function.env]\nCOLOUR = "red"\n')
    store.ok("secret", "set", "TOKEN", "--stdin", stdin=b"hush\n")
    store.ok("deploy", folder, "-q")
    daemon = serve()
    for _ in range(3):
        assert daemon.text("shop", "/") == "|hush|red|\n"
    store.ok("env", "set", "shop", "COLOUR=" + "b" * 4000)
    harness.wait_until(lambda: daemon.text("shop", "/") == f"|hush|{'b' * 4000}|\n", "the change is seen")
    assert store("env", "set", "shop", "COLOUR=blue").err == ""
    store.ok("secret", "set", "TOKEN", "--stdin", stdin=b"x\n")
    harness.wait_until(lambda: daemon.text("shop", "/") == "|x|blue|\n", "nothing is left of longer values")
    place = "kvmserver: shop v1: OTHER does not reach the program, whose snapshot has no place for it: name it in [function.env] or secrets, and deploy"
    assert place in store("env", "set", "shop", "OTHER=1").err
    assert "COLOUR does not reach the program: with its name it is longer than 4095 bytes" in store("env", "set", "shop", "COLOUR=" + "c" * 4096).err
    harness.wait_until(lambda: daemon.text("shop", "/") == "|x|red|\n", "it is as it was built")
    assert "OTHER does not reach the program" in daemon.err and "COLOUR does not reach the program: with its name it is longer than 4095 bytes" in daemon.err


@pytest.mark.parametrize("mode", ["run", "snaprun"])
def test_snaprun_changes_the_environment(start, node, tmp_path, mode: str) -> None:
    program = {"name": "late", "lang": "Node", "argv": [*late_program(node)[:-1], "{port}"], "cwd": "/", "env": {}, "serial": False}
    late = ["--late-env", "TOKEN", "--late-env", "COLOUR=red"]
    if mode == "run":
        server = start(program, harness.RUN_E, *late, "--env", "OTHER=o", "--env", "TOKEN=not this")  # which it has from the start
        assert server.get("/", "Connection: close") == b"not this|not this|red|o\n"
        return
    made = harness.make_snapshot(program, tmp_path / "late.snap", *late, "--level", "1")
    assert made.status == 0, made.error
    with contextlib.closing(harness.Server(program, harness.SNAPRUN_E, "--env", "TOKEN=s3cret", "--env", "OTHER=o", snapshot=tmp_path / "late.snap")) as server:
        assert [server.get("/", "Connection: close") for _ in range(2)] == [b"|s3cret|red|\n"] * 2
        assert "OTHER does not reach the program" in server.err


def test_a_hook_that_refuses(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=HOOK)
    store.ok("env", "set", "shop", "REFUSE=1")
    daemon = serve()
    problem = daemon.ask("shop", "/name").problem
    assert problem["status"] == 502 and problem["code"] == "not-restored"
    assert "POST /restored: status 500" in problem["detail"]
    store.ok("env", "unset", "shop", "REFUSE")
    harness.wait_until(lambda: daemon.ask("shop", "/name").status == 200, "it serves once the values are good")


def test_a_version_whose_hook_refuses_does_not_go_live(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=HOOK)
    folder = store.folder / "probe-shop"
    manifest = (folder / "kvmserver.toml").read_text()
    (folder / "kvmserver.toml").write_text(manifest.replace("[function.hooks]", '[function.env]\nREFUSE = "1"\n[function.hooks]'))
    refused = store("deploy", folder)
    assert refused.status == 1 and "does not go live: the after-restore hook: POST /restored: status 500" in refused.error, refused
    assert "--no-activate" in refused.error
    with (folder / "kvmserver.toml").open("a") as file:
        file.write('health = "/need/NOTHING"\n')  # which may need the values too
    assert store.ok("deploy", folder, "--no-activate").endswith("shop v2 ready, live: v1")
    assert serve().text("shop", "/name") == "probe"


@pytest.mark.parametrize("hook", [pytest.param("", marks=pytest.mark.nightly), 'after-restore = "/restored"\n'])
def test_a_version_is_tried_with_the_values_of_its_function(store, node, hook: str) -> None:
    """Those for all, when there is no function yet; then its own, and those of the manifest that is deployed."""
    hooks = f'[function.hooks]\n{hook}health = "/need/'

    def refused(settings: str) -> bool:
        with pytest.raises(AssertionError, match="does not go live: GET /need/[A-Z]+: status 503"):
            store.deploy_probe(node, "shop", settings=settings)
        return True

    assert refused(f'secrets = ["TOKEN"]\n{hooks}TOKEN"\n')
    store.ok("secret", "set", "TOKEN", "--stdin", stdin=b"hush\n")
    assert refused(f'{hooks}TOKEN"\n')  # does not ask for it
    assert store.ok("list") == ""
    store.deploy_probe(node, "shop", settings=f'secrets = ["TOKEN"]\n{hooks}TOKEN"\n')
    assert refused(f'secrets = ["OWN"]\n{hooks}OWN"\n')
    store.ok("secret", "set", "shop", "OWN", "--stdin", stdin=b"hush\n")
    store.deploy_probe(node, "shop", settings=f'secrets = ["OWN"]\n{hooks}OWN"\n')
    assert refused(f'{hooks}COLOUR"\n')
    store.deploy_probe(node, "shop", settings=f'[function.env]\nCOLOUR = "red"\n{hooks}COLOUR"\n')


def test_what_cannot_be_read_now_stays_as_it_was(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=HOOK)
    store.deploy_probe(node, "other")
    store.ok("env", "set", "shop", "COLOUR=red")
    store.ok("secret", "set", "shop", "TOKEN", "--stdin", stdin=b"hush\n")
    daemon = serve()
    assert daemon.text("shop", "/env/COLOUR") == "red"

    def index(sql: str) -> None:
        database = sqlite3.connect(store.path / "index.db", timeout=harness.PATIENCE)
        with database:
            database.execute(sql)
        database.close()

    index("ALTER TABLE secret RENAME TO away")
    index("CREATE VIEW secret AS SELECT id, function, name, abs(function * 0 - 9223372036854775807 - 1) AS value, changed, grants FROM away")  # an error for each row that is read
    index("UPDATE function SET name = 'renamed' WHERE name = 'other'")
    index("UPDATE route SET host = 'renamed.localhost' WHERE host = 'other.localhost'")
    index("INSERT INTO change (function) VALUES ('shop'), ('other'), ('renamed')")  # as whoever changes them notes it
    harness.wait_until(lambda: daemon.ask("renamed", "/name").status == 200, "the others are looked at")
    assert daemon.text("shop", "/env/COLOUR") == "red"
    harness.wait_until(lambda: "shop stays as it was: " in daemon.err, "it says so")
    assert daemon.err.count("shop stays as it was: ") == 1
    index("DROP VIEW secret")
    index("ALTER TABLE away RENAME TO secret")
    store.ok("env", "set", "shop", "COLOUR=blue")
    harness.wait_until(lambda: daemon.text("shop", "/env/COLOUR") == "blue", "it is read again")


def test_without_a_hook_nothing_is_sent(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings='[function.env]\nCOLOUR = "red"\n')
    assert serve().text("shop", "/values") == "null"


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/howto/secrets.md"
PYTHON = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        values = f'{os.environ.get("GREETING", "")}|{os.environ.get("KEY", "")}'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(values)))
        self.end_headers()
        self.wfile.write(values)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python_folder(folder: pathlib.Path, source: str, more: str, port: int) -> pathlib.Path:
    (folder / "server.py").write_text(source)
    (folder / "kvmserver.toml").write_text(f"""allow-listen = ["127.0.0.1:{port}"]
allow-read = ["."]
level = 1
warmup = 0
[run]
program = "python3"
args = ["server.py", "{port}"]
[function]
name = "greet"
secrets = ["KEY", "API_TOKEN"]
[function.env]
GREETING = "Hi"
{more}""")
    return folder


def test_a_program_that_has_copied_its_environment_is_named_when_a_value_is_set(store, serve, folder) -> None:
    store.ok("deploy", python_folder(folder, PYTHON, "", harness.free_port()), "-q")
    daemon = serve()
    assert daemon.text("greet", "/") == "Hi|"
    why = r"greet v1: python3 has copied its environment when it started, so {} stays for it what it was at its boot: " \
          r"it needs \[function.hooks\] after-restore \(docs/howto/secrets.md\)\n"  # fmt: skip
    done = store("env", "set", "greet", "GREETING=Hoi")
    assert done.status == 0 and done.out == "Set GREETING\n" and re.fullmatch("kvmserver: " + why.format("GREETING"), done.err), done
    done = store("secret", "set", "greet", "KEY", "--stdin", stdin=b"x")
    assert done.out == "Set KEY\n" and re.fullmatch("kvmserver: " + why.format("KEY"), done.err), done
    (warning,) = json.loads(store("secret", "set", "greet", "KEY", "--stdin", "--json", stdin=b"y").out)["warnings"]
    assert re.fullmatch(why.format("KEY"), warning + "\n")
    assert daemon.text("greet", "/") == "Hi|"  # as it was told
    harness.wait_until(lambda: re.search(r"GREETING stays for the program what it was at its boot: python3\.\d+ copies", daemon.err), "the log says so")


def test_the_hook_of_the_guide_takes_values_and_only_the_daemon_calls_it(store, serve, folder) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (hook,) = re.findall(r"```toml\n(\[function.hooks\].*?)```", DOCUMENT.read_text(), re.DOTALL)
    port = harness.free_port()
    done = store("deploy", python_folder(folder, source.replace("8080", str(port)), hook, port))
    assert done.status == 0 and "copied" not in done.err, done
    daemon = serve()
    assert daemon.text("greet", "/") == "Hi (token of 0 characters)\n"
    done = store("env", "set", "greet", "GREETING=Hoi")
    assert done.status == 0 and done.err == "", done
    store.ok("secret", "set", "greet", "API_TOKEN", "--stdin", stdin=b"s3cret-value")
    harness.wait_until(lambda: daemon.text("greet", "/") == "Hoi (token of 12 characters)\n", "the program has them")
    for path in ("/restored", "/restored?x", "/%72estored"):
        refused = daemon.ask("greet", path, method="POST", body=b'{"env": {"GREETING": "mine"}, "secrets": {}}')
        assert refused.status == 404 and refused.problem["detail"] == "POST /restored is the after-restore hook of greet, which only kvmserver calls."
    assert daemon.ask("greet", "/restored/", method="POST", body=b"{}").status == 404  # by the program
    assert daemon.ask("greet", "/restored").status == 200  # only POST is the hook's


def test_snaprun_names_what_python_does_not_see(tmp_path) -> None:
    (tmp_path / "server.py").write_text(PYTHON)
    program = {"name": "greets", "lang": "Python", "argv": ["/usr/bin/python3", str(tmp_path / "server.py"), "{port}"], "cwd": "/", "env": {}, "serial": False}
    made = harness.make_snapshot(program, tmp_path / "app.snap", "--late-env", "GREETING=Hi", "--level", "1")
    assert made.status == 0, made
    for value, warned in (("Hoi", True), ("Hi", False)):
        with contextlib.closing(harness.Server(program, harness.SNAPRUN_E, "--env", f"GREETING={value}", snapshot=tmp_path / "app.snap")) as server:
            assert server.get("/", "Connection: close") == b"Hi|"
            assert ("GREETING stays for the program what it was at its boot" in server.err) == warned
