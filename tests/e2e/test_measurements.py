"""What functions did lately (STORE/measurements.db): the daemon writes it, the API tells it."""
import os
import pathlib
import signal
import urllib.parse

import admin
import harness
import pytest
from test_serve_life import pid_of_listener

SPANS = {"1h": 60, "24h": 600, "7d": 3600}
NAMES = ("requests", "errors", "cold_starts")


def get(store, path: str) -> admin.Reply:
    connection = admin.UnixConnection(store.path / "admin.sock")
    connection.request("GET", path)
    reply = admin.Reply(connection.getresponse())
    connection.close()
    return reply


def measured(store, name: str, span: str = "1h") -> dict:
    reply = get(store, f"/v1/functions/{name}/measurements?span={span}")
    assert reply.status == 200, reply
    return reply.json


def sums(store, name: str, span: str = "1h") -> tuple[int, ...]:
    points = measured(store, name, span)["points"]
    return tuple(sum(point[key] for point in points) for key in NAMES)


def counted(store, requests: int, errors: int = 0) -> None:
    """A request counts once its machine is clean again, which may be after its reply."""
    harness.wait_until(lambda: sums(store, "hello")[:2] == (requests, errors), f"{requests} requests are measured")


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


def test_requests_are_measured_and_outlive_daemons(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    store.deploy(snap, "other")
    daemon = serve()
    assert sums(store, "hello") == (0, 0, 0)
    for _ in range(4):
        daemon.text("hello", "/count")
    assert daemon.ask("hello", "/crash").status == 502
    assert daemon.ask("hello", "/nowhere").status == 404  # no error of the function
    counted(store, 6, errors=1)
    for span, step in SPANS.items():
        document = measured(store, "hello", span)
        assert (document["name"], document["span"], document["step_seconds"]) == ("hello", span, step)
        assert document["from"] < document["points"][0]["time"] <= document["to"]
        cold = sums(store, "hello", span)[2]
        assert sums(store, "hello", span) == (6, 1, cold) and cold >= 1
        for point in document["points"]:
            assert 0 < point["p50_us"] <= point["p95_us"] <= point["p99_us"]
    everybody = get(store, "/v1/measurements?span=24h").json["functions"]
    assert [(each["name"], sum(point["requests"] for point in each["points"])) for each in everybody] == [("hello", 6), ("other", 0)]

    daemon.stop(signal.SIGTERM)
    daemon = serve()
    assert sums(store, "hello")[:2] == (6, 1), "a restart keeps them"
    daemon.text("hello", "/count")
    daemon.popen.send_signal(signal.SIGHUP)
    counted(store, 7, errors=1)
    daemon.popen.send_signal(signal.SIGUSR2)
    assert daemon.wait().status == 0
    successor = pid_of_listener(daemon.port)
    daemon.text("hello", "/count")
    harness.wait_until(lambda: sums(store, "hello", "7d")[:2] == (8, 1), "a hand-over keeps them")
    os.kill(successor, signal.SIGTERM)
    harness.wait_until(lambda: not pathlib.Path(f"/proc/{successor}/fd/0").exists(), "it ends when asked")


def test_a_deleted_function_is_forgotten(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    daemon.stop(signal.SIGTERM)  # in the file
    daemon = serve()
    daemon.text("hello", "/count")  # not in the file yet
    counted(store, 2)
    store.ok("delete", "hello", "-y")
    get(store, "/v1/functions/hello/measurements").problem(404, "not-found")
    assert get(store, "/v1/measurements").json["functions"] == []
    store.deploy(snap, "hello")
    assert sums(store, "hello") == (0, 0, 0)
    daemon.text("hello", "/count")
    counted(store, 1)


def test_a_tenant_sees_its_own(store, serve, snap) -> None:
    for name in ("shop-a", "other"):
        store.deploy(snap, name)
    port = harness.free_port()
    daemon = serve("--admin", f"127.0.0.1:{port}")
    for name in ("shop-a", "other"):
        daemon.text(name, "/count")
    token = store.json("token", "create", "shop", "--scope", "read", "--prefix", "shop-")["token"]

    def ask(path: str) -> admin.Reply:
        connection = admin.http.client.HTTPConnection("127.0.0.1", port, timeout=harness.PATIENCE)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        reply = admin.Reply(connection.getresponse())
        connection.close()
        return reply

    assert ask("/v1/functions/shop-a/measurements").json["points"][0]["requests"] == 1
    ask("/v1/functions/other/measurements").problem(403, "wrong-prefix")
    ask("/v1/functions/nobody/measurements").problem(403, "wrong-prefix")
    assert [each["name"] for each in ask("/v1/measurements?span=7d").json["functions"]] == ["shop-a"]


@pytest.mark.parametrize("span", ["2h", "", "1h ", "1H", "x" * 5000], ids=["2h", "none", "blank", "upper", "long"])
def test_another_span_is_refused(store, serve, snap, span: str) -> None:
    store.deploy(snap, "hello")
    serve()
    for path in ("/v1/functions/hello/measurements", "/v1/measurements"):
        detail = get(store, f"{path}?span={urllib.parse.quote(span)}").problem(400, "bad-value")["detail"]
        assert "is not 1h, 24h or 7d" in detail and len(detail) < 500


def test_a_damaged_file_is_no_obstacle(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    daemon.stop(signal.SIGTERM)
    file = store.path / "measurements.db"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"garbage" * 5000)
    daemon = serve()
    lines = [line for line in daemon.err.splitlines() if "measurements" in line]
    assert len(lines) == 1 and "set aside as measurements.db.damaged" in lines[0], daemon.err
    assert file.with_suffix(".db.damaged").read_bytes() == b"garbage" * 5000
    daemon.text("hello", "/count")
    counted(store, 1)
    assert "Verified" in store.ok("verify")
    store.ok("gc")
    assert sums(store, "hello")[0] == 1
