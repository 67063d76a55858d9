"""serve --traces: a span for each request, at a collector of the test's own and at OpenTelemetry's."""
import http.client
import http.server
import json
import re
import socket
import subprocess
import threading
import time

import admin
import harness
import pytest
from serving import words_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=abc"}
SERVER, INTERNAL, ERROR = 2, 1, 2  # of the protocol
DAY_NS = 86_400 * 10**9


class Collector:
    """Takes OTLP/JSON. While `held` is not set, its replies wait."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[str, dict, dict]] = []
        self.statuses: list[int] = []  # of the next replies; then 200
        self.reply = b"{}"
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.set()
                outer.go_on.wait(harness.PATIENCE)
                status = outer.statuses.pop(0) if outer.statuses else 200
                if status == 200:
                    outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(outer.reply)))
                self.end_headers()
                self.wfile.write(outer.reply)

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self, count: int = 0) -> list[dict]:
        """All that arrived, once there are so many."""
        def arrived() -> list[dict]:
            return [span for _, _, body in list(self.requests) for span in spans_of(body)]

        harness.wait_until(lambda: len(arrived()) >= count, f"{count} spans arrive, of {len(arrived())}")
        return arrived()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def spans_of(body: dict) -> list[dict]:
    return [span for of in body["resourceSpans"] for scope in of["scopeSpans"] for span in scope["spans"]]


def attributes(of: dict) -> dict:
    def plain(value: dict):
        (kind, what), = value.items()
        assert kind in ("stringValue", "boolValue") or (kind == "intValue" and isinstance(what, str)), value
        return int(what) if kind == "intValue" else what

    return {each["key"]: plain(each["value"]) for each in of.get("attributes", [])}


def period(span: dict) -> tuple[int, int]:
    assert isinstance(span["startTimeUnixNano"], str) and isinstance(span["endTimeUnixNano"], str)
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def by_name(spans: list[dict]) -> dict[str, dict]:
    named = {span["name"]: span for span in spans}
    assert len(named) == len(spans), [span["name"] for span in spans]
    return named


def check_tree(spans: list[dict], function: str) -> dict:
    """The spans of one cold request with GIVEN. Returns that of the server."""
    named = by_name(spans)
    assert named.keys() == {f"GET {function}", "queue", "restore", "execute", "reset"}
    server = named[f"GET {function}"]
    assert server["kind"] == SERVER and server["parentSpanId"] == PARENT and server["traceState"] == "vendor=abc"
    assert "status" not in server or not server["status"]  # the collector writes it, empty
    assert len({span["spanId"] for span in spans}) == len(spans)
    for span in spans:
        assert span["traceId"] == TRACE and re.fullmatch("[0-9a-f]{16}", span["spanId"])
    for name in ("queue", "execute", "reset"):
        assert named[name]["parentSpanId"] == server["spanId"] and named[name]["kind"] == INTERNAL
    assert named["restore"]["parentSpanId"] == named["queue"]["spanId"]

    begin, end = period(server)
    assert abs(end - time.time_ns()) < DAY_NS and begin < end
    queue, restore, execute, reset = (period(named[name]) for name in ("queue", "restore", "execute", "reset"))
    assert begin <= queue[0] <= restore[0] < restore[1] <= queue[1] == execute[0] < execute[1] == end
    assert execute[0] <= reset[0] < reset[1]
    assert attributes(named["execute"])["kvmserver.cpu_us"] > 0 and attributes(named["reset"])["kvmserver.dirty_pages"] > 0
    return server


@pytest.fixture
def node(program):
    return program("node-http")


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def metric(store):
    def value(name: str) -> int | None:
        connection = admin.UnixConnection(store.path / "admin.sock")
        connection.request("GET", "/metrics")
        text = admin.Reply(connection.getresponse()).body.decode()
        connection.close()
        found = re.search(rf"^kvmserver_{name} (\d+)$", text, re.M)
        return int(found[1]) if found else None

    return value


def test_a_request_is_a_tree_of_spans(store, serve, node, collector, metric) -> None:
    store.deploy_probe(node, "shop", settings='routes = ["/headers"]\n')
    daemon = serve("--traces", collector.url)
    seen = json.loads(daemon.text("shop", "/headers/x?secret=1", headers={**GIVEN, "User-Agent": "me/1"}, host="x.example:81"))
    spans = collector.spans(5)
    server = check_tree(spans, "shop")
    assert seen["traceparent"] == f"00-{TRACE}-{server['spanId']}-01" and seen["tracestate"] == "vendor=abc"

    line = daemon.access(1)[0]
    assert attributes(server) == {
        "http.request.method": "GET", "url.scheme": "http", "url.path": "/headers/x", "http.route": "/headers",
        "http.response.status_code": 200, "server.address": "x.example", "server.port": 81, "client.address": "127.0.0.1",
        "user_agent.original": "me/1", "network.protocol.version": "1.1", "kvmserver.request_id": line["request_id"],
        "kvmserver.outcome": "ok", "kvmserver.function": "shop", "kvmserver.version": 1, "kvmserver.cold_start": True}  # fmt: skip
    assert line["traceparent"] == seen["traceparent"]
    named = by_name(spans)
    durations = {name: period(span)[1] - period(span)[0] for name, span in named.items()}
    assert durations["GET shop"] == line["total_us"] * 1000 and durations["execute"] == line["exec_us"] * 1000
    assert abs(durations["queue"] - line["queue_us"] * 1000) <= 2000 and durations["reset"] == line["reset_us"] * 1000
    assert durations["restore"] <= line["restore_us"] * 1000
    head = period(named["queue"])[0] - period(server)[0]
    assert head + durations["queue"] + durations["execute"] == durations["GET shop"]

    path, headers, body = collector.requests[0]
    assert path == "/v1/traces" and headers["content-type"] == "application/json"
    who = attributes(body["resourceSpans"][0]["resource"])
    assert who["service.name"] == "kvmserver" and who["service.version"] and who["service.instance.id"]
    harness.wait_until(lambda: metric("spans_total") == 5, "they are counted")
    assert metric("spans_dropped_total") == 0


def test_errors_and_requests_that_no_function_got(store, serve, snapshots, program, collector) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    daemon = serve("--traces", collector.url)
    assert daemon.ask("nobody", "/x", method="BREW").status == 404
    assert daemon.ask("hello", "/crash").status == 502
    assert daemon.stop().status == 0  # sends what is left
    spans = collector.spans()
    unrouted = next(span for span in spans if span["name"] == "HTTP")
    assert not [span for span in spans if span.get("parentSpanId") == unrouted["spanId"]] and "status" not in unrouted
    said = attributes(unrouted)
    assert said["http.request.method"] == "_OTHER" and said["http.request.method_original"] == "BREW"
    assert said["http.response.status_code"] == 404 and not {"kvmserver.function", "http.route", "error.type"} & said.keys()
    crashed = next(span for span in spans if span["name"] == "GET hello")
    assert crashed["status"] == {"code": ERROR} and "parentSpanId" not in crashed
    assert attributes(crashed)["error.type"] == "program_failed" and attributes(crashed)["http.response.status_code"] == 502


def test_whose_decision_counts(store, serve, node, collector) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve("--traces", collector.url + "/other/path", "--trace-sample", "0")

    def seen(**headers: str) -> dict:
        return json.loads(daemon.text("shop", "/headers", headers=headers))

    unsampled = f"00-{TRACE}-{PARENT}-00"
    assert seen(traceparent=unsampled, tracestate="a=b")["traceparent"] == unsampled
    mine = seen(tracestate="a=b")  # belongs to no trace
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", mine["traceparent"]) and "tracestate" not in mine
    refused = seen(traceparent=f"00-{TRACE}-{'0' * 16}-01", tracestate="a=b")
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", refused["traceparent"]) and TRACE not in refused["traceparent"]
    assert "tracestate" not in refused
    seen(**GIVEN)
    assert daemon.stop().status == 0
    server, = [span for span in collector.spans() if span["kind"] == SERVER]  # the last one alone
    assert server["traceId"] == TRACE and server["parentSpanId"] == PARENT
    assert {path for path, _, _ in collector.requests} == {"/other/path"}


def test_a_collector_that_is_away_or_refuses(store, serve, snapshots, program, metric) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    with socket.create_server(("127.0.0.1", 0)) as broken:
        port = broken.getsockname()[1]
        daemon = serve("--traces", f"http://127.0.0.1:{port}", "--trace-sample", "1")
        assert daemon.text("hello", "/count") == "1\n"
        broken.settimeout(harness.PATIENCE)
        broken.accept()[0].close()
    collector = Collector(port)
    try:
        collector.statuses = [503]
        warm = collector.spans(4)  # an attempt later
        assert metric("spans_dropped_total") == 0 and "spans are dropped" not in daemon.err
        collector.statuses = [400]
        daemon.text("hello", "/count")
        harness.wait_until(lambda: metric("spans_dropped_total") == 4, "what is refused is counted")
        collector.reply = b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too\\nlong"}}'
        daemon.text("hello", "/count")
        harness.wait_until(lambda: metric("spans_dropped_total") == 7, "so is what is rejected")
        assert metric("spans_total") == len(warm) + 1
        harness.wait_until(lambda: "spans are dropped" in daemon.err, "the log says it")
        assert daemon.err.count("kvmserver: traces: ") == 1 and f"127.0.0.1:{port}/v1/traces: status 400" in daemon.err
    finally:
        collector.close()


def test_a_slow_collector_delays_nobody(store, serve, snapshots, program, collector, metric) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    daemon = serve("--traces", collector.url)
    collector.go_on.clear()
    daemon.text("hello", "/count")
    assert collector.asked.wait(harness.PATIENCE)
    waiting = 2048  # requests, in the queue
    client = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=harness.PATIENCE)
    for _ in range(waiting + 200):
        client.request("GET", "/count", headers={"Host": "hello.localhost"})
        assert client.getresponse().read() == b"1\n"
    client.close()
    harness.wait_until(lambda: (metric("spans_dropped_total") or 0) > 0, "the queue is full")
    assert not collector.requests  # not one reply of the collector was waited for
    collector.go_on.set()
    harness.wait_until(lambda: (metric("spans_total") or 0) > waiting * 3, "what waited is sent")
    harness.wait_until(lambda: "spans are dropped" in daemon.err, "the log says it")
    assert daemon.err.count("kvmserver: traces: ") == 1


def test_the_headers_are_a_secret(store, serve, snapshots, program, collector) -> None:
    file = store.folder / "headers"
    file.write_text("# for the collector\n\nAuthorization: Bearer s3cret\nx-tenant:a\n")
    file.chmod(0o644)
    where = ["serve", "--listen", "127.0.0.1:0", "--traces", collector.url, "--traces-headers"]
    done = store(*where, str(file))
    assert done.status == 4 and f"chmod o= {file}" in done.error
    file.chmod(0o600)
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    daemon = serve("--traces", collector.url, "--traces-headers", str(file))
    daemon.text("hello", "/count")
    harness.wait_until(lambda: collector.requests, lambda: f"spans arrive; the daemon says {daemon.err}")
    headers = collector.requests[0][1]
    assert headers["authorization"] == "Bearer s3cret" and headers["x-tenant"] == "a"
    assert "s3cret" not in " ".join(words_of(daemon.popen.pid)) + daemon.err
    file.write_text("s3cret\n")
    done = store(*where, str(file))
    assert done.status == 2 and f"{file}:1: a line is NAME: VALUE" in done.error and "s3cret" not in done.error


def test_bad_options(store) -> None:
    headers = store.folder / "headers"
    headers.write_text("a: b\n")
    headers.chmod(0o600)
    for words, status, said in (
            (["--traces", "127.0.0.1:4318"], 2, "write http://HOST:4318"), (["--traces", "http://me:s3cret@a"], 2, "--traces-headers"),
            (["--traces", "http://a b"], 2, "write http://HOST:4318"), (["--trace-sample", "0.5"], 2, "is for --traces URL"),
            (["--traces", "http://a", "--trace-sample", "2"], 2, "'2' is not a number from 0 to 1"),
            (["--traces", "http://a", "--trace-sample", "nan"], 2, "'nan' is not a number from 0 to 1"),
            (["--traces", "http://a", "--traces-headers", str(headers)], 2, "in the clear"),
            (["--traces", "http://127.0.0.1", "--traces-headers", "/nowhere"], 1, "/nowhere: No such file")):  # fmt: skip
        done = store("serve", "--listen", "127.0.0.1:0", *words)
        assert done.status == status and said in done.error and "s3cret" not in done.error, done


def test_the_collector_of_opentelemetry_understands_it(store, serve, node) -> None:
    receiver = harness.BUILD / "otlp-receiver"
    if not receiver.exists():
        pytest.skip(f"there is no otlp-receiver: scripts/setup.sh --tests builds it into {harness.BUILD}")
    store.deploy_probe(node, "shop")
    with subprocess.Popen([receiver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            daemon = serve("--traces", "http://" + process.stdout.readline().strip())
            daemon.text("shop", "/headers", headers=GIVEN)
            assert daemon.stop().status == 0
            process.stdin.close()
            bodies = [json.loads(line) for line in process.stdout]
        finally:
            process.kill()
    spans = [span for body in bodies for span in spans_of(body)]
    server = check_tree(spans, "shop")
    said = attributes(server)
    assert said["kvmserver.cold_start"] is True and said["http.response.status_code"] == 200
    assert attributes(bodies[0]["resourceSpans"][0]["resource"])["service.name"] == "kvmserver"
