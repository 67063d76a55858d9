"""/v1/openapi.json: valid, complete (every reply of a real daemon is as described), and good enough to generate a client."""
import hashlib
import http.client
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import admin
import harness
import openapi
import pytest
from serving import Daemon, Store

# Codes that a healthy daemon has no reason to give; other tests make some of them.
RARE = {"chunks-away", "cluster-away", "bad-reply", "busy", "conflict", "disk-full", "failed", "function-failing", "internal", "missing-chunk", "no-kvm", "no-socket",
        "not-forwarded", "not-live", "not-permitted", "not-restored", "out-of-memory", "program-timeout", "queue-full", "queue-timeout", "reply-too-large",
        "request-timeout", "stopping", "timed-out", "worker-died"}  # fmt: skip
# A follower's reply has no end: test_a_followed_log_is_as_described.
ELSEWHERE = {("function_logs", "query follow"), ("logs", "query follow"), ("verify", "query cluster")}
# Only a cluster gives these: test_cluster_nodes.py, test_cluster.py.
OF_CLUSTERS = {("list_nodes", "200"), ("drain_node", "200"), ("uncordon_node", "200")}
FILL = {"file": "app.js", "name": "hello", "version": "1", "variable": "A", "secret": "S", "digest": "0" * 64, "id": "0" * 32, "token": "nobody",
        "certificate": "nowhere.example", "node": "nowhere"}


class Asker:
    """Asks and checks each reply."""

    def __init__(self, socket: pathlib.Path, port: int) -> None:
        self.socket, self.port = socket, port
        self.description = openapi.Description(self.plain("GET", "/v1/openapi.json").json)

    def plain(self, method: str, target: str, body=None, headers: dict = {}, tcp: bool = False) -> admin.Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE) if tcp else admin.UnixConnection(self.socket)
        try:
            connection.request(method, target, body if body is None or isinstance(body, bytes) else json.dumps(body).encode(), headers)
            return admin.Reply(connection.getresponse())
        finally:
            connection.close()

    def __call__(self, method: str, target: str, body=None, status: int | None = None, code: str = "", token: str | None = None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        reply = self.plain(method, target, body, named, tcp=token is not None)
        assert status in (None, reply.status), reply
        assert not code or reply.json["code"] == code, reply
        self.description.check(method, target, body, named, reply)
        return reply

    def token(self, name: str, *scopes: str, **more) -> str:
        return self("POST", "/v1/tokens", {"name": name, "scopes": list(scopes), **more}, 201).json["token"]

    def upload(self, data: bytes, token: str | None = None) -> str:
        begun = self("POST", "/v1/uploads", {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}, token=token)
        if begun.json["complete"]:
            return begun.json["snapshot"]
        return self("PATCH", begun.headers["Location"], data, 200, token=token, Upload_Offset="0").json["snapshot"]


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: FILL[match[1]], path)


@pytest.fixture
def ask(store, serve) -> Asker:
    port = harness.free_port()
    serve("--admin", f"127.0.0.1:{port}")
    return Asker(store.path / "admin.sock", port)


@pytest.fixture
def other_daemon(folder):
    (folder / "other").mkdir()
    store, port = Store(folder / "other"), harness.free_port()
    daemon = Daemon(store, "--admin", f"127.0.0.1:{port}")
    yield Asker(store.path / "admin.sock", port)
    assert daemon.stop().status == 0


@pytest.fixture
def snaps(snapshots, program) -> list[bytes]:
    return [snapshots.of(program(name)).read_bytes() for name in ("c-epoll", "c-poll")]


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> dict:
    listener = admin.Listener(tmp_path_factory.mktemp("document"))
    try:
        return listener.ask("GET", "/v1/openapi.json", tcp=True).json  # without a token
    finally:
        listener.close()


def test_the_document_is_valid(document) -> None:
    import openapi_spec_validator
    assert document["openapi"].startswith("3.1")
    openapi_spec_validator.validate(document)


def test_the_document_has_every_endpoint(folder, document) -> None:
    listener = admin.Listener(folder)
    try:
        listed = {(e["method"], e["path"]): e for e in listener.ask("GET", "/v1").json["endpoints"]}
    finally:
        listener.close()
    description = openapi.Description(document)
    assert set(description.operations) == set(listed)
    for key, operation in description.operations.items():
        scopes = {"open": None, "token": []}.get(listed[key]["of"], [listed[key]["scope"]])
        assert operation["security"] == ([] if scopes is None else [{"bearer": scopes}, {"basic": scopes}]), key


def uploads(ask: Asker, snap: bytes, other: bytes) -> None:
    digest = hashlib.sha256(snap).hexdigest()
    begin = {"size": len(snap), "sha256": digest}
    where = ask("POST", "/v1/uploads", begin, 201).headers["Location"]
    ask("POST", "/v1/uploads", begin, 200)
    assert ask("GET", "/v1/uploads").json["uploads"]
    ask("HEAD", where, status=200)
    ask("PATCH", where, snap[:1000], 204, Upload_Offset="0")
    ask("PATCH", where, snap[500:], 409, "wrong-offset", Upload_Offset="500")
    ask("PATCH", where, snap[1000:], 400, "bad-value")
    ask("PATCH", where, snap[1000:], 200, Upload_Offset="1000")
    assert ask("POST", "/v1/uploads", begin, 200).json["complete"]
    wrong = ask("POST", "/v1/uploads", {"size": 3, "sha256": "0" * 64}, 201).headers["Location"]
    ask("PATCH", wrong, b"abc", 422, "digest-mismatch", Upload_Offset="0")
    dropped = ask("POST", "/v1/uploads", {"size": 3, "sha256": "0" * 64}, 201).headers["Location"]
    ask("DELETE", dropped, status=200)
    bad = ask("POST", "/v1/uploads", {"size": len(other) - 5, "sha256": hashlib.sha256(other[:-5]).hexdigest()}, 201)
    ask("PATCH", bad.headers["Location"], other[:-5], 422, "bad-snapshot", Upload_Offset="0")
    ask("POST", "/v1/uploads", {"size": 1 << 50, "sha256": "0" * 64}, 507, "uploads-full")
    pieces = [["0" * 64, 10], [digest, 20]]
    assert ask("POST", "/v1/snapshots/missing", {"snapshot": digest, "pieces": pieces}, 200).json["present"]
    assert ask("POST", "/v1/snapshots/missing", {"snapshot": "1" * 64, "pieces": pieces}, 200).json["missing"] == [0, 1]
    ask("GET", f"/v1/snapshots/{digest}", status=200)
    ask("GET", f"/v1/snapshots/{digest}", status=206, Range="bytes=0-9")
    ask("GET", f"/v1/snapshots/{digest}", status=416, code="bad-range", Range=f"bytes={len(snap)}-")
    ask("GET", f"/v1/snapshots/{'1' * 64}", status=404, code="not-found")


def deploys(ask: Asker, snap: str, other: str) -> None:
    path = "/v1/functions/hello"
    manifest = {"function": {"env": {"A": "1"}, "scale": {"max": 4}}}
    ask("PUT", path, {"snapshot": snap}, 412, "changed", If_Match='"x"')
    made = ask("PUT", path, {"snapshot": snap, "manifest": manifest, "routes": ["hello.localhost", "/hello/*"]}, 201, If_None_Match="*")
    ask("PUT", path, {"snapshot": other, "if_version": 1}, 200, If_Match=made.headers["ETag"])
    ask("PUT", path, {"snapshot": snap, "activate": False, "compress_later": True, "warms_up": True, "message": "for later"}, 200)
    ask("PUT", path + "/versions/3/snapshot", {"snapshot": snap, "compress_later": True}, 200)
    ask("PUT", path + "/versions/3/snapshot", {"snapshot": snap}, 409, "conflict")
    ask("PUT", path, {"snapshot": "2" * 64}, 404, "not-found")
    ask("PUT", path, {"snapshot": snap, "manifest": {"function": {"hooks": {"health": "/crash"}}}}, 422, "unhealthy")
    ask("PUT", path + "?dry_run=true", {"manifest": manifest, "routes": ["/x"]}, 200)
    ask("PUT", "/v1/functions/second", {"snapshot": snap, "routes": ["/hello/*"]}, 409, "route-taken")
    tenant = ask.token("tenant", "deploy", "invoke", prefix="t-", routes=["t.example.com"], expires_in=1000, ceilings={"max-machines": 1})
    ask.upload(pathlib.Path(ask.snapshot_file).read_bytes(), tenant)
    ask("POST", "/v1/uploads", {"size": 1 << 40, "sha256": "0" * 64}, 413, "too-large", tenant)
    for part in ("1", "2"):  # of 8 GiB
        begun = ask("POST", "/v1/uploads", {"size": 5 << 30, "sha256": part * 64}, token=tenant)
    assert begun.status == 413 and begun.json["code"] == "upload-quota"
    refused = ask("PUT", "/v1/functions/t-a", {"snapshot": snap}, 403, "above-ceiling", tenant)
    assert refused.json["claims"]
    ask("PUT", "/v1/functions/t-a", {"snapshot": snap, "routes": ["/stolen"]}, 403, "route-not-granted", tenant)
    ask("PUT", "/v1/functions/t-a?clamp=1", {"snapshot": snap, "manifest": {"function": {"secrets": ["S"]}}}, 403, "secret-not-granted", tenant)
    ask("PUT", "/v1/functions/t-a?clamp=1", {"snapshot": snap, "manifest": {"function": {"storage": {"function": "u-a"}}}}, 403,
        "storage-not-granted", tenant)
    clamped = ask("PUT", "/v1/functions/t-a?clamp=1", {"snapshot": snap}, 201, token=tenant)
    assert clamped.json["clamped"]
    assert ask("PUT", "/v1/functions/t-a?clamp=1&dry_run=1", {"snapshot": snap}, 200, token=tenant).json["clamped"]
    ask("PUT", "/v1/functions/t-a/env/A", {"value": "1"}, 200)
    assert ask("GET", "/v1/functions/t-a/history", status=200, token=tenant).json["events"][0]["author"]["kind"] == "operator"
    assert "ceilings" in ask("GET", "/v1/functions/t-a", status=200).json["live_versions"][0]
    ask("GET", "/v1/functions", token=tenant)
    ask("GET", "/v1/info", token=tenant)
    assert "pid" not in ask("GET", "/v1/live", status=200, token=tenant).json["live"][0]


def suspends(ask: Asker, snap: str) -> None:
    path = "/v1/functions/keeps"
    ask("PUT", path, {"snapshot": snap, "manifest": {"function": {"ephemeral": False, "scale": {"suspend": True}}}}, 201)
    assert ask("POST", path + "/resume", b"", 200).json == {"name": "keeps", "machines": 1}
    ask("POST", path + "/invoke?path=/count", b"", 200)
    assert ask("POST", path + "/suspend", b"", 200).json == {"name": "keeps", "machines": 1}
    ask("POST", "/v1/functions/hello/suspend", b"", 409, "conflict")
    ask("DELETE", path, status=200)


def migrates(ask: Asker, other: Asker, snap: str) -> None:
    path, keeps = "/v1/functions/keeps", {"function": {"ephemeral": False, "scale": {"suspend": True}}}
    ask("PUT", path, {"snapshot": snap, "manifest": keeps}, 201)
    to = {"to": f"http://127.0.0.1:{other.port}", "token": other.token("mover", "deploy"), "wait_ms": 5000}
    ask("POST", path + "/migrate", {**to, "wait_ms": 10**9}, 400, "bad-value")
    ask("POST", path + "/migrate", {**to, "forward": "nowhere"}, 400, "bad-value")
    pems = admin.Certificates(ask.socket.parent.parent / "authorities")
    public = other("GET", "/v1/info").json["daemon"]["port"]
    done = ask("POST", path + "/migrate", {**to, "forward": f"http://127.0.0.1:{public}", "ca_file": str(pems.authority)}, 200)
    assert done.json["confirmed"]
    assert ask("GET", path, status=200).json["moved"]["confirmed"] and ask("GET", "/v1/functions", status=200)
    ask("POST", path + "/migrate", to, 409, "conflict")
    ask("DELETE", path, status=200)
    # What the other daemon was asked.
    ask("PUT", path, {"snapshot": snap, "manifest": keeps, "arrives": {"version": 5, "env": {"A": "1"}, "secrets": {"S": "s"}}}, 200)
    state, sha256 = b"no state at all", hashlib.sha256(b"no state at all").hexdigest()
    ask("PUT", f"{path}/versions/5/state?machine=1&sha256={'0' * 64}", state, 422, "digest-mismatch")
    ask("PUT", f"{path}/versions/5/state?machine=2&sha256={sha256}", state, 404, "not-found")
    half = hashlib.sha256(state[:4]).hexdigest(), hashlib.sha256(state[4:]).hexdigest()
    ask("PUT", f"{path}/versions/5/state?machine=1&from=4&sha256={half[1]}", state[4:], 409, "conflict")  # nothing is there
    assert ask("PUT", f"{path}/versions/5/state?machine=1&more=true&sha256={half[0]}", state[:4], 200).json["bytes"] == 4
    ask("PUT", f"{path}/versions/5/state?machine=1&from=5&sha256={half[1]}", state[4:], 409, "conflict")  # which ends it
    ask("PUT", f"{path}/versions/5/state?machine=1&more=true&sha256={half[0]}", state[:4], 200)
    assert ask("PUT", f"{path}/versions/5/state?machine=1&from=4&sha256={half[1]}", state[4:], 200).json["bytes"] == len(state)
    ask("PUT", f"{path}/versions/5/state?machine=1&from=4&sha256={half[1]}", state[4:], 409, "conflict")  # it is whole
    ask("PUT", f"{path}/versions/5/state?machine=1&sha256={sha256}", state, 200)
    ask("POST", f"{path}/versions/5/take-over", b"", 200)
    ask("PUT", f"{path}/versions/5/state?machine=1&sha256={sha256}", state, 409, "conflict")
    assert ask("POST", path + "/invoke", b"").status in (502, 503)  # not-restored, then function-failing
    ask("DELETE", path, status=200)


def changes(ask: Asker) -> None:
    """Each with its condition, in a dry run where there is one."""
    path = "/v1/functions/hello"

    def now() -> str:
        return ask("GET", path, status=200).headers["ETag"]

    def twice(method: str, target: str, body=None) -> None:
        ask(method, target, body, 412, "changed", If_Match='"x"')
        ask(method, target, body, 200, If_Match=now())

    assert len(ask("GET", path + "/versions", status=200).json["versions"]) == 3
    ask("POST", path + "/rollback?dry_run=1", {}, 200)
    ask("POST", path + "/rollback", b"", 200)
    twice("POST", path + "/rollback", {"version": 2, "message": "it fails"})
    live = {"live": [{"version": 1, "percent": 40}, {"version": 2, "percent": 60}], "message": "a canary"}
    ask("PUT", path + "/traffic?dry_run=1", live, 200)
    twice("PUT", path + "/traffic", live)
    ask("PUT", path + "/traffic", {"live": [{"version": 1, "percent": 40}]}, 400, "bad-value")
    ask("DELETE", path + "/versions/1", status=409, code="conflict")
    twice("DELETE", path + "/versions/v3")
    twice("PUT", path + "/env/B", {"value": "2"})
    assert ask("GET", path + "/env", status=200).json["env"] == {"A": "1", "B": "2"}
    twice("DELETE", path + "/env/B")
    twice("PUT", path + "/secrets/S", {"value": "hush"})
    ask("GET", path + "/secrets", status=200)
    ask("GET", path, status=200)
    twice("DELETE", path + "/secrets/S")
    events = ask("GET", path + "/history", status=200).json["events"]
    assert {"it fails", "a canary", "for later", ""} == {event["message"] for event in events} and "bytes" in events[-1]
    ask("PUT", "/v1/secrets/S", {"value": "hush", "for": ["t-a"]}, 200)
    ask("PUT", "/v1/secrets/S", {"for": ["t-*"]}, 200)
    assert ask("GET", "/v1/secrets", status=200).json["secrets"][0]["for"] == ["t-*"]
    ask("DELETE", "/v1/secrets/S", status=200)


def serves(ask: Asker) -> None:
    invoke = "/v1/functions/hello/invoke"
    ask("POST", invoke, b"abc", 200, Kvmserver_Header="X: y")
    ask("POST", invoke, b"abc", 200, Kvmserver_Headers=json.dumps(["X: y", "Z: a, b"]))
    for wrong in ("X: y", '{"X": "y"}', '[1]', '["X"]', '["X: y\\r\\nZ: z"]'):
        ask("POST", invoke, b"abc", 400, "bad-value", Kvmserver_Headers=wrong)
    ask("POST", invoke + "?method=POST&path=/echo&version=1&timeout=20", b"abc", 200)
    ask("POST", invoke + "?path=/nowhere", status=404)
    ask("POST", invoke + "?path=/nowhere&reply=plain", status=404)
    wrapped = ask("POST", invoke + "?path=/nowhere&reply=json", status=200)
    assert wrapped.json["status"] == 404 and wrapped.json["reason"] == "Not Found" and wrapped.json["body"] == "not found\n"
    assert wrapped.headers["Content-Type"] == "application/vnd.kvmserver.reply+json"
    assert wrapped.headers["X-Content-Type-Options"] == "nosniff" and not wrapped.headers.get("Kvmserver-Version")
    ask("POST", invoke + "?reply=html", status=400, code="bad-value")
    ask("POST", invoke + "?path=/crash", status=502, code="program-failed")
    ask("POST", invoke + "?version=9", status=404, code="not-found")
    ask("POST", invoke + "?path=/spin&timeout=0.2", status=504)  # in a machine or before it has one
    for path in ("/v1/functions/hello/logs", "/v1/logs"):
        assert ask("GET", f"{path}?tail=5&since=1h", status=200).body
        ask("GET", f"{path}?version=1&request_id=x", status=200)
        told = [json.loads(line) for line in ask("GET", f"{path}?requests=1&errors=1&grep=/crash", status=200).body.splitlines()]
        assert any(entry["stream"] == "request" and entry["status"] == 502 for entry in told), told
    for path in ("/v1/functions/hello/measurements", "/v1/measurements"):
        ask("GET", path, status=200)
        ask("GET", f"{path}?span=7d", status=200)
        ask("GET", f"{path}?span=2h", status=400, code="bad-value")
    ask("GET", "/v1/live", status=200)
    ask("GET", "/v1/live?running=1&after=a&until=z", status=200)
    ask("GET", "/v1/info", status=200)
    ask("GET", "/metrics", status=200)


def ends(ask: Asker) -> None:
    ask("GET", "/v1/functions", status=200)
    ask("GET", "/v1/functions?limit=1&after=a", status=200)
    ask("GET", "/v1/snapshots", status=200)
    ask("POST", "/v1/gc?dry_run=1&keep=1", status=200)
    ask("POST", "/v1/gc", status=200)
    ask("POST", "/v1/verify?dry_run=1", status=200)
    ask("POST", "/v1/verify?cluster=1", status=409, code="no-cluster")
    ask("POST", "/v1/verify", status=200)
    ask("POST", "/v1/reload", status=200)
    assert any("ceilings" in token for token in ask("GET", "/v1/tokens", status=200).json["tokens"])
    ask("POST", "/v1/tokens", {"name": "tenant", "scopes": ["read"]}, 409, "conflict")
    ask("POST", "/v1/tokens", b" " * (5 << 20), 413, "too-large")
    ask("DELETE", "/v1/tokens/tenant", status=200)
    pems = admin.Certificates(ask.socket.parent.parent / "certificates")
    pair = {"chain": pems.certificate.read_text(), "key": pems.key.read_text()}
    assert ask("POST", "/v1/certificates", pair, 201).json["name"] == "localhost"
    ask("POST", "/v1/certificates", {**pair, "name": "another"}, 201)
    ask("POST", "/v1/certificates", {**pair, "key": "none"}, 400, "bad-value")
    assert ask("GET", "/v1/certificates", status=200).json["certificates"][0]["hosts"] == ["localhost"]
    ask("DELETE", "/v1/certificates/localhost", status=200)
    ask("DELETE", "/v1/certificates/localhost", status=404, code="not-found")
    ask("DELETE", "/v1/functions/t-a", status=200)
    ask("DELETE", "/v1/functions/hello", status=412, code="changed", If_Match='"x"')
    etag = ask("GET", "/v1/functions/hello").headers["ETag"]
    ask("DELETE", "/v1/functions/hello", status=200, If_Match=etag)


def refusals(ask: Asker) -> None:
    weak, far = ask.token("weak", "read"), ask.token("far", "admin", prefix="far-")
    invoker = ask.token("invoker", "invoke")
    for (method, path), operation in ask.description.operations.items():
        body = {} if method in ("POST", "PUT") else None
        for token in (None, "", "kvs_" + "0" * 64, weak, far, invoker):
            # Without a token by TCP; what `weak` may read is read.
            reply = ask.plain(method, filled(path), body, {} if token is None else {"Authorization": f"Bearer {token}"}, tcp=True)
            ask.description.check(method, filled(path), b"", {}, reply) if reply.status >= 400 else None
            assert reply.status in (401, 403) or token not in (None, "") or operation["security"] == [], (method, path, reply)
        ask(method, filled(path) + "?colour=red", body, 400)
    ask("GET", "/v1/nothing", status=404, code="no-endpoint")
    ask("POST", "/v1/functions/hello", status=405, code="wrong-method")


def test_every_reply_is_as_described(ask, other_daemon, snaps, snapshots, program) -> None:
    """Each endpoint of a real daemon, with every input, successful reply and most errors that the document has."""
    ask.snapshot_file = snapshots.of(program("c-epoll"))
    for path in ("/healthz", "/readyz", "/", "/ui", "/ui/app.js", "/ui/charts.js", "/ui/style.css", "/v1", "/v1/openapi.json"):
        ask("GET", path, status=200)
    uploads(ask, *snaps)
    snap, other = (ask.upload(data) for data in snaps)
    deploys(ask, snap, other)
    suspends(ask, snap)
    migrates(ask, other_daemon, snap)
    changes(ask)
    serves(ask)
    refusals(ask)
    ends(ask)
    statuses, inputs, codes = ask.description.described()
    assert statuses - OF_CLUSTERS <= ask.description.statuses, statuses - OF_CLUSTERS - ask.description.statuses
    assert inputs - ELSEWHERE <= ask.description.inputs, inputs - ELSEWHERE - ask.description.inputs
    assert codes - RARE - {"not-serving"} <= ask.description.codes, codes - RARE - ask.description.codes


def test_without_a_store_and_a_daemon_replies_are_as_described(folder) -> None:
    listener = admin.Listener(folder)
    try:
        ask = Asker(listener.socket, listener.port)
        listener.store.rename(folder / "away")
        reply = ask.plain("GET", "/readyz", tcp=True)
        (folder / "away").rename(listener.store)
        assert reply.status == 503
        ask.description.check("GET", "/readyz", None, {}, reply)
        for (method, path), operation in ask.description.operations.items():
            if "requestBody" not in operation:
                ask(method, filled(path))
        assert {"not-serving", "not-found"} <= ask.description.codes
    finally:
        listener.close()


def test_a_followed_log_is_as_described(ask, snaps) -> None:
    ask("PUT", "/v1/functions/hello", {"snapshot": ask.upload(snaps[0])}, 201)
    ask("POST", "/v1/functions/hello/invoke?path=/crash", status=502)
    for path in ("/v1/logs", "/v1/functions/hello/logs"):
        connection = admin.UnixConnection(ask.socket)
        connection.request("GET", path + "?follow=true")
        reply = connection.getresponse()
        line = reply.readline()
        operation = ask.description.find("GET", path)[1]
        assert "follow" in {parameter["name"] for parameter in operation["parameters"]}
        ask.description.validate({"$ref": "#/components/schemas/LogEntry"}, json.loads(line), path)
        connection.close()


def test_every_code_of_the_sources_is_described(document) -> None:
    described = set()
    for operation in openapi.Description(document).operations.values():
        for status, response in operation["responses"].items():
            described.update((status, code) for code in response.get("x-codes", ()))
    described |= {("404", "no-endpoint"), ("405", "wrong-method")}  # of paths that are not in the document
    found = set()
    for file in (harness.ROOT / "src/admin").glob("*.cpp"):
        if file.name != "problem_codes.cpp":
            for match in re.finditer(r'(?:Refused\(|unauthorized\(|return \{|kind = \{)\s*(?:(\d{3}), )?"([a-z-]+)"', file.read_text()):
                found.add((match[1] or "401", match[2]))
    assert len(found) > 25
    assert found <= described, found - described


def test_the_guide_lists_the_same_endpoints(document) -> None:
    """docs/API.md: each endpoint once, with its query."""
    text = (harness.ROOT / "docs/API.md").read_text()
    table = text[text.index("## Endpoints"):text.index("### A new version")]
    told = {}
    for row in re.findall(r"^\| (`.*?`) \|", table, re.M):
        for cell in re.findall(r"`([^`]+)`", row):
            methods, path = re.fullmatch(r"([A-Z ]+) (\S+)(?: \{.*\})?", cell).groups()
            path, _, query = path.partition("?")
            path = path.replace("...", "/v1/functions/{name}")
            for method in methods.split():
                assert (method, path) not in told, f"{method} {path} is there twice"
                told[method, path] = set(filter(None, query.split("&")))
    wanted = {key: {p["name"] for p in operation["parameters"] if p["in"] == "query"} for key, operation in openapi.Description(document).operations.items()}
    assert told == wanted


@pytest.fixture(scope="module")
def client(document, tmp_path_factory) -> None:
    """A typed client, generated from the document; on sys.path as `made_client`."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "config.yaml").write_text("post_hooks: []\n")
    words = ["generate", "--path", "openapi.json", "--meta", "none", "--output-path", "made_client", "--config", "config.yaml"]
    done = subprocess.run([sys.executable, "-m", "openapi_python_client", *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(openapi.PACKAGES)}, timeout=harness.PATIENCE * 3)  # fmt: skip
    assert done.returncode == 0, done
    told = done.stdout + done.stderr
    # It has all endpoints, and leaves NDJSON to its caller.
    assert "will not be generated" not in told, done
    assert set(re.findall(r"WARNING parsing (\S+ \S+) within", told)) == {"GET /v1/logs", "GET /v1/functions/{name}/logs"}, done
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def test_a_generated_client_deploys(client, ask, snaps) -> None:
    def of(module: str, name: str):
        return getattr(importlib.import_module(f"made_client.{module}"), name)

    def call(tag: str, name: str, *words, **more):
        reply = importlib.import_module(f"made_client.api.{tag}.{name}").sync_detailed(*words, client=api, **more)
        assert reply.status_code < 300, reply
        return reply

    api = of("client", "AuthenticatedClient")(base_url=f"http://127.0.0.1:{ask.port}", token=ask.token("client", "deploy", "invoke"))
    File, models = of("types", "File"), importlib.import_module("made_client.models")
    for data in snaps:
        digest = hashlib.sha256(data).hexdigest()
        begun = call("uploads", "create_upload", body=models.NewUpload(size=len(data), sha256=digest))
        assert isinstance(begun.parsed, models.UploadBegun) and begun.parsed.offset == 0
        done = call("uploads", "append_upload", begun.parsed.id, body=File(payload=io.BytesIO(data)), upload_offset=0)
        made = call("functions", "put_function", "hello", body=models.NewVersion(snapshot=done.parsed.snapshot))
        assert isinstance(made.parsed, models.Deployed) and made.parsed.snapshot == f"sha256:{digest}"
    listed = call("functions", "list_functions").parsed.functions
    assert [(function.name, function.live[0].version) for function in listed] == [("hello", 2)]
    answer = call("functions", "invoke", "hello", body=File(payload=io.BytesIO(b"")), path="/count")
    assert answer.parsed.payload.read() == b"1\n" and answer.headers["Kvmserver-Version"] == "2"
    back = call("functions", "rollback", "hello", body=models.RollbackTarget()).parsed
    assert [share.version for share in back.live] == [1] and back.dry_run is False
    wrong = importlib.import_module("made_client.api.functions.describe_function").sync("nobody", client=api)
    assert isinstance(wrong, models.Problem) and wrong.code == "not-found"
    assert call("functions", "delete_function", "hello").parsed.deleted == "hello"
    assert call("functions", "list_functions").parsed.functions == []
