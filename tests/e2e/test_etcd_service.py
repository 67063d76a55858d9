"""The etcd that other tests use: etcd.py."""
import contextlib

import etcd
import harness
import pytest

pytestmark = pytest.mark.bare


@pytest.fixture
def service():
    with etcd.Etcd() as running:
        yield running


def test_it_keeps_keys_over_a_restart(service) -> None:
    assert service.address == f"etcd://127.0.0.1:{service.port}"
    assert service.get("kvmserver/a") is None
    revision = service.put("kvmserver/a", "1")
    service.put("kvmserver/b", b"\xff")
    service.put("other", "2")
    assert service.revision() == revision + 2
    service.stop()
    with pytest.raises(OSError):
        service.get("kvmserver/a")
    service.start()
    assert service.all() == {"kvmserver/a": b"1", "kvmserver/b": b"\xff"}
    assert service.delete("kvmserver/a")
    assert not service.delete("kvmserver/a")
    service.compact()
    with pytest.raises(AssertionError, match="compacted"):
        service.ask("kv/range", {"key": "YQ==", "revision": str(revision)})


def test_it_hangs_while_it_is_paused(service, monkeypatch) -> None:
    service.put("kvmserver/a", "1")
    service.pause()
    with monkeypatch.context() as impatient, pytest.raises(OSError):
        impatient.setattr(harness, "PATIENCE", 0.3)
        service.get("kvmserver/a")
    service.resume()
    assert service.get("kvmserver/a") == b"1"


def test_it_leaves_nothing_behind() -> None:
    with etcd.Etcd() as running:
        folder = running.folder
    assert not folder.exists()
    with contextlib.closing(etcd.Etcd()) as paused:
        paused.pause()  # close() ends it nevertheless
