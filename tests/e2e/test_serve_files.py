"""kvmserver serve: which files the process of a function has, and how it got them."""
import contextlib
import json
import os
import pathlib

import harness
import pytest
from harness import kvmserver


@pytest.fixture
def node(program):
    return program("node-http")


def files_of(pid: int) -> list[tuple[str, int]]:
    """Each that the process has open: its path, and how (O_RDONLY, O_PATH ...)."""
    files = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            information = pathlib.Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text()
            files.append((os.readlink(fd), int(information.split("flags:")[1].split()[0], 8)))
    return files


def pieces_of(store, function: str) -> list[str]:
    """The digests of the pieces of its snapshot, as the store's record of it has them (src/store/FORMAT.md)."""
    (live,) = store.json("describe", function)["live_versions"]
    record = (store.path / "snapshots" / f"{live['snapshot'].removeprefix('sha256:')}.json").read_text()
    return [digest for digest, _ in json.loads(record.partition("\n")[2])["pieces"]]


def test_a_process_has_the_pieces_of_its_snapshot_and_nothing_else_of_the_store(store, serve, node) -> None:
    store.deploy_probe(node, "mine")
    store.deploy_probe(node, "other", "another")
    daemon = serve()
    daemon.text("mine", "/name")
    (pid,) = daemon.processes()["mine v1"]
    of_the_store = [(path, flags) for path, flags in files_of(pid) if path.startswith(f"{store.path}")]
    assert of_the_store and {flags & (os.O_ACCMODE | os.O_PATH) for _, flags in of_the_store} == {os.O_RDONLY}, of_the_store
    assert sorted(pathlib.Path(path).name for path, _ in of_the_store) == sorted(pieces_of(store, "mine"))


def test_a_function_goes_on_without_the_names_of_its_pieces(store, serve, node) -> None:
    store.deploy_probe(node, "shop")
    daemon = serve(env={"XDG_CACHE_HOME": "/no/such/folder"})  # it would have them unpacked there
    assert daemon.text("shop", "/name") == "probe"
    (pid,) = daemon.processes()["shop v1"]
    chunks = store.path / "chunks"
    chunks.rename(store.folder / "elsewhere")
    try:
        for path in ("/echo", "/headers", "/values", "/count", "/nothing"):  # more of the program than its first page
            assert daemon.ask("shop", path).status < 500
        assert daemon.text("shop", "/name") == "probe"
        assert daemon.processes()["shop v1"] == [pid]
    finally:
        (store.folder / "elsewhere").rename(chunks)


def test_a_snapshot_of_more_pieces_than_files_that_a_process_may_have_open(store, node) -> None:
    few = ["/bin/sh", "-c", 'ulimit -n 80; exec "$@"', "sh"]
    store.deploy_probe(node, "shop")
    done = kvmserver("deploy", store.folder / "probe-shop", "-q", "--store", store.path, wrapper=few,
                     patience=harness.PATIENCE * 6)
    assert done.status == 1 and done.err.count("\n") == 1, done
    assert " pieces, and a process may have 80 open files here: raise that to " in done.err, done
