"""[function.storage]: a function reaches another one, which keeps its state, in memory."""
import json
import pathlib
import socket
import threading

import harness
import pytest
from serving import Daemon, Store
from test_tcp_functions import Client, manifest, refused

STORE_PORT = 6390  # nothing listens there on the host


def deploy_storage(store: Store, name: str = "shelf", settings: str = "", says: str = str(STORE_PORT)) -> str:
    folder = manifest(store, name, [], [str(harness.GUESTS / "stores"), says], settings="ephemeral = false\n" + settings)
    return store.ok("deploy", folder, "-q")


def deploy_caller(store: Store, port: int, name: str = "shop", storage: str = "shelf", settings: str = "", at: str = str(STORE_PORT)) -> str:
    argv = [str(harness.GUESTS / "calls"), str(harness.free_port()), at]
    folder = manifest(store, name, [f"127.0.0.1:{port}"], argv, settings=f'{settings}[function.storage]\nfunction = "{storage}"\n')
    return store.ok("deploy", folder, "-q")


def ask(port: int, commands: str) -> list[str]:
    with Client(port) as client:
        client.socket.sendall(commands.encode() + b"\n")
        try:
            return client.lines.read().decode().splitlines()
        except ConnectionResetError:
            return ["reset"]


@pytest.fixture
def port() -> int:
    return harness.free_port()


@pytest.mark.emulated
def test_a_number_is_kept_across_requests(store, serve, port) -> None:
    serve("-t", "2")
    assert deploy_storage(store).startswith("shelf v1 live")
    deploy_caller(store, port)
    assert [ask(port, "add 1") for _ in range(5)] == [["1"], ["2"], ["3"], ["4"], ["5"]]
    assert refused(STORE_PORT)
