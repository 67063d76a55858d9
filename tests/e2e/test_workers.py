"""Servers with workers: the first child of a program that forks goes on in its place, as --fork says."""
import errno

import harness
import pytest
from harness import BARE, RUN, RUN_E, SNAPRUN_E, guest, kvmserver

FOLLOWED = "workers called fork: a machine is one process, so its first child goes on in its place"


def workers(who: str) -> dict:
    return {**guest("workers", "{port}", who), "name": f"workers-{who}", "permissions": ["--allow-all", "--fork=follow"]}


MODES = [(mode, who) for mode in (BARE, RUN, RUN_E, SNAPRUN_E) for who in ("main", "thread")] + [(RUN_E, "daemon")]
EMULATED = [(RUN, "main"), (SNAPRUN_E, "thread")]


@pytest.mark.parametrize(
    ("mode", "who"),
    [pytest.param(*each, id=f"{each[0].name}-{each[1]}", marks=[pytest.mark.emulated] if each in EMULATED else []) for each in MODES])
def test_a_worker_is_as_on_linux(start, mode: harness.Mode, who: str) -> None:
    server = start(workers(who), mode)
    answers = [server.line().split() for _ in range(3)]
    assert {wrong for _, wrong, _ in answers} == {"-"}, answers
    if mode is not BARE:
        assert {worker for worker, _, _ in answers} == {"0"}, "the first child, and no other"
        assert [int(n) for _, _, n in answers] == ([1, 2, 3] if mode is RUN else [1, 1, 1])
        with server.client() as client:
            client.send(b"fork\n")
            assert int(client.reader.read()) == errno.EAGAIN, "it has had a connection"


def test_by_itself_only_known_servers_are_followed(folder) -> None:
    words = ["run", "-e", "--allow-all", *harness.LIMITS]
    ended = kvmserver(*words, harness.GUESTS / "workers", str(harness.free_port()), "main")
    assert ended.status == 1 and "fork: Resource temporarily unavailable" in ended.err, ended
    assert "refused (EAGAIN); if its children are workers that accept connections: --fork follow" in ended.err, ended
    server = "import os, socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nsys.exit(4 if os.fork() == 0 else 5)\n"
    (folder / "gunicorn").write_text(server)
    (folder / "before").write_text("import os, sys\nsys.exit(4 if os.fork() == 0 else 5)\n")
    (folder / "puma").write_text("import os, sys\nsys.exit(4 if os.fork() == 0 else 5)\n")
    python = [*words, "/usr/bin/python3"]
    ended = kvmserver(*python, folder / "gunicorn", str(harness.free_port()))
    assert ended.status == 4 and "gunicorn called fork: a machine is one process, so its first" in ended.err, ended
    ended = kvmserver(*python, folder / "puma")
    assert ended.status != 4 and "refused (EAGAIN)" in ended.err and "--fork follow" not in ended.err, "it did not listen"
    ended = kvmserver(*words[:2], "--fork=refuse", *words[2:], "/usr/bin/python3", folder / "gunicorn", str(harness.free_port()))
    assert ended.status != 4 and "gunicorn called fork" in ended.err and "leave out --fork refuse" in ended.err, ended
    ended = kvmserver(*words[:2], "--fork=follow", *words[2:], "/usr/bin/python3", folder / "before")
    assert ended.status == 4 and "python3" in ended.err, ended


def test_a_worker_that_ends(folder) -> None:
    ended = kvmserver("snapshot", "-o", folder / "a.snap", "--allow-all", "--fork=follow", *harness.LIMITS, harness.GUESTS / "workers",
                      str(harness.free_port()), "ends")
    assert ended.status != 0 and FOLLOWED in ended.err and "status 3" in ended.err, ended
    assert not (folder / "a.snap").exists()


def test_the_manifest_says_it(store, serve, folder) -> None:
    port = harness.free_port()
    (folder / "kvmserver.toml").write_text(
        f'allow-all = true\nfork = "follow"\n[run]\nprogram = "{harness.GUESTS}/workers"\nargs = ["{port}", "main"]\n'
        f'[function]\nname = "workers"\nprotocol = "tcp"\nlisten = ["127.0.0.1:{port}"]\n')
    serve()
    store.ok("deploy", folder, "-q")
    with harness.Client(port) as client:
        client.send(b"go\n")
        assert client.reader.read() == b"0 - 1"
    file = folder / "kvmserver.toml"
    file.write_text(file.read_text().replace("follow", "follows"))
    ended = kvmserver("deploy", folder)
    assert ended.status == 2 and "'follows' is not auto, follow, always, refuse; did you mean follow?" in ended.err, ended
