"""kvmserver serve: reload, hand-over, sockets of a service manager, TLS, upgrades of connections, what is logged."""
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess

import admin
import harness
import pytest
from serving import Daemon, Load, pid_of_listener, presented_certificate


@pytest.fixture
def snap(snapshots, program):
    return snapshots.of(program("c-epoll"))


@pytest.fixture
def node(program):
    return program("node-http")


def certificate(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-keyout", key, "-out", chain], check=True, capture_output=True)  # fmt: skip
    return chain, key


def test_reload_reads_the_certificate_again(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    chain, key = certificate(store.folder, "first")
    daemon = serve("--tls-certificate", str(chain), "--tls-key", str(key))
    first = presented_certificate(daemon.port)
    for old, new in zip((chain, key), certificate(store.folder, "second")):
        os.replace(new, old)
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: presented_certificate(daemon.port) != first, "the new certificate is served")
    second = presented_certificate(daemon.port)
    chain.write_text("no certificate")
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: "reload: " in daemon.err, "it says what is wrong")
    assert presented_certificate(daemon.port) == second


def test_a_host_without_kvm_is_told_at_the_start(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve(env={"LD_PRELOAD": str(harness.GUESTS / "old_kvm.so")})
    (line,) = [line for line in daemon.err.splitlines() if "no function can run here" in line]
    assert "/dev/kvm" in line and "KVM_CAP_SYNC_REGS" in line and "kvmserver doctor" in line
    problem = daemon.ask("hello").problem
    assert (problem["status"], problem["code"]) == (502, "not-restored") and "KVM_CAP_SYNC_REGS" in problem["detail"]
    daemon.stop()
    assert "no function can run here" not in serve().err


@pytest.mark.parametrize("how", ["signal", "API"])
def test_reload_does_all_though_one_thing_fails(store, serve, snap, how) -> None:
    store.deploy(snap, "hello")
    public, private = certificate(store.folder, "public"), certificate(store.folder, "private")
    api = f"127.0.0.1:{harness.free_port()}"
    daemon = serve("--tls-certificate", str(public[0]), "--tls-key", str(public[1]),
                   "--admin", api, "--admin-certificate", str(private[0]), "--admin-key", str(private[1]))  # fmt: skip

    def of_the_api() -> str:
        return ssl.get_server_certificate(tuple(api.split(":")))

    before = of_the_api()
    daemon.access_file.rename(daemon.access_file.with_suffix(".1"))
    for old, new in zip(private, certificate(store.folder, "next")):
        os.replace(new, old)
    public[0].write_text("no certificate")
    if how == "signal":
        daemon.popen.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: "reload: " in daemon.err, "it says what is wrong")
    else:
        connection = admin.UnixConnection(store.path / "admin.sock")
        connection.request("POST", "/v1/reload")
        assert str(public[0]) in admin.Reply(connection.getresponse()).problem(500, "failed")["detail"]
        connection.close()
    assert of_the_api() != before
    assert daemon.access_file.exists()


def test_reload_opens_the_access_log_again(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    daemon = serve()
    daemon.text("hello", "/count")
    daemon.access(1)
    moved = daemon.access_file.with_suffix(".1")
    daemon.access_file.rename(moved)
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(daemon.access_file.exists, "it is there again")
    harness.wait_until(lambda: str(moved) not in daemon.open_files(), "the old one is closed")
    daemon.text("hello", "/count")
    assert len(daemon.access(1)) == 1 and len(moved.read_text().splitlines()) == 1


def test_a_successor_takes_over_without_losing_a_request(store, serve, node, snap) -> None:
    store.deploy(snap, "hello")
    store.deploy_probe(node, "shop")
    daemon = serve()
    daemon.text("shop", "/name")
    with harness.Client(daemon.port) as busy, Load(daemon, "hello", keep_alive=False) as load:
        busy.send(b"POST /echo HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert busy.head()[0] == 100  # the old daemon has it
        load.after(20)
        daemon.popen.send_signal(signal.SIGUSR2)
        harness.wait_until(lambda: daemon.out.count("Serving 2 functions") == 2, f"another serves; {daemon.err}")
        load.after(50)
        busy.send(b"abcd")
        assert busy.reply() == b"abcd"
        assert daemon.wait().status == 0
        load.after(50)
    load.only(b"1\n")
    successor = pid_of_listener(daemon.port)
    assert successor != daemon.popen.pid
    os.kill(successor, signal.SIGTERM)
    harness.wait_until(lambda: not pathlib.Path(f"/proc/{successor}/fd/0").exists(), "it ends when asked")


def test_a_successor_that_cannot_serve_changes_nothing(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    chain, key = certificate(store.folder, "first")
    daemon = serve("--tls-certificate", str(chain), "--tls-key", str(key))
    key.unlink()
    daemon.popen.send_signal(signal.SIGUSR2)
    harness.wait_until(lambda: "this one keeps serving" in daemon.err, f"it says so; {daemon.err}")
    harness.wait_until(lambda: set(daemon.children()) == {*daemon.spares(), *daemon.templates()}, "nothing of it is left")
    presented_certificate(daemon.port)


def test_a_socket_of_the_service_manager(store, snap) -> None:
    """As systemd does it: the socket is descriptor 3, LISTEN_PID is the daemon's."""
    store.deploy(snap, "hello")
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(store.folder / "notify"))
        manager.settimeout(harness.PATIENCE)
        port = listening.getsockname()[1]
        script = f'exec 3<&{listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        argv = ["bash", "-c", script, "bash", str(harness.KVMSERVER), "serve", "--store", str(store.path)]
        environment = {**harness.BASE_ENVIRONMENT, "NOTIFY_SOCKET": str(store.folder / "notify")}
        served = subprocess.Popen(argv, env=environment, pass_fds=[listening.fileno()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert served.stdout.readline() == f"Serving 1 function on 127.0.0.1:{port}\n".encode()
            assert manager.recv(1000) == f"READY=1\nMAINPID={served.pid}".encode()
            with harness.Client(port) as client:
                assert client.ask("/count", None, "Connection: close", status=404)
            served.send_signal(signal.SIGTERM)
            assert manager.recv(1000) == b"STOPPING=1"
            assert served.wait(harness.PATIENCE) == 0
        finally:
            served.kill()
            served.wait()
            served.stdout.close()


def test_the_service_manager_is_told_who_serves(store, serve, snap) -> None:
    store.deploy(snap, "hello")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(harness.PATIENCE)
        manager.bind(str(store.folder / "notify"))
        daemon = serve(env={"NOTIFY_SOCKET": str(store.folder / "notify")})
        assert manager.recv(1000) == f"READY=1\nMAINPID={daemon.popen.pid}".encode()
        daemon.popen.send_signal(signal.SIGUSR2)
        assert daemon.wait().status == 0
        successor = pid_of_listener(daemon.port)
        assert manager.recv(1000) == f"READY=1\nMAINPID={successor}".encode()
        os.kill(successor, signal.SIGTERM)
        assert manager.recv(1000) == b"STOPPING=1"  # the first said nothing when it ended
        harness.wait_until(lambda: not pathlib.Path(f"/proc/{successor}/fd/0").exists(), "it ends when asked")
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)


def test_a_websocket_keeps_its_machine(store, serve, node) -> None:
    store.deploy_probe(node, "shop", settings="[function.scale]\nmax = 2\n")
    daemon = serve("--idle", "0.1")
    handshake = (b"GET /chat HTTP/1.1\r\nHost: shop.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")  # fmt: skip
    with harness.Client(daemon.port) as one, harness.Client(daemon.port) as two:
        for client in (one, two):
            client.send(handshake)
            status, headers = client.head()
            assert status == 101 and headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        for number in (1, 2, 3):  # each has a machine of its own, which remembers
            for client in (one, two):
                client.send(b"x" * 8)
                assert client.reader.read(10) == b"%d:xxxxxxxx" % number
        assert daemon.processes().keys() == {"shop v1"}  # not idle
    assert daemon.text("shop", "/count") == "1"


def test_headers_that_are_passed_on(store, serve, node) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = json.loads(daemon.text("shop", "/headers", headers={"traceparent": trace, "X-Mine": "yes"}))
    assert seen["traceparent"] == trace and seen["x-mine"] == "yes" and seen["connection"] == "close"
    assert seen["host"] == "shop.localhost"
    line = daemon.access(1)[0]
    assert line["traceparent"] == trace
    assert line["method"] == "GET" and line["path"] == "/headers" and line["host"] == "shop.localhost" and line["client_ip"] == "127.0.0.1"
    assert line["function"] == "shop" and line["version"] == 1 and line["status"] == 200 and line["cold"] and line["outcome"] == "ok"
    assert {"ts", "request_id", "bytes_in", "bytes_out", "queue_us", "restore_us", "exec_us", "reset_us", "total_us", "cpu_us",
            "dirty_pages"} <= line.keys()  # fmt: skip
    assert line["dirty_pages"] > 0 and line["reset_us"] > 0 and line["cpu_us"] > 0


def test_what_is_deleted_has_no_logs_left(store, serve, node) -> None:
    for name in ("again", "gone"):
        store.deploy_probe(node, name)
    daemon = serve()
    for name in ("again", "gone"):
        daemon.text(name, "/say/before")
        harness.wait_until(lambda: "says before" in store("logs", name).out, "it is logged")
    assert daemon.stop().status == 0
    store.ok("delete", "-y", "again")
    store.ok("delete", "-y", "gone")
    store.deploy_probe(node, "again")
    daemon = serve()
    assert not (store.path / "logs/gone").exists()
    daemon.text("again", "/say/after")
    harness.wait_until(lambda: "says after" in store("logs", "again").out, "it is logged")
    assert "before" not in store("logs", "again").out
    assert "before" not in store("logs", "again", "--since", "1d").out


def test_what_functions_print_is_kept(store, serve, node) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve()
    for served, word in enumerate(("one", "two"), 1):
        daemon.text("shop", f"/say/{word}")
        daemon.access(served) # of two requests at once it could not be told which one printed
    ids = [line["request_id"] for line in sorted(daemon.access(2), key=lambda line: line["path"])]
    file = store.path / "logs/shop/current.ndjson"
    harness.wait_until(lambda: file.exists() and "mutters two" in file.read_text(), "the lines are in the file")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    said = [(line["stream"], line["text"], line.get("request_id")) for line in lines if "s " in line["text"]]
    assert sorted(said) == sorted([("out", "says one", ids[0]), ("err", "mutters one", ids[0]), ("out", "says two", ids[1]), ("err", "mutters two", ids[1])])
    assert all(line["function"] == "shop" and line["version"] == 1 and line["id"] and line["ms"] for line in lines)
    assert file.stat().st_mode & 0o077 == 0
    assert "[shop v1] says one" in daemon.err
    assert store("verify").status == 0  # it knows the folder
    assert file.exists()
    store.ok("delete", "-y", "shop")
    harness.wait_until(lambda: not file.parent.exists(), "they go with the function")
