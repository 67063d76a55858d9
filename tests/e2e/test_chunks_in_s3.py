"""serve --chunks: chunks of snapshots in a bucket of a real S3 service, the disk as a cache of it."""
import concurrent.futures
import contextlib
import hashlib
import pathlib
import time

import admin
import bucket
import harness
import pytest
from clusters import s3, snapshot  # noqa: F401  fixtures
from serving import Store


@pytest.fixture
def start(serve, s3):
    """A daemon with the bucket. Its functions' processes end when nobody asks for a short time."""
    return lambda *options, prefix="app", **more: serve(
        "--chunks", s3.url(prefix), "--idle", "0.2", *options, env=bucket.ENVIRONMENT, **more)


def metrics(store: Store) -> str:
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def local(store: Store) -> dict[str, pathlib.Path]:
    return {file.name: file for file in (store.path / "chunks").glob("??/*")}


def bytes_of(chunks: dict[str, pathlib.Path]) -> int:
    total = 0
    for file in chunks.values():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            total += file.stat().st_size
    return total


def forget_local(daemon, store: Store) -> None:
    harness.wait_until(lambda: not daemon.processes(), "its process ends")
    for file in local(store).values():
        file.unlink()


def test_a_deploy_brings_chunks_to_the_bucket_and_a_start_fetches_them(store, s3, start, snapshot) -> None:
    daemon = start()
    store.deploy(snapshot, "hello")
    there = s3.objects()
    assert there and there.keys() == local(store).keys()
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == digest for digest, file in there.items())
    assert daemon.ask("hello").status == 200
    forget_local(daemon, store)
    assert store("verify").status == 0  # what only the bucket has is not lost
    assert daemon.ask("hello").status == 200
    assert local(store).keys() == there.keys()


def test_credentials_of_a_file_and_metrics(store, s3, serve, folder, snapshot) -> None:
    file = folder / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {bucket.KEY}\naws_secret_access_key = {bucket.SECRET}\n")
    file.chmod(0o600)
    daemon = serve("--chunks", s3.url(), "--chunks-credentials", str(file))
    store.deploy(snapshot, "hello")
    sent = sum(one.stat().st_size for one in s3.objects().values())
    text = metrics(store)
    assert f"kvmserver_chunk_store_uploaded_bytes_total {sent}\n" in text
    assert "kvmserver_chunk_store_failures_total 0\n" in text
    assert bucket.SECRET not in daemon.err


def test_what_was_deployed_before_is_brought_behind(store, s3, start, serve, snapshot) -> None:
    store.deploy(snapshot, "hello")
    daemon = start()
    harness.wait_until(lambda: s3.objects().keys() == local(store).keys(), "all chunks are in the bucket")
    harness.wait_until(lambda: "are in the bucket; that is all" in daemon.err, "the log says so")


def test_an_altered_object_is_not_used(store, s3, start, snapshot) -> None:
    daemon = start()
    store.deploy(snapshot, "hello")
    forget_local(daemon, store)
    digest, file = max(s3.objects().items(), key=lambda item: item[1].stat().st_size)
    intact = file.read_bytes()
    file.write_bytes(b"x" + intact[1:])
    reply = daemon.ask("hello")
    assert reply.status == 502
    assert f"s3://chunks/app/chunks/{digest[:2]}/{digest}: the object is altered" in reply.problem["detail"]
    assert digest not in local(store)
    file.write_bytes(intact)
    harness.wait_until(lambda: daemon.ask("hello").status == 200, "it is fetched again")


def test_while_the_service_is_away(store, s3, start, snapshot, snapshots, program) -> None:
    daemon = start()
    store.deploy(snapshot, "hello")
    store.deploy(snapshots.of(program("c-poll")), "cold")
    assert daemon.ask("hello").status == 200
    only_cold = [file for name, file in local(store).items() if name in pieces_of(store, "cold") - pieces_of(store, "hello")]
    harness.wait_until(lambda: not daemon.processes(), "their processes end")
    for file in only_cold:
        file.unlink()
    s3.stop()
    assert daemon.ask("hello").status == 200  # a cold start from the disk
    reply = daemon.ask("cold")
    assert reply.status == 503 and reply.problem["code"] == "chunks-away", reply
    assert f"127.0.0.1:{s3.port}" in reply.problem["detail"]
    refused = store("deploy", snapshots.of(program("c-select")), "--name", "third")
    assert refused.status == 6 and "chunks of snapshots" in refused.err, refused
    assert store("describe", "third").status == 3 and not (store.path / "functions/third").exists()
    s3.start()
    harness.wait_until(lambda: daemon.ask("cold").status == 200, "it is fetched")
    store.deploy(snapshots.of(program("c-select")), "third")
    assert daemon.ask("third").status == 200


SOON = 8 * harness.SLOWNESS  # less than who needs the service waits for it


def timed(action) -> tuple[float, object]:
    """How long it takes, and what it returns."""
    begin = time.monotonic()
    result = action()
    return time.monotonic() - begin, result


def waiting(store) -> int:
    """Requests that have no machine yet."""
    connection = admin.UnixConnection(store.path / "admin.sock")
    with contextlib.closing(connection):
        connection.request("GET", "/v1/live")
        return sum(one["queued"] for one in admin.Reply(connection.getresponse()).json["live"])


@pytest.mark.nightly
def test_while_the_service_hangs(store, s3, start, snapshot, snapshots, program) -> None:
    """It accepts connections and answers nothing: who needs it is told so in time, and nobody else waits."""
    daemon = start("--idle", "60")
    for name in ("warm", "near"):
        store.deploy(snapshot, name)
    far = [f"far{i}" for i in range(6)]  # more than are fetched at once
    for name in far:
        store.deploy(snapshots.of(program("c-select")), name)
    assert daemon.ask("warm").status == 200
    for file in local(store).keys() & (pieces_of(store, "far0") - pieces_of(store, "warm")):
        local(store)[file].unlink()
    s3.pause()
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        cold = [pool.submit(timed, lambda name=name: daemon.ask(name, patience=60)) for name in far]
        deploy = pool.submit(timed, lambda: store("deploy", snapshots.of(program("c-poll")), "--name", "third"))
        harness.wait_until(lambda: waiting(store) == len(far), "they wait for the service")
        took, reply = timed(lambda: daemon.ask("near"))  # a start from the disk
        assert reply.status == 200 and took < SOON, (reply, took)
        rounds = 0
        while not all(one.done() for one in [*cold, deploy]):
            for what, wanted in ((lambda: daemon.ask("warm").status, 200), (lambda: store("list").status, 0)):
                took, status = timed(what)
                assert status == wanted and took < SOON, (status, took)
            rounds += 1
        assert rounds > 5
        for took, reply in (one.result() for one in cold):
            assert reply.status == 503 and reply.problem["code"] == "chunks-away" and int(reply.headers["retry-after"]) > 0, reply
            assert took < 30, took
        took, refused = deploy.result()
        assert refused.status == 6 and "chunks of snapshots" in refused.err and took < 30, (refused, took)
    assert store("describe", "third").status == 3
    took, refused = timed(lambda: store("gc"))
    assert refused.status == 6 and took < 45, (refused, took)
    assert daemon.ask("warm").status == 200
    s3.resume()
    begin = time.monotonic()  # for a second after a failure it is not asked
    harness.wait_until(lambda: daemon.ask("far0").status == 200, "it is fetched")
    store.deploy(snapshots.of(program("c-poll")), "third")
    assert time.monotonic() - begin < SOON
    assert daemon.ask("third").status == 200 and store("gc").status == 0


def pieces_of(store: Store, function: str) -> set[str]:
    digest = store.json("versions", function)["versions"][0]["snapshot"].removeprefix("sha256:")
    text = (store.path / "snapshots" / f"{digest}.json").read_text()
    return {name for name in local(store) if name in text}


def test_the_cache_has_a_limit(store, s3, start, snapshot) -> None:
    daemon = start("--chunk-cache-size", "1K")
    store.deploy(snapshot, "hello")
    assert daemon.ask("hello").status == 200
    harness.wait_until(lambda: bytes_of(local(store)) <= 1024, "the cache is small")
    assert daemon.ask("hello").status == 200
    assert store("verify").status == 0


def test_a_prefix_belongs_to_one_store(store, s3, start, folder, snapshot) -> None:
    start()
    store.deploy(snapshot, "hello")
    other = Store(folder / "other")
    other.folder.mkdir()
    refused = harness.kvmserver("serve", "--store", other.path, "--listen", f"127.0.0.1:{harness.free_port()}", "--chunks", s3.url(),
                                env=bucket.ENVIRONMENT)  # fmt: skip
    assert refused.status == 5 and "belongs to another store" in refused.err, refused


def test_gc_removes_objects(store, s3, start, snapshot) -> None:
    start()
    store.deploy(snapshot, "hello")
    assert s3.objects()
    store.ok("delete", "hello", "-y")
    store.ok("gc")
    assert not s3.objects()


@pytest.mark.parametrize("options, says", [
    (["--chunks", "file:///x"], "is no bucket"),
    (["--chunks", "s3://chunks"], "the endpoint is missing"),
    (["--chunks", "s3://key:secret@chunks?endpoint=http://x"], "credentials do not belong into the address"),
    (["--chunk-cache-size", "1G"], "--chunk-cache-size is for --chunks URL"),
    (["--chunks", "s3://chunks?endpoint=http://127.0.0.1:1", "--chunk-cache-size", "much"], "is not a size"),
])  # fmt: skip
def test_nonsense_is_refused(store, options, says) -> None:
    done = harness.kvmserver("serve", "--store", store.path, "--listen", f"127.0.0.1:{harness.free_port()}", *options,
                             env=bucket.ENVIRONMENT)  # fmt: skip
    assert done.status == 2 and says in done.err and "secret" not in done.err, done
