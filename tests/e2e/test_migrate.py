"""kvmserver migrate: another daemon goes on with a function where this one stopped."""
import contextlib
import json
import pathlib

import admin
import harness
import pytest
from serving import Daemon, Load, Store
from test_kept import GUESTS, KEPT, hold, live, node  # noqa: F401: fixtures

SUSPENDS = '[function.scale]\nsuspend = true\nidle = "1h"\n'


class Side:
    """A daemon with a store of its own, which is started again on the same addresses."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.store = Store(self.folder)
        self.admin_port, self.port = harness.free_port(), harness.free_port()
        self.daemon: Daemon | None = None
        self.start()
        self.token = self.store.ok("token", "create", "mover", "--scope", "deploy", "-q")
        self.token_file = self.folder / "token"
        self.token_file.write_text(self.token)
        self.token_file.chmod(0o600)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def start(self, *options: str) -> Daemon:
        self.daemon = Daemon(self.store, "--admin", f"127.0.0.1:{self.admin_port}", *options, port=self.port)
        return self.daemon

    def text(self, function: str = "keeps", path: str = "/count", **more) -> str:
        return self.daemon.text(function, path, **more)

    def states(self) -> list[pathlib.Path]:
        folder = self.store.path / "states"
        return sorted(path for path in folder.iterdir() if not path.name.endswith(".lock") and ".of." not in path.name) if folder.exists() else []

    def serves(self, function: str = "keeps") -> bool:
        """Whether a machine of it runs. A process may have prepared for one that did not come."""
        with contextlib.closing(admin.UnixConnection(self.store.path / "admin.sock")) as connection:
            connection.request("GET", "/v1/live?running=1")
            return any(one["function"] == function for one in admin.Reply(connection.getresponse()).json["live"])

    def migrate(self, to: "Side", function: str = "keeps", *options: str):
        return self.store("migrate", function, "--to", to.url, "--to-token-file", to.token_file, *options)

    def close(self) -> None:
        if self.daemon.popen.returncode is None:
            self.daemon.stop()
        self.daemon.close()


@pytest.fixture
def two(folder):
    sides = [Side(folder, name) for name in "ab"]
    yield sides
    for side in sides:
        side.close()


def deploy(side: Side, settings: str = KEPT + SUSPENDS, name: str = "keeps", top: str = "warmup = 0\n"):
    folder = side.folder / name
    folder.mkdir(exist_ok=True)
    argv = [str(GUESTS / "keeps"), str(harness.free_port())]
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
        f"[function]\nname = \"{name}\"\n{settings}")
    done = side.store("deploy", folder, "-q")
    assert done.status == 0, done


def test_it_counts_on_there_and_requests_are_forwarded(two) -> None:
    a, b = two
    deploy(a)
    assert [a.text() for _ in range(3)] == ["1\n", "2\n", "3\n"]
    done = a.migrate(b)
    assert done.status == 0 and done.out == f"keeps v1 -> {b.url}\n", done
    assert not a.serves() and not a.states()
    assert [a.text(), b.text(), a.text()] == ["4\n", "5\n", "6\n"]
    assert b.serves() and not a.serves()
    listed = a.store.json("list")["functions"][0]["moved"]
    assert listed == {"to": b.url, "forward": f"http://127.0.0.1:{b.port}", "version": 1, "confirmed": True}


def test_there_and_back_again(two) -> None:
    a, b = two
    deploy(a)
    number = 0

    def counts(*sides: Side) -> None:
        nonlocal number
        for side in sides:
            number += 1
            assert side.text() == f"{number}\n"

    counts(a, a)
    for leaves, gets in [(a, b), (b, a), (a, b), (b, a)]:
        assert leaves.migrate(gets).status == 0
        counts(leaves, gets, leaves)
        assert gets.serves() and not leaves.serves()
    assert "moved" not in a.store.json("list")["functions"][0]
    assert [event["action"] for event in a.store.json("history", "keeps")["events"]] == [
        "take-over", "deploy", "migrate", "take-over", "deploy", "migrate", "deploy"]


def test_both_daemons_may_be_started_again(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n" and a.migrate(b).status == 0 and a.text() == "2\n"
    for side in (a, b, a):
        assert side.daemon.stop().status == 0
        side.start()
    assert [a.text(), b.text()] == ["3\n", "4\n"]


def test_all_that_a_function_has_comes_along(two, node) -> None:
    a, b = two
    a.store.deploy_probe(node, "probe", settings=KEPT + 'routes = ["one.example", "probe.localhost"]\nsecrets = ["WORD"]\n'
                         '[function.env]\nCOLOUR = "blue"\n' + SUSPENDS)
    a.store.ok("env", "set", "probe", "COLOUR=red")
    a.store.ok("secret", "set", "probe", "WORD", "--stdin", stdin=b"sesame")
    harness.wait_until(lambda: a.text("probe", "/env/WORD") == "sesame", "the changes are seen")
    assert a.text("probe", "/env/COLOUR") == "red" and a.text("probe", "/count") == "1"
    assert a.migrate(b, "probe").status == 0
    assert [b.text("probe", f"/env/{name}") for name in ("COLOUR", "WORD")] == ["red", "sesame"]
    assert b.text("probe", "/count", host="one.example") == "2" and a.text("probe", "/count", host="one.example") == "3"
    assert b.store.json("describe", "probe")["env"] == {"COLOUR": "red"}


def test_each_of_several_machines_goes_on(two) -> None:
    a, b = two
    deploy(a, KEPT + SUSPENDS + 'machines = 3\n[function.sticky]\nheader = "X-Tenant"\n')
    tenants = "abcdefgh"

    def round_of(side: Side) -> list[int]:
        return [int(side.text(headers={"X-Tenant": tenant})) for tenant in tenants]

    before = round_of(a)
    assert before.count(1) == 3
    assert a.migrate(b).status == 0
    again, first_machine = [round_of(side) for side in (a, b)], before.index(1)
    assert all(one > other for one, other in zip(again[0], before)) and again[0].count(1) == 0
    assert again[1][first_machine] > again[0][first_machine]


def test_a_cookie_leads_to_the_same_machine(two) -> None:
    a, b = two
    deploy(a, KEPT + SUSPENDS + "machines = 3\n")
    first = a.daemon.ask("keeps")
    cookie = first.headers["set-cookie"].split(";")[0]
    assert [a.text(headers={"Cookie": cookie}) for _ in range(3)] == ["2\n", "3\n", "4\n"]
    assert a.migrate(b).status == 0
    assert [side.text(headers={"Cookie": cookie}) for side in (a, b)] == ["5\n", "6\n"]


@pytest.mark.parametrize("rounds", [3])
def test_no_request_is_lost_and_none_is_served_twice(two, rounds) -> None:
    a, b = two
    deploy(a)
    with Load(a.daemon, "keeps", clients=4) as load:
        for _ in range(rounds):
            for leaves, gets in [(a, b), (b, a)]:
                load.after(50)
                assert leaves.migrate(gets).status == 0
        load.after(50)
    assert not load.errors and {status for status, _ in load.replies} == {200}
    assert sorted(int(body) for _, body in load.replies) == list(range(1, len(load.replies) + 1))


def migrated(leaves: Side, gets: Side, function: str) -> dict:
    done = leaves.migrate(gets, function, "--json")
    assert done.status == 0, done
    return json.loads(done.out)


def test_most_of_a_large_state_is_sent_while_it_serves(two, node) -> None:
    a, b = two
    a.store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    a.text("probe", "/grow/50")
    kept = a.text("probe", "/sum")
    with Load(a.daemon, "probe", path="/count", clients=2) as load:
        load.after(20)
        sent = migrated(a, b, "probe")
        load.after(20)
    assert not load.errors and sorted(int(body) for _, body in load.replies) == list(range(1, len(load.replies) + 1))
    assert sent["state_bytes_ahead"] > 50e6 and sent["state_bytes"] - sent["state_bytes_ahead"] < 0.4 * sent["state_bytes"], sent
    assert b.text("probe", "/sum") == kept
    b.store.ok("suspend", "probe")  # what arrived in parts is one state again
    assert b.text("probe", "/sum") == kept
    assert migrated(b, a, "probe")["state_bytes_ahead"] > 50e6 and a.text("probe", "/sum") == kept


def test_a_suspended_machine_is_sent_once(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n"
    a.store.ok("suspend", "keeps")
    size = a.states()[0].stat().st_size
    sent = migrated(a, b, "keeps")
    assert sent["state_bytes"] == sent["state_bytes_ahead"] == size, sent
    assert b.text() == "2\n"


def test_after_a_migration_that_failed_it_is_suspended_as_before(two, node) -> None:
    """What was saved ahead is a part of the next state, or is left out of it."""
    a, b = two
    a.store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    a.text("probe", "/grow/8")
    kept, number = a.text("probe", "/sum"), 0
    for round in range(12):  # the last before it is suspended begin another file
        with contextlib.closing(hold(a.daemon, "probe", "/meet/99")) as client:
            harness.wait_until(lambda: live(a.store, "probe")["in_flight"] == 1, "it is in the machine")
            assert a.migrate(b, "probe", "--wait", "0.1").status == 6
        number += 1
        assert a.text("probe", "/count") == str(number) and a.text("probe", "/sum") == kept
        if round == 10:
            a.store.ok("suspend", "probe")
    assert a.text("probe", "/sum") == kept and a.text("probe", "/count") == str(number + 1)


def test_a_function_without_a_state_moves_too(two) -> None:
    a, b = two
    deploy(a, "", top="")
    assert a.text() == a.text()
    with Load(a.daemon, "keeps", clients=2) as load:
        load.after(20)
        assert a.migrate(b).status == 0
        load.after(20)
    load.only(load.replies[0][1])
    assert not a.serves() and b.text().encode() == load.replies[0][1]


def test_what_is_forwarded_is_as_it_was(two, node) -> None:
    a, b = two
    a.store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    assert a.migrate(b, "probe").status == 0
    body = bytes(range(256)) * 12000
    assert a.daemon.ask("probe", "/echo", body=body).body == body
    headers = json.loads(a.text("probe", "/headers", headers={"X-Own": "1"}))
    assert headers["host"] == "probe.localhost" and headers["x-own"] == "1" and headers["kvmserver-forwarded"] == "probe"
    upgrade = "/ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nX:"
    with contextlib.closing(hold(a.daemon, "probe", upgrade)) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 101 ")
        for said in (b"1:a", b"2:a"):
            client.sendall(b"a")
            assert client.recv(100) == said
    assert a.store("invoke", "probe", "--path", "/name").out == "probe"
    lines = a.daemon.access(3)
    assert {line["function"] for line in lines} == {"probe"} and {line["outcome"] for line in lines} == {"ok"}


def test_the_other_daemon_may_speak_tls(two, folder, node) -> None:
    a, b = two
    files = admin.Certificates(folder / "certificates")
    b.daemon.stop()
    b.start("--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    a.store.deploy_probe(node, "probe", settings=KEPT + 'routes = ["localhost", "probe.localhost"]\n' + SUSPENDS)
    assert a.text("probe", "/count", host="localhost") == "1"
    assert a.migrate(b, "probe", "--to-cacert", files.authority).status == 0
    assert a.store.json("describe", "probe")["moved"]["forward"] == f"https://127.0.0.1:{b.port}"
    assert [a.text("probe", "/count", host="localhost") for _ in range(2)] == ["2", "3"]
    body = harness.letters(3_000_000)  # more than is there when it is connected
    assert a.daemon.ask("probe", "/echo", body=body, host="localhost").body == body
    other = a.daemon.ask("probe")  # for which there is no certificate
    assert other.status == 502 and other.problem["code"] == "not-forwarded" and "mismatch" in other.problem["detail"].lower()
    assert "needs TLS" in a.store("invoke", "probe").err
    assert b.daemon.stop().status == 0
    b.start()  # without TLS
    assert a.daemon.ask("probe", "/count", host="localhost").problem["code"] == "not-forwarded"


def test_while_the_other_daemon_is_away_requests_say_so(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n" and a.migrate(b).status == 0
    assert b.daemon.stop().status == 0
    refused = a.daemon.ask("keeps")
    assert refused.status == 502 and refused.problem["code"] == "not-forwarded" and f":{b.port}" in refused.problem["detail"]
    assert refused.headers["retry-after"] == "1"
    b.start()
    assert a.text() == "2\n"


def test_here_it_is_only_forwarded_until_it_is_deleted(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n" and a.migrate(b).status == 0
    again = a.store("deploy", a.folder / "keeps", "-q")
    assert again.status == 5 and b.url in again.err and "kvmserver delete" in again.err, again
    for command in (["suspend", "keeps"], ["rollback", "keeps", "1"], ["traffic", "keeps", "1=100"], ["migrate", "keeps", "--to", b.url]):
        refused = a.store(*command)
        assert refused.status == 5 and b.url in refused.err and len(refused.said) == 1, refused
    assert a.store.ok("list").split()[:3] == ["keeps", "v1", "moved"]
    assert f"to {b.url}, where it is v1" in a.store("describe", "keeps").out
    a.store.ok("delete", "keeps", "--yes")
    assert a.daemon.ask("keeps").status == 404 and b.text() == "2\n"
    deploy(a)
    assert a.text() == "1\n" and b.text() == "3\n"


def test_a_daemon_does_not_forward_to_itself(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n"
    assert a.migrate(b, "keeps", "--forward", f"http://127.0.0.1:{a.port}").status == 0
    refused = a.daemon.ask("keeps")
    assert refused.status == 502 and refused.problem["code"] == "not-forwarded" and "back to here" in refused.problem["detail"]
    assert b.text() == "2\n"


def refused(a: Side, status: int, says: str, *options: str, to: str = "", function: str = "keeps") -> None:
    done = a.store("migrate", function, "--to", to, *options)
    assert done.status == status and says in done.err and len(done.said) == 1, done


def test_what_cannot_be_migrated(two, node) -> None:
    a, b = two
    token = ["--to-token-file", b.token_file]
    deploy(a, KEPT, name="unsaved")
    refused(a, 5, "[function.scale] suspend = true", *token, to=b.url, function="unsaved")
    refused(a, 3, "nobody", *token, to=b.url, function="nobody")
    deploy(a, name="keeps")
    assert a.text() == "1\n"
    refused(a, 3, "there is no remote 'prod'", to="prod")
    refused(a, 2, "https://", to="http://example.org:1")
    refused(a, 4, f"127.0.0.1:{b.admin_port}", to=b.url)  # without a token
    nobody = harness.free_port()
    refused(a, 6, f"127.0.0.1:{nobody}", *token, to=f"http://127.0.0.1:{nobody}")
    refused(a, 6, "--forward http://HOST:PORT", *token, "--forward", f"http://127.0.0.1:{nobody}", to=b.url)
    refused(a, 2, "http://HOST:PORT", *token, "--forward", "https://[::1", to=b.url)
    refused(a, 1, "certificates", *token, "--to-cacert", "/dev/null", to=b.url)
    assert a.store("migrate", "keeps").status == 2 and a.store("migrate").status == 2
    deploy(b)
    assert b.text() == "1\n"
    refused(a, 5, "already", *token, to=b.url)
    assert [a.text(), b.text()] == ["2\n", "2\n"]  # each has its own
    assert not [version for version in b.store.json("versions", "keeps")["versions"] if version["state"] != "ready"]
    a.store.deploy_probe(node, "asks", settings=KEPT + 'secrets = ["SHARED"]\n' + SUSPENDS)
    refused(a, 5, "SHARED", *token, to=b.url, function="asks")


def test_a_function_whose_requests_do_not_end_stays(two) -> None:
    a, b = two
    deploy(a)
    assert a.text() == "1\n"
    with contextlib.closing(hold(a.daemon, "keeps")):
        harness.wait_until(lambda: live(a.store, "keeps")["in_flight"] == 1, "it is in the machine")
        done = a.migrate(b, "keeps", "--wait", "0.2")
        assert done.status == 6 and "still has requests" in done.err and len(done.said) == 1, done
    assert a.text() == "2\n"
    assert b.daemon.ask("keeps").status in (404, 503)
    assert a.migrate(b).status == 0 and a.text() == "3\n"
