"""What a new user tries in the first hour does what the documents say, and what is said of it is true."""
import contextlib
import pathlib

import harness
import pytest
from harness import kvmserver

USAGE, TIMED_OUT = 2, 6


def manifest(folder: pathlib.Path, program: dict, port: int, more: str = "") -> None:
    argv = [word.replace("{port}", str(port)) for word in program["argv"]]
    (folder / "kvmserver.toml").write_text(f"allow-all = true\n{more}\n[run]\nprogram = '{argv[0]}'\nargs = {argv[1:]}\n")


def test_run_and_snapshot_without_a_program_take_that_of_the_manifest(folder, program) -> None:
    port = harness.free_port()
    manifest(folder, program("c-epoll"), port)
    made = kvmserver("snapshot", "-o", "app.snap", cwd=folder)
    assert made.status == 0 and (folder / "app.snap").exists(), made
    argv = [str(harness.KVMSERVER), "run", "-e", *harness.LIMITS]
    with contextlib.closing(harness.Process(argv, env=harness.BASE_ENVIRONMENT, cwd=folder)) as process:
        harness.wait_until(lambda: "loaded" in process.out or not process.running(), "it serves")
        assert process.running(), process.err
        assert f":{port}" in process.out


def test_a_program_on_the_command_line_replaces_that_of_the_manifest(folder) -> None:
    (folder / "kvmserver.toml").write_text("[run]\nprogram = 7\n")  # not even looked at
    assert kvmserver("run", "--allow-all", "/bin/true", cwd=folder).status == 0
    wrong = kvmserver("run", "--allow-all", cwd=folder)
    assert wrong.status == USAGE and "run.program" in wrong.error


@pytest.mark.emulated
def test_a_boot_time_that_is_given_limits_also_a_program_that_is_no_server() -> None:
    limit = 1 if harness.SLOWNESS == 1 else 5
    job = [str(harness.GUESTS / "boot"), "sleep"]
    ended = kvmserver("run", "--max-boot-time", f"{limit}", *job)
    assert ended.status == TIMED_OUT and "--no-listen" in ended.error, ended


def test_a_job_takes_as_long_as_it_takes() -> None:
    job = ["--allow-all", "/bin/sleep", "2"]
    assert kvmserver("run", *job).status == 0
    assert kvmserver("run", "--no-listen", "--max-boot-time", "1", *job).status == 0
    assert kvmserver("run", "--max-boot-time", "1", *job).status == TIMED_OUT
