"""[function.scale] machines: several machines that keep their state, and which of them a client's requests reach."""
import contextlib
import http.client
import os
import signal
import socket

import harness
import pytest
from test_kept import KEPT, hold, keeps, live, logged, node  # noqa: F401: fixtures

MACHINES = 4
SCALE = f"[function.scale]\nmachines = {MACHINES}\n"
BY_HEADER = SCALE + '[function.sticky]\nheader = "X-Tenant"\n'
COOKIE = "kvmserver-machine"


def count(daemon, header: str = "", cookie: str = "") -> tuple[int, str]:
    """What /count says, and the cookie that came with it."""
    headers = {"X-Tenant": header} if header else {"Cookie": cookie} if cookie else {}
    reply = daemon.ask("keeps", "/count", headers=headers)
    assert reply.status == 200, reply
    return int(reply.body), reply.headers.get("set-cookie", "")


def machines_of(daemon) -> dict[str, list[int]]:
    return {name: pids for name, pids in daemon.processes().items() if name.startswith("keeps ")}


def all_run(daemon, version: int = 1) -> None:
    wanted = {f"keeps v{version} machine {machine}" for machine in range(1, MACHINES + 1)}
    harness.wait_until(lambda: {name for name in machines_of(daemon) if f" v{version} " in name} == wanted, "all run")


@pytest.mark.emulated(nightly=True)
def test_tenants_by_header_keep_to_their_machine(keeps, serve) -> None:
    assert keeps(settings=BY_HEADER).status == 0
    daemon = serve()  # after the deploy: emulated hosts have no libcurl
    all_run(daemon)
    began = 0
    for tenant in range(24):
        first, cookie = count(daemon, f"tenant-{tenant}")
        began += first == 1
        assert [count(daemon, f"tenant-{tenant}")[0] for _ in range(2)] == [first + 1, first + 2] and not cookie
    assert began == MACHINES
    without = daemon.text("keeps", "/count")
    assert int(daemon.text("keeps", "/count")) == int(without) + 1  # all of them reach the same


def test_a_header_says_the_same_to_the_next_version(keeps, serve) -> None:
    daemon = serve()
    assert keeps(settings=BY_HEADER).status == 0
    before = [count(daemon, tenant)[0] for tenant in "abcdefghijklmnop"]  # shows who meets whom
    assert keeps(settings=BY_HEADER + "# another\n").status == 0  # the states are gone
    assert [count(daemon, tenant)[0] for tenant in "abcdefghijklmnop"] == before and max(before) > 1


@pytest.mark.emulated(nightly=True)
def test_a_cookie_brings_clients_back(keeps, serve) -> None:
    assert keeps(settings=SCALE).status == 0
    daemon = serve()
    all_run(daemon)
    given = [count(daemon) for _ in range(2 * MACHINES)]
    assert [counted for counted, _ in given] == [1] * MACHINES + [2] * MACHINES  # each machine in turn
    assert given[0][1] == f"{COOKIE}=1-1; Path=/; HttpOnly; SameSite=Lax"
    cookies = [line.split(";")[0] for _, line in given]
    assert cookies == [f"{COOKIE}=1-{machine}" for machine in range(1, MACHINES + 1)] * 2
    for again in range(3):
        assert [count(daemon, cookie=f"a=b; {cookie};c") for cookie in cookies[:MACHINES]] == [(3 + again, "")] * MACHINES
    for wrong in ("1", "1-0", f"1-{MACHINES + 1}", "", "1-1x", "1--1", "2-1", "1-99999999999999999999"):
        assert count(daemon, cookie=f"{COOKIE}={wrong}")[1], wrong
    assert count(daemon, cookie=f"x{COOKIE}=1-1")[1] and count(daemon, cookie=f"{COOKIE}=9-1; {COOKIE}=1-2")[1] == ""


def test_a_cookie_of_ones_own_name_and_path(keeps, serve) -> None:
    settings = SCALE + '[function.sticky]\ncookie = "sid"\n'
    assert keeps(settings="routes = [\"keeps.localhost\", \"any.localhost/shop\"]\n" + settings).status == 0
    daemon = serve()
    assert count(daemon)[1].startswith("sid=1-1; Path=/; ")
    reply = daemon.ask("", "/shop/count", host="any.localhost")
    assert reply.headers["set-cookie"] == "sid=1-2; Path=/shop; HttpOnly; SameSite=Lax", reply


def test_every_kind_of_reply_brings_the_cookie(store, serve, node) -> None:
    """In one piece, chunked, for HTTP/1.0, after an interim reply, on a connection that stays, and before a WebSocket."""
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + SCALE)

    def heads(request: str, until: bytes) -> str:
        with contextlib.closing(socket.create_connection(("127.0.0.1", daemon.port), harness.PATIENCE)) as client:
            client.sendall(request.replace("\n", "\r\n").encode())
            got = b""
            while until not in got:
                more = client.recv(65536)
                assert more, got
                got += more
            return got.decode(errors="replace")
    host = "Host: probe.localhost\n"
    for request, until in {
        f"GET /count HTTP/1.1\n{host}\n": b"\r\n\r\n",
        f"GET /count HTTP/1.0\n{host}\n": b"\r\n\r\n",
        f"POST /echo HTTP/1.1\n{host}Transfer-Encoding: chunked\n\n3\nabc\n0\n\n": b"abc",
        f"POST /echo HTTP/1.1\n{host}Expect: 100-continue\nContent-Length: 3\n\nabc": b"abc",
        f"GET /ws HTTP/1.1\n{host}Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\n\n": b"\r\n\r\n",
    }.items():
        got = heads(request, until)
        assert got.count(f"Set-Cookie: {COOKIE}=") == 1, (request, got)
    client = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=harness.PATIENCE)
    with contextlib.closing(client):
        for cookie in ("", f"{COOKIE}=1-1", f"{COOKIE}=1-1"):
            client.request("GET", "/count", headers={"Host": "probe.localhost", "Cookie": cookie})
            reply = client.getresponse()
            assert bool(reply.getheader("Set-Cookie")) == (not cookie) and reply.read()


def test_a_machine_that_dies_takes_only_its_own_state_along(keeps, serve, store) -> None:
    daemon = serve()
    assert keeps(settings=SCALE).status == 0
    all_run(daemon)
    cookies = [count(daemon)[1].split(";")[0] for _ in range(MACHINES)]
    before = machines_of(daemon)
    assert daemon.ask("keeps", "/exit", headers={"Cookie": cookies[1]}).problem["code"] == "program-failed"
    assert [count(daemon, cookie=cookie)[0] for cookie in cookies] == [2, 1, 2, 2]
    after = machines_of(daemon)
    assert {name for name in before if before[name] != after[name]} == {"keeps v1 machine 2"}
    os.kill(after["keeps v1 machine 4"][0], signal.SIGKILL)
    harness.wait_until(lambda: machines_of(daemon).get("keeps v1 machine 4") not in (None, after["keeps v1 machine 4"]),
                       "it starts again")
    assert [count(daemon, cookie=cookie)[0] for cookie in cookies] == [3, 2, 3, 1]


def test_a_new_version_drains_the_old_machines(keeps, serve, store) -> None:
    daemon = serve()
    assert keeps(settings=BY_HEADER).status == 0
    all_run(daemon)
    with contextlib.closing(hold(daemon, "keeps")) as held:
        harness.wait_until(lambda: live(store, "keeps")["in_flight"] == 1, "one is held")
        assert count(daemon, "t")[0] == 1
        assert keeps(settings=BY_HEADER + "# another\n").status == 0
        assert count(daemon, "t")[0] == 1
        harness.wait_until(lambda: set(machines_of(daemon)) == {f"keeps v2 machine {n}" for n in range(1, 5)} |
                           {"keeps v1 machine 1"}, "the old ones end but that which answers")
        held.close()
    all_run(daemon, 2)
    assert logged(store, "keeps", "machine 2 ends, and what it kept is lost")


@pytest.mark.parametrize("by", ["cookie", "header"])
def test_a_session_keeps_to_its_version_while_both_are_live(keeps, serve, store, by: str) -> None:
    daemon = serve()
    settings = BY_HEADER if by == "header" else SCALE
    for _ in range(2):
        assert keeps(settings=settings).status == 0
    store.ok("traffic", "keeps", "1=50", "2=50", "-y")
    all_run(daemon)
    all_run(daemon, 2)
    if by == "cookie":
        sessions = [{"cookie": count(daemon)[1].split(";")[0]} for _ in range(40)]
        assert {session["cookie"].split("=")[1][0] for session in sessions} == {"1", "2"}
    else:
        sessions = [{"header": f"t{n}"} for n in range(40)]
    for session in sessions:
        first, _ = count(daemon, **session)
        assert [count(daemon, **session) for _ in range(4)] == [(first + n, "") for n in range(1, 5)]


def test_concurrency_is_for_each(keeps, serve, store) -> None:
    daemon = serve()
    assert keeps(settings=SCALE + "concurrency = 1\n").status == 0
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(hold(daemon, "keeps"))) for _ in range(MACHINES + 1)]
        harness.wait_until(lambda: live(store, "keeps")["queued"] == 1, "one waits")
        shown = live(store, "keeps")
        assert (shown["machines"], shown["in_flight"]) == (MACHINES, MACHINES) and held


def test_fewer_are_granted_than_wanted(keeps, serve, tmp_path) -> None:
    grants = tmp_path / "ceilings.toml"
    grants.write_text("")
    daemon = serve("--ceilings", grants)
    assert keeps(settings=SCALE).status == 0
    all_run(daemon)
    grants.write_text("max-machines = 2\n")
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: set(machines_of(daemon)) == {"keeps v1 machine 1", "keeps v1 machine 2"}, "two are left")
    assert [count(daemon)[1].split(";")[0][-1] for _ in range(3)] == ["1", "2", "1"]
    assert count(daemon, cookie=f"{COOKIE}=1-3")[1]  # there is no such machine any more
    refused = keeps(settings=SCALE)
    assert refused.status == 4 and f"function.scale.machines = {MACHINES} (granted: 2)" in refused.err, refused
    grants.write_text("max-kept-machines = 0\n")
    daemon.popen.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: not machines_of(daemon), "none is kept")
    assert count(daemon)[0] == 1 and len(machines_of(daemon)) == 1  # started for the request


@pytest.mark.parametrize("settings, said", [
    ("[function.scale]\nmachines = 2\n", "function.scale.machines must be absent unless function.ephemeral = false"),
    (KEPT + "[function.scale]\nmachines = 0\n", "function.scale.machines must be a whole number from 1 to 64"),
    (KEPT + '[function.sticky]\nheader = "a"\n', "function.sticky is for function.scale.machines of 2 or more"),
    (KEPT + SCALE + "[function.sticky]\n", "function.sticky must be a table with one of header"),
    (KEPT + SCALE + '[function.sticky]\nheader = "a"\ncookie = "b"\n', "function.sticky must be a table with one of header"),
    (KEPT + SCALE + '[function.sticky]\ncookie = "a;b"\n', "function.sticky.cookie must be a name of letters"),
    (KEPT + 'protocol = "tcp"\nlisten = ["127.0.0.1:7"]\n' + SCALE, "function.scale.machines above 1 is for HTTP functions"),
])
def test_what_does_not_go_together_is_refused(keeps, settings: str, said: str) -> None:
    done = keeps(settings=settings, stays=False)
    assert done.status == 2 and said in done.err, done
