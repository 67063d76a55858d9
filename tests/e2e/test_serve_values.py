"""kvmserver serve: environment and secrets reach the program with the after-restore hook."""
import json
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


def test_a_hook_that_refuses(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=HOOK)
    store.ok("env", "set", "shop", "REFUSE=1")
    daemon = serve()
    problem = daemon.ask("shop", "/name").problem
    assert problem["status"] == 502 and problem["code"] == "not-restored"
    assert "POST /restored: status 500" in problem["detail"]
    store.ok("env", "unset", "shop", "REFUSE")
    harness.wait_until(lambda: daemon.ask("shop", "/name").status == 200, "it serves once the values are good")


def test_what_cannot_be_read_now_stays_as_it_was(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings=HOOK)
    store.deploy_probe(node, "other")
    store.ok("env", "set", "shop", "COLOUR=red")
    daemon = serve()
    assert daemon.text("shop", "/env/COLOUR") == "red"

    def index(sql: str) -> None:
        database = sqlite3.connect(store.path / "index.db", timeout=harness.PATIENCE)
        with database:
            database.execute(sql)
        database.close()

    index("ALTER TABLE secret RENAME TO away")  # no values of hooks can be read
    index("UPDATE function SET name = 'renamed' WHERE name = 'other'")
    index("UPDATE route SET host = 'renamed.localhost' WHERE host = 'other.localhost'")
    harness.wait_until(lambda: daemon.ask("renamed", "/name").status == 200, "the others are looked at")
    assert daemon.text("shop", "/env/COLOUR") == "red"
    harness.wait_until(lambda: "shop stays as it was: " in daemon.err, "it says so")
    assert daemon.err.count("shop stays as it was: ") == 1
    index("ALTER TABLE away RENAME TO secret")
    store.ok("env", "set", "shop", "COLOUR=blue")
    harness.wait_until(lambda: daemon.text("shop", "/env/COLOUR") == "blue", "it is read again")


def test_without_a_hook_nothing_is_sent(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings='[function.env]\nCOLOUR = "red"\n')
    assert serve().text("shop", "/values") == "null"
