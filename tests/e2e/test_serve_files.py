"""kvmserver serve: which files the process of a function has, and how it got them."""
import contextlib
import hashlib
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


def copies_in(cache: pathlib.Path) -> list[pathlib.Path]:
    return sorted((cache / "kvmserver").glob("*.pages"))


def content_of(copy: pathlib.Path) -> bytes:
    """Its pages; what is behind them is the daemon's own."""
    data = copy.read_bytes()
    return data[: len(data) // 4096 * 4096]


def test_a_process_has_its_pieces_and_copies_and_nothing_else_of_store_and_cache(store, serve, node, folder) -> None:
    cache = folder / "cache"
    cache.mkdir()
    store.deploy_probe(node, "mine")
    store.deploy_probe(node, "other", "another")
    for _ in range(2):  # with copies that it makes, and with copies that are there
        daemon = serve(env={"XDG_CACHE_HOME": str(cache)})
        for path in ("/name", "/echo", "/headers", "/values", "/count"):
            daemon.ask("mine", path)
        daemon.text("other", "/name")
        (pid,) = daemon.processes()["mine v1"]
        files = files_of(pid)
        of_the_store = [(path, flags) for path, flags in files if path.startswith(f"{store.path}")]
        of_the_cache = [(path, flags) for path, flags in files if path.startswith(f"{cache}")]
        assert sorted(pathlib.Path(path).name for path, _ in of_the_store) == sorted(pieces_of(store, "mine"))
        assert all(path.endswith(".pages") for path, _ in of_the_cache), of_the_cache
        assert {flags & (os.O_ACCMODE | os.O_PATH) for _, flags in of_the_store + of_the_cache} == {os.O_RDONLY}
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        rights = [line.split()[1] for line in lines if f" {cache}" in line]
        assert rights and all(right.endswith("p") for right in rights), rights  # what it writes there is its own
        daemon.stop()


def mapped_copies(pid: int, cache: pathlib.Path) -> list[str]:
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [path for path in (line.split(maxsplit=5)[-1] for line in lines) if path.startswith(f"{cache}")]


def test_a_copy_that_was_altered_is_not_served(store, serve, node, folder) -> None:
    cache = folder / "cache"
    cache.mkdir()
    store.deploy_probe(node, "shop")

    def served() -> list[str]:
        """By a new daemon; the copies that its process then has mapped."""
        daemon = serve(env={"XDG_CACHE_HOME": str(cache)})
        for path in ("/name", "/echo", "/headers", "/values", "/count"):  # more of the program than its first page
            assert daemon.ask("shop", path).status < 500
        assert daemon.text("shop", "/name") == "probe"
        (pid,) = daemon.processes()["shop v1"]
        mapped = mapped_copies(pid, cache)
        daemon.stop()
        return mapped

    used = set(served())
    assert len(used) >= 3
    for copy in copies_in(cache):
        with copy.open("r+b") as file:
            for at in range(0, copy.stat().st_size - 4096, 4096):
                file.seek(at + 100)
                file.write(b"\xcc" * 64)
    mapped = set(served())
    assert len(mapped & used) >= 3  # made anew
    for path in mapped:
        assert hashlib.sha256(content_of(pathlib.Path(path))).hexdigest() == pathlib.Path(path).stem


@pytest.mark.parametrize("why", ["open to others", "a file", "not ours to make"])
def test_functions_start_without_a_cache(store, serve, node, folder, why) -> None:
    cache = folder / "cache"
    cache.mkdir()
    if why == "open to others":
        (cache / "kvmserver").mkdir(0o755)
    elif why == "a file":
        (cache / "kvmserver").write_text("")
    else:
        cache.rmdir()
        cache.symlink_to("/sys/kernel")
    store.deploy_probe(node, "shop")
    daemon = serve(env={"XDG_CACHE_HOME": str(cache)})
    assert daemon.text("shop", "/name") == "probe"
    assert not copies_in(cache)


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
