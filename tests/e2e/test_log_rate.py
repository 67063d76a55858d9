"""kvmserver serve: a function that prints without end costs lines of its own log, and nobody else anything."""
import json
import pathlib
import re

import harness
from harness import kvmserver


def log_of(daemon, function: str) -> list[dict]:
    files = (daemon.store.path / f"logs/{function}/{which}.ndjson" for which in ("previous", "current"))
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


DROPPED = re.compile(r"(\d+) lines \((\d+) KiB\) within [\d.]+ s are not here: it printed more than \d+ KiB a second \(serve --log-rate\)")


def dropped(daemon, function: str) -> int:
    return sum(int(told[1]) for line in log_of(daemon, function) if (told := DROPPED.fullmatch(line["text"])))


def deploy_chatty(daemon) -> None:
    file = daemon.store.folder / "chatty.snap"
    made = kvmserver("snapshot", "-o", file, "--allow-listen", *harness.arguments_of(harness.guest("hoards", "0", "{port}"), harness.free_port()))
    assert made.status == 0, made
    daemon.store.deploy(file, "chatty")


def rss_kib(pid: int) -> int:
    return int(re.search(r"VmRSS:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def test_one_that_prints_without_end_loses_lines_and_others_none(serve, program):
    daemon = serve("--log-rate", "64", "--threads", "1")
    deploy_chatty(daemon)
    daemon.store.deploy_probe(program("node-http"), "quiet")
    daemon.text("quiet", "/say/ready")
    before = rss_kib(daemon.popen.pid)
    said = [f"says line-{i}" for i in range(8)]
    for i in range(8):
        assert daemon.ask("chatty", "/print").status == 200  # 8 MiB
        daemon.text("quiet", f"/say/line-{i}")
    harness.wait_until(lambda: [line["text"] for line in log_of(daemon, "quiet") if "line-" in line["text"] and line["stream"] == "out"] == said, "all of the quiet one")
    harness.wait_until(lambda: dropped(daemon, "chatty") > 700_000, "most of 8 times 104,857 lines are told as dropped")
    kept = [line for line in log_of(daemon, "chatty") if line["stream"] == "out"]
    assert len(kept) > 64 * 1024 // 144, "a second's worth at least"
    assert rss_kib(daemon.popen.pid) - before < 32 << 10


def test_all_lines_are_there_or_counted_though_the_process_ends(serve):
    daemon = serve("--threads", "1", "--log-rate", "128")  # so that its files hold all that is kept
    deploy_chatty(daemon)
    assert daemon.ask("chatty", "/print").status == 200
    daemon.stop()
    kept = sum(line["stream"] == "out" and line["text"].startswith("x") for line in log_of(daemon, "chatty"))
    assert kept + dropped(daemon, "chatty") == 104_857, (kept, dropped(daemon, "chatty"))  # the last one has no end
