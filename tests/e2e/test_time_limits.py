"""Time limits count what a program could have done: its CPU time, and waiting for nothing. Not its sleep, nor a busy host's."""
import contextlib
import signal
import time

import harness
import pytest
from harness import RUN_E, kvmserver, wait_until

SLOWER = 1 if harness.SLOWNESS == 1 else 3  # what a request or a boot costs in an emulated host may take a second of CPU time
LIMIT = 1.0 * SLOWER  # of --max-request-time
IN_HTTP, IN_CONNECTIONS = ["--http"], []
BOTH = [pytest.param(IN_HTTP, marks=pytest.mark.emulated), pytest.param(IN_CONNECTIONS, marks=pytest.mark.emulated(nightly=True))]


@contextlib.contextmanager
def patient(*options: str):
    server = harness.Server(harness.guest("patience", "{port}"), RUN_E, "--max-request-time", str(LIMIT), "--check-reset", *options)
    with contextlib.closing(server):
        yield server


def ask(server: harness.Server, path: str) -> tuple[bytes, float]:
    """All that comes until the connection is closed, and the seconds it took."""
    started = time.monotonic()
    with server.client() as client, contextlib.suppress(ConnectionError):
        client.send(harness.request(path, None, "Connection: close"))
        return client.reader.read(), time.monotonic() - started
    return b"", time.monotonic() - started


def all_until_reset(server: harness.Server, path: str) -> bytes:
    reply = b""
    with server.client() as client, contextlib.suppress(ConnectionError):
        client.send(harness.request(path, None, "Connection: close"))
        while more := client.reader.read1():
            reply += more
    return reply


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [IN_HTTP, IN_CONNECTIONS], ids=["http", "connections"])
@pytest.mark.parametrize("path", ["/sleep/{}", "/drip/{}"])
def test_sleep_is_no_endless_request(mode: list[str], path: str) -> None:
    with patient(*mode) as server:
        reply, took = ask(server, path.format(2500 * SLOWER))
        assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"fine..") and took > 2.4 * SLOWER, (reply, took)
        assert "no progress" not in server.err
        assert server.stop().status == 0


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [IN_HTTP, IN_CONNECTIONS], ids=["http", "connections"])
@pytest.mark.parametrize(("path", "why"), [("/never", "waited for nothing that could come"), ("/spin", "it computed")])
def test_what_makes_no_progress_ends(mode: list[str], path: str, why: str) -> None:
    with patient(*mode) as server:
        reply, took = ask(server, path)
        assert took > 0.9 * LIMIT
        if mode:
            assert reply.startswith(b"HTTP/1.1 504 ") and b"--max-request-time" in reply, reply
        else:
            assert reply == b"", reply
        wait_until(lambda: f"made no progress: " in server.err and why in server.err, "the log says why")
        assert ask(server, "/")[0].endswith(b"fine..")
        assert server.stop().status == 0


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("path", ["/sleep/60000", "/ticks", "/drip/60000"])
def test_a_request_as_a_whole_has_a_limit(path: str) -> None:
    with patient("--http", "--max-request-total", f"{2 * SLOWER}") as server:
        reply, took = ask(server, path)
        assert took > 1.9 * SLOWER
        if path != "/drip/60000":  # else its head is out
            assert reply.startswith(b"HTTP/1.1 504 ") and b"--max-request-total" in reply, reply
        wait_until(lambda: f"longer than {2 * SLOWER} s in all (--max-request-total)" in server.err, "the log says which limit")
        assert ask(server, "/")[0].endswith(b"fine..")


@pytest.mark.parametrize("mode", BOTH, ids=["http", "connections"])
def test_what_uses_too_much_cpu_time_ends_though_bytes_move(mode: list[str]) -> None:
    with patient(*mode, "--max-request-time", "60", "--max-request-cpu", str(0.5 * SLOWER)) as server:
        reply, _ = ask(server, "/spin")
        if mode:
            assert reply.startswith(b"HTTP/1.1 504 ") and b'"request-cpu"' in reply and b"--max-request-cpu" in reply, reply
        else:
            assert reply == b"", reply
        wait_until(lambda: f"used more than {0.5 * SLOWER} s of CPU (--max-request-cpu)" in server.err, "the log says which limit")
        reply = all_until_reset(server, "/pour")
        assert b"more " in reply, reply
        assert ask(server, "/sleep/700")[0].endswith(b"fine..")  # sleep is not CPU time
        assert server.stop().status == 0


@pytest.mark.emulated(nightly=True)
def test_each_request_of_a_connection_has_the_cpu_time_anew() -> None:
    with patient("--max-request-cpu", f"{SLOWER}") as server, server.client() as client:
        for _ in range(3):
            assert client.ask(f"/work/{400 * SLOWER}") == b"fine.."


def test_a_machine_that_keeps_its_state_has_no_limit_on_a_requests_cpu_time(tmp_path) -> None:
    for words in (["run", "--allow-all", harness.GUESTS / "patience", "0"], ["snaprun", tmp_path / "none.snap"]):
        ended = kvmserver(words[0], "--max-request-cpu", "1", *words[1:])
        assert ended.status == 2 and ended.err.startswith("kvmserver: --max-request-cpu needs -e or --http:"), ended.err
    (tmp_path / "kvmserver.toml").write_text('max-request-cpu = 1\n[run]\nprogram = "x"\n[function]\nephemeral = false\n')
    ended = kvmserver("deploy", "--dry-run", cwd=tmp_path)
    assert ended.status == 2 and "kvmserver.toml:1: max-request-cpu limits the requests of a machine that is reset" in ended.err, ended.err


def test_each_request_of_a_connection_has_the_total_anew() -> None:
    with patient("--max-request-total", "6") as server, server.client() as client:
        for _ in range(3):
            assert client.ask("/sleep/2500") == b"fine.."


def test_an_idle_client_loses_its_connection() -> None:
    with patient() as server, server.client() as client:
        assert client.ask("/") == b"fine.."
        with contextlib.suppress(ConnectionError):
            assert client.reader.read() == b""
        wait_until(lambda: "its client was idle" in server.err, "the log says so")


def test_who_has_gone_does_not_keep_a_machine() -> None:
    with patient() as server:
        with server.client() as client:
            client.send(harness.request("/sleep/60000"))
            wait_until(lambda: "sleeping" in server.out, "the machine has it")
        assert ask(server, "/")[0].endswith(b"fine..")


def test_a_boot_is_not_charged_for_a_host_that_does_other_things() -> None:
    """The process is stopped for longer than the limit while its program computes, as on a host that is too busy."""
    process = harness.Process(
        [str(harness.KVMSERVER), "run", "-e", "--allow-all", "--max-boot-time", "5", str(harness.GUESTS / "patience"), str(harness.free_port()),
         "compute", "300000000"], env=harness.BASE_ENVIRONMENT)  # fmt: skip
    with contextlib.closing(process):
        wait_until(lambda: "computing" in process.out, "it computes")
        process.popen.send_signal(signal.SIGSTOP)
        time.sleep(6)
        process.popen.send_signal(signal.SIGCONT)
        wait_until(lambda: "Program '" in process.out or not process.running(), "it serves")
        assert process.running(), process.err


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize(("how", "why"), [("sleep", "waited for something else"), ("spin", "of CPU time")])
def test_a_boot_that_never_listens_ends(how: str, why: str) -> None:
    # What it computed until it sleeps must be less than half of the limit, else that is told: seen above 2.5 s where emulated.
    limit = 1 if harness.SLOWNESS == 1 else 20 if how == "sleep" else 5
    ended = kvmserver("run", "-e", "--max-boot-time", f"{limit}", str(harness.GUESTS / "boot"), how)
    assert ended.status == 6 and why in ended.error and "--max-boot-time" in ended.error, ended
