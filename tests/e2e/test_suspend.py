"""[function.scale] suspend: a machine that keeps its state is saved when it is idle, and goes on from there."""
import contextlib
import itertools
import os
import pathlib
import random
import re
import signal
import threading
import time

import admin
import harness
import pytest
from serving import Load, gone, pid_of_listener
from test_kept import KEPT, hold, keeps, live, logged, node, reply_on  # noqa: F401: fixtures

IDLE = "0.2s"
SUSPENDS = f'[function.scale]\nsuspend = true\nlinger = 0\nidle = "{IDLE}"\n'
LINGERS = SUSPENDS.replace("linger = 0", 'linger = "1h"')
SUSPENDED = "its machine is suspended"


def suspended(daemon, store, function: str = "keeps", times: int = 1) -> None:
    harness.wait_until(lambda: store("logs", function).out.count(SUSPENDED) >= times, "it is suspended")
    harness.wait_until(lambda: not any(name.startswith(f"{function} ") for name in daemon.processes()), "its process has ended")


def states(store) -> list[pathlib.Path]:
    return sorted(path for path in (store.path / "states").iterdir() if not path.name.endswith(".lock") and ".of." not in path.name)


@pytest.mark.emulated
def test_it_counts_on_after_it_was_suspended(keeps, store, serve) -> None:
    assert keeps(settings=SUSPENDS).status == 0
    daemon = serve()  # after the deploy: emulated hosts have no libcurl
    for round in range(1, 3 if harness.SLOWNESS > 1 else 5):
        assert daemon.text("keeps", "/count") == f"{3 * round - 2}\n"
        assert [daemon.text("keeps", "/count") for _ in range(2)] == [f"{3 * round - 1}\n", f"{3 * round}\n"]
        suspended(daemon, store, times=round)
        (state,) = states(store)
        assert state.stat().st_size < 4 << 20  # only what changed
    assert not logged(store, "keeps", "is lost")


@pytest.mark.emulated(nightly=True)
def test_it_survives_a_restart(keeps, store, serve) -> None:
    assert keeps(settings=SUSPENDS.replace(IDLE, "1h")).status == 0
    daemon = serve()
    assert [daemon.text("keeps", "/count") for _ in range(3)] == ["1\n", "2\n", "3\n"]
    assert daemon.stop().status == 0
    assert serve().text("keeps", "/count") == "4\n"


def test_it_survives_an_upgrade(keeps, store, serve) -> None:
    assert keeps(settings=SUSPENDS.replace(IDLE, "1h")).status == 0
    daemon = serve()
    assert [daemon.text("keeps", "/count") for _ in range(3)] == ["1\n", "2\n", "3\n"]
    daemon.popen.send_signal(signal.SIGUSR2)
    assert daemon.wait().status == 0
    assert daemon.text("keeps", "/count") == "4\n"
    successor = pid_of_listener(daemon.port)
    os.kill(successor, signal.SIGTERM)
    harness.wait_until(lambda: gone(successor), "the successor has ended")


def test_after_a_kill_the_last_completed_state_comes_back(keeps, store, serve) -> None:
    assert keeps(settings=SUSPENDS).status == 0
    daemon = serve()
    assert [daemon.text("keeps", "/count") for _ in range(3)] == ["1\n", "2\n", "3\n"]
    suspended(daemon, store)
    assert daemon.text("keeps", "/count") == "4\n"
    daemon.stop(signal.SIGKILL)
    assert serve().text("keeps", "/count") == "4\n"  # the fourth is lost with the machine, the first three are not


def test_a_program_that_ends_goes_on_from_its_last_state(keeps, store, serve) -> None:
    assert keeps(settings=SUSPENDS).status == 0
    daemon = serve()
    assert [daemon.text("keeps", "/count") for _ in range(2)] == ["1\n", "2\n"]
    suspended(daemon, store)
    assert daemon.text("keeps", "/count") == "3\n"
    assert daemon.ask("keeps", "/exit").problem["code"] == "program-failed"
    assert daemon.text("keeps", "/count") == "3\n"


def test_another_version_begins_anew(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    suspended(daemon, store)
    assert len(states(store)) == 1
    assert keeps(settings=SUSPENDS + "# another\n").status == 0
    harness.wait_until(lambda: not states(store), "the state of the first version is gone")
    assert daemon.text("keeps", "/count") == "1\n"
    suspended(daemon, store, times=2)
    assert store("rollback", "keeps").status == 0
    assert daemon.text("keeps", "/count") == "1\n"


@pytest.mark.parametrize("machines", [1, 2])
def test_it_is_told_that_it_is_suspended(keeps, store, serve, machines: int) -> None:
    daemon = serve()
    settings = SUSPENDS.replace(IDLE, "1h") + f"machines = {machines}\n"
    assert keeps(settings=settings).status == 0

    def metrics() -> str:
        connection = admin.UnixConnection(store.path / "admin.sock")
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def told() -> tuple:
        one = live(store, "keeps")
        metric = re.search(r'^kvmserver_suspended_vms{function="keeps",version="1"} (\d+)$', metrics(), re.M)
        return one["state"], one["suspended"], int(metric[1]), "suspended" in store("list").out

    assert told() == ("idle", 0, 0, False)
    store.ok("resume", "keeps")
    harness.wait_until(lambda: live(store, "keeps")["state"] == "ready", "each machine runs")
    assert told() == ("ready", 0, 0, False)
    store.ok("suspend", "keeps")
    assert told() == ("suspended", machines, machines, True)
    daemon.text("keeps", "/count")  # one of them goes on
    assert told() == ("ready", machines - 1, machines - 1, False)


def test_what_changed_without_a_daemon_leaves_states_to_gc(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    suspended(daemon, store)
    daemon.stop()
    assert store.json("gc", "--json")["leftovers"] == 0 and len(states(store)) == 1
    assert keeps(settings=SUSPENDS + "# another\n").status == 0
    (state,) = states(store)
    size = state.stat().st_size
    dry = store.json("gc", "--dry-run", "--json")
    assert states(store) == [state] and dry["bytes"] >= size, dry
    store.ok("gc")
    assert not [path.name for path in (store.path / "states").iterdir() if not path.name.endswith(".lock")]
    assert serve().text("keeps", "/count") == "1\n"


@pytest.mark.parametrize("change", [("env", "set", "keeps", "COLOUR=red"), ("delete", "keeps", "--yes")])
def test_a_machine_that_is_no_longer_wanted_leaves_no_state(keeps, store, serve, change) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    suspended(daemon, store)
    store.ok(*change)
    harness.wait_until(lambda: not states(store), "its state is gone")
    if change[0] == "env":
        assert daemon.text("keeps", "/count") == "1\n"


def test_it_goes_on_after_its_snapshot_was_compressed_anew(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    hurried = store.json("versions", "keeps")["versions"][0]["snapshot"]
    assert daemon.text("keeps", "/count") == "1\n"
    harness.wait_until(lambda: store.json("versions", "keeps")["versions"][0]["snapshot"] != hurried, "it is compressed", harness.IDLE_PATIENCE)
    assert keeps(name="other").status == 0 and daemon.text("other", "/count")  # the daemon has seen both
    suspended(daemon, store)
    assert daemon.text("keeps", "/count") == "2\n"


def test_each_of_several_machines_has_its_own_state(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS + 'machines = 3\n[function.sticky]\nheader = "X-Tenant"\n').status == 0
    tenants = "abcdefgh"
    counts = {}
    for round in range(3):
        for tenant in tenants:
            counts.setdefault(tenant, []).append(int(daemon.text("keeps", "/count", headers={"X-Tenant": tenant})))
        harness.wait_until(lambda: not daemon.processes(), "all are suspended")
    harness.wait_until(lambda: len(states(store)) == 3, "their states are complete")
    everything = sorted(number for each in counts.values() for number in each)
    assert everything.count(1) == 3 and all(one == sorted(one) for one in counts.values())
    assert everything.count(max(everything)) == 1 or max(everything) == len(tenants)


def test_what_a_hook_changed_is_part_of_the_state(keeps, store, serve) -> None:
    daemon = serve()
    hook = '[function.hooks]\nafter-restore = "/count"\n'
    assert keeps(settings=SUSPENDS + hook).status == 0
    for number in range(2, 5):  # the hook's was the first
        assert daemon.text("keeps", "/count") == f"{number}\n"
        suspended(daemon, store, times=number - 1)


def test_a_state_that_is_damaged_is_told_and_not_used(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS).status == 0
    assert daemon.text("keeps", "/count") == "1\n"
    suspended(daemon, store)
    (state,) = states(store)
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    refused = daemon.ask("keeps", "/count")
    assert refused.status == 502 and refused.problem["code"] == "not-restored"
    harness.wait_until(lambda: logged(store, "keeps", "saved state"), "the log says why")
    assert keeps(settings=SUSPENDS + "# another\n").status == 0  # the way out
    assert daemon.text("keeps", "/count") == "1\n"


def test_node_goes_on(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    for round in range(1, 4):
        assert [daemon.text("probe", "/count") for _ in range(2)] == [f"{2 * round - 1}", f"{2 * round}"]
        suspended(daemon, store, "probe", round)


def test_a_state_does_not_grow_with_each_suspend(store, serve, node) -> None:
    """What the program has given back is not kept, however often it is suspended."""
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS.replace(IDLE, "1h"))
    sizes = []
    for _ in range(6):
        daemon.text("probe", "/grow/50")
        store.ok("suspend", "probe")
        sizes.append(states(store)[0].stat().st_size)
    assert min(sizes) > 50 << 20 and max(sizes) < 3 * sizes[0], sizes  # it gives one back later than the others


@pytest.mark.parametrize("settings", [SUSPENDS, LINGERS], ids=["ends", "lingers"])
def test_no_answered_request_is_lost(keeps, store, serve, settings) -> None:
    """Clients pause for as long as it takes to be suspended, or not quite."""
    rounds = 150
    assert keeps(settings=settings.replace(IDLE, "20ms")).status == 0
    daemon = serve()
    seen, lock, numbers = [], threading.Lock(), itertools.count()

    def client(seed: int) -> None:
        choose = random.Random(seed)
        while next(numbers) < rounds:
            with lock:  # one request after the other, so that the order of the answers is known
                seen.append(daemon.text("keeps", "/count"))
            time.sleep(choose.uniform(0, 0.1))

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [f"{number}\n" for number in range(1, rounds + 1)]
    assert store("logs", "keeps").out.count(SUSPENDED) > 5


@pytest.mark.parametrize("settings", [SUSPENDS, LINGERS], ids=["ends", "lingers"])
def test_under_load_nothing_that_was_answered_is_lost(keeps, store, serve, settings) -> None:
    """nightly.sh has 1,000 rounds."""
    assert keeps(settings=settings.replace(IDLE, "1h")).status == 0
    daemon = serve()
    saved = 0
    with Load(daemon, "keeps") as load:
        for _ in range(int(os.environ.get("SUSPENDS", "30"))):
            load.after(4)
            with contextlib.closing(admin.UnixConnection(store.path / "admin.sock")) as connection:
                connection.request("POST", "/v1/functions/keeps/suspend")
                reply = admin.Reply(connection.getresponse())
            assert reply.status == 200, reply
            saved += reply.json["machines"]
        load.after(4)
    assert not load.errors and {status for status, _ in load.replies} == {200}
    assert sorted(int(body) for _, body in load.replies) == list(range(1, len(load.replies) + 1))
    assert saved > 0


@pytest.mark.parametrize("settings, complaint", [
    ("suspend = 1\n", "function.scale.suspend must be true or false"),
    ("suspend = true\nmin = 1\n", "function.scale.min must be absent"),
    ("linger = 1\n", "function.scale.linger must be absent without function.scale.suspend"),
    ('suspend = true\nlinger = "soon"\n', "function.scale.linger must be a time"),
])  # fmt: skip
def test_nonsense_in_the_manifest(keeps, serve, settings, complaint) -> None:
    serve()
    refused = keeps(settings=f"[function.scale]\n{settings}")
    assert refused.status == 2 and complaint in refused.err, refused.err


def test_only_machines_that_keep_their_state_are_suspended(keeps, serve) -> None:
    serve()
    refused = keeps(settings="[function.scale]\nsuspend = true\n", stays=False)
    assert refused.status == 2 and "function.scale.suspend" in refused.err and "ephemeral = false" in refused.err


def test_by_command(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=SUSPENDS.replace(IDLE, "1h")).status == 0
    assert [daemon.text("keeps", "/count") for _ in range(2)] == ["1\n", "2\n"]
    assert store.ok("suspend", "keeps") == "keeps: 1 machine suspended"
    harness.wait_until(lambda: not daemon.processes(), "its process has ended")
    assert len(states(store)) == 1
    assert store.ok("suspend", "keeps") == "keeps: 0 machines suspended"
    assert store.ok("resume", "keeps") == "keeps: 1 machine started"
    harness.wait_until(lambda: "keeps v1" in daemon.processes(), "its machine runs")
    assert daemon.text("keeps", "/count") == "3\n"
    assert store.json("suspend", "keeps") == {"name": "keeps", "machines": 1}
    assert daemon.text("keeps", "/count") == "4\n"


def test_a_command_waits_for_requests(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + SUSPENDS)
    assert daemon.text("probe", "/count") == "1"
    with contextlib.closing(hold(daemon, "probe", "/sleep/500")) as sleeps:
        harness.wait_until(lambda: live(store, "probe")["in_flight"] == 1, "it is in the machine")
        assert store.ok("suspend", "probe") == "probe: 1 machine suspended"
        assert b"probe slept" in reply_on(sleeps)
    assert daemon.text("probe", "/count") == "2"


@pytest.mark.parametrize("command", ["suspend", "resume"])
def test_commands_that_cannot_be(keeps, store, serve, command) -> None:
    assert keeps().status == 0
    serve()
    for name, status, says in [("keeps", 5, "[function.scale] suspend = true"), ("nobody", 3, "nobody")]:
        refused = store(command, name)
        assert refused.status == status and says in refused.err and len(refused.said) == 1, refused
    assert store(command).status == 2
