"""What the API and the commands do while a daemon serves: invoke, logs, metrics, top, and changes seen at once."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct

import admin
import harness
import pytest
from serving import Daemon, Store, ask


@pytest.fixture
def store(folder) -> Store:
    return Store(folder)


@pytest.fixture
def serve(store):
    daemons = []

    def started(*options: str) -> Daemon:
        daemons.append(Daemon(store, *options))
        return daemons[-1]

    yield started
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


def by_socket(store: Store, method: str, path: str, body=None) -> admin.Reply:
    connection = admin.UnixConnection(store.path / "admin.sock")
    try:
        connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body).encode())
        return admin.Reply(connection.getresponse())
    finally:
        connection.close()


def test_commands_speak_to_the_daemon(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    info = by_socket(store, "GET", "/v1/info").json
    assert info["daemon"]["port"] == daemon.port and info["caller"]["name"] == "local"
    # Its last line says where it really is served, and the next request gets it.
    assert store.deploy(snap, "fresh") == f"fresh v1 live http://fresh.localhost:{daemon.port}"
    assert ask(daemon.port, "fresh").status == 200
    assert store.ok("list").split()[:4] == ["hello", "v1", "ready", "0"]
    assert store.ok("delete", "-y", "fresh") == "Deleted fresh"
    assert ask(daemon.port, "fresh").status == 404


def test_invoke(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    serve()
    assert store("invoke", "hello", "--path", "/count").out == "1\n"
    timed = store("invoke", "hello", "--path", "/count", "--timing")
    assert timed.out == "1\n" and re.search(r"^status 200, v1, queue;dur=[\d.]+, .*total;dur=", timed.err, re.M), timed
    missing = store("invoke", "hello", "--path", "/nowhere")
    failing = store("invoke", "hello", "--path", "/nowhere", "--fail")
    assert missing.status == 0 and failing.status == 1 and failing.out == missing.out
    whole = store.json("invoke", "hello", "--path", "/count")
    assert whole["status"] == 200 and whole["body"] == "1\n"
    posted = store("invoke", "hello", "--path", "/echo", "-d", "@-", "-H", "Content-Type: text/x", stdin=b"from stdin")
    assert posted.status == 0 and "from stdin" in posted.out, posted
    assert store("invoke", "nobody").status == 3
    crashed = store("invoke", "hello", "--path", "/crash")
    assert crashed.status == 1 and crashed.out == "", crashed
    assert store("invoke", "hello", "--version", "7").status == 3
    assert store("invoke", "hello", "--path", "no-slash").status == 2


def test_logs(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe")
    daemon = serve()
    assert ask(daemon.port, "probe", "/say/first").status == 200
    follower = harness.Process([str(harness.KVMSERVER), "logs", "probe", "-f", "--store", str(store.path)], env=harness.BASE_ENVIRONMENT)
    harness.wait_until(lambda: "first" in follower.out, "what was there is shown")
    ask(daemon.port, "probe", "/say/second")
    harness.wait_until(lambda: "second" in follower.out, "what comes is shown")
    assert follower.running()
    follower.close()
    lines = [json.loads(line) for line in store("logs", "probe", "--json").out.splitlines()]
    texts = [line["text"] for line in lines]
    assert any("first" in text for text in texts) and any("second" in text for text in texts)
    assert store("logs", "probe", "--tail", "1").out.count("\n") == 1
    assert store("logs", "probe", "--since", "2999-01-01T00:00:00Z").out == ""
    assert store("logs", "nobody").status == 3 and store("logs", "probe", "--since", "x").status == 2


def test_logs_show_requests(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe")
    store.deploy_probe(program("node-http"), "other")
    daemon = serve()
    assert ask(daemon.port, "probe", "/say/first").status == 200
    assert ask(daemon.port, "probe", "/name?token=hidden").status == 404
    assert ask(daemon.port, "probe", "/die").status == 502
    assert ask(daemon.port, "other", "/say/elsewhere").status == 200
    harness.wait_until(lambda: "mutters first" in store("logs", "probe").out, "it is printed")
    shown = store("logs", "probe").out
    assert re.search(r"^\S+Z v1 => GET /say/first 200 [\d.]+ ms [0-9a-f]{16}$", shown, re.M), shown
    assert re.search(r"^\S+Z v1 => GET /die 502 program_failed [\d.]+ ms [0-9a-f]{16}$", shown, re.M), shown
    assert "=> GET /name 404 " in shown and "hidden" not in shown and "elsewhere" not in shown
    assert "=>" not in store("logs", "probe", "--no-requests").out
    assert b"request\"" not in by_socket(store, "GET", "/v1/functions/probe/logs").body  # as for older clients

    failing = store("logs", "probe", "--errors").out
    assert "=> GET /die 502" in failing and "-- " in failing and "mutters first" in failing, failing
    assert "says first" not in failing and "/say/first" not in failing and " 404 " not in failing, failing  # with spaces: ids have such digits, too
    found = store("logs", "probe", "--grep", "/say").out
    assert found.count("\n") == 1 and "=> GET /say/first" in found, found
    assert store("logs", "probe", "--grep", "says first").out.count("\n") == 1
    assert store("logs", "probe", "--grep", ".*").out == ""  # it is no pattern
    assert store("logs", "probe", "--since", "2999-01-01T00:00:00Z").out == ""
    assert store("logs", "probe", "--tail", "1").out.count("\n") == 1

    request_id = re.search(r"/say/first .* ([0-9a-f]{16})$", shown, re.M)[1]
    of_one = [json.loads(line) for line in store("logs", "probe", "--json", "--request", request_id).out.splitlines()]
    request = next(entry for entry in of_one if entry["stream"] == "request")
    assert (request["method"], request["path"], request["status"], request["outcome"]) == ("GET", "/say/first", 200, "ok")
    assert request["total_us"] > 0 and abs(request["id"] // 1000 - request["ms"]) <= 100
    assert store("invoke", "probe", "--path", "/count?secret=1").status == 0
    assert "=> GET /count 404" in store("logs", "probe").out

    # A newer version has the requests of the older one beside its own; a function of the same name that is made anew does not.
    store.deploy_probe(program("node-http"), "probe")
    assert ask(daemon.port, "probe", "/say/newer").status == 200
    assert "v1 => GET /die" in store("logs", "probe").out and "v2 => GET /say/newer" in store("logs", "probe").out
    assert "/say/newer" not in store("logs", "probe", "--previous").out
    of_v2 = store("logs", "probe", "--version", "2").out
    assert "/say/newer" in of_v2 and "/die" not in of_v2
    silent = re.search(r"/count 404 .* ([0-9a-f]{16})$", store("logs", "probe", "--grep", "/count").out, re.M)[1]
    assert "no line is known to be of this request" in store("logs", "probe", "--request", silent).err
    assert store("logs", "probe", "--request", request_id).err == ""
    assert store("logs", "probe", "--request", request_id, "--tail", "1").err == ""  # its line was left out
    assert store("logs", "probe", "--version", "2", "--previous").status == 2
    store.ok("delete", "-y", "probe")
    store.deploy_probe(program("node-http"), "probe")
    assert ask(daemon.port, "probe", "/say/anew").status == 200
    anew = store("logs", "probe", "--grep", "GET").out
    assert "/say/anew" in anew and "/die" not in anew, anew


def test_requests_are_followed(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe")
    daemon = serve()
    ask(daemon.port, "probe", "/say/before")
    words = ["logs", "probe", "-f", "--tail", "1", "--grep", "/say", "--store", str(store.path)]
    follower = harness.Process([str(harness.KVMSERVER), *words], env=harness.BASE_ENVIRONMENT)
    harness.wait_until(lambda: "/say/before" in follower.out, "what was there is shown")
    for number in range(5):
        assert ask(daemon.port, "probe", f"/say/{number}").status == 200
    ask(daemon.port, "probe", "/count")
    harness.wait_until(lambda: "/say/4" in follower.out, "what comes is shown")
    assert re.findall(r"=> GET (\S+) 200", follower.out) == ["/say/before", *(f"/say/{number}" for number in range(5))]
    follower.close()


def test_a_follower_does_not_hold_up_the_end(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    follower = harness.Process([str(harness.KVMSERVER), "logs", "hello", "-f", "--store", str(store.path)], env=harness.BASE_ENVIRONMENT)
    ask(daemon.port, "hello")
    assert daemon.stop().status == 0
    follower.wait()
    follower.close()


@pytest.mark.parametrize("header", ["Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"])
def test_a_browser_gets_no_reply_that_acts_on_it(store, serve, program, header) -> None:
    """Not even if a page asks for the plain one: a page cannot leave these headers out."""
    store.deploy_probe(program("node-http"), "probe")
    serve()
    with contextlib.closing(admin.UnixConnection(store.path / "admin.sock")) as connection:
        def invoke(headers: dict) -> http.client.HTTPResponse:
            connection.request("POST", "/v1/functions/probe/invoke?path=/hostile&reply=plain", None, headers)
            return connection.getresponse()

        plain = invoke({})
        assert plain.status == 302 and plain.headers["Clear-Site-Data"] and b"script" in plain.read()
        wrapped = invoke({header: "null"})
        assert wrapped.status == 200 and wrapped.headers["Content-Type"] == "application/vnd.kvmserver.reply+json"
        for name in ("Clear-Site-Data", "Set-Cookie", "Location", "Strict-Transport-Security"):
            assert wrapped.headers[name] is None
        told = json.loads(wrapped.read())
        assert [value for name, value in told["headers"] if name == "Set-Cookie"] == ["a=1; Path=/", "b=2"]


@pytest.mark.nightly
def test_a_long_invoke_does_not_hold_up_the_end(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe", top="max-request-time = 60\n")
    daemon = serve()
    words = ["invoke", "probe", "--path", "/sleep/50000", "--store", str(store.path)]
    waiting = harness.Process([str(harness.KVMSERVER), *words], env=harness.BASE_ENVIRONMENT)
    harness.wait_until(lambda: any(one["busy"] for one in by_socket(store, "GET", "/v1/live").json["live"]), "it is in a machine")
    assert daemon.stop().status == 0
    refused = waiting.wait()
    assert refused.status == 6 and "the server is stopping" in refused.error, refused
    waiting.close()


def test_the_api_takes_nothing_new_once_it_is_to_end(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe")
    daemon = serve()
    with harness.Client(daemon.port) as busy:
        busy.send(b"POST /echo HTTP/1.1\r\nHost: probe.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert busy.head()[0] == 100  # a machine has it
        daemon.popen.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: not api_accepts(store), "the API is closed")
        busy.send(b"abcd")
        assert busy.reply() == b"abcd"
    assert daemon.wait().status == 0


def api_accepts(store: Store) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(store.path / "admin.sock"))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


@pytest.mark.nightly
def test_a_call_that_cannot_be_ended_does_not_hold_up_the_end(store, serve, program) -> None:
    store.deploy_probe(program("node-http"), "probe")
    daemon = serve()
    settings = '[function.hooks]\nhealth = "/sleep/50000"\n'
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(store.deploy_probe, program("node-http"), "slow", settings=settings, top="max-request-time = 60\n")
        harness.wait_until(daemon.trials, "the new version is tried")
        trials = daemon.trials()
        ended = daemon.stop()
        assert ended.status == 0 and "takes too long" in ended.err, ended
        assert deploying.exception() is not None
    harness.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in trials), "its trial ends with it")


def test_metrics_and_top(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    for _ in range(3):
        ask(daemon.port, "hello")
    ask(daemon.port, "nobody")

    def metrics() -> str:
        return by_socket(store, "GET", "/metrics").body.decode()

    # A request is counted after its client has the reply.
    counted = 'kvmserver_requests_total{function="hello",version="1",code="200"} 3'
    harness.wait_until(lambda: counted in metrics(), "three are counted")
    text = metrics()
    assert 'kvmserver_request_duration_seconds_count{function="hello",version="1"} 3' in text
    assert re.search(r'^kvmserver_build_info\{version="\d', text, re.M)
    seen = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert line.split()[2] not in seen, "a family comes once"
            seen.add(line.split()[2])
        else:
            assert line.startswith("# HELP") or re.fullmatch(r'kvmserver_[a-z_]+(\{[^}]*\})? [-+.\de]+', line), line
    assert {f"kvmserver_{name}" for name in (
        "requests_total", "request_duration_seconds", "queue_duration_seconds", "in_flight_requests", "rejected_total", "cold_starts_total",
        "restore_duration_seconds", "reset_duration_seconds", "dirty_pages_total", "vms", "memory_bytes", "cpu_seconds_total",
        "timeouts_total", "faults_total", "store_bytes", "build_info")} <= seen  # fmt: skip
    top = store("top")
    assert top.status == 0 and re.search(r"^hello +v1 ready .* 3 ", top.out, re.M), top
    assert store.json("top")["live"][0]["requests"] == 3
    assert store.ok("list").split()[:4] == ["hello", "v1", "ready", "3"]


def test_over_tls(folder, store, serve, snap) -> None:
    certificates = admin.Certificates(folder / "certificates")
    port = harness.free_port()
    store.deploy(snap, "hello")
    daemon = serve("--admin", f"127.0.0.1:{port}", "--admin-certificate", str(certificates.certificate), "--admin-key", str(certificates.key))
    token = store.ok("token", "create", "me", "--scope", "deploy", "--scope", "invoke")
    env = {"KVMSERVER_TOKEN": token, "HOME": str(folder)}
    remote = ["--remote", f"https://127.0.0.1:{port}", "--cacert", certificates.authority]
    assert harness.kvmserver("invoke", "hello", "--path", "/count", *remote, env=env).out == "1\n"
    made = harness.kvmserver("deploy", snap, "--name", "hello", *remote, env=env, patience=harness.PATIENCE * 3)
    assert made.out == f"hello v2 live http://hello.localhost:{daemon.port}\n", made
    assert harness.kvmserver("invoke", "hello", *remote, env={**env, "KVMSERVER_TOKEN": store.ok("token", "create", "r", "--scope", "read")}).status == 4


def test_bad_admin_addresses(store) -> None:
    for words in (["--admin", "nonsense"], ["--admin", "1.2.3.4:70000"], ["--admin-key", "x"], ["--admin", "0.0.0.0:0"],
                  ["--admin", ":1", "--admin", ":2"], ["--admin-certificate", "a", "--admin-key", "b"]):  # fmt: skip
        done = store("serve", "--listen", f"127.0.0.1:{harness.free_port()}", *words)
        assert done.status == 2, (words, done)


def test_the_api_goes_on_when_the_daemon_is_replaced(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    port = harness.free_port()
    daemon = serve("--admin", f"127.0.0.1:{port}")
    token = store.ok("token", "create", "me", "--scope", "read")
    assert listener_of(store) == daemon.popen.pid
    daemon.popen.send_signal(signal.SIGUSR2)
    assert daemon.wait().status == 0
    successor = listener_of(store)
    try:
        assert successor != daemon.popen.pid
        listed = harness.kvmserver("list", "--remote", f"http://127.0.0.1:{port}", env={"KVMSERVER_TOKEN": token, "HOME": str(store.folder)})
        assert listed.status == 0, listed
        assert store.ok("list").split()[:4] == ["hello", "v1", "ready", "0"], "the daemon that is now answers"
    finally:
        os.kill(successor, signal.SIGTERM)
    harness.wait_until(lambda: not (store.path / "admin.sock").exists(), "it ends")


def listener_of(store: Store) -> int:
    """Who listens on the socket now."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(store.path / "admin.sock"))
        return struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
