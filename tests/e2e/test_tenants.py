"""Two tokens with prefixes against each other: whoever holds `mallory-` neither sees, nor learns of, nor changes what
is not its own. Each case is what a user of the API or of the web would notice."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import selectors
import socket
import time

import admin
import harness
import pytest
from serving import Daemon, Store, ask

FORTH = "const http = require('http'); http.createServer((q, r) => r.end(process.env[q.url.slice(1)] || '-')).listen(process.argv[1], '127.0.0.1')"
NAMES = ["STRIPE_KEY", "GRANTED", "OWN", "LATER", "THEIRS"]


class World:
    """A daemon, the operator (its socket), and two tenants, of whom one is a victim."""

    def __init__(self, folder: pathlib.Path, snapshots, program, *options: str, env: dict | None = None) -> None:
        self.store = Store(folder)
        self.port = harness.free_port()
        self.daemon = Daemon(self.store, "--admin", f"127.0.0.1:{self.port}", *options, env=env)
        self.snap = snapshots.of(program("c-epoll")).read_bytes()  # the victim's
        self.mine = snapshots.of(program("c-poll")).read_bytes()
        node = program("node-http")
        speaker = {"name": "values", "lang": "Node", "argv": [node["argv"][0], "-e", FORTH, "{port}"], "cwd": "/", "env": {}, "serial": False}
        made = harness.make_snapshot(speaker, folder / "values.snap", "--level", "1", *[word for name in NAMES for word in ("--late-env", name)])
        assert made.status == 0, made
        self.values = (folder / "values.snap").read_bytes()
        self.count = 0
        self.victim = self.token("victim", "victim-", "deploy", "invoke")
        self.mallory = self.token("mallory", "mallory-", "read", "deploy", "invoke", "admin")
        assert self.deploy("victim-shop", self.snap, self.victim).status == 201
        self.ok("PUT", "/v1/functions/victim-shop/env/A", {"value": "theirs"}, self.victim)
        self.ok("PUT", "/v1/functions/victim-shop/secrets/S", {"value": "theirs"}, self.victim)
        assert self.deploy("front", self.snap).status == 201
        assert self.deploy("mallory-x", self.mine, self.mallory).status == 201
        self.ok("PUT", "/v1/secrets/STRIPE_KEY", {"value": "the operator's"})
        assert ask(self.daemon.port, "victim-shop").status == 200 and ask(self.daemon.port, "mallory-x").status == 200

    def ask(self, method: str, path: str, body=None, token: str | None = None, headers: dict | None = None) -> admin.Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE) if token else admin.UnixConnection(
            self.store.path / "admin.sock")
        try:
            connection.request(method, path, data, {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})})
            return admin.Reply(connection.getresponse())
        finally:
            connection.close()

    def ok(self, method: str, path: str, body=None, token: str | None = None):
        reply = self.ask(method, path, body, token)
        assert reply.status in (200, 201), reply
        return reply.json

    def as_mallory(self, method: str, path: str, body=None, **more) -> admin.Reply:
        return self.ask(method, path, body, self.mallory, **more)

    def fresh(self, owner: str = "mallory") -> str:
        self.count += 1
        return f"{owner}-n{self.count}"

    def token(self, name: str, prefix: str, *scopes: str, routes: list[str] | None = None) -> str:
        # What their functions may reach is another matter: test_ceilings.py.
        all_there_is = {"allow-read": "/", "allow-write": "/", "allow-connect": ["*", "unix:@*"], "deny-connect": [],
                        "allow-listen": ["*", "unix:/", "unix:@*"]}
        body = {"name": name, "scopes": scopes, "prefix": prefix, "ceilings": all_there_is}
        if routes:
            body["routes"] = routes
        return self.ok("POST", "/v1/tokens", body)["token"]

    def begin(self, data: bytes, token: str | None) -> admin.Reply:
        return self.ask("POST", "/v1/uploads", {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}, token)

    def upload(self, data: bytes, token: str | None = None) -> admin.Reply:
        begun = self.begin(data, token)
        assert begun.status in (200, 201), begun
        return begun if begun.json["complete"] else self.ask("PATCH", begun.headers["Location"], data, token, {"Upload-Offset": "0"})

    def deploy(self, name: str, data: bytes, token: str | None = None, **more) -> admin.Reply:
        sent = self.upload(data, token)
        assert sent.status == 200, sent
        return self.ask("PUT", f"/v1/functions/{name}", {"snapshot": sent.json["snapshot"], **more}, token)

    def value(self, function: str, name: str) -> str:
        reply = ask(self.daemon.port, function, f"/{name}")
        assert reply.status == 200, reply
        return reply.body.decode()


@pytest.fixture(scope="module")
def world(tmp_path_factory, snapshots, program):
    world = World(tmp_path_factory.mktemp("tenants"), snapshots, program)
    yield world
    world.daemon.close()


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def said(reply: admin.Reply, *ours: str) -> tuple:
    """All that a reply tells, but for what was asked for (`ours`) and the number of the request."""
    text = reply.body.decode()
    document = json.loads(text) if text.startswith("{") else {}
    text = text.replace(document.get("request_id") or "\0", "")
    for mine in ours:
        text = text.replace(mine, "")
    names = ("Date", "Content-Length", "Kvmserver-Request-Id", "Server-Timing")
    return reply.status, text, sorted((name, value) for name, value in reply.headers.items() if name not in names)


# ---- functions of others: refused, and in the same words as those that do not exist

OF_A_FUNCTION = [
    ("GET", "", None), ("PUT", "", {"snapshot": "0" * 64}), ("PUT", "?dry_run=1", {}), ("DELETE", "", None), ("GET", "/versions", None),
    ("DELETE", "/versions/1", None), ("POST", "/rollback", {}), ("POST", "/rollback?dry_run=1", {"version": 1}),
    ("PUT", "/traffic", {"live": [{"version": 1, "percent": 100}]}), ("GET", "/env", None), ("PUT", "/env/A", {"value": "mine"}),
    ("DELETE", "/env/A", None), ("GET", "/secrets", None), ("PUT", "/secrets/S", {"value": "mine"}), ("DELETE", "/secrets/S", None),
    ("POST", "/invoke?path=/count", None), ("GET", "/logs", None), ("GET", "/logs?request_id=0123456789abcdef", None),
    ("GET", "/logs?requests=1", None)]  # fmt: skip


@pytest.mark.parametrize("method, path, body", OF_A_FUNCTION, ids=[f"{method}{path}" for method, path, _ in OF_A_FUNCTION])
def test_a_function_of_another(world, method: str, path: str, body) -> None:
    before = world.ok("GET", "/v1/functions/victim-shop")
    there = world.as_mallory(method, f"/v1/functions/victim-shop{path}", body)
    there.problem(403, "wrong-prefix")
    assert said(there) == said(world.as_mallory(method, f"/v1/functions/victim-none{path}", body))
    etag = {"If-Match": f'"{before["etag"]}"'}
    assert said(there) == said(world.as_mallory(method, f"/v1/functions/victim-shop{path}", body, headers=etag))
    assert world.ok("GET", "/v1/functions/victim-shop") == before


OF_THE_STORE = [
    ("GET", "/metrics", None), ("GET", "/v1/logs", None), ("GET", "/v1/logs?requests=1", None), ("GET", "/v1/secrets", None), ("PUT", "/v1/secrets/STRIPE_KEY", {"value": "mine"}),
    ("PUT", "/v1/secrets/STRIPE_KEY", {"for": ["mallory-*"]}), ("DELETE", "/v1/secrets/STRIPE_KEY", None), ("GET", "/v1/uploads", None),
    ("POST", "/v1/gc", None), ("POST", "/v1/gc?dry_run=1", None), ("POST", "/v1/verify", None), ("POST", "/v1/reload", None), ("GET", "/v1/tokens", None),
    ("POST", "/v1/tokens", {"name": "wider", "scopes": ["admin"]}),
    ("POST", "/v1/tokens", {"name": "other", "scopes": ["read"], "prefix": "victim-"}),
    ("POST", "/v1/tokens", {"name": "route", "scopes": ["deploy"], "prefix": "mallory-", "routes": ["victim-shop.localhost"]}),
    ("DELETE", "/v1/tokens/victim", None)]  # fmt: skip


@pytest.mark.parametrize("method, path, body", OF_THE_STORE, ids=[f"{m}{p}{number}" for number, (m, p, _) in enumerate(OF_THE_STORE)])
def test_the_store_itself(world, method: str, path: str, body) -> None:
    """Though its token has the scope admin: that is for its functions."""
    before = world.ok("GET", "/v1/tokens")["tokens"], world.ok("GET", "/v1/secrets"), world.ok("GET", "/v1/snapshots")
    world.as_mallory(method, path, body).problem(403, "wrong-prefix")
    after = world.ok("GET", "/v1/tokens")["tokens"], world.ok("GET", "/v1/secrets"), world.ok("GET", "/v1/snapshots")
    assert [token["name"] for token in after[0]] == [token["name"] for token in before[0]] and after[1:] == before[1:]


# ---- what lists show

def test_functions_listed(world) -> None:
    names = [function["name"] for function in world.as_mallory("GET", "/v1/functions").json["functions"]]
    assert "mallory-x" in names and all(name.startswith("mallory-") for name in names)


def test_snapshots_listed(world) -> None:
    listed = world.as_mallory("GET", "/v1/snapshots").json["snapshots"]
    assert digest_of(world.mine) in [one["snapshot"] for one in listed] and digest_of(world.snap) not in [one["snapshot"] for one in listed]
    assert all(user.startswith("mallory-") for one in listed for user in one["used_by"])


def test_what_runs(world) -> None:
    live = world.as_mallory("GET", "/v1/live").json
    assert {one["function"] for one in live["live"]} <= {name for name in [one["function"] for one in live["live"]] if name.startswith("mallory-")}
    assert all(one["function"].startswith("mallory-") for one in live["counted"]) and live["live"]


def test_numbers_that_count_what_others_do(world) -> None:
    """Numbers of processes are the host's, shared memory is less where more share it."""
    def shown(reply) -> dict:
        return next(one for one in reply["live"] if one["function"] == "mallory-x")

    def rss() -> int:
        lines = pathlib.Path(f"/proc/{operators['pid']}/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    operators = shown(world.ok("GET", "/v1/live"))
    before, own = 0, {}
    deadline = time.monotonic() + harness.PATIENCE
    # A process that began a moment ago needs 4 MB more for some milliseconds.
    while not own or before != rss():
        assert time.monotonic() < deadline, "its memory never stood still"
        before, own, operators = rss(), shown(world.as_mallory("GET", "/v1/live").json), shown(world.ok("GET", "/v1/live"))
    assert "pid" not in own and operators["pid"] > 0
    assert own["memory_bytes"] > operators["memory_bytes"] and abs(own["memory_bytes"] - before) < 1 << 20


def test_info(world) -> None:
    info = world.as_mallory("GET", "/v1/info").json
    assert "store" not in info and "kvm" not in info and not {"functions", "processes", "machines"} & set(info["daemon"])
    assert str(world.store.path).encode() not in world.as_mallory("GET", "/v1/info").body


def test_etags_do_not_number_the_functions_of_all(world) -> None:
    def first_part() -> int:
        return int(world.deploy(world.fresh(), world.mine, world.mallory).json["etag"].split("-")[0], 16)

    one = first_part()
    for _ in range(3):
        assert world.deploy(world.fresh("victim"), world.snap, world.victim).status == 201
    assert not 0 < first_part() - one < 100


def test_lines_of_logs_do_not_number_those_of_all(world) -> None:
    name = world.fresh()
    assert world.deploy(name, world.mine, world.mallory).status == 201
    ask(world.daemon.port, name, "/crash")
    lines: list = []

    def printed() -> bool:
        lines[:] = map(json.loads, world.as_mallory("GET", f"/v1/functions/{name}/logs").body.splitlines())
        return bool(lines)

    harness.wait_until(printed, "the crash is told")
    assert all(abs(line["id"] // 1000 - line["ms"]) <= 100 for line in lines), lines  # the time, to the microsecond


# ---- names

@pytest.mark.parametrize("name, fits", [("mallory", True), ("mallory-y", True), ("mallory2", False), ("mallory2-y", False), ("malloryx", False)])
def test_a_prefix_without_a_dash(world, name: str, fits: bool) -> None:
    token = world.token(f"bare-{name}", "mallory", "deploy")
    assert world.deploy(name, world.mine).status in (200, 201)
    shown = world.ask("GET", f"/v1/functions/{name}", token=token)
    listed = [function["name"] for function in world.ask("GET", "/v1/functions", token=token).json["functions"]]
    assert (shown.status == 200) == fits == (name in listed), (shown, listed)
    if not fits:
        shown.problem(403, "wrong-prefix")


@pytest.mark.parametrize("name", ["mallory", "mallory2-x", "mallor", "xmallory-x"])
def test_names_beside_the_prefix(world, name: str) -> None:
    world.deploy(name, world.mine, world.mallory).problem(403, "wrong-prefix")


@pytest.mark.parametrize("prefix", ["*", "Mallory-", "-", "a.b", "mallory_"])
def test_what_is_no_prefix(world, prefix: str) -> None:
    refused = world.ask("POST", "/v1/tokens", {"name": "bad", "scopes": ["deploy"], "prefix": prefix})
    assert "prefix" in refused.problem(400, "bad-value")["detail"]


# ---- snapshots, pieces, uploads

def unknown(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("reference", ["{digest}", "{hex}", "victim-shop", "victim-shop@1"])
def test_a_snapshot_of_another_is_not_read(world, reference: str) -> None:
    def get(data: bytes, name: str) -> tuple:
        digest = digest_of(data)
        path = reference.replace("{digest}", digest).replace("{hex}", digest[7:]).replace("victim-shop", name)
        reply = world.as_mallory("GET", f"/v1/snapshots/{path}")
        reply.problem(404, "not-found")
        return said(reply, digest, digest[7:], path)

    assert get(world.snap, "victim-shop") == get(unknown(world.snap), "victim-none")


@pytest.mark.parametrize("some", [11, 40, 70])
def test_nor_by_the_beginning_of_its_digest(world, some: int) -> None:
    reply = world.as_mallory("GET", f"/v1/snapshots/{digest_of(world.snap)[:some]}")
    reply.problem(400, "bad-value")
    assert digest_of(world.snap)[7:].encode() not in reply.body


def test_a_snapshot_of_another_is_not_deployed(world) -> None:
    def put(data: bytes) -> tuple:
        reply = world.as_mallory("PUT", "/v1/functions/mallory-x", {"snapshot": digest_of(data)})
        reply.problem(404, "not-found")
        return said(reply, digest_of(data)[7:])

    assert put(world.snap) == put(unknown(world.snap))


def test_one_that_another_sent_and_has_not_deployed(world) -> None:
    data = world.values
    assert world.upload(data, world.victim).status == 200
    world.as_mallory("PUT", "/v1/functions/mallory-x", {"snapshot": digest_of(data)}).problem(404, "not-found")
    world.as_mallory("GET", f"/v1/snapshots/{digest_of(data)}").problem(404, "not-found")
    assert world.begin(data, world.mallory).json["complete"] is False


def chunks_of(world) -> list:
    return [(path.name, path.stat().st_size) for path in sorted((world.store.path / "chunks").rglob("*")) if path.is_file()
            and path.read_bytes() in world.snap and path.read_bytes() not in world.mine]  # fmt: skip


def test_pieces_that_are_missing(world) -> None:
    digest, chunks = digest_of(world.snap), chunks_of(world)
    assert chunks
    asked = world.as_mallory("POST", "/v1/snapshots/missing", {"snapshot": digest, "pieces": chunks}).json
    assert asked == {"present": False, "missing": list(range(len(chunks)))}


def test_a_delta_that_names_pieces_of_another(world) -> None:
    chunks = chunks_of(world)
    delta = b"KVMDELTA" + (1).to_bytes(4, "little") + len(chunks).to_bytes(4, "little") + bytes.fromhex(digest_of(world.snap)[7:])
    delta += b"".join(bytes.fromhex(name) + size.to_bytes(8, "little") for name, size in chunks)
    world.upload(delta, world.mallory).problem(409, "missing-chunk")


def test_new_bytes_count_what_the_tenant_lacks(world) -> None:
    """They are the same for the first who brings a file and for the second, and the disk has it once."""
    data = world.snap
    chunks = sorted(path.name for path in (world.store.path / "chunks").rglob("*") if path.is_file())
    first = world.upload(data, world.token("second", "second-", "deploy")).json
    assert first["new_bytes"] == first["bytes"] == len(data)
    assert sorted(path.name for path in (world.store.path / "chunks").rglob("*") if path.is_file()) == chunks


def test_new_bytes_of_what_it_has_itself(world) -> None:
    token = world.token("third", "third-", "deploy")
    assert world.deploy("third-x", world.snap, token).status == 201
    assert world.begin(world.snap, token).json["complete"] is True
    operators = world.upload(world.snap)
    assert operators.json["complete"] is True  # who may see all sees that it is there


@pytest.fixture
def halfway(world):
    """An upload of the victim's that broke off."""
    data = b"V" * 1000 + world.fresh().encode()
    where = world.begin(data, world.victim).headers["Location"]
    assert world.ask("PATCH", where, data[:400], world.victim, {"Upload-Offset": "0"}).status == 204
    yield data, where
    assert world.ask("HEAD", where, token=world.victim).headers["Upload-Offset"] == "400", "the victim goes on where it was"
    assert world.ask("DELETE", where, token=world.victim).status == 200


@pytest.mark.parametrize("method", ["HEAD", "PATCH", "DELETE"])
def test_an_upload_of_another(world, halfway, method: str) -> None:
    headers = {"Upload-Offset": "400"} if method == "PATCH" else {}
    body = b"mine" if method == "PATCH" else None
    there = world.as_mallory(method, halfway[1], body, headers=headers)
    assert there.status == 404
    none = world.as_mallory(method, "/v1/uploads/" + "0" * 32, body, headers=headers)
    assert said(there, halfway[1].split("/")[-1]) == said(none, "0" * 32)


def test_an_upload_of_the_same_file_is_another(world, halfway) -> None:
    begun = world.begin(halfway[0], world.mallory)
    assert begun.status == 201 and begun.json["offset"] == 0 and begun.headers["Location"] != halfway[1]


# ---- routes

FOREIGN = ["victim-shop.localhost/login", "victim-shop.localhost", "VICTIM-SHOP.localhost/login/*", "victim-none.localhost", "a.victim-shop.localhost",
           "*.victim-shop.localhost", "*.localhost", "/*", "/login/*", "example.com", "mallory2-x.localhost", "mallory.localhost", "front.localhost/a",
           "mallory-x.victim-shop.localhost", "localhost"]  # fmt: skip


@pytest.mark.parametrize("how", ["routes", "manifest", "dry run"])
@pytest.mark.parametrize("route", FOREIGN)
def test_a_route_of_another(world, route: str, how: str) -> None:
    body = {"snapshot": digest_of(world.mine), **({"manifest": {"function": {"routes": [route]}}} if how == "manifest" else {"routes": [route]})}
    refused = world.as_mallory("PUT", "/v1/functions/mallory-x" + ("?dry_run=1" if how == "dry run" else ""), body)
    assert route.lower() in refused.problem(403, "route-not-granted")["detail"], refused
    host = route.lower().split("/")[0]
    if host.startswith("victim") or host.startswith("front"):
        assert ask(world.daemon.port, "", "/login", host=host).body == ask(world.daemon.port, "victim-shop", "/login").body or "none" in host


def test_routes_that_are_taken_and_those_that_are_not_read_alike(world) -> None:
    def put(route: str) -> tuple:
        return said(world.as_mallory("PUT", "/v1/functions/mallory-x", {"snapshot": digest_of(world.mine), "routes": [route]}), route)

    assert put("victim-shop.localhost") == put("victim-none.localhost")


def test_its_own_hosts(world) -> None:
    name = world.fresh()
    routes = [f"{name}.localhost/a/*", f"*.{name}.localhost", f"{name}-more.localhost"]
    assert world.deploy(name, world.mine, world.mallory, routes=routes).json["routes"] == routes
    assert ask(world.daemon.port, "", host=f"{name}-more.localhost").status == 200


def test_a_part_of_its_host_that_the_operator_gave_away(world) -> None:
    name = world.fresh()
    assert world.deploy(world.fresh("desk"), world.snap, routes=[f"{name}.localhost/pay"]).status == 201
    refused = world.deploy(name, world.mine, world.mallory, routes=[f"{name}.localhost", f"{name}.localhost/pay/card"])
    assert "/pay/card" in refused.problem(403, "route-not-granted")["detail"]
    assert world.deploy(name, world.mine, world.mallory).status == 201


@pytest.mark.parametrize("route, fits", [("shop.example.com/api/*", True), ("shop.example.com/api/v1", True), ("shop.example.com", False),
                                         ("shop.example.com/login", False), ("a.web.example.com", True), ("web.example.com", False), ("/api/*", False)])  # fmt: skip
def test_what_is_granted(world, route: str, fits: bool) -> None:
    world.count += 1
    token = world.token(f"granted{world.count}", "mallory-", "deploy", routes=["shop.example.com/api/*", "*.web.example.com"])
    name = world.fresh()
    done = world.deploy(name, world.mine, token, routes=[route])
    if fits:
        assert done.status == 201 and world.ask("DELETE", f"/v1/functions/{name}", token=token).status == 200
    else:
        done.problem(403, "route-not-granted")


def test_whose_a_granted_route_is_is_not_told(world) -> None:
    token = world.token("taken", "mallory-", "deploy", routes=["both.example.com"])
    assert world.deploy("victim-both", world.snap, routes=["both.example.com"]).status == 201
    taken = world.ask("PUT", "/v1/functions/mallory-x", {"snapshot": digest_of(world.mine), "routes": ["both.example.com"]}, token)
    assert "owner" not in taken.problem(409, "route-taken") and b"victim" not in taken.body


def test_routes_that_the_operator_gave_stay(world) -> None:
    name = world.fresh()
    assert world.deploy(name, world.mine, routes=["given.example.com"]).status == 201
    again = world.deploy(name, world.mine, world.mallory, routes=["given.example.com"])
    assert again.status == 200 and again.json["routes"] == ["given.example.com"]


# ---- secrets

def wanting(*names: str) -> dict:
    return {"function": {"secrets": list(names)}}


@pytest.mark.parametrize("query", ["", "?dry_run=1"])
def test_a_secret_for_all_is_not_for_a_tenant(world, query: str) -> None:
    def put(name: str) -> tuple:
        body = {"snapshot": digest_of(world.mine), "manifest": wanting(name)}
        refused = world.as_mallory("PUT", f"/v1/functions/mallory-x{query}", body)
        assert name in refused.problem(403, "secret-not-granted")["detail"]
        return said(refused, name)

    assert put("STRIPE_KEY") == put("NOT_THERE"), "whether there is one is not told"


def test_nor_does_it_arrive_in_a_version_that_was_kept(world) -> None:
    name = world.fresh()
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("STRIPE_KEY"), activate=False).status == 201
    invoked = world.as_mallory("POST", f"/v1/functions/{name}/invoke?version=1&path=/STRIPE_KEY")
    assert invoked.status == 200 and invoked.body == b"-"
    assert world.as_mallory("PUT", f"/v1/functions/{name}/traffic", {"live": [{"version": 1, "percent": 100}]}).status == 200
    assert world.value(name, "STRIPE_KEY") == "-"


def test_nor_one_that_is_set_later(world) -> None:
    name = world.fresh()
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("LATER"), activate=False).status == 201
    world.ok("PUT", "/v1/secrets/LATER", {"value": "the operator's"})
    assert world.as_mallory("POST", f"/v1/functions/{name}/rollback", {"version": 1}).status == 200
    assert world.value(name, "LATER") == "-"


def test_one_that_is_granted_and_taken_back(world) -> None:
    name = world.fresh()
    world.ok("PUT", "/v1/secrets/GRANTED", {"value": "shared", "for": [name, "victim-*"]})
    assert {"name": "GRANTED", "for": [name, "victim-*"]}.items() <= [one for one in world.ok("GET", "/v1/secrets")["secrets"] if one["name"] == "GRANTED"][0].items()
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("GRANTED")).status == 201
    assert world.value(name, "GRANTED") == "shared"
    world.ok("PUT", "/v1/secrets/GRANTED", {"value": "rotated"})
    harness.wait_until(lambda: world.value(name, "GRANTED") == "rotated", "the new value, for whom it was granted")
    world.ok("PUT", "/v1/secrets/GRANTED", {"for": ["victim-*"]})
    harness.wait_until(lambda: world.value(name, "GRANTED") == "-", "it is taken back")
    assert world.deploy(world.fresh(), world.values, world.mallory, manifest=wanting("GRANTED")).problem(403, "secret-not-granted")


def test_what_is_its_own_and_what_the_operator_deploys(world) -> None:
    name = world.fresh()
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("OWN", "STRIPE_KEY"), activate=False).status == 201
    for own in ("OWN", "STRIPE_KEY"):
        assert world.as_mallory("PUT", f"/v1/functions/{name}/secrets/{own}", {"value": "mine"}).status == 200
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("OWN", "STRIPE_KEY")).status == 200
    assert (world.value(name, "OWN"), world.value(name, "STRIPE_KEY")) == ("mine", "mine")
    operators = world.fresh()
    assert world.deploy(operators, world.values, manifest=wanting("STRIPE_KEY")).status == 201
    assert world.value(operators, "STRIPE_KEY") == "the operator's"


def test_a_secret_of_another_function(world) -> None:
    world.ok("PUT", "/v1/functions/victim-shop/secrets/THEIRS", {"value": "the victim's"}, world.victim)
    name = world.fresh()
    world.deploy(name, world.values, world.mallory, manifest=wanting("THEIRS")).problem(403, "secret-not-granted")
    assert world.deploy(name, world.values, world.mallory, manifest=wanting("THEIRS"), activate=False).status == 201
    assert world.as_mallory("POST", f"/v1/functions/{name}/rollback", {"version": 1}).status == 200
    assert world.value(name, "THEIRS") == "-"


def test_the_command_line_grants(world) -> None:
    world.store.ok("secret", "set", "BY_HAND", "--stdin", "--for", "mallory-*", "--for", "other", stdin=b"1")

    def granted() -> str:
        return next(line.split()[-1] for line in world.store("secret", "list").out.splitlines() if line.startswith("BY_HAND"))

    assert granted() == "mallory-*,other"
    world.store.ok("secret", "set", "BY_HAND", "--for", "-")
    assert granted() == "-"
    refused = world.store("secret", "set", "BY_HAND", "--for", "mallory*")
    assert refused.status == 2 and "PREFIX-*" in refused.err
    world.store.ok("token", "create", "by-hand", "--scope", "deploy", "--prefix", "mallory-", "--route", "hand.example.com/*", "-q")
    assert any("by-hand" in line and line.endswith(" hand.example.com") for line in world.store("token", "list").out.splitlines())
    refused = world.store("token", "create", "no-prefix", "--scope", "deploy", "--route", "hand.example.com")
    assert refused.status == 2 and "prefix" in refused.err


@pytest.mark.parametrize(("option", "together"), [([], False), (["--share-across-tenants"], True)])
def test_memory_is_shared_within_a_tenant_only(folder, snapshots, program, option: list[str], together: bool) -> None:
    """Pages that two processes map from one file are in memory once, and whoever has them can tell that another uses them."""
    cache = folder / "cache"
    cache.mkdir()
    world = World(folder, snapshots, program, *option, env={"XDG_CACHE_HOME": str(cache)})

    def copies() -> dict[str, set[str]]:
        """Digests of unpacked pages that are kept, by the beginning of their files' names: whose they are."""
        found: dict[str, set[str]] = {}
        for name in os.listdir(cache / "kvmserver"):
            if name.endswith(".pages"):
                owner, _, content = name.removesuffix(".pages").rpartition("-")
                found.setdefault(owner, set()).add(content)
        return found

    owners = {name: "" if together else hashlib.sha256(f"{name}-".encode()).hexdigest() for name in ("victim", "mallory")}
    with contextlib.closing(world.daemon):
        node = snapshots.of(program("node-http")).read_bytes()
        for name, token in {"victim-one": world.victim, "mallory-one": world.mallory}.items():
            assert world.deploy(name, node, token).status == 201
            assert ask(world.daemon.port, name).status == 200
        # Both have a copy of the same pages.
        harness.wait_until(lambda: set.intersection(*(copies().get(owner, set()) for owner in owners.values())), "copies are made")
        assert set(copies()) == set(owners.values())
        for name, owner in owners.items():
            (pid,) = world.daemon.processes()[f"{name}-one v1"]
            lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
            mapped = [line.split()[-1].rpartition("/")[2] for line in lines if f" {cache}" in line]
            assert all(file.startswith(f"{owner}-" if owner else "") and ("-" in file) == bool(owner) for file in mapped), mapped


def test_who_asks_for_much_at_once_is_not_served_first(world) -> None:
    """Sixty functions that have no process wait for one; then one of another tenant does."""
    names = [world.fresh() for _ in range(60)] + ["victim-late"]
    for name in names:
        owner, data = (world.victim, world.snap) if name == "victim-late" else (world.mallory, world.mine)
        assert world.deploy(name, data, owner).status == 201
    answered: list[str] = []
    with selectors.DefaultSelector() as waiting:
        for name in names:
            client = socket.create_connection(("127.0.0.1", world.daemon.port))
            client.sendall(f"GET / HTTP/1.1\r\nHost: {name}.localhost\r\nConnection: close\r\n\r\n".encode())
            waiting.register(client, selectors.EVENT_READ, name)
        while waiting.get_map():
            for key, _ in waiting.select(harness.PATIENCE):
                assert key.fileobj.recv(12) == b"HTTP/1.1 200"
                answered.append(key.data)
                waiting.unregister(key.fileobj)
                key.fileobj.close()
    assert answered.index("victim-late") < 45, answered
