"""The clocks of a machine: one that is reset has slept since its image was taken, one that keeps its state has not."""
import contextlib
import pathlib
import time

import harness
import pytest
from harness import RUN, RUN_E, SLOWNESS, SNAPRUN_E, guest

LATER = 3 if SLOWNESS == 1 else 20  # seconds until what guests/clocks.c puts off is due: longer than it takes to its answer
PAUSE = LATER + 1
BY_MONOTONIC = ("timerfd", "timerfd realtime relative", "timer", "nanosleep", "poll", "futex")
BY_OTHERS = ("timerfd boottime", "timerfd realtime", "timer realtime", "sleep boottime", "sleep realtime", "futex realtime")


def told(server) -> dict[str, float]:
    return {name: float(value) for name, value in (line.split("=") for line in server.line().splitlines())}


def check_all_agree(times: dict[str, float]) -> None:
    assert [times[f"{clock} agrees"] for clock in ("monotonic", "boottime", "realtime", "uptime")] == [1, 1, 1, 1], times
    assert 0.2 <= times["waited"] < 2 * SLOWNESS, times


@pytest.mark.emulated(nightly=True)
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E], ids=str)
def test_the_monotonic_clock_of_each_request_begins_at_the_image(start, mode) -> None:
    server = start({**guest("clocks", "{port}", str(LATER)), "name": f"clocks-{mode.name}"}, mode, "--check-reset")
    time.sleep(PAUSE)
    earlier = None
    for _ in range(3):
        times = told(server)
        check_all_agree(times)
        assert times["monotonic"] < min(2 * SLOWNESS, LATER), times
        assert min(times["boottime"], times["realtime"]) >= PAUSE, times
        assert {name: times[name] for name in BY_MONOTONIC} == dict.fromkeys(BY_MONOTONIC, 0)
        assert {name: times[name] for name in BY_OTHERS} == dict.fromkeys(BY_OTHERS, 1)
        if earlier:  # the same again, as seen from the program
            assert abs(times["monotonic"] - earlier["monotonic"]) < 0.1 * SLOWNESS
            assert times["boottime"] >= earlier["boottime"] + 0.2
        earlier = times


@pytest.mark.parametrize(("mode", "options"), [(RUN_E, ["--clock=continues"]), (SNAPRUN_E, ["--clock=continues"]), (RUN, [])],
                         ids=["run-e", "snaprun-e", "run"])
def test_where_the_clock_continues_all_time_has_passed(start, mode, options: list[str]) -> None:
    server = start({**guest("clocks", "{port}", str(LATER)), "name": f"clocks-continues-{mode.name}"}, mode, *options)
    time.sleep(PAUSE)
    times = told(server)
    check_all_agree(times)
    assert min(times["monotonic"], times["boottime"], times["realtime"]) >= PAUSE, times
    assert {name: times[name] for name in BY_MONOTONIC} == dict.fromkeys(BY_MONOTONIC, 1)
    if mode == RUN:  # else its timers have run out three minutes before their time, and the time of day is none of them
        assert {name: times[name] for name in BY_OTHERS} == dict.fromkeys(BY_OTHERS, 1)


def test_a_snapshot_remembers_how_its_clock_goes_on(tmp_path: pathlib.Path) -> None:
    program = {**guest("clocks", "{port}", str(LATER)), "name": "clocks"}
    made = harness.make_snapshot(program, tmp_path / "clocks.snap", "--clock=continues", "--level", "1")
    assert made.status == 0, made.error
    time.sleep(PAUSE)
    # Its timers ran out before the snapshot: as long again.
    for options, least, most in (([], PAUSE, 1000), (["--clock=pauses"], LATER, LATER + PAUSE)):
        with contextlib.closing(harness.Server(program, SNAPRUN_E, *options, snapshot=tmp_path / "clocks.snap")) as server:
            assert least <= told(server)["monotonic"] < most
