"""The programs of tests/syscalls do the same in a machine as natively."""
import os
import sys
import tempfile

import harness
import pytest

sys.path.insert(0, str(harness.ROOT / "tests/syscalls"))
import compare  # noqa: E402

compare.PATIENCE = max(compare.PATIENCE, harness.PATIENCE)
CASES = compare.cases()


def has_user_attributes() -> bool:
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        try:
            os.setxattr(file.name, "user.probe", b"")
            return True
        except OSError:
            return False


@pytest.mark.bare
def test_programs_are_built() -> None:
    assert len(CASES) > 30, f"only {len(CASES)} programs in {compare.PROGRAMS}: scripts/build.sh"


def emulated(case: compare.Case) -> list:
    """Of the emulated host: the dynamic variants are enough; what concerns registers, signals, threads and memory is for each run."""
    if "-dynamic" not in case.program:
        return []
    hardware = ("system_call", "signal", "thread", "memory", "self")
    return [pytest.mark.emulated(nightly=not case.program.startswith(hardware) or case.program.startswith("threads_many"))]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=emulated(case)) for case in CASES])
def test_transcript(case: compare.Case) -> None:
    if case.program.startswith("own_attributes") and not has_user_attributes():
        pytest.skip("this host's /tmp has no user attributes (tmpfs before Linux 6.6) to compare with")
    told = compare.differences(case, harness.LIMITS)
    assert not told, "\n" + told


@pytest.mark.nightly
@pytest.mark.bare
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_transcript_is_the_same_each_time(case: compare.Case, quick: bool) -> None:
    if quick:
        pytest.skip("--quick")
    assert compare.is_repeatable(case, 3)
