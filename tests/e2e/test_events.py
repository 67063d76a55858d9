"""--json of commands that take long: events, one JSON object a line, and nothing else on stdout or stderr."""
import json
import os
import pathlib
import signal
import subprocess

import harness
import pytest
from harness import Process, kvmserver, wait_until
from serving import manifest

PATIENCE = harness.PATIENCE * 6


def phases(events: list[dict], state: str = "done") -> list[str]:
    return [each["phase"] for each in events if each["event"] == "phase" and each["state"] == state]


def only(events: list[dict], event: str) -> list[dict]:
    return [each for each in events if each["event"] == event]


class Going(Process):
    """A command with --json that goes on."""

    def __init__(self, *words, env: dict | None = None) -> None:
        super().__init__([str(harness.KVMSERVER), *map(str, words), "--json"], env={**harness.BASE_ENVIRONMENT, **(env or {})})

    @property
    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines(keepends=True) if line.endswith("\n")]

    def until(self, **wanted) -> dict:
        def found() -> list[dict]:
            return [each for each in self.events if wanted.items() <= each.items()]

        wait_until(lambda: found() or not self.running(), f"{wanted}", PATIENCE)
        assert found(), (self.out, self.err)
        return found()[0]


@pytest.fixture
def going():
    started = []

    def start(*words, **more) -> Going:
        started.append(Going(*words, **more))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def app(store, program) -> pathlib.Path:
    folder = manifest(store.folder / "hello", program("c-epoll"), "warmup = 3\n")
    with (folder / "kvmserver.toml").open("a") as file:
        file.write('[function.build]\ncommand = "echo it builds; echo and complains >&2"\n')
    return folder


def test_snapshot(folder, program) -> None:
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    made = kvmserver("snapshot", "--json", "--allow-all", "-w", "5", "-o", folder / "a.snap", *argv)
    assert made.status == 0 and made.err == "", made
    assert phases(made.events) == phases(made.events, "started") == ["boot", "warm-up", "check", "save"]
    (warm_up,) = [each for each in made.events if each.get("phase") == "warm-up" and each.get("state") == "done"]
    assert (warm_up["done"], warm_up["all"], warm_up["unit"]) == (5, 5, "requests") and warm_up["seconds"] >= 0
    assert {"event": "output", "stream": "stdout", "text": f"listening on {argv[-1]}"} in made.events
    assert made.last["event"] == "result" and made.last["bytes"] == (folder / "a.snap").stat().st_size
    assert made.last["digest"] in kvmserver("inspect", folder / "a.snap", "--json").out or made.last["digest"].startswith("sha256:")


def test_a_program_that_fails_to_boot(folder) -> None:
    hidden = pathlib.Path(__file__)  # not below /tmp, which is the machine's own
    refused = kvmserver("snapshot", "--json", "-o", folder / "a.snap", "/bin/dash", "-c", f"echo trying; read x < {hidden}; exit 7")
    assert refused.status == 1 and refused.err == "", refused
    assert refused.last == {"event": "error", "message": "dash: exited with status 7 before it waited for a connection", "exit_code": 1}
    assert phases(refused.events, "failed") == ["boot"]
    assert any(each["text"] == "trying" for each in only(refused.events, "output"))
    assert any(f"--allow-read={hidden}" in each["text"] for each in only(refused.events, "refusal")), refused
    wrong = kvmserver("snapshot", "--json", "-o", folder / "a.snap", "--early", "x", "--parent", "-1", "/bin/true")
    assert wrong.status == 2 and wrong.last["event"] == "error" and "--parent: '-1' is not a whole number" in wrong.last["message"]


def test_deploy(store, app) -> None:
    done = store("deploy", app, "--json")
    assert done.status == 0 and done.err == "", done
    assert phases(done.events) == ["build", "boot", "warm-up", "check", "save", "upload"]
    assert {"it builds", "and complains"} <= {each["text"] for each in only(done.events, "output")}
    (live,) = only(done.events, "live")
    assert live["name"] == "hello" and live["version"] == 1 and live["served"] is False and "url" not in live
    assert done.last["event"] == "result" and done.last["etag"] == store.json("describe", "hello")["etag"]
    assert done.last["bytes"] == store.json("versions", "hello")["versions"][0]["bytes"]
    quiet = store("deploy", app, "--json", "-q")
    assert {each["event"] for each in quiet.events} == {"live", "result"}, quiet
    ready = store("deploy", app, "--json", "--no-activate")
    assert only(ready.events, "stored")[0]["version"] == 3 and not only(ready.events, "live")
    plan = store("deploy", app, "--json", "--dry-run")
    assert plan.last["event"] == "result" and plan.last["dry_run"] is True


def test_deploy_that_fails(store, app) -> None:
    text = (app / "kvmserver.toml").read_text()
    (app / "kvmserver.toml").write_text(text.replace('"echo it builds; echo and complains >&2"', '"exit 3"'))
    failed = store("deploy", app, "--json")
    assert failed.status == 1 and failed.err == "", failed
    assert phases(failed.events, "failed") == ["build"] and "status 3" in failed.last["message"] and failed.last["exit_code"] == 1
    (app / "kvmserver.toml").write_text("colour = 1\n" + text)
    assert "colour" in only(store("deploy", app, "--json").events, "warning")[0]["text"]
    unknown = store("deploy", app, "--json", "--strict")
    assert unknown.status == 2 and [each["event"] for each in unknown.events] == ["error"] and "colour" in unknown.last["message"], unknown
    (app / "kvmserver.toml").write_text("warmup = [\n" + text)
    broken = store("deploy", app, "--json")
    assert broken.status == 2 and broken.err == "", broken
    assert [each["event"] for each in broken.events] == ["error"] and "kvmserver.toml:" in broken.last["message"]
    (app / "kvmserver.toml").write_text(text.replace("[run]\n", '[run]\nprogram = "/bin/false"\n').replace('args = ', 'args = []\n#', 1).replace('\nprogram = "/', '\n#program = "/', 2).replace('#program = "/bin/false"', 'program = "/bin/false"'))
    died = store("deploy", app, "--json")
    assert died.status == 1 and "no snapshot was made" in died.last["message"], died
    assert any("false: exited with status 1" in each["text"] for each in only(died.events, "message"))


@pytest.mark.nightly
def test_it_is_told_as_live_before_its_warm_up(store, serve, going, program) -> None:
    daemon = serve()
    folder = manifest(store.folder / "hello", program("node-http"))
    command = going("deploy", folder, "--store", store.path)
    live = command.until(event="live")
    assert live["served"] is True and live["url"].startswith("http://hello.localhost") and live["snapshot"].startswith("sha256:")
    assert daemon.ask("hello", "/").status == 200
    ended = command.wait()
    assert ended.status == 0 and ended.err == "", ended
    at = ended.events.index(live)
    assert "warm-up" not in phases(ended.events[:at], "started") and "warm-up" in phases(ended.events[at:])
    assert ended.last["event"] == "result" and ended.last["url"] == live["url"]
    assert ended.last["snapshot"] == store.json("versions", "hello")["versions"][0]["snapshot"]
    (event,) = store.json("history", "hello")["events"]
    assert event["bytes"] == ended.last["bytes"], "the size of the warmed-up snapshot"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_last_event(store, going, app, how) -> None:
    temporary = store.folder / "temporary"
    temporary.mkdir()
    (app / "kvmserver.toml").write_text((app / "kvmserver.toml").read_text().replace("echo it builds;", "echo it builds; sleep 100;"))
    command = going("deploy", app, "--store", store.path, env={"TMPDIR": str(temporary)})
    command.until(event="output", text="it builds")
    ended = command.stop(how)
    assert ended.status == 128 + how and ended.err == "", ended
    assert ended.last == {"event": "error", "message": "interrupted", "signal": how.name, "exit_code": 128 + how}
    assert not list(temporary.iterdir())


def test_snapshot_that_is_interrupted(folder, going) -> None:
    command = going("snapshot", "-o", folder / "a.snap", "--allow-all", "--max-boot-time", "100")
    assert command.wait().status == 2  # --json before the program, which is missing
    argv = ["snapshot", "-o", str(folder / "a.snap"), "--json", "/bin/dash", "-c", "echo waiting; while :; do :; done"]
    process = subprocess.Popen([str(harness.KVMSERVER), *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.BASE_ENVIRONMENT)
    lines = [process.stdout.readline() for _ in range(2)]
    assert any(b"waiting" in line for line in lines), lines
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    last = json.loads(out.splitlines()[-1])
    assert process.returncode == 1 and err == b"" and last["event"] == "error" and "interrupted" in last["message"], (out, err)


def test_dev(store, going, app) -> None:
    command = going("dev", app, "--watch", "--port", "0")
    url = command.until(event="ready")["url"]
    with harness.Client(int(url.rpartition(":")[2])) as client:
        assert client.ask("/count", None) == b"1\n"
    assert phases(command.events)[:2] == ["build", "boot"]
    text = (app / "kvmserver.toml").read_text()
    new = app / "kvmserver.toml.new"
    new.write_text("warmup = [\n")
    os.rename(new, app / "kvmserver.toml")
    failed = command.until(event="failed")
    assert failed["serving"] is True and failed["exit_code"] == 2 and "kvmserver.toml:" in failed["message"]
    new.write_text(text.replace("it builds", "it builds again"))
    os.rename(new, app / "kvmserver.toml")
    command.until(event="output", text="it builds again")
    wait_until(lambda: len(only(command.events, "ready")) == 2, "it is ready again", PATIENCE)
    ended = command.stop(signal.SIGINT)
    assert ended.status == 0 and ended.err == "" and ended.last == {"event": "result"}, ended


def test_a_reader_that_goes_away_ends_nothing_badly(folder, program) -> None:
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    command = [str(harness.KVMSERVER), "snapshot", "--json", "--allow-all", "-o", str(folder / "a.snap"), *argv]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.BASE_ENVIRONMENT)
    process.stdout.close()
    assert process.wait(PATIENCE) in (0, -signal.SIGPIPE) and process.stderr.read() == b""
