"""What strangers upload is examined by processes behind walls, a few at a time, in bounded memory: the daemon itself
hardly notices."""
import http.client
import json
import os
import pathlib
import re
import signal
import threading
import time

import admin
import bombs
import harness
import pytest
from serving import Daemon, Store, ask, words_of

MIB = 1 << 20


class World:
    def __init__(self, folder: pathlib.Path, *options: str) -> None:
        self.store = Store(folder)
        self.port = harness.free_port()
        self.daemon = Daemon(self.store, "--admin", f"127.0.0.1:{self.port}", *options)

    @property
    def pid(self) -> int:
        return self.daemon.popen.pid

    def ask(self, method: str, path: str, body=None, token: str | None = None,
            headers: dict | None = None) -> admin.Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = dict(headers or {})
        if token:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE * 3)
            headers["Authorization"] = f"Bearer {token}"
        else:
            connection = admin.UnixConnection(self.store.path / "admin.sock")
        try:
            connection.request(method, path, data, headers)
            return admin.Reply(connection.getresponse())
        finally:
            connection.close()

    def patiently(self, *words, **more) -> admin.Reply:
        """As a client does: 503 says when to try again."""
        end = time.monotonic() + harness.PATIENCE * 6
        while True:
            reply = self.ask(*words, **more)
            if reply.status != 503 or time.monotonic() > end:
                return reply
            time.sleep(float(reply.headers["Retry-After"]))

    def token(self, name: str, prefix: str) -> str:
        made = self.ask("POST", "/v1/tokens", {"name": name, "scopes": ["deploy", "invoke"], "prefix": prefix})
        assert made.status == 201, made
        return made.json["token"]

    def upload(self, data: bytes, token: str | None = None) -> admin.Reply:
        begun = self.patiently("POST", "/v1/uploads", {"size": len(data), "sha256": bombs.digest(data)}, token=token)
        assert begun.status == 201, begun
        where = begun.headers["Location"]
        reply = self.ask("PATCH", where, data, token, {"Upload-Offset": "0"})
        if reply.status != 503:
            return reply
        offset = self.patiently("HEAD", where, token=token).headers["Upload-Offset"]  # all of it, or nothing
        return self.patiently("PATCH", where, data[int(offset):], token=token, headers={"Upload-Offset": offset})

    def examiners(self) -> list[int]:
        children = pathlib.Path(f"/proc/{self.pid}/task").glob("*/children")
        pids = []
        for file in children:
            try:
                pids += [int(pid) for pid in file.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                pass
        return [pid for pid in pids if "--examiner" in words_of(pid)]

    def close(self) -> None:
        self.daemon.close()


def status(pid: int) -> dict[str, str]:
    try:
        return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return {}


def kib(pid: int, name: str) -> int:
    return int(status(pid).get(name, "0 kB").split()[0])


@pytest.fixture
def world(folder):
    worlds = []

    def made(*options: str) -> World:
        worlds.append(World(folder, *options))
        return worlds[-1]

    yield made
    for each in worlds:
        each.close()


@pytest.fixture(scope="module")
def good(snapshots, program) -> bytes:
    return snapshots.of(program("c-epoll")).read_bytes()


@pytest.mark.nightly
def test_64_bombs_at_once(world, good) -> None:
    with_bombs = world()
    sample = bombs.Snapshot(good)
    assert sample.file() == good
    token, victim = with_bombs.token("mallory", "mallory-"), with_bombs.token("victim", "victim-")
    files = [sample.bomb(number) for number in range(64)]
    assert min(map(len, files)) < len(good) + 34_000
    with_bombs.upload(sample.bomb(64), token)  # what the first one costs: threads, buffers
    pathlib.Path(f"/proc/{with_bombs.pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before = kib(with_bombs.pid, "VmRSS")
    replies: list[admin.Reply | None] = [None] * len(files)

    def upload(number: int) -> None:
        replies[number] = with_bombs.upload(files[number], token)

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(len(files))]
    for thread in threads:
        thread.start()
    most_examiners = most_memory = asked = 0
    deployed: list[admin.Reply] = []

    def deploy() -> None:
        sent = with_bombs.upload(good, victim)
        assert sent.status == 200, sent
        body = {"snapshot": sent.json["snapshot"]}
        deployed.append(with_bombs.patiently("PUT", "/v1/functions/victim-shop?clamp=1", body, token=victim))

    threads.append(threading.Thread(target=deploy))
    threads[-1].start()
    while any(thread.is_alive() for thread in threads):
        examiners = with_bombs.examiners()
        most_examiners = max(most_examiners, len(examiners))
        most_memory = max(most_memory, sum(kib(pid, "VmRSS") for pid in examiners))
        assert with_bombs.ask("GET", "/v1/info").status == 200
        asked += 1
    for thread in threads:
        thread.join()
    grown = kib(with_bombs.pid, "VmHWM") - before
    print(f"the daemon grew by {grown} KiB; {most_examiners} examiners at once, together {most_memory} KiB; "
          f"the API answered {asked} times meanwhile")
    for reply in replies:
        assert reply and reply.problem(422, "bad-snapshot")["detail"].startswith("the upload: "), reply
        assert "is inconsistent" in reply.json["detail"] and "\n" not in reply.json["detail"]
    assert deployed and deployed[0].status == 201, deployed
    assert ask(with_bombs.daemon.port, "victim-shop", "/").status == 200
    assert grown < 64 * 1024
    assert 0 < most_examiners <= 2 and most_memory < 2 * 192 * 1024
    assert with_bombs.ask("GET", "/v1/uploads").json["uploads"] == []


def stopped_examiner(world: World, known: list[int]) -> int:
    """One that has its limits, hence is behind its walls and examines; it does nothing until it is told to go on."""
    end = time.monotonic() + harness.PATIENCE
    while time.monotonic() < end:
        for pid in set(world.examiners()) - set(known):
            try:
                os.kill(pid, signal.SIGSTOP)
                if re.search(r"Max address space +201326592 ", pathlib.Path(f"/proc/{pid}/limits").read_text()):
                    return pid
                os.kill(pid, signal.SIGCONT)
            except (FileNotFoundError, ProcessLookupError):
                pass
    raise AssertionError("no examiner was caught at its work")


def long_work(sample: bombs.Snapshot, number: int) -> bytes:
    """Takes a tenth of a second, and is no snapshot."""
    return sample.bomb(4 * number + 2)


def test_an_examiner_is_behind_walls_and_others_wait(world, good) -> None:
    quiet = world("--examinations", "1", "--examination-queue", "1")
    sample = bombs.Snapshot(good)
    replies: list[admin.Reply] = []

    def send(number: int) -> None:
        data = long_work(sample, number)
        begun = quiet.ask("POST", "/v1/uploads", {"size": len(data), "sha256": bombs.digest(data)})
        replies.append(quiet.ask("PATCH", begun.headers["Location"], data, headers={"Upload-Offset": "0"}))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    threads[0].start()
    pid = stopped_examiner(quiet, [])
    facts = status(pid)
    assert facts["Seccomp"] == "2" and facts["NoNewPrivs"] == "1" and int(facts["CapEff"], 16) == 0, facts
    if os.geteuid() == 0:
        assert "0" not in facts["Uid"].split(), facts
    assert os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
    assert set(os.listdir(f"/proc/{pid}/root")) <= {"dev", "proc", "etc"}, os.listdir(f"/proc/{pid}/root")
    opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert sorted(re.sub(r"[/:].*", "", name) for name in opened).count("socket") == 1, opened
    # One waits, and one more is told when to try again: whichever of the two is later.
    threads[1].start()
    threads[2].start()
    harness.wait_until(lambda: replies, "the third is refused")
    assert replies[0].problem(503, "busy")["detail"] == "1 snapshots are being examined and 1 wait for it: try again"
    assert replies[0].headers["Retry-After"] == "1"
    os.kill(pid, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert sorted(reply.status for reply in replies) == [422, 422, 503]
    assert quiet.ask("GET", "/v1/info").status == 200


def test_an_examiner_that_dies_is_told_and_costs_no_more(world, good) -> None:
    quiet = world()
    sample = bombs.Snapshot(good)
    replies: list[admin.Reply] = []
    thread = threading.Thread(target=lambda: replies.append(quiet.upload(long_work(sample, 1))))
    thread.start()
    os.kill(stopped_examiner(quiet, []), signal.SIGKILL)
    thread.join()
    detail = replies[0].problem(422, "bad-snapshot")["detail"]
    assert detail == "the upload: it could not be examined: it takes too much time"
    assert quiet.upload(good).status == 200
    assert quiet.examiners() == []


def test_a_cold_start_does_not_wait_for_another_snapshot(world, good) -> None:
    before = world()
    for name, data in (("slow", bombs.Snapshot(good).slow()), ("quick", good)):
        sent = before.upload(data)
        assert sent.status == 200, sent
        assert before.ask("PUT", f"/v1/functions/{name}", {"snapshot": sent.json["snapshot"]}).status == 201
        assert ask(before.daemon.port, name, "/").status == 200
    before.daemon.stop()
    after = world()  # which knows nothing of them
    replies = []
    thread = threading.Thread(target=lambda: replies.append(ask(after.daemon.port, "slow", "/")))
    thread.start()
    pid = stopped_examiner(after, [])
    assert ask(after.daemon.port, "quick", "/").status == 200
    assert not replies
    os.kill(pid, signal.SIGCONT)
    thread.join()
    assert replies[0].status == 200, replies


def test_quotas_of_uploads(world, good) -> None:
    small = world("--token-uploads", "2", "--uploads", "3", "--keep-free", "0")
    one, two = small.token("one", "one-"), small.token("two", "two-")

    def begin(mib: int, token: str, number: int) -> admin.Reply:
        return small.ask("POST", "/v1/uploads", {"size": mib * MIB, "sha256": bombs.digest(b"%d" % number)}, token)

    detail = begin(3, one, 1).problem(413, "too-large")["detail"]
    assert detail == "an upload of 3 MiB: a token may have 2 MiB under way"
    assert begin(2, one, 2).status == 201
    assert "this token would be 3 MiB, and may be 2 MiB" in begin(1, one, 3).problem(413, "upload-quota")["detail"]
    assert "under way would be 4 MiB, and may be 3 MiB" in begin(2, two, 4).problem(507, "uploads-full")["detail"]
    assert small.upload(good, two).status == 200
    pushed = harness.kvmserver("serve", "--store", small.store.path, "--examinations", "0")
    assert pushed.status == 2 and "--examinations: '0' would examine nothing" in pushed.error


def test_what_stays_free_on_the_disk(world, good, folder) -> None:
    full = world("--keep-free", str(1 << 30))
    (folder / "good.snap").write_bytes(good)
    refused = full.store("deploy", "--name", "a", folder / "good.snap")  # the operator's own command puts it into the store itself
    assert refused.status != 0 and "1073741824 MiB stay free; make room on the server (kvmserver gc" in refused.error, refused
    reply = full.ask("POST", "/v1/uploads", {"size": len(good), "sha256": bombs.digest(good)})
    said = r"\d+ bytes more need to be stored, \d+ MiB are free and 1073741824 MiB stay free"
    assert re.fullmatch(said, reply.problem(507, "disk-full")["detail"])
