"""A real etcd of one member, or of three, on this host, out of build/etcd, where scripts/setup.sh --tests puts it."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request

import harness
import pytest


def _text(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


class Etcd:
    """Serves from its start on, with a data folder of its own:

        with Etcd() as etcd:
            etcd.put("kvmserver/a", "1")

    Keys here are whole, with the prefix of whoever uses them.
    """

    def __init__(self, *options: str, name: str = "default", starts: bool = True) -> None:
        self.binary = harness.BUILD / "etcd/usr/bin/etcd"
        if not self.binary.exists():
            pytest.skip(f"there is no etcd: scripts/setup.sh --tests fetches it into {harness.BUILD / 'etcd'}")
        self.options = options
        self.name, self.members = name, [self]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-"))
        self.port, self.peer_port = harness.free_port(), harness.free_port()
        self.process: subprocess.Popen | None = None
        if not starts:
            return
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Etcd":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self) -> None:
        """After stop(): with the same data."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        harness.wait_until(self.answers, lambda: f"etcd answers; its log ends with {self.log[-1000:]}")

    def launch(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--name", self.name, "--data-dir", self.folder / "data", "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
                 "--initial-cluster", ",".join(f"{each.name}={each.peer}" for each in self.members), "--heartbeat-interval", "20", "--election-timeout", "200",
                 "--unsafe-no-fsync", *self.options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip

    def answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"etcd has ended: {self.log[-1000:]}")
        with contextlib.suppress(OSError):
            self.ask("kv/range", {"key": _text("any")})
            return True
        return False

    def stop(self) -> None:
        """Kills it, also while it is paused. Its data stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lose(self) -> None:
        """All data."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        self.start()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # its threads run for a while yet

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- its data

    def ask(self, path: str, body: dict) -> dict:
        """A request to its gateway. An error of etcd is an AssertionError, an etcd that is away an OSError."""
        request = urllib.request.Request(f"{self.url}/v3/{path}", json.dumps(body).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=harness.PATIENCE) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            if error.code == 503:  # it starts, or has no leader
                raise OSError(text) from error
            raise AssertionError(f"etcd answers {error.code} to {path}: {text}") from error

    def get(self, key: str) -> bytes | None:
        found = self.ask("kv/range", {"key": _text(key)}).get("kvs")
        return base64.b64decode(found[0].get("value", "")) if found else None

    def all(self, prefix: str = "kvmserver/") -> dict[str, bytes]:
        """By whole keys."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.ask("kv/range", {"key": _text(prefix), "range_end": _text(end)}).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")) for kv in found}

    def put(self, key: str, value: bytes | str) -> int:
        """Returns the revision."""
        return int(self.ask("kv/put", {"key": _text(key), "value": _text(value)})["header"]["revision"])

    def delete(self, key: str) -> bool:
        """Whether it was there."""
        return "deleted" in self.ask("kv/deleterange", {"key": _text(key)})

    def revision(self) -> int:
        return int(self.ask("kv/range", {"key": _text("any")})["header"]["revision"])

    def compact(self) -> None:
        """Forgets all history before now."""
        self.ask("kv/compaction", {"revision": str(self.revision()), "physical": True})


class Members:
    """An etcd of three members. One of them may be away."""

    def __init__(self) -> None:
        self.members = [Etcd(name=f"member{number}", starts=False) for number in range(3)]
        for member in self.members:
            member.members = self.members
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return "etcd://" + ",".join(member.address.removeprefix("etcd://") for member in self.members)

    def leader(self) -> Etcd:
        """As all say that are there."""
        def named() -> set[str]:
            states = [member.ask("maintenance/status", {}) for member in self.members if member.process]
            return {state.get("leader", "0") for state in states}
        harness.wait_until(lambda: len(named()) == 1 and named() != {"0"}, "the members agree about their leader")
        leader = named().pop()
        return next(member for member in self.members if member.process and member.ask("maintenance/status", {})["header"]["member_id"] == leader)

    def close(self) -> None:
        for member in self.members:
            member.close()
