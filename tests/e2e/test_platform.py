"""The commands over a store: deploy and all that comes after it."""
import json
import os
import pwd
import re
import shutil
import subprocess

import harness
import pytest
from harness import kvmserver
from platforms import manifest


def test_deploy_snapshot(platform, snap) -> None:
    first = platform("deploy", snap, "--name", "hello")
    assert first.out.splitlines()[-1] == "hello v1 stored; not served: start kvmserver serve", first
    assert first.status == 0
    assert platform.ok("deploy", snap, "--name", "hello") == "hello v2 stored; not served: start kvmserver serve"
    for name in ("list", "ls"):
        header, row = platform(name).out.splitlines()
        assert header.split() == ["NAME", "LIVE", "STATE", "REQUESTS", "CHANGED", "ROUTE"]
        assert re.fullmatch(r"hello  v2    ready  -         \d+ s ago +hello\.localhost", row) and header.index("ROUTE") == row.index("hello.local")
        assert platform(name, "--no-header").out.split()[:4] == row.split()[:4]
    listed = platform.json("list")["functions"]
    assert [(f["name"], f["versions"], f["routes"]) for f in listed] == [("hello", 2, ["hello.localhost"])]
    assert platform.ok("describe", "hello") == "hello v2 ready"
    assert platform.ok("verify").startswith("Verified: functions 1, versions 2, snapshots 1,")


def test_name_is_the_files(platform, snap) -> None:
    copy = platform.folder / "greeter.snap"
    shutil.copy(snap, copy)
    assert platform.ok("deploy", copy).startswith("greeter v1 stored")


def test_versions_and_rollback(platform, snap, other_snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    platform.ok("deploy", other_snap, "--name", "hello")
    platform.ok("deploy", snap, "--name", "hello")
    lines = platform("versions", "hello").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["VERSION", "STATE"], ["v3", "live"], ["v2", "ready"], ["v1", "ready"]]
    before = platform.files()
    assert platform.ok("rollback", "hello", "--dry-run") == "hello v3 -> v2 (dry run)"
    assert platform.files() == before
    assert platform.ok("rollback", "hello", "-y") == "hello v3 -> v2"
    assert platform.ok("rollback", "hello", "-y", "v1") == "hello v2 -> v1"
    assert "before v1, which is live; `kvmserver rollback hello 3` goes to v3" in platform.fails(3, "rollback", "hello")
    platform.fails(3, "rollback", "hello", "9")
    assert platform.ok("rollback", "hello", "-y", "3") == "hello v1 -> v3"


def test_history(platform, snap, other_snap) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    platform.ok("deploy", snap, "--name", "hello", "--message", "first try")
    platform.ok("deploy", other_snap, "--name", "hello")
    platform.ok("rollback", "hello", "-y", "-m", "größer ist nicht besser")
    platform.ok("traffic", "hello", "1=50", "2=50", "-m", "half each")
    platform.ok("env", "set", "hello", "COLOUR=red")
    platform.ok("secret", "set", "hello", "KEY", "--stdin", stdin=b"hush-hush")
    header, *rows = platform("history", "hello").out.splitlines()
    assert header.split() == ["WHEN", "WHO", "WHAT", "CHANGE", "MESSAGE"]
    cells = [re.split(r"  +", row) for row in rows]
    assert all(re.fullmatch(r"\d+ s ago", row[0]) and row[1] == me for row in cells), cells
    assert [row[2] for row in cells] == ["set-secret KEY", "set-env COLOUR", "traffic v1 -> v1:50%,v2:50%", "rollback v2 -> v1", "deploy v2", "deploy v1"]
    assert [row[4] for row in cells] == ["-", "-", "half each", "größer ist nicht besser", "-", "first try"]
    assert re.fullmatch(r"first version; [\d.]+ KiB, [\d.]+ KiB new", cells[5][3]) and cells[4][3].startswith("snapshot; ")
    assert platform("history", "hello", "--no-header").out.splitlines()[0].split()[3:] == rows[0].split()[3:]
    told = platform.json("history", "hello")
    assert told["name"] == "hello" and b"hush-hush" not in json.dumps(told).encode()
    first = told["events"][-1]
    assert first["author"] == {"kind": "user", "name": me} and first["bytes"] == first["new_bytes"] == snap.stat().st_size
    # What is not done is not told, and what cannot be told is not done.
    live = platform.live("hello")
    for words in (["rollback", "hello", "2"], ["traffic", "hello", "2=100"], ["deploy", snap, "--name", "hello"]):
        platform.ok(*words, "--dry-run", "-m", "only looking")
        for message in ("two\nlines", "x" * 501, "not UTF-8 \udcff"):
            assert "message: " in platform.fails(2, *words, "-m", message)
    assert "--message" in platform.fails(2, "traffic", "hello", "-m", "no change")
    assert platform.live("hello") == live and platform.json("history", "hello") == told
    platform.fails(3, "history", "nobody")
    platform.fails(2, "history")


def test_history_tells_what_of_the_manifest_changed(platform, program) -> None:
    folder = platform.folder / "app"
    path = manifest(folder, program("c-epoll"), 'name = "shop"\n[function.env]\nCOLOUR = "red"\n')
    platform.ok("deploy", folder)
    path.write_text(path.read_text().replace("allow-all = true", "allow-net = true\nmax-request-time = 20").replace("red", "blue"))
    platform.ok("deploy", folder, "--no-activate", "--route", "shop.example.com")
    platform.ok("deploy", folder, "--route", "shop.example.com")
    changes = [event["change"] for event in platform.json("history", "shop")["events"]]
    assert [re.sub(r", (same )?snapshot$", "", change) for change in changes] == [
        "+allow-net, +max-request-time, -allow-all, routes, env COLOUR", "not live, +allow-net, +max-request-time, -allow-all", "first version"]
    assert "blue" not in json.dumps(changes)


def test_traffic(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    platform.ok("deploy", snap, "--name", "hello")
    before = platform.files()
    assert platform.ok("traffic", "hello", "v1=10", "2=90%", "--dry-run") == "hello v2 -> v1:10%,v2:90% (dry run)"
    assert platform.files() == before
    assert platform.ok("traffic", "hello", "v1=10", "2=90%") == "hello v2 -> v1:10%,v2:90%"
    assert platform.live("hello") == [{"version": 1, "percent": 10}, {"version": 2, "percent": 90}]
    for wrong in (["1=50"], ["1=50", "2=60"], ["1"], ["1=x"], ["1=300"], ["x=100"], ["1=0"], ["1=-1"]):
        platform.fails(2, "traffic", "hello", *wrong)
    platform.fails(3, "traffic", "hello", "7=100")
    assert platform.live("hello") == [{"version": 1, "percent": 10}, {"version": 2, "percent": 90}]


def test_manifest(platform, program) -> None:
    folder = platform.folder / "app"
    path = manifest(folder, program("c-epoll"), 'name = "shop"\nroutes = ["shop.example.com", "/shop/*"]\n'
                    '[function.env]\nCOLOUR = "red"\nSIZE = "9"\n[function.hooks]\nhealth = "/count"\n'
                    '[function.build]\ncommand = "echo built > built.txt"\n')  # fmt: skip
    assert platform.ok("deploy", cwd=folder) == "shop v1 stored; not served: start kvmserver serve"
    assert (folder / "built.txt").read_text() == "built\n"
    assert platform.json("describe", "shop")["routes"] == ["/shop/*", "shop.example.com"]
    platform.ok("env", "set", "shop", "MINE=1")
    path.write_text(path.read_text().replace('COLOUR = "red"\n', "").replace('"9"', '"10"'))
    for words in ([folder], [path]):
        platform.ok("deploy", *words, "-q")
        assert platform("env", "list", "shop").out == "MINE=1\nSIZE=10\n"
    assert platform.json("describe", "shop")["live_versions"][0]["manifest"]["function"]["name"] == "shop"
    assert platform.ok("deploy", folder, "--name", "two", "--route", "two.example.com") == "two v1 stored; not served: start kvmserver serve"


def test_failed_build_changes_nothing(platform, program) -> None:
    folder = platform.folder / "app"
    manifest(folder, program("c-epoll"), 'name = "shop"\n')
    platform.ok("deploy", folder)
    before = platform.files()
    manifest(folder, program("c-epoll"), 'name = "shop"\n[function.build]\ncommand = "echo it broke; exit 3"\n')
    failed = platform("deploy", folder)
    assert failed.status == 1 and "it broke" in failed.err and "status 3" in failed.error, failed
    (folder / "kvmserver.toml").write_text('[run]\nprogram = "./not-there"\n[function]\nname = "shop"\n')
    missing = platform.fails(3, "deploy", folder)
    assert "[run] program: " in missing and "not-there: no such file" in missing
    assert platform.files() == before
    assert platform.live("shop") == [{"version": 1, "percent": 100}]


# The program dies of /crash.


def test_failed_health_keeps_the_old_one_live(platform, program) -> None:
    folder = platform.folder / "app"
    manifest(folder, program("c-epoll"), 'name = "shop"\n[function.hooks]\nhealth = "/"\n')
    platform.ok("deploy", folder)
    described = platform.json("describe", "shop")
    manifest(folder, program("c-poll"), 'name = "shop"\nroutes = ["new.example.com"]\n[function.hooks]\nhealth = "/crash"\n')
    failed = platform("deploy", folder)
    assert failed.status == 1, failed
    assert "does not go live: GET /crash: the connection ended without an answer" in failed.error
    assert "c-poll: killed by SIGSEGV" in failed.err, "what it said is shown"
    assert platform.json("describe", "shop") == described
    assert [line.split()[0] for line in platform("versions", "shop", "--no-header").out.splitlines()] == ["v1"]
    assert platform.ok("verify").startswith("Verified")


def test_no_activate(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    assert platform.ok("deploy", snap, "--name", "hello", "--no-activate", "--route", "x.example.com") == "hello v2 ready, live: v1"
    assert platform.live("hello") == [{"version": 1, "percent": 100}]
    assert platform.json("describe", "hello")["routes"] == ["hello.localhost"]
    assert platform.ok("traffic", "hello", "2=100") == "hello v1 -> v2"


def test_if_version(platform, snap) -> None:
    platform.fails(5, "deploy", snap, "--name", "hello", "--if-version", "1")
    platform.ok("deploy", snap, "--name", "hello", "--if-version", "0")
    platform.fails(5, "deploy", snap, "--name", "hello", "--if-version", "0")
    platform.fails(5, "deploy", snap, "--name", "hello", "--if-version", "2")
    platform.ok("deploy", snap, "--name", "hello", "--if-version", "1")
    assert platform.live("hello") == [{"version": 2, "percent": 100}]


def test_routes_conflict(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "one", "--route", "one.example.com", "--route", "/one/*")
    before = platform.files()
    for more in ([], ["--dry-run"]):
        error = platform.fails(5, "deploy", snap, "--name", "two", "--route", "/one/*", *more)
        assert "one" in error and "/one/*" in error
    assert platform.files() == before
    platform.fails(3, "describe", "two")
    platform.ok("deploy", snap, "--name", "one")
    assert platform.json("describe", "one")["routes"] == ["/one/*", "one.example.com"], "routes stay when none are given"


def test_delete(platform, snap) -> None:
    for _ in range(3):
        platform.ok("deploy", snap, "--name", "hello")
    assert platform.ok("delete", "-y", "hello", "--version", "1") == "Deleted hello v1"
    platform.fails(5, "delete", "-y", "hello", "--version", "3")  # it is live
    platform.fails(3, "delete", "-y", "hello", "--version", "1")
    assert "hello has no v1" in platform.fails(3, "delete", "hello", "--version", "1")  # before it asks
    assert [v["version"] for v in platform.json("versions", "hello")["versions"]] == [3, 2]
    assert platform.ok("delete", "-y", "hello") == "Deleted hello"
    platform.fails(3, "delete", "-y", "hello")
    assert platform("list").out == ""


def test_dry_run_changes_nothing(platform, snap, program) -> None:
    assert platform.ok("deploy", snap, "--name", "hello", "--dry-run") == "hello none -> the new version (dry run: nothing was built, booted or stored)"
    assert not platform.store.exists()
    folder = platform.folder / "app"
    manifest(folder, program("c-epoll"), 'name = "hello"\n[function.env]\nA = "1"\n[function.build]\ncommand = "touch built"\n')
    platform.ok("deploy", snap, "--name", "hello")
    before = platform.files()
    done = platform("deploy", folder, "--dry-run", "--route", "/x/*")
    assert done.out.splitlines() == ["+ route /x/*", "- route hello.localhost", "+ env A=1", "hello v1 -> the new version (dry run: nothing was built, booted or stored)"]
    assert not (folder / "built").exists()
    assert platform.json("deploy", folder, "--dry-run")["before"] == [{"version": 1, "percent": 100}]
    assert platform.files() == before


def test_environment(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    assert platform.ok("env", "set", "hello", "DB_URL=a=b c") == "Set DB_URL"
    assert platform.ok("env", "set", "hello", "KEY", "--stdin", stdin=b"x\ny\n") == "Set KEY"
    assert platform.json("env", "list", "hello")["env"] == {"DB_URL": "a=b c", "KEY": "x\ny"}
    assert platform.ok("env", "unset", "hello", "KEY") == "Unset KEY"
    assert platform("env", "list", "hello").out == "DB_URL=a=b c\n"
    platform.fails(3, "env", "unset", "hello", "KEY")
    platform.fails(3, "env", "set", "nobody", "A=1")
    for wrong in (["set", "hello", "A"], ["set", "hello", "1=2"], ["frob", "hello"], ["set", "hello"], [],
                  ["list", "hello", "x"], ["unset", "hello", "A=1"], ["list", "hello", "--stdin"]):  # fmt: skip
        platform.fails(2, "env", *wrong)


def test_secrets(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    assert platform.ok("secret", "set", "hello", "TOKEN", "--stdin", stdin=b"hush-hush\n") == "Set TOKEN"
    assert platform.ok("secret", "set", "SHARED", "--stdin", stdin=b"everybody\n") == "Set SHARED"
    assert [s["name"] for s in platform.json("secret", "list", "hello")["secrets"]] == ["TOKEN"]
    assert [s["name"] for s in platform.json("secret", "list")["secrets"]] == ["SHARED"]
    for words in (["describe", "hello"], ["describe", "hello", "--json"], ["secret", "list", "hello"]):
        assert "hush-hush" not in platform(*words).out
    assert "--stdin" in platform.fails(2, "secret", "set", "hello", "TOKEN=x")
    platform.fails(2, "secret", "set", "hello", "TOKEN")
    assert platform.ok("secret", "unset", "hello", "TOKEN") == "Unset TOKEN"
    assert platform.ok("secret", "unset", "SHARED") == "Unset SHARED"
    platform.fails(3, "secret", "unset", "SHARED")


def test_sort(platform, snap) -> None:
    for name in ("b", "c", "a", "b"):
        platform.ok("deploy", snap, "--name", name)

    def names(*words: str) -> list[str]:
        return [function["name"] for function in platform.json("list", *words)["functions"]]

    assert names() == names("--sort", "name") == ["a", "b", "c"]
    assert names("--sort", "created") == ["a", "c", "b"]
    assert names("--sort", "changed") == ["b", "a", "c"]
    assert names("--sort", "versions")[0] == "b"
    platform.fails(2, "list", "--sort", "size")


@pytest.mark.parametrize("variable", ["KVMSERVER_STORE", "XDG_DATA_HOME", "HOME"])
def test_where_the_store_is(folder, variable: str) -> None:
    if variable != "KVMSERVER_STORE" and os.geteuid() == 0:
        pytest.skip("root's is /var/lib/kvmserver")
    done = kvmserver("describe", "x", env={variable: str(folder)})
    assert done.status == 3 and str(folder) in done.error
    given = kvmserver("describe", "x", "--store", folder / "given", env={variable: str(folder)})
    assert str(folder / "given") in given.error


def test_help_and_completion() -> None:
    commands = ["deploy", "list", "ls", "describe", "versions", "rollback", "traffic", "delete", "env", "secret",
                "push", "pull", "gc", "verify"]  # fmt: skip
    overview = kvmserver("--help").out
    for name in commands:
        assert re.search(rf"^  {name}\b", overview, re.M), name
        shown = kvmserver(name, "--help")
        assert shown.status == 0 and "--store" in shown.out and "--json" in shown.out, shown
    for shell in ("bash", "zsh", "fish"):
        script = kvmserver("completion", shell).out
        assert all(name in script for name in commands)
    assert "set list unset" in kvmserver("completion", "bash").out
    assert kvmserver("--version").out.startswith("kvmserver ")
    assert "usage" in kvmserver("env").error


def test_nothing_new_is_loaded() -> None:
    libraries = subprocess.run(["ldd", harness.KVMSERVER], capture_output=True, text=True).stdout
    for name in ("sqlite", "crypto", "curl", "stdc++"):
        assert name not in libraries
