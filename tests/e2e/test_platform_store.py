"""What commands put into a store, share in it, take out of it and find wrong with it."""
import hashlib
import json
import re
import shutil

import harness
import pytest
from harness import make_snapshot


def test_equal_snapshots_share_chunks(platform, snap) -> None:
    first = platform.json("deploy", snap, "--name", "one")
    assert first["new_bytes"] == first["bytes"] == snap.stat().st_size
    size = sum(path.stat().st_size for path in (platform.store / "chunks").rglob("*") if path.is_file())
    assert size == snap.stat().st_size
    second = platform.json("deploy", snap, "--name", "two")
    assert second["new_bytes"] == 0 and second["snapshot"] == first["snapshot"]


def test_functions_that_differ_in_a_line_share_nine_tenths(platform, program) -> None:
    node = program("node-http")
    sizes = []
    for word in ("Hello", "Hallo"):
        folder = platform.folder / word
        shutil.copytree(node["cwd"], folder)
        source = folder / "server.js"
        source.write_text(source.read_text().replace("Hello from Node", f"{word} from Node"))
        one = {**node, "cwd": str(folder), "argv": [part.replace(node["cwd"], str(folder)) for part in node["argv"]]}
        path = folder / "app.snap"
        assert make_snapshot(one, path, "--level", "1").status == 0
        deployed = platform.json("deploy", path, "--name", word.lower())
        sizes.append((deployed["new_bytes"], deployed["bytes"]))
    (new, whole), (added, second) = sizes
    assert new == whole
    assert added <= second / 10, sizes


@pytest.mark.nightly
def test_the_next_version_compresses_only_what_is_new(platform, program, monkeypatch) -> None:
    cache = platform.folder / "cache"
    monkeypatch.setitem(harness.BASE_ENVIRONMENT, "XDG_CACHE_HOME", str(cache))
    cache.mkdir()
    folder = platform.folder / "app"
    node = program("node-http")
    shutil.copytree(node["cwd"], folder)
    argv = [part.replace(node["cwd"], str(folder)).replace("{port}", str(harness.free_port())) for part in node["argv"]]
    (folder / "kvmserver.toml").write_text(
        f"allow-all = true\nlevel = 1\n[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n[function]\nname = \"app\"\n")

    def deployed() -> set[str]:
        platform.ok("deploy", folder, "-q")
        return {path.name for path in (cache / "kvmserver").iterdir()}

    first = deployed()
    source = folder / "server.js"
    source.write_text(source.read_text().replace("Hello from Node", "Hallo from Node"))
    second = deployed()
    assert len(first) > 40 and first < second
    assert len(second - first) < len(first) * 0.6, (len(first), len(second))  # the hot ones are small and change most
    assert platform("verify").status == 0


def test_push_pull_inspect(platform, snap) -> None:
    pushed = platform.ok("push", snap)
    digest = hashlib.sha256(snap.read_bytes()).hexdigest()
    assert pushed == f"Pushed sha256:{digest}"
    back = platform.folder / "back.snap"
    assert platform.ok("pull", f"sha256:{digest[:8]}", "-o", back).endswith(f"sha256:{digest}")
    assert back.read_bytes() == snap.read_bytes()
    platform.ok("deploy", back, "--name", "hello")
    for reference in ("hello", "hello@1", "hello@v1"):
        platform.ok("pull", reference, "-o", back)
        assert back.read_bytes() == snap.read_bytes()
        shown = platform("inspect", reference)
        assert shown.out.startswith(f"snapshot     {reference}, "), shown
        assert shown.out.splitlines()[-1] == "compatible: yes"
    before = back.stat().st_ino
    platform.fails(3, "pull", "hello@2", "-o", back)
    platform.fails(3, "pull", "sha256:00000000", "-o", back)
    platform.fails(2, "pull", "sha256:zz", "-o", back)
    platform.fails(2, "pull", "hello")
    assert back.stat().st_ino == before
    platform.fails(3, "inspect", "nobody")


def test_gc(platform, snap, other_snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    platform.ok("deploy", other_snap, "--name", "hello")
    assert platform.ok("gc") == "Freed 0 B"
    before = platform.files()
    dry = platform.ok("gc", "--keep", "1", "--dry-run")
    assert re.fullmatch(r"Would free [\d.]+ [KM]iB", dry)
    assert platform.files() == before
    assert platform.ok("gc", "--keep", "1") == dry.replace("Would free", "Freed")
    assert [v["version"] for v in platform.json("versions", "hello")["versions"]] == [2]
    assert platform.ok("verify").startswith("Verified: functions 1, versions 1, snapshots 1,")
    platform.fails(2, "gc", "--keep", "x")


def test_verify_names_what_is_broken(platform, snap) -> None:
    platform.ok("deploy", snap, "--name", "hello")
    chunk = max((p for p in (platform.store / "chunks").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    chunk.chmod(0o600)
    with open(chunk, "r+b") as file:
        file.seek(100)
        file.write(b"spoilt")
    found = platform("verify", "--dry-run")
    assert found.status == 7 and chunk.name in found.out and found.out.splitlines()[-1].startswith("Faulty"), found
    # The good bytes come back with the next deploy.
    platform.ok("deploy", snap, "--name", "hello")
    assert platform("verify").status == 0
