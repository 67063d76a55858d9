"""What an operator grants at most: at deploy, and in the process of a function whatever its snapshot says."""

import contextlib
import hashlib
import http.client
import json
import pathlib
import signal
import socket
import sqlite3

import admin
import harness
import pytest
from harness import GUESTS, kvmserver
from rewriting import rewritten
from serving import Daemon, Store

REACHES = str(GUESTS / "reaches")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> pathlib.Path:
    """A snapshot that asks for what everybody gets."""
    path = tmp_path_factory.mktemp("ceilings") / "plain.snap"
    port = str(harness.free_port())
    made = kvmserver("snapshot", "--level", "1", f"--allow-listen=:{port}", "--cwd", "/", "-o", path, REACHES, port)
    assert made.status == 0, made
    return path


class Api:
    """The API of a daemon, by TCP with a token or by its socket without one."""

    def __init__(self, daemon: Daemon, port: int) -> None:
        self.daemon, self.port = daemon, port

    def ask(self, method: str, path: str, body=None, token: str = "", headers: dict[str, str] = {}) -> admin.Reply:
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE)
            if token
            else admin.UnixConnection(self.daemon.store.path / "admin.sock")
        )
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(connection):
            connection.request(
                method, path, data, {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
            )
            return admin.Reply(connection.getresponse())

    def token(self, name: str = "stranger", prefix: str = "s-", **more) -> str:
        made = self.ask("POST", "/v1/tokens", {"name": name, "scopes": ["deploy"], "prefix": prefix, **more})
        assert made.status == 201, made
        return made.json["token"]

    def upload(self, data: bytes, token: str = "") -> admin.Reply:
        begun = self.ask("POST", "/v1/uploads", {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}, token)
        assert begun.status in (200, 201), begun
        return (
            begun
            if begun.json["complete"]
            else self.ask("PATCH", begun.headers["Location"], data, token, {"Upload-Offset": "0"})
        )

    def deploy(self, name: str, data: bytes, token: str = "", query: str = "", **more) -> admin.Reply:
        sent = self.upload(data, token)
        return (
            sent
            if sent.status != 200
            else self.ask("PUT", f"/v1/functions/{name}{query}", {"snapshot": sent.json["snapshot"], **more}, token)
        )


@pytest.fixture
def api(serve):
    port = harness.free_port()
    return Api(serve("--admin", f"127.0.0.1:{port}"), port)


def permission(name: str, value):
    return lambda machine: machine["permissions"].__setitem__(name, value)


def limit(name: str, value):
    return lambda machine: machine["limits"].__setitem__(name, value)


def volume(host: str, **rights):
    return permission(
        "volumes", [{"host": host, "guest": "/mnt", "read": True, "write": False, "execute": False, **rights}]
    )


def rule(host: str, port: int = 0) -> list[dict]:
    return [{"host": host, "port": port}]


CORRUPT = "corrupt"
# What a snapshot of a stranger claims; how the claim is told, or that the file is refused as no snapshot.
CLAIMS = {
    "everything": (permission("all", True), "--allow-all"),
    "reads-all": (permission("read", ["/"]), "--allow-read=/"),
    "reads-shadow": (permission("read", ["/etc/shadow"]), "--allow-read=/etc/shadow"),
    "reads-by-dots": (permission("read", ["/usr/lib/../../root"]), "--allow-read=/usr/lib/../../root"),
    "writes": (permission("write", ["/var/tmp"]), "--allow-write=/var/tmp"),
    "volume-root": (volume("/"), "--volume=/:/mnt:r"),
    "volume-by-dots": (volume("/usr/lib/../../etc", write=True), "--volume=/usr/lib/../../etc:/mnt:rw"),
    "connects-anywhere": (permission("connect", rule("")), "--allow-connect="),
    "connects-loopback": (permission("connect", rule("127.0.0.1", 22)), "--allow-connect=127.0.0.1:22"),
    "connects-mapped": (permission("connect", rule("::ffff:127.0.0.1", 22)), "--allow-connect=[::ffff:127.0.0.1]:22"),
    "connects-metadata": (permission("connect", rule("169.254.169.254", 80)), "--allow-connect=169.254.169.254:80"),
    "connects-link-local": (permission("connect", rule("fe80::1")), "--allow-connect=fe80::1"),
    "listens-unix": (permission("listen", rule("unix:/run/x.sock")), "--allow-listen=unix:/run/x.sock"),
    "listens-abstract": (permission("listen", rule("unix:@x")), "--allow-listen=unix:@x"),
    "no-time-limit": (limit("request_total_seconds", 0.0), "--max-request-total without end"),
    "a-year": (limit("request_seconds", 365.0 * 86400), "--max-request-time=31536000"),
    "memory": (limit("request_memory", 1 << 40), "--max-request-memory=1048576"),
    "files": (limit("open_files", 1 << 20), "1048576 open files"),
    "negative": (limit("request_seconds", -1.0), CORRUPT),
    "overflow": (limit("address_space", 2**64 - 1), CORRUPT),
    "nanoseconds": (limit("boot_seconds", 1e300), CORRUPT),
    "slots": (limit("open_files", 2**32 - 1), CORRUPT),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_stranger_claims_too_much(api, plain, case: str) -> None:
    change, claim = CLAIMS[case]
    stranger, data = api.token(), rewritten(plain, change)
    refused = api.deploy("s-x", data, stranger)
    if claim == CORRUPT:
        assert "limits has" in refused.problem(422, "bad-snapshot")["detail"]
        return
    problem = refused.problem(403, "above-ceiling")
    assert [each["claim"] for each in problem["claims"]] == [claim], problem
    assert (
        problem["claims"][0]["granted"]
        and f"s-x asks for more than is granted: {claim} (granted: " in problem["detail"]
    )
    assert "--clamp" in problem["hint"]
    assert api.ask("GET", "/v1/functions/s-x").status == 404
    clamped = api.deploy("s-x", data, stranger, "?clamp=1")
    assert clamped.status == 201 and clamped.json["clamped"] == problem["claims"], clamped
    text = api.daemon.text
    assert text("s-x", "/read/etc/hosts") in ("ok", "ENOENT")
    assert (
        text("s-x", "/read/etc/shadow")
        == text("s-x", "/read/mnt/shadow")
        == text("s-x", "/read/root/.profile")
        == "ENOENT"
    )
    assert text("s-x", "/write/var/tmp/kvmserver-stranger") == text("s-x", "/write/mnt/x") == "EACCES"
    assert not pathlib.Path("/var/tmp/kvmserver-stranger").exists()
    assert text("s-x", f"/connect/127.0.0.1:{api.port}") == text("s-x", f"/connect/::1:{api.port}") == "EACCES"
    assert (
        text("s-x", f"/connect/::ffff:127.0.0.1:{api.port}") == text("s-x", f"/connect/0.0.0.0:{api.port}") == "EACCES"
    )
    assert text("s-x", "/connect/169.254.169.254:80") == "EACCES"
    assert text("s-x", "/abstract/kvmserver-test") == "EACCES"
    said = [line for line in api.daemon.err.splitlines() if line.startswith("[s-x v1]")]
    assert (
        sum("asks for more than it is granted, and runs with what is granted: " + claim in line for line in said) == 1
    ), said


@pytest.mark.parametrize("value", ["NaN", "1e999", "-Infinity", "\"8\"", "null"])
def test_what_is_no_number_is_no_limit(api, plain, value: str) -> None:
    data = rewritten(plain, limit("request_seconds", 123456.5), lambda text: text.replace("123456.5", value))
    assert (
        api.upload(data, api.token())
        .problem(422, "bad-snapshot")["detail"]
        .startswith("the upload: metadata is inconsistent")
    )


def test_a_snapshot_that_asks_for_little_is_everybodys(api, plain) -> None:
    done = api.deploy("s-x", plain.read_bytes(), api.token())
    assert done.status == 201 and done.json["clamped"] == [], done
    assert api.daemon.text("s-x", "/read/etc/hosts") == "ok"
    assert "asks for more" not in api.daemon.err


def test_files_that_a_snapshot_calls_implied(api, plain, folder) -> None:
    """It cannot make somebody else's file its own by saying that its program needs it."""
    (folder / "key").write_text("k")
    data = rewritten(plain, lambda machine: machine["permissions"]["implied_read"].extend([str(folder), "/etc/shadow"]))
    assert api.deploy("s-x", data, api.token()).status == 201  # it gets those of them that everybody gets
    assert api.deploy("x", data).status == 201  # of the operator's own
    assert api.daemon.text("s-x", f"/read{folder}/key") == api.daemon.text("s-x", "/read/etc/shadow") == "ENOENT"
    assert api.daemon.text("x", f"/read{folder}/key") == "ok"


def test_without_ceilings_all_is_as_it_was(api, plain) -> None:
    data = rewritten(plain, permission("all", True))
    done = api.deploy("x", data)
    assert done.status == 201 and done.json["clamped"] == [], done
    assert api.deploy("y", data, api.token("mine", prefix="")).json["clamped"] == []
    for name in "xy":
        assert api.daemon.text(name, "/stat/root") == "ok"
        assert api.daemon.text(name, f"/connect/127.0.0.1:{api.port}") == "ok"


@contextlib.contextmanager
def ceilings(store: Store, text: str):
    (store.folder / "ceilings.toml").write_text(text)
    daemon = Daemon(store, "--ceilings", str(store.folder / "ceilings.toml"))
    try:
        yield daemon
    finally:
        daemon.close()


def test_the_daemons_file(store, folder, plain) -> None:
    for name in ("open", "secret"):
        (folder / name).mkdir()
        (folder / name / "key").write_text("k")
    asks = folder / "asks.snap"
    asks.write_bytes(rewritten(plain, permission("read", [str(folder)])))
    with ceilings(store, f'allow-read = "{folder}/open"\n[prefix."mine-"]\nallow-read = "{folder}"\n') as daemon:
        refused = store("deploy", asks, "--name", "other")
        assert (
            refused.status == 4
            and f"--allow-read={folder} (granted: {folder}/open)" in refused.error
            and "--clamp" in refused.error
        ), refused
        assert "\n" not in refused.error.strip()
        store.deploy(asks, "mine-x")
        assert "clamped" not in daemon.err
        told = store("deploy", asks, "--name", "other", "--clamp")
        assert (
            told.status == 0 and f"other: --allow-read={folder} is clamped (granted: {folder}/open)" in told.err
        ), told
        assert daemon.text("mine-x", f"/read{folder}/secret/key") == "ok"
        assert daemon.text("other", f"/read{folder}/open/key") == "ok"
        assert daemon.text("other", f"/read{folder}/secret/key") == "ENOENT"


def test_a_ceiling_that_is_lowered_holds_for_what_runs(store, folder, plain) -> None:
    file = folder / "ceilings.toml"
    (folder / "key").write_text("k")
    asks = folder / "asks.snap"
    asks.write_bytes(rewritten(plain, permission("read", [str(folder)])))
    with ceilings(store, "max-machines = 2\n") as daemon:
        store.deploy(asks, "x")
        assert daemon.text("x", f"/read{folder}/key") == "ok"
        file.write_text("allow-read = []\nmax-request-time = 1\n")
        daemon.popen.send_signal(signal.SIGHUP)
        harness.wait_until(
            lambda: daemon.text("x", f"/read{folder}/key") == "ENOENT", "what is granted now is what the function has"
        )
        assert daemon.ask("x", "/spin").problem["code"] == "request-timeout"
        told = "asks for more than it is granted, and runs with what is granted"
        claim = f"x v1 {told}: --allow-read={folder} (granted: nothing)"
        assert daemon.err.count(claim) == 1
        # A file that is no good leaves those in force that were.
        file.write_text("allow-read = [\"/\"]\nmax-machine = 1\n")
        daemon.popen.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: f'reload: {file}:2: there is no ceiling "max-machine"' in daemon.err, "it says so")
        assert daemon.text("x", f"/read{folder}/key") == "ENOENT"
        # A process that has ended is no occasion to say it again.
        for pid in daemon.processes()["x v1"]:
            harness.os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: daemon.ask("x", f"/read{folder}/key").body == b"ENOENT", "another one serves")
        assert daemon.err.count(claim) == 1


def test_what_came_into_the_store_by_another_way(store, folder, plain) -> None:
    """By a deploy when no daemon ran. Who can write to the index cannot take away the ceilings of the daemon."""
    asks = folder / "asks.snap"
    asks.write_bytes(rewritten(plain, permission("all", True)))
    store.deploy(asks, "x")
    with sqlite3.connect(store.path / "index.db") as index:
        index.execute("UPDATE version SET ceilings = '{\"allow-read\": [\"/\"]}'")
    with ceilings(store, "allow-read = []\nmax-log = 1\n") as daemon:
        assert daemon.text("x", "/read/etc/shadow") == "ENOENT"
        assert (
            "x v1 asks for more than it is granted, and runs with what is granted: "
            "--allow-all (granted: allow-read nothing)"
            in daemon.err
        )


@pytest.mark.parametrize(
    "text, told", [("max-machine = 1", "there is no ceiling"), ("max-queue = -1", "must be a whole number"), ("x", "")]
)
def test_a_file_that_is_no_good(store, folder, text: str, told: str) -> None:
    file = folder / "bad.toml"
    file.write_text("\n" + text)
    ended = kvmserver(
        "serve", "--store", store.path, "--listen", f"127.0.0.1:{harness.free_port()}", "--ceilings", file
    )
    assert ended.status == 2 and f"{file}:2: " in ended.error and told in ended.error, ended
    missing = kvmserver(
        "serve",
        "--store",
        store.path,
        "--listen",
        f"127.0.0.1:{harness.free_port()}",
        "--ceilings",
        folder / "none.toml",
    )
    assert missing.status == 3 and "none.toml: No such file" in missing.error, missing


def test_a_token_of_the_operators_making(store, serve, plain, folder) -> None:
    (folder / "open").mkdir()
    (folder / "open/key").write_text("k")
    (folder / "grants.toml").write_text(
        f'allow-read = "{folder}/open"\nmax-functions = 1\nmax-versions = 2\nmax-machines = 2\n'
    )
    port = harness.free_port()
    api = Api(serve("--admin", f"127.0.0.1:{port}"), port)
    token = store.ok(
        "token", "create", "t", "--scope", "deploy", "--prefix", "s-", "--ceilings", folder / "grants.toml"
    )
    listed = store.json("token", "list")["tokens"][0]["ceilings"]
    assert (
        listed["max-functions"] == 1 and listed["allow-write"] == [] and listed["max-request-memory"] == 128
    )  # strangers' beside
    refused = store("token", "create", "a", "--scope", "admin", "--ceilings", folder / "grants.toml")
    assert refused.status == 2 and "scope admin" in refused.error, refused
    data = rewritten(plain, permission("read", [f"{folder}/open"]))
    assert api.deploy("s-x", data, token).status == 201
    assert api.daemon.text("s-x", f"/read{folder}/open/key") == "ok"
    scale = {"function": {"scale": {"max": 3}}}
    assert (
        "function.scale.max = 3 (granted: 2)"
        in api.deploy("s-x", data, token, manifest=scale).problem(403, "above-ceiling")["detail"]
    )
    another = api.deploy("s-y", data, token).problem(403, "above-ceiling")
    assert (
        another["claims"] == [{"claim": "2 functions that begin with s-", "granted": "1"}]
        and "--clamp" not in another["hint"]
    )
    assert api.deploy("s-y", data, token, "?clamp=1").problem(403, "above-ceiling")
    done = api.deploy("s-x", data, token, "?clamp=1", manifest=scale)
    assert done.json["clamped"] == [{"claim": "function.scale.max = 3", "granted": "2"}], done
    assert "3 versions (granted: 2)" in api.deploy("s-x", data, token).problem(403, "above-ceiling")["detail"]
    # What the token deployed stays under its ceilings, whoever makes it live again, and when the token has gone.
    store.ok("token", "revoke", "t")
    versions = api.ask("GET", "/v1/functions/s-x/versions").json["versions"]
    assert all(version["ceilings"]["max-functions"] == 1 for version in versions)


def test_disk(store, plain, folder) -> None:
    data = plain.read_bytes()
    mib = len(data) // (1 << 20) + 1
    with ceilings(store, f"max-disk = 100\n[prefix.\"s-\"]\nmax-disk = {mib}\n"):
        store.deploy(plain, "s-x")
        store.deploy(plain, "s-y")  # the same snapshot
        other = folder / "other.snap"
        other.write_bytes(rewritten(plain, limit("request_seconds", 7.0)))
        refused = store("deploy", other, "--name", "s-x")
        assert refused.status == 4 and f"of functions that begin with s- (granted: {mib} MiB)" in refused.error, refused
        store.deploy(other, "x")


def test_machines_and_queue(store, plain) -> None:
    """A version that was deployed when nobody looked keeps no more machines than it is granted."""
    snapshot = store.json("push", plain)["snapshot"]
    with ceilings(store, "") as daemon:
        scale = {"function": {"scale": {"min": 3, "max": 4}}}
        api = Api(daemon, 0)
        assert api.ask("PUT", "/v1/functions/x", {"snapshot": snapshot, "manifest": scale}).status == 201
        machines = lambda: [each["machines"] for each in api.ask("GET", "/v1/live").json["live"]]
        harness.wait_until(lambda: machines() == [3], "its minimum is kept")
        (store.folder / "ceilings.toml").write_text("max-kept-machines = 1\nmax-queue = 0\n")
        daemon.popen.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: 1 in machines() and 3 not in machines(), "less is kept")


def test_an_image_larger_than_its_ceiling_is_not_clamped(store, plain) -> None:
    with ceilings(store, "max-main-memory = 1\n") as daemon:
        refused = store("deploy", plain, "--name", "x", "--clamp")
        assert refused.status == 4 and "MiB of memory in the snapshot (granted: 1 MiB)" in refused.error, refused
        assert daemon.running()
