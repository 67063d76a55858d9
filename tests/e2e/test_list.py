"""`list` of many functions: pages of it, and what a page says, with a daemon and without."""
import contextlib
import pathlib

import harness
import pytest
from admin import Reply, UnixConnection
from serving import Daemon, Store

NAMES = ["alpha", "beta", "gamma", "shop", "shop-a", "shop-b", "shops"]


@pytest.fixture
def filled(store: Store, snapshots, program) -> Store:
    snapshot = snapshots.of(program("c-epoll"))
    for name in NAMES:
        store.deploy(snapshot, name, "-q", "--no-activate" if name == "beta" else "--message=m")
    return store


@contextlib.contextmanager
def either(store: Store, daemon: bool):
    with contextlib.closing(Daemon(store)) if daemon else contextlib.nullcontext() as running:
        yield running


def names(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines()[1:]]


def get(store: Store, target: str, token: str = "") -> Reply:
    connection = UnixConnection(pathlib.Path(store.path) / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", target, headers={"Authorization": f"Bearer {token}"} if token else {})
        return Reply(connection.getresponse())


@pytest.mark.parametrize("daemon", [False, True], ids=["no-daemon", "daemon"])
def test_a_page_has_so_many_functions_and_tells_how_to_get_the_next(filled, daemon) -> None:
    with either(filled, daemon):
        seen, after = [], ""
        for expected in (NAMES[:3], NAMES[3:6], NAMES[6:]):
            done = filled("list", "--limit", "3", *(["--after", after] if after else []))
            assert done.status == 0 and names(done.out) == expected, done
            seen += expected
            after = expected[-1]
            assert (f"--limit 3 --after {after}" in done.err) == (seen != NAMES), done
        assert names(filled("list").out) == NAMES
        assert names(filled("ls", "--after", "gamma").out) == NAMES[3:]
        page = filled.json("list", "--limit", "2", "--after", "alpha")
        assert [one["name"] for one in page["functions"]] == ["beta", "gamma"] and page["next"] == "gamma"
        assert "next" not in filled.json("list", "--limit", str(len(NAMES)))
        nothing = filled("list", "--after", "zeta")
        assert nothing.status == 0 and "no functions after zeta" in nothing.err, nothing


def test_a_page_tells_the_state_and_the_requests_of_its_functions(filled) -> None:
    with contextlib.closing(Daemon(filled)) as daemon:
        for name, count in (("alpha", 1), ("shop", 3)):
            for _ in range(count):
                assert daemon.ask(name, "/").status == 200

        def counted() -> dict:  # when their machines are clean
            return {one["function"]: one["requests"] for one in get(filled, "/v1/live?running=1").json["counted"]}

        harness.wait_until(lambda: counted() == {"alpha": 1, "shop": 3}, "the requests are counted")
        for page in (["--limit", "4"], []):
            rows = {line.split()[0]: line.split() for line in filled("list", *page).out.splitlines()[1:]}
            assert [rows[name][2:4] for name in ("alpha", "gamma", "shop")] == [["ready", "1"], ["ready", "0"], ["ready", "3"]], rows
            assert rows["beta"][2] == "idle", rows
        assert filled.ok("describe", "shop").endswith(" 3 req")
        # Only what has a process, and only of the functions that are asked for.
        running = get(filled, "/v1/live?running=1").json
        assert [one["function"] for one in running["live"]] == ["alpha", "shop"]
        some = get(filled, "/v1/live?running=1&after=alpha&until=shop").json
        assert [one["function"] for one in some["live"]] == [one["function"] for one in some["counted"]] == ["shop"]
        assert [one["function"] for one in get(filled, "/v1/live?until=gamma").json["live"]] == ["alpha", "gamma"]


def test_a_page_of_a_tenant_is_full_and_of_its_functions_alone(filled) -> None:
    token = filled.json("token", "create", "shop", "--scope", "read", "--prefix", "shop")["token"]
    with contextlib.closing(Daemon(filled)):
        first = get(filled, "/v1/functions?limit=2", token).json
        assert [one["name"] for one in first["functions"]] == ["shop", "shop-a"] and first["next"] == "shop-a"
        rest = get(filled, "/v1/functions?limit=2&after=shop-a", token).json
        assert [one["name"] for one in rest["functions"]] == ["shop-b"] and "next" not in rest


def test_what_is_no_page_is_refused(filled) -> None:
    for words, said in ((["--limit", "0"], "limit: it is not from 1 to 10000"), (["--limit", "many"], "limit"),
                        (["--limit", "2", "--sort", "created"], "--limit: pages are by name")):  # fmt: skip
        done = filled("list", *words)
        assert done.status == 2 and said in done.error, done
    with contextlib.closing(Daemon(filled)):
        get(filled, "/v1/functions?limit=10001").problem(400, "bad-value")
