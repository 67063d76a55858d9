"""kill -9 at random moments during deploy, gc and upload: nothing that was acknowledged is lost, nothing is half there.

STORE_CRASH_SEED repeats a run; STORE_CRASH_KILLS sets how many kills (60; in long runs 200).
"""
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from harness import ALL_TESTS, BUILD, SLOWNESS

DRIVER = BUILD / "tests/store_crash/store_crash"
KILLS = int(os.environ.get("STORE_CRASH_KILLS", "200" if ALL_TESTS else "60"))
# The disk, not memory, so that fsync and its duration are real.
pytestmark = [pytest.mark.bare, pytest.mark.skipif(not DRIVER.exists(), reason=f"there is no {DRIVER}")]


def driver(*args: object) -> str:
    done = subprocess.run([DRIVER, *map(str, args)], capture_output=True, text=True, timeout=120 * SLOWNESS, check=False)
    assert done.returncode == 0, f"{args}: {done.stdout}\n{done.stderr}"
    return done.stdout


def killed(args: list[object], after: float) -> list[list[str]]:
    """What the worker acknowledged before it was killed, a list of words a line."""
    worker = subprocess.Popen([DRIVER, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(after)  # the random moment
    worker.send_signal(signal.SIGKILL)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL, f"it ended by itself: {err}"
    return [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]


def versions_of(checked: list[list[str]], name: str) -> dict[int, tuple[int, int]]:
    """number: (seed, percent)"""
    return {int(v): (int(seed), int(percent)) for kind, f, v, seed, percent in
            (words for words in checked if words[0] == "version") if f == name}


def check_functions(checked: list[list[str]], said: list[list[str]], live: tuple[int, int]) -> tuple[int, int]:
    """`live`: version and seed of "changing" that were live before. Returns those that are now."""
    assert versions_of(checked, "steady") == {1: (1, 100)}
    acknowledged = [(int(words[1]), int(words[2])) for words in said if words[0] == "deployed"]
    begun = [int(words[1]) for words in said if words[0] == "begin"]
    version, seed = acknowledged[-1] if acknowledged else live
    changing = versions_of(checked, "changing")
    now = [(v, s) for v, (s, percent) in changing.items() if percent == 100]
    allowed = [(version, seed)]
    if begun and begun[-1] != seed:
        allowed.append((version + 1, begun[-1]))  # done, but the word of it came too late
    assert now and now[0] in allowed, f"live is {now}, expected one of {allowed}"
    known = {live[1], *begun}
    assert all(s in known or v <= live[0] for v, (s, _) in changing.items()), "a version that nobody deployed"
    return now[0]


def check_uploads(store: str, checked: list[list[str]], said: list[list[str]], before: set[str]) -> set[str]:
    """`before`: uploads that were there. Returns those that are left."""
    seeds = {words[1]: words[2] for words in said if words[0] == "created"}
    dropped = {words[1] for words in said if words[0] == "dropping"}
    durable = {words[1]: int(words[2]) for words in said if words[0] == "durable"}
    there = {words[1]: int(words[2]) for words in checked if words[0] == "upload"}
    for upload in seeds:
        if upload not in dropped:
            was, now = durable.get(upload, 0), there.get(upload, -1)
            assert now >= was, f"upload {upload}: {was} was durable, there is {now}"
            driver("finish", store, upload, seeds[upload])
    left = set(there) - set(seeds) | set(there) & dropped
    assert len(left - before - dropped) <= 1, "an upload that nobody began"  # one: the word of it came too late
    return left


@pytest.mark.parametrize("what", ["deploy", "gc", "upload"])
def test_killed(what: str) -> None:
    seed = int(os.environ.get("STORE_CRASH_SEED", random.randrange(1 << 20)))
    print(f"STORE_CRASH_SEED={seed}")
    moments = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="store-crash-", dir=os.environ.get("STORE_CRASH_DIR"))
    store = f"{folder}/store"
    try:
        driver("prepare", store)
        live = (1, 2)
        uploads: set[str] = set()
        progress = 0
        for n in range((KILLS + 2) // 3 + 1):
            after = moments.choice([0.02, 0.1, 0.3]) * (0.1 + moments.random()) * SLOWNESS
            said = killed(["work", store, what, n + 1], after)
            progress += len(said)
            checked = [line.split() for line in driver("check", store).splitlines()]
            try:
                live = check_functions(checked, said, live)
                if what == "upload":
                    uploads = check_uploads(store, checked, said, uploads)
            except AssertionError as e:
                raise AssertionError(f"kill {n}, seed {seed}: {e}\nsaid {said}\nthere is {checked}") from e
        assert progress > KILLS / 6, "it was always killed before it did anything"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
