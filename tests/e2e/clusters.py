"""Daemons of a cluster, with a real etcd and S3 service, and load on them. Fixtures for the tests that import them."""
import contextlib
import http.client
import itertools
import json
import pathlib
import threading
import time

import admin
import bucket
import harness
import pytest
from etcd import Etcd
from serving import Daemon, Store


@pytest.fixture
def s3(folder):
    service = bucket.S3(folder / "s3")
    yield service
    service.stop()


@pytest.fixture
def etcd():
    with Etcd() as service:
        yield service


class Node:
    """A daemon with a store of its own."""

    def __init__(self, cluster: "Cluster", name: str, host: str = "127.0.0.1") -> None:
        self.cluster, self.host = cluster, host
        folder = cluster.folder / name
        folder.mkdir(exist_ok=True)
        self.store = Store(folder)
        self.port, self.api = harness.free_port(), harness.free_port()  # kept when it starts again
        self.daemon: Daemon | None = None

    def options(self) -> list[str]:
        return ["--cluster", self.cluster.etcd.address, "--cluster-key", str(self.cluster.key), "--chunks", self.cluster.s3.url()]

    def start(self, *options: str, env: dict[str, str] = {}, patience: float = harness.PATIENCE) -> "Node":
        self.daemon = Daemon(self.store, *self.options(), "--admin", f"{self.host}:{self.api}", *options, port=self.port,
                             listen=f"{self.host}:{self.port}", env={**bucket.ENVIRONMENT, **env}, patience=patience)  # fmt: skip
        return self

    def fails(self, *options: str) -> harness.Ended:
        """What `serve` says that does not begin to serve."""
        listen = f"127.0.0.1:{harness.free_port()}"
        return harness.kvmserver("serve", "--store", self.store.path, "--listen", listen, *self.options(), *options, env=bucket.ENVIRONMENT)

    def stop(self) -> None:
        ended = self.daemon.stop()
        self.daemon = None
        assert ended.status == 0, ended

    def status(self, function: str, path: str = "/count") -> int:
        return self.daemon.ask(function, path).status

    def becomes(self, condition, what: str) -> None:
        harness.wait_until(condition, lambda: f"{what}; stderr: {self.daemon.err[-2000:]}")

    def serves(self, function: str) -> None:
        self.becomes(lambda: self.status(function) == 200, f"{function} is served")

    def request(self, method: str, path: str) -> tuple[int, dict]:
        connection = admin.UnixConnection(self.store.path / "admin.sock")
        with contextlib.closing(connection):
            connection.request(method, path)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"{}")


class Cluster:
    def __init__(self, folder: pathlib.Path, etcd: Etcd, s3: bucket.S3) -> None:
        self.folder, self.etcd, self.s3 = folder, etcd, s3
        self.key = folder / "key"
        self.key.write_text("0123456789abcdef" * 4 + "\n")
        self.key.chmod(0o600)
        self.nodes: list[Node] = []

    def node(self, host: str = "127.0.0.1") -> Node:
        self.nodes.append(Node(self, f"node{len(self.nodes)}", host))
        return self.nodes[-1]


@pytest.fixture
def cluster(folder, etcd, s3):
    made = Cluster(folder, etcd, s3)
    try:
        yield made
        for node in made.nodes:
            if node.daemon:
                assert node.daemon.running(), node.daemon.err[-2000:]
                node.stop()
    finally:
        for node in made.nodes:
            if node.daemon:
                node.daemon.close()


@pytest.fixture
def snapshot(snapshots, program) -> pathlib.Path:
    return snapshots.of(program("c-epoll"))


class Load:
    """Clients that ask through the load balancer again and again, until close()."""

    def __init__(self, port: int, names: list[str]) -> None:
        self.port, self.names = port, names
        self.good = 0
        self.bad: list[str] = []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, number: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE)
        for turn in itertools.count(number):
            if self.ends.is_set():
                return
            name = self.names[turn % len(self.names)]
            try:
                client.request("GET", "/count", headers={"Host": f"{name}.localhost"})
                reply = client.getresponse()
                said = f"{reply.status} {reply.read()}"
            except (OSError, http.client.HTTPException) as error:
                client.close()
                said = repr(error)
            if said == "200 b'1\\n'":
                self.good += 1
            else:
                self.bad.append(said)

    def more(self, seconds: float) -> None:
        """So much more of it."""
        end = time.monotonic() + seconds
        before = self.good
        harness.wait_until(lambda: time.monotonic() > end and self.good > before + 10, lambda: f"requests are answered; {self.bad[-3:]}",
                           harness.PATIENCE + seconds)  # fmt: skip

    def close(self) -> None:
        self.ends.set()
        for thread in self.threads:
            thread.join()
