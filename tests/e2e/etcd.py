"""A real etcd on this host, of one member. Used by test_cluster.py."""
import base64
import json
import pathlib
import shutil
import signal
import subprocess
import urllib.error
import urllib.request

import harness
import pytest


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


class Etcd:
    def __init__(self, folder: pathlib.Path) -> None:
        self.binary = harness.BUILD / "etcd" / "usr" / "bin" / "etcd"
        if not self.binary.exists():
            pytest.skip(f"there is no etcd: scripts/setup.sh --tests unpacks it into {harness.BUILD}")
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.client, self.peer = (f"http://127.0.0.1:{harness.free_port()}" for _ in range(2))
        self.address = self.client.replace("http:", "etcd:")
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Etcd":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def start(self) -> None:
        with (self.folder.parent / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--name", "one", "--data-dir", self.folder / "data", "--initial-cluster", f"one={self.peer}",
                 "--listen-client-urls", self.client, "--advertise-client-urls", self.client,
                 "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer],
                stdout=log, stderr=log, cwd=self.folder)  # fmt: skip
        harness.wait_until(self.answers, "etcd serves")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def lose(self) -> None:
        """All that it has."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        self.start()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ask(self, path: str, question: dict) -> dict:
        request = urllib.request.Request(self.client + path, json.dumps(question).encode())
        with urllib.request.urlopen(request, timeout=harness.PATIENCE) as reply:
            return json.load(reply)

    def answers(self) -> bool:
        try:
            self.get("any")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def get(self, key: str) -> bytes | None:
        found = self.ask("/v3/kv/range", {"key": encoded(key.encode())})
        return base64.b64decode(found["kvs"][0]["value"]) if "kvs" in found else None

    def put(self, key: str, value: bytes) -> None:
        self.ask("/v3/kv/put", {"key": encoded(key.encode()), "value": encoded(value)})
