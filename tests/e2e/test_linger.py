"""[function.scale] linger: the process of a machine that was suspended stays for a while, and the next request goes on in it."""
import contextlib
import os
import signal
import subprocess

import admin
import harness
import pytest
from serving import gone, pid_of_listener
from test_kept import KEPT, keeps, live, node  # noqa: F401: fixtures
from test_suspend import IDLE, LINGERS, SUSPENDED, states

LONG = LINGERS.replace(IDLE, "1h")
NAME = "keeps v1"


def pid(daemon, name: str = NAME) -> int:
    return daemon.processes()[name][0]


def suspend(store, function: str = "keeps") -> None:
    assert store.ok("suspend", function) == f"{function}: 1 machine suspended"


def counts(daemon, first: int, last: int, function: str = "keeps") -> None:
    numbers = range(first, last + 1)
    assert [daemon.text(function, "/count").strip() for _ in numbers] == [str(number) for number in numbers]


@pytest.mark.emulated
def test_it_goes_on_in_the_same_process(keeps, store, serve) -> None:
    assert keeps(settings=LINGERS).status == 0
    daemon = serve()  # after the deploy: emulated hosts have no libcurl
    counts(daemon, 1, 2)
    before = pid(daemon)
    for round in range(1, 3):  # an emulated host may suspend it between two requests, too
        harness.wait_until(lambda: live(store, "keeps")["state"] == "suspended", "it is suspended")
        assert store("logs", "keeps").out.count(SUSPENDED) >= round
        counts(daemon, 1 + 2 * round, 2 + 2 * round)
        assert pid(daemon) == before


def test_now_and_then_it_gets_another_process(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=LONG).status == 0
    pids = []
    for number in range(1, 21):
        counts(daemon, number, number)
        pids.append(pid(daemon))
        suspend(store)
    changes = [at for at in range(1, len(pids)) if pids[at] != pids[at - 1]]
    assert changes == [8, 16], pids  # a process that kept each file open would otherwise fill the disk


def test_node_with_its_large_pages(store, serve, node) -> None:
    daemon = serve()
    store.deploy_probe(node, "probe", settings=KEPT + LONG)
    counts(daemon, 1, 1, "probe")
    before = pid(daemon, "probe v1")
    for number in range(2, 7):
        suspend(store, "probe")
        assert pid(daemon, "probe v1") == before
        counts(daemon, number, number, "probe")
        assert daemon.ask("probe", "/grow/8").status == 200  # other pages each time


def test_it_ends_after_that_time(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=LINGERS.replace("1h", "50ms")).status == 0
    counts(daemon, 1, 1)
    harness.wait_until(lambda: not daemon.processes(), "its process has ended")
    counts(daemon, 2, 2)


def test_a_process_that_is_killed_costs_nothing(keeps, store, serve) -> None:
    daemon = serve()
    assert keeps(settings=LONG).status == 0
    counts(daemon, 1, 2)
    for number in range(3, 9):
        suspend(store)
        before = pid(daemon)
        os.kill(before, signal.SIGKILL)  # it may end before the request comes, or only then
        counts(daemon, number, number)
        assert pid(daemon) != before


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2])
def test_it_does_not_outlive_its_daemon(keeps, store, serve, ends) -> None:
    daemon = serve()
    assert keeps(settings=LONG).status == 0
    counts(daemon, 1, 2)
    suspend(store)
    before = pid(daemon)
    daemon.popen.send_signal(ends)
    daemon.popen.wait(harness.PATIENCE)
    harness.wait_until(lambda: gone(before), "its process has ended")
    if ends != signal.SIGUSR2:
        daemon = serve()
    counts(daemon, 3, 3)
    if ends == signal.SIGUSR2:
        successor = pid_of_listener(daemon.port)
        os.kill(successor, signal.SIGTERM)
        harness.wait_until(lambda: gone(successor), "the successor has ended")


@pytest.mark.parametrize("change", [("env", "set", "keeps", "COLOUR=red"), ("delete", "keeps", "--yes")])
def test_it_ends_with_what_it_kept(keeps, store, serve, change) -> None:
    daemon = serve()
    assert keeps(settings=LONG).status == 0
    counts(daemon, 1, 1)
    suspend(store)
    store.ok(*change)
    harness.wait_until(lambda: not daemon.processes() and not states(store), "neither is left")
    if change[0] == "env":
        counts(daemon, 1, 1)


def test_it_ends_first_when_memory_is_short(keeps, store, serve) -> None:
    assert keeps(settings=LONG).status == 0
    daemon = serve("--memory-reserve", "1000T")  # no host has as much
    counts(daemon, 1, 1)
    harness.wait_until(lambda: not daemon.processes(), "its process has ended")
    counts(daemon, 2, 2)
    with contextlib.closing(admin.UnixConnection(store.path / "admin.sock")) as connection:
        connection.request("GET", "/metrics")
        metrics = connection.getresponse().read().decode()
    given_back = next(int(line.split()[1]) for line in metrics.splitlines() if line.startswith("kvmserver_vms_given_back_total "))
    assert given_back >= 2, given_back  # the idle machine, which was saved, and then its process


@pytest.mark.parametrize("how", ["size", "blocks"])
def test_a_process_cannot_fill_the_disk(keeps, store, serve, how) -> None:
    """It was given the file of its state to write to, and may have kept it open."""
    daemon = serve()
    assert keeps(top="max-main-memory = 32\n", settings=LONG).status == 0
    counts(daemon, 1, 1)
    suspend(store)
    state, most = states(store)[0], 2 * (96 << 20)
    written = state.stat().st_size
    more = ["truncate", "--size"] if how == "size" else ["fallocate", "--keep-size", "--length"]
    subprocess.run([*more, str(most + (1 << 20)), state], check=True)
    harness.wait_until(lambda: not daemon.processes(), "it is killed")
    harness.wait_until(lambda: max(state.stat().st_size, state.stat().st_blocks * 512) <= most, "the file is cut")
    if how == "blocks":
        assert state.stat().st_size == written
        counts(daemon, 2, 2)
