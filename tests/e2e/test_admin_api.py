"""The admin API: every endpoint refuses whom it must, and does what CLI.md says."""
import hashlib
import os
import pathlib
import pwd
import socket
import sqlite3
import stat
import threading

import admin
import harness
import pytest

OPEN = {("GET", "/"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/ui"), ("GET", "/ui/{file}"),
        ("GET", "/v1/openapi.json")}
SCOPES = ["read", "invoke", "deploy", "admin"]
# What a token of a scope may do besides.
INCLUDES = {"read": {"deploy", "admin"}, "invoke": {"admin"}, "deploy": {"admin"}, "admin": set()}


@pytest.fixture
def api(folder):
    listener = admin.Listener(folder)
    yield listener
    listener.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    listener = admin.Listener(tmp_path_factory.mktemp("api"))
    yield listener
    listener.close()


@pytest.fixture
def snap(snapshots, program) -> bytes:
    return snapshots.of(program("c-epoll")).read_bytes()


@pytest.fixture
def other(snapshots, program) -> bytes:
    return snapshots.of(program("c-poll")).read_bytes()


def endpoints(listener) -> list[dict]:
    return listener.ask("GET", "/v1").json["endpoints"]


def filled(path: str, name: str = "theirs-x") -> str:
    for parameter, value in {"name": name, "file": "app.js", "version": "1", "variable": "A", "secret": "S", "digest": "0" * 64, "id": "0" * 32,
                             "token": "nobody", "certificate": "nowhere.example", "node": "nowhere"}.items():  # fmt: skip
        path = path.replace("{%s}" % parameter, value)
    assert "{" not in path, path
    return path


def tried(listener, endpoint: dict, token: str | None) -> admin.Reply:
    body = {} if endpoint["method"] in ("POST", "PUT") else None
    return listener.ask(endpoint["method"], filled(endpoint["path"]), body, token, tcp=True)


def refused(reply: admin.Reply, endpoint: dict, status: int, code: str) -> None:
    assert reply.status == status, (endpoint, reply)
    if endpoint["method"] != "HEAD":
        reply.problem(status, code)


def test_the_table_is_whole(shared) -> None:
    table = {(e["method"], e["path"]) for e in endpoints(shared)}
    assert len(table) == len(endpoints(shared)) >= 39
    for wanted in [("PUT", "/v1/functions/{name}"), ("POST", "/v1/functions/{name}/rollback"), ("PATCH", "/v1/uploads/{id}"),
                   ("GET", "/metrics"), ("POST", "/v1/functions/{name}/invoke"), ("GET", "/v1/functions/{name}/logs")]:  # fmt: skip
        assert wanted in table
    assert {(e["method"], e["path"]) for e in endpoints(shared) if e["of"] == "open"} == OPEN


def test_every_endpoint_refuses_without_a_token(shared) -> None:
    for endpoint in endpoints(shared):
        reply = tried(shared, endpoint, None)
        if (endpoint["method"], endpoint["path"]) in OPEN:
            assert reply.status in (200, 503)
            continue
        refused(reply, endpoint, 401, "no-token")
        assert reply.headers["WWW-Authenticate"] == "Bearer"


def test_every_endpoint_refuses_a_wrong_token(shared) -> None:
    revoked = shared.token("revoked", "admin")
    assert shared.ask("DELETE", "/v1/tokens/revoked").status == 200
    for endpoint in endpoints(shared):
        if (endpoint["method"], endpoint["path"]) in OPEN:
            continue
        for token in ("kvs_" + "0" * 64, "", revoked):
            refused(tried(shared, endpoint, token), endpoint, 401, "wrong-token")


@pytest.mark.parametrize("scope", SCOPES)
def test_every_endpoint_refuses_too_small_a_scope(shared, scope: str) -> None:
    token = shared.token(f"only-{scope}", scope)
    checked = 0
    for endpoint in endpoints(shared):
        if endpoint["of"] in ("open", "token") or scope == endpoint["scope"] or scope in INCLUDES[endpoint["scope"]]:
            continue
        refused(tried(shared, endpoint, token), endpoint, 403, "scope-too-small")
        checked += 1
    assert checked or scope == "admin"


def test_every_endpoint_refuses_another_prefix(shared) -> None:
    token = shared.token("mine", "admin", prefix="mine-")
    for endpoint in endpoints(shared):
        if endpoint["of"] in ("function", "store"):
            refused(tried(shared, endpoint, token), endpoint, 403, "wrong-prefix")


def test_a_fitting_token_is_let_in(shared) -> None:
    """The refusals above are not because everything is refused."""
    for scope in SCOPES:
        token = shared.token(f"fits-{scope}", scope)
        for endpoint in endpoints(shared):
            if endpoint["of"] == "function" and endpoint["scope"] == scope:
                assert tried(shared, endpoint, token).status not in (401, 403), endpoint


def test_no_such_path_or_method(shared) -> None:
    shared.ask("GET", "/v1/nothing").problem(404, "no-endpoint")
    shared.ask("GET", "/v1/functions/").problem(404, "no-endpoint")
    wrong = shared.ask("POST", "/v1/functions/x")
    wrong.problem(405, "wrong-method")
    assert wrong.headers["Allow"] == "GET, PUT, DELETE"
    shared.ask("GET", "/v1/functions/%zz").problem(400, "bad-value")
    shared.ask("GET", "/v1/functions?colour=red").problem(400, "bad-value")
    shared.ask("POST", "/v1/tokens", b"{").problem(400, "bad-value")
    shared.ask("POST", "/v1/tokens", b"[" * 100_000).problem(400, "bad-value")
    assert "colour" in shared.ask("POST", "/v1/tokens", {"name": "x", "scopes": ["read"], "colour": 1}).problem(400, "bad-value")["detail"]
    shared.ask("POST", "/v1/tokens", b" " * (5 << 20)).problem(413, "too-large")


def test_nothing_that_is_asked_is_ignored(api, snap, other) -> None:
    """A dry run that is asked for in the body, where nobody looks for it, would be a real one."""
    api.deploy("hello", snap)
    api.deploy("hello", other)
    assert api.ask("PUT", "/v1/functions/hello/env/A", {"value": "1"}).status == 200
    assert api.ask("PUT", "/v1/functions/hello/secrets/S", {"value": "1"}).status == 200
    api.token("kept", "read")
    begun = api.ask("POST", "/v1/uploads", {"size": 5, "sha256": "0" * 64}).headers["Location"]
    for method, path in [("POST", "/v1/gc"), ("POST", "/v1/verify"), ("POST", "/v1/reload"), ("DELETE", "/v1/functions/hello/versions/1"),
                         ("DELETE", "/v1/functions/hello/env/A"), ("DELETE", "/v1/functions/hello/secrets/S"), ("DELETE", "/v1/functions/hello"),
                         ("DELETE", "/v1/tokens/kept"), ("DELETE", begun)]:  # fmt: skip
        assert "dry_run" in api.ask(method, path, {"dry_run": True}).problem(400, "bad-value")["detail"], path
        if path != "/v1/reload":  # which needs a daemon
            assert api.ask(method, path, b"").status == 200, path
    for path in ("/healthz", "/readyz", "/metrics"):
        api.ask("GET", f"{path}?verbose=1").problem(400, "bad-value")


def test_basic_is_for_netrc(shared) -> None:
    import base64
    token = shared.token("netrc", "read")
    for password, status in ((token, 200), (token[:-1], 401)):
        basic = base64.b64encode(f"anybody:{password}".encode()).decode()
        assert shared.ask("GET", "/v1/functions", headers={"Authorization": f"Basic {basic}"}, tcp=True).status == status


def test_the_socket_is_its_owners(api, folder) -> None:
    facts = os.stat(api.socket)
    assert stat.S_ISSOCK(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o600 and facts.st_uid == os.geteuid()
    assert api.ask("GET", "/v1/info").json["caller"]["name"] == "local"
    # Another daemon does not take it away; when this one is gone, it may.
    second = harness.Process([str(admin.PROGRAM), str(api.store), str(harness.KVMSERVER), f"unix={api.socket}"])
    ended = second.wait()
    assert ended.status == 5 and "listens there already" in ended.err
    second.close()
    api.popen.kill()  # its socket stays behind
    api.popen.wait()
    assert api.socket.exists()
    third = admin.Listener(folder)
    assert third.ask("GET", "/healthz").status == 200
    assert third.stop().status == 0
    assert not third.socket.exists()
    third.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_another_users_process_is_refused(api) -> None:
    os.chmod(api.store, 0o755)  # as an administrator might; the kernel then only asks the socket's mode
    os.chmod(api.socket, 0o666)
    above = {part: stat.S_IMODE(os.stat(part).st_mode) for part in api.store.parents if part.stat().st_uid == 0 and not part.stat().st_mode & 0o001}
    for part in above:
        os.chmod(part, 0o711)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(write, str(api.ask("GET", "/v1/functions").status).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    for part, mode in above.items():
        os.chmod(part, mode)
    assert os.read(read, 1000) == b"403"


def test_a_folder_that_others_may_write_to_is_refused(folder) -> None:
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    process = harness.Process([str(admin.PROGRAM), str(folder / "store"), str(harness.KVMSERVER), f"unix={shared}/a.sock"])
    ended = process.wait()
    assert ended.status == 4 and "others may write" in ended.err
    process.close()


def test_plain_tcp_is_for_loopback(folder) -> None:
    process = harness.Process([str(admin.PROGRAM), str(folder / "store"), str(harness.KVMSERVER), "tcp=0.0.0.0:0"])
    ended = process.wait()
    assert ended.status == 2 and "in the clear" in ended.err
    process.close()


def test_functions(api, snap, other) -> None:
    assert api.ask("GET", "/v1/functions").json == {"functions": []}
    api.ask("GET", "/v1/functions/hello").problem(404, "not-found")
    made = api.deploy("hello", snap)
    assert made.status == 201 and made.json["version"] == 1, made
    assert made.json["live"] == [{"version": 1, "percent": 100}] and made.json["routes"] == ["hello.localhost"]
    again = api.deploy("hello", other, routes=["hello.example.com", "/hello/*"])
    assert again.status == 200 and again.json["version"] == 2
    shown = api.ask("GET", "/v1/functions/hello")
    assert shown.json["routes"] == ["/hello/*", "hello.example.com"]
    assert shown.headers["ETag"] == f'"{shown.json["etag"]}"' == again.headers["ETag"]
    assert shown.json["live_versions"][0]["snapshot"] == "sha256:" + hashlib.sha256(other).hexdigest()
    versions = api.ask("GET", "/v1/functions/hello/versions").json["versions"]
    assert [(v["version"], v["percent"]) for v in versions] == [(2, 100), (1, 0)]
    assert api.ask("POST", "/v1/functions/hello/rollback").json["live"] == [{"version": 1, "percent": 100}]
    split = [{"version": 1, "percent": 30}, {"version": 2, "percent": 70}]
    assert api.ask("PUT", "/v1/functions/hello/traffic", {"live": split}).json["live"] == split
    api.ask("PUT", "/v1/functions/hello/traffic", {"live": split[:1]}).problem(400, "bad-value")
    api.ask("DELETE", "/v1/functions/hello/versions/2").problem(409, "conflict")
    api.deploy("other", snap)
    taken = api.ask("PUT", "/v1/functions/other", {"snapshot": "sha256:" + hashlib.sha256(snap).hexdigest(), "routes": ["/hello/*"]})
    assert taken.problem(409, "route-taken")["owner"] == "hello"
    assert api.ask("DELETE", "/v1/functions/hello").json == {"deleted": "hello"}
    assert [f["name"] for f in api.ask("GET", "/v1/functions").json["functions"]] == ["other"]


def test_history(api, snap, other) -> None:
    """Who did it: by the socket a user of this host, else a token. A tenant learns no names of the operator's."""
    api.deploy("mine-a?clamp=1", snap, mine := api.token("mine", "deploy", prefix="mine-"))
    robot = api.token("robot", "deploy")
    path = "/v1/functions/mine-a"
    assert api.ask("PUT", f"{path}/env/A", {"value": "1"}, robot).status == 200
    api.deploy("mine-a", other, message="by hand")
    assert api.ask("POST", f"{path}/rollback", {"message": "it fails"}, mine).status == 200
    assert api.ask("PUT", f"{path}/traffic", {"live": [{"version": 2, "percent": 100}], "message": "mended"}, mine).status == 200
    events = api.ask("GET", f"{path}/history").json["events"]
    by_hand, by_mine = {"kind": "user", "name": pwd.getpwuid(os.geteuid()).pw_name}, {"kind": "token", "name": "mine"}
    assert [(e["action"], e["subject"], e["message"], e["author"]) for e in events] == [
        ("traffic", "v1 -> v2", "mended", by_mine),
        ("rollback", "v2 -> v1", "it fails", by_mine),
        ("deploy", "v2", "by hand", by_hand),
        ("set-env", "A", "", {"kind": "token", "name": "robot"}),
        ("deploy", "v1", "", by_mine)]  # fmt: skip
    assert events[-1]["change"] == "first version" and events[-1]["bytes"] == len(snap)
    seen = api.ask("GET", f"{path}/history", token=mine)
    operator = {"kind": "operator", "name": ""}
    assert [e["author"] for e in seen.json["events"]] == [by_mine, by_mine, operator, operator, by_mine]
    assert b"robot" not in seen.body
    # Another's function: as if it were not there.
    api.deploy("theirs", snap)
    for name in ("theirs", "nobody"):
        api.ask("GET", f"/v1/functions/{name}/history", token=mine).problem(403, "wrong-prefix")
    for method, what, body in (("POST", "/rollback", {}), ("PUT", "/traffic", {"live": [{"version": 1, "percent": 100}]}), ("PUT", "", {})):
        for message in ("two\nlines", "x" * 501, "\x1b[2J", 5):
            for query in ("", "?dry_run=1"):
                assert "message" in api.ask(method, path + what + query, {**body, "message": message}).problem(400, "bad-value")["detail"]
    assert api.ask("GET", f"{path}/history").json["events"] == events
    assert api.ask("DELETE", path).status == 200
    api.ask("GET", f"{path}/history").problem(404, "not-found")


def etag_of(api) -> str:
    return api.ask("GET", "/v1/functions/hello").headers["ETag"]


def test_if_match(api, snap) -> None:
    etag = api.deploy("hello", snap).headers["ETag"]
    body = {"snapshot": "sha256:" + hashlib.sha256(snap).hexdigest()}
    changed = api.ask("PUT", "/v1/functions/hello/env/A", {"value": "1"}, headers={"If-Match": etag})
    assert changed.status == 200
    assert api.ask("PUT", "/v1/functions/hello/secrets/S", {"value": "1"}, headers={"If-Match": etag_of(api)}).status == 200
    for method, path, data in [("PUT", "/v1/functions/hello", body), ("PUT", "/v1/functions/hello/env/A", {"value": "2"}),
                               ("DELETE", "/v1/functions/hello", None), ("POST", "/v1/functions/hello/rollback", {}),
                               ("POST", "/v1/functions/hello/rollback?dry_run=1", {"version": 1}),
                               ("PUT", "/v1/functions/hello/secrets/S", {"value": "2"}), ("DELETE", "/v1/functions/hello/secrets/S", None),
                               ("PUT", "/v1/functions/hello/traffic", {"live": [{"version": 1, "percent": 100}]}),
                               ("PUT", "/v1/functions/hello/traffic?dry_run=1", {"live": [{"version": 1, "percent": 100}]})]:  # fmt: skip
        stale = api.ask(method, path, data, headers={"If-Match": etag})
        stale.problem(412, "changed")
        assert stale.headers["ETag"] not in (None, etag)
    api.ask("PUT", "/v1/functions/hello", body, headers={"If-None-Match": "*"}).problem(412, "changed")
    now = etag_of(api)
    for path, data in (("rollback?dry_run=1", {"version": 1}), ("traffic?dry_run=1", {"live": [{"version": 1, "percent": 100}]})):
        assert api.ask("POST" if "roll" in path else "PUT", f"/v1/functions/hello/{path}", data, headers={"If-Match": now}).status == 200
    assert api.ask("PUT", "/v1/functions/hello", body, headers={"If-Match": now}).json["version"] == 2
    # There is no ETag of the secrets for all functions: a condition that nobody looks at is refused.
    for given in ({"If-Match": now}, {"If-None-Match": "*"}):
        api.ask("PUT", "/v1/secrets/S", {"value": "1"}, headers=given).problem(400, "bad-value")
        assert api.ask("GET", "/v1/secrets").json["secrets"] == []
    assert api.ask("PUT", "/v1/functions/new", body, headers={"If-None-Match": "*"}).status == 201
    api.ask("PUT", "/v1/functions/hello", body, headers={"If-Match": "W/\"x\", *"}).problem(400, "bad-value")


def test_dry_run(api, snap) -> None:
    api.deploy("hello", snap)
    before = api.ask("GET", "/v1/functions/hello").json
    change = api.ask("PUT", "/v1/functions/hello?dry_run=1", {"manifest": {"function": {"env": {"A": "1"}, "routes": ["/x/*"]}}}).json
    assert change["routes"] == ["/x/*"] and change["routes_before"] == ["hello.localhost"]
    assert change["env"] == {"A": "1"} and change["env_before"] == {} and change["new"] is False
    assert api.ask("GET", "/v1/functions/hello").json == before
    for manifest in ({"function": 3}, {"function": {"env": {"A": 1}}}, {"function": {"routes": "x"}}, {"function": {"hooks": {"health": "x"}}}):
        api.ask("PUT", "/v1/functions/hello?dry_run=1", {"manifest": manifest}).problem(400, "bad-value")
    for of_daemon in ({"scale": {"max": 0}}, {"hooks": {"after-restore": "x"}}, {"hooks": {"after-restore": 3}}, {"secrets": "KEY"}, {"versions": {"keep": 0}}):
        refused = api.ask("PUT", "/v1/functions/hello?dry_run=1", {"manifest": {"function": of_daemon}})
        assert refused.status == 400 and "function." in refused.json["detail"], (of_daemon, refused)


def test_a_sick_version_does_not_go_live(api, snap, other) -> None:
    api.deploy("hello", snap, manifest={"function": {"hooks": {"health": "/"}}})
    before = api.ask("GET", "/v1/functions/hello").json
    sick = api.deploy("hello", other, manifest={"function": {"hooks": {"health": "/crash"}}})
    problem = sick.problem(422, "unhealthy")
    assert "GET /crash" in problem["detail"] and "c-poll: killed by SIGSEGV" in problem["output"]
    assert api.ask("GET", "/v1/functions/hello").json == before


def test_a_snapshot_that_is_damaged_does_not_go_live(api, snap) -> None:
    """Wherever it is: also in what no answer needs."""
    body = {"snapshot": api.upload(snap).json["snapshot"]}
    pieces = [path for path in api.store.rglob("*") if path.is_file() and path.stat().st_size > 40 and path.read_bytes() in snap]
    assert len(pieces) > 1
    for piece in pieces:
        good = piece.read_bytes()
        piece.chmod(0o600)
        piece.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        refused = api.ask("PUT", "/v1/functions/hello", body)
        assert refused.status >= 400, (piece, refused)
        piece.write_bytes(good)
    assert api.ask("GET", "/v1/functions").json["functions"] == []
    assert api.ask("PUT", "/v1/functions/hello", body).status == 201


def test_values(api, snap) -> None:
    api.deploy("hello", snap)
    assert api.ask("PUT", "/v1/functions/hello/env/DB_URL", {"value": "a=b c"}).status == 200
    assert api.ask("GET", "/v1/functions/hello/env").json["env"] == {"DB_URL": "a=b c"}
    assert api.ask("DELETE", "/v1/functions/hello/env/DB_URL").status == 200
    api.ask("DELETE", "/v1/functions/hello/env/DB_URL").problem(404, "not-found")
    api.ask("PUT", "/v1/functions/hello/env/1X", {"value": "a"}).problem(400, "bad-value")
    for path in ("/v1/functions/hello/secrets", "/v1/secrets"):
        assert api.ask("PUT", f"{path}/TOKEN", {"value": "hush-hush"}).status == 200
        listed = api.ask("GET", path)
        assert [s["name"] for s in listed.json["secrets"]] == ["TOKEN"] and b"hush-hush" not in listed.body
        assert b"hush-hush" not in api.ask("GET", "/v1/functions/hello").body
        assert api.ask("DELETE", f"{path}/TOKEN").status == 200


def test_uploads(api, snap) -> None:
    digest = hashlib.sha256(snap).hexdigest()
    begun = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": digest})
    assert begun.status == 201
    where = begun.headers["Location"]
    assert api.ask("HEAD", where).headers["Upload-Offset"] == "0"
    part = api.ask("PATCH", where, snap[:1000], headers={"Upload-Offset": "0"})
    assert part.status == 204 and part.headers["Upload-Offset"] == "1000"
    wrong = api.ask("PATCH", where, snap[500:], headers={"Upload-Offset": "500"})
    wrong.problem(409, "wrong-offset")
    assert wrong.headers["Upload-Offset"] == "1000"
    api.ask("PATCH", where, snap[1000:]).problem(400, "bad-value")
    found = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": digest})
    assert found.status == 200 and found.headers["Location"] == where and found.json["offset"] == 1000
    done = api.ask("PATCH", where, snap[1000:], headers={"Upload-Offset": "1000"})
    assert done.status == 200 and done.json["snapshot"] == f"sha256:{digest}"
    assert api.ask("GET", "/v1/uploads").json["uploads"] == []
    assert api.ask("HEAD", where).status == 404
    there = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": digest})
    assert there.status == 200 and there.json["complete"] is True and there.headers["Location"] is None


def test_an_upload_that_breaks_off_goes_on(api, snap) -> None:
    begun = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": hashlib.sha256(snap).hexdigest()})
    where, half = begun.headers["Location"], len(snap) // 2
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(api.socket))
    raw.sendall(f"PATCH {where} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\nContent-Length: {len(snap)}\r\n\r\n".encode() + snap[:half])
    raw.close()
    harness.wait_until(lambda: api.ask("HEAD", where).headers["Upload-Offset"] == str(half), "what came counts")
    done = api.ask("PATCH", where, snap[half:], headers={"Upload-Offset": str(half)})
    assert done.status == 200


def test_bad_uploads(api, snap) -> None:
    wrong = hashlib.sha256(b"something else").hexdigest()
    begun = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": wrong})
    api.ask("PATCH", begun.headers["Location"], snap, headers={"Upload-Offset": "0"}).problem(422, "digest-mismatch")
    assert api.ask("HEAD", begun.headers["Location"]).status == 404
    for bad in (b"no snapshot at all", snap[:-5], b"KVMDELTA" + b"\x01\0\0\0" + b"\xff" * 200, b"KVMDELTA"):
        begun = api.ask("POST", "/v1/uploads", {"size": len(bad), "sha256": hashlib.sha256(bad).hexdigest()})
        reply = api.ask("PATCH", begun.headers["Location"], bad, headers={"Upload-Offset": "0"})
        assert reply.status in (400, 422), reply
        assert str(api.store) not in reply.json["detail"] and "/proc" not in reply.json["detail"]
    begun = api.ask("POST", "/v1/uploads", {"size": 10, "sha256": wrong})
    api.ask("PATCH", begun.headers["Location"], b"x" * 11, headers={"Upload-Offset": "0"}).problem(400, "bad-value")
    api.ask("POST", "/v1/uploads", {"size": 0, "sha256": wrong}).problem(400, "bad-value")
    api.ask("POST", "/v1/uploads", {"size": 5, "sha256": "x"}).problem(400, "bad-value")
    api.ask("PUT", "/v1/functions/hello", {"snapshot": wrong}).problem(404, "not-found")
    assert api.ask("GET", "/v1/snapshots").json["snapshots"] == []


def test_a_good_upload_survives_a_failure_of_the_store(api, snap) -> None:
    """What is wrong for the moment costs no transfer: the same upload is completed later."""
    index = sqlite3.connect(api.store / "index.db", isolation_level=None)
    index.execute("CREATE TRIGGER sick BEFORE INSERT ON snapshot BEGIN SELECT RAISE(ABORT, 'the disk is tired'); END")
    begun = api.ask("POST", "/v1/uploads", {"size": len(snap), "sha256": hashlib.sha256(snap).hexdigest()})
    where = begun.headers["Location"]
    assert api.ask("PATCH", where, snap, headers={"Upload-Offset": "0"}).status >= 500
    assert api.ask("HEAD", where).headers["Upload-Offset"] == str(len(snap))
    index.execute("DROP TRIGGER sick")
    index.close()
    done = api.ask("PATCH", where, b"", headers={"Upload-Offset": str(len(snap))})
    assert done.status == 200 and done.json["complete"] is True, done
    assert api.ask("HEAD", where).status == 404


def test_ranges(api, snap) -> None:
    digest = hashlib.sha256(snap).hexdigest()
    api.deploy("hello", snap)
    path = f"/v1/snapshots/sha256:{digest}"
    whole = api.ask("GET", path)
    assert whole.status == 200 and whole.body == snap and whole.headers["ETag"] == f'"{digest}"'
    for given, part in {"bytes=0-9": slice(0, 10), "bytes=100-": slice(100, None), "bytes=-7": slice(-7, None)}.items():
        reply = api.ask("GET", path, headers={"Range": given})
        assert reply.status == 206 and reply.body == snap[part], given
    assert api.ask("GET", path, headers={"Range": "bytes=5-6"}).headers["Content-Range"] == f"bytes 5-6/{len(snap)}"
    api.ask("GET", path, headers={"Range": f"bytes={len(snap)}-"}).problem(416, "bad-range")
    assert api.ask("HEAD", path).headers["Content-Length"] == str(len(snap))
    assert api.ask("GET", "/v1/snapshots/hello@1").body == snap
    assert api.ask("GET", "/v1/snapshots").json["snapshots"][0]["used_by"] == ["hello@1"]


def test_a_limited_token_sees_and_names_its_own(api, snap, other) -> None:
    """Neither by digest nor by pieces does it get at another function's memory."""
    api.deploy("theirs", other)
    mine = api.token("mine", "deploy", prefix="mine-")
    digest = "sha256:" + hashlib.sha256(other).hexdigest()
    assert api.ask("GET", "/v1/functions", token=mine).json == {"functions": []}
    assert api.ask("GET", "/v1/snapshots", token=mine).json == {"snapshots": []}
    for reference in (digest, digest[7:], "theirs", "theirs@1"):
        api.ask("GET", f"/v1/snapshots/{reference}", token=mine).problem(404, "not-found")
    for some in (11, 20, 70):  # it does not learn the rest of a digest by trying
        answer = api.ask("GET", f"/v1/snapshots/{digest[:some]}", token=mine)
        answer.problem(400, "bad-value")
        assert digest[7:].encode() not in answer.body
    assert api.ask("HEAD", f"/v1/snapshots/{digest[:20]}").status == 200, "who may see all may be brief"
    api.ask("PUT", "/v1/functions/mine-a", {"snapshot": digest}, mine).problem(404, "not-found")
    chunks = [(path.name, path.stat().st_size) for path in (api.store / "chunks").rglob("*") if path.is_file()]
    asked = api.ask("POST", "/v1/snapshots/missing", {"snapshot": digest, "pieces": chunks}, mine).json
    assert asked == {"present": False, "missing": list(range(len(chunks)))}
    delta = b"KVMDELTA" + (1).to_bytes(4, "little") + len(chunks).to_bytes(4, "little") + bytes.fromhex(digest[7:])
    delta += b"".join(bytes.fromhex(name) + size.to_bytes(8, "little") for name, size in chunks)
    api.upload(delta, mine).problem(409, "missing-chunk")
    # With its own bytes all is well.
    assert api.deploy("mine-a?clamp=1", snap, mine).status == 201
    assert api.ask("GET", "/v1/snapshots/mine-a", token=mine).body == snap
    assert api.deploy("mine-b?clamp=1", other, mine).status == 201, "whoever has the bytes may bring them"
    # Whose a route is is told to those only who may see that function.
    granted = api.ask("POST", "/v1/tokens", {"name": "granted", "scopes": ["deploy"], "prefix": "mine-", "routes": ["theirs.localhost"]}).json["token"]
    assert api.upload(other, granted).status == 200
    for query in ("", "?dry_run=1"):
        body = {"snapshot": digest, "routes": ["theirs.localhost"]}
        taken = api.ask("PUT", f"/v1/functions/mine-a{query}", body, granted)
        assert "owner" not in taken.problem(409, "route-taken") and "theirs.localhost" in taken.json["detail"]
        assert b"theirs " not in taken.body and b'"theirs"' not in taken.body
        assert api.ask("PUT", "/v1/functions/mine-a", {**body, "routes": ["mine-b.localhost"]}, mine).json["owner"] == "mine-b"


def test_tokens(api) -> None:
    token = api.token("ci", "deploy", prefix="web-")
    assert token.startswith("kvs_")
    listed = api.ask("GET", "/v1/tokens")
    assert [(t["name"], t["scopes"], t["prefix"]) for t in listed.json["tokens"]] == [("ci", ["deploy"], "web-")]
    stored = b"".join(path.read_bytes() for path in api.store.rglob("*") if path.is_file())
    assert token.encode() not in listed.body and token.encode() not in stored and token[4:].encode() not in stored
    api.ask("POST", "/v1/tokens", {"name": "ci", "scopes": ["read"]}).problem(409, "conflict")
    api.ask("POST", "/v1/tokens", {"name": "x", "scopes": ["all"]}).problem(400, "bad-value")
    short = api.ask("POST", "/v1/tokens", {"name": "short", "scopes": ["read"], "expires_in": 1}).json["token"]
    harness.wait_until(lambda: api.ask("GET", "/v1/functions", token=short).status == 401, "it expires")


def test_gc_and_verify(api, snap, other) -> None:
    api.deploy("hello", snap)
    api.deploy("hello", other)
    would = api.ask("POST", "/v1/gc?keep=1&dry_run=1").json
    assert would["versions"] == 1 and would["dry_run"] is True
    assert api.ask("POST", "/v1/gc?keep=1").json["versions"] == 1
    assert api.ask("POST", "/v1/verify").json["clean"] is True


def test_what_needs_a_daemon_says_so(api, snap) -> None:
    api.deploy("hello", snap)
    for method, path in (("POST", "/v1/functions/hello/invoke"), ("GET", "/v1/functions/hello/logs"), ("GET", "/metrics"), ("GET", "/v1/live")):
        api.ask(method, path).problem(503, "not-serving")


def test_slow_clients_hold_nobody_up(folder, snap) -> None:
    listener = admin.Listener(folder, None, None, "most=4")
    slow = []
    try:
        for _ in range(50):  # heads that never end, and bodies that never come
            raw = socket.create_connection(("127.0.0.1", listener.port))
            raw.sendall(b"POST /v1/functions/x/rollback HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n" + (b"\r\n" if len(slow) % 2 else b""))
            slow.append(raw)
        assert listener.ask("GET", "/v1/functions").status == 200
        harness.wait_until(lambda: listener.ask("GET", "/healthz", tcp=True).status == 200, "the flood of requests is refused")
    finally:
        for raw in slow:
            raw.close()
        listener.close()


@pytest.mark.parametrize("request_bytes", [
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /healthz HTTP/1.1\nHost: a\n\n",
    b"POST /v1/gc HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
])  # fmt: skip
def test_malformed_requests_are_refused(shared, request_bytes: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(harness.PATIENCE)
        raw.connect(str(shared.socket))
        raw.sendall(request_bytes)
        answer = b""
        while data := raw.recv(65536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_few_versions_are_tried_at_once(folder, snap, monkeypatch) -> None:
    """Each trial is a process with a machine: they take turns, however many deploy."""
    tried = folder / "tried"
    program = folder / "kvmserver"
    # It says when it begins and ends, and lasts long enough for others to begin meanwhile, should they.
    program.write_text(f"#!/bin/sh\n[ $1 != --examiner ] || exec {harness.KVMSERVER} \"$@\"\necho + >> {tried}\nsleep 0.4\necho - >> {tried}\nexit 1\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(harness, "KVMSERVER", program)
        listener = admin.Listener(folder)
    try:
        body = {"snapshot": listener.upload(snap).json["snapshot"]}
        replies = []
        threads = [threading.Thread(target=lambda n=n: replies.append(listener.ask("PUT", f"/v1/functions/f{n}", body))) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for reply in replies:
            reply.problem(422, "unhealthy")
        running, most = 0, 0
        for event in tried.read_text().split():
            running += 1 if event == "+" else -1
            most = max(most, running)
        assert running == 0 and len(replies) == 6 and most == 2
    finally:
        listener.close()


def test_deploys_at_once(api, snap) -> None:
    api.upload(snap)
    body = {"snapshot": "sha256:" + hashlib.sha256(snap).hexdigest()}
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(api.ask("PUT", "/v1/functions/hello", body))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.json["version"] for reply in replies) == [1, 2, 3, 4]
