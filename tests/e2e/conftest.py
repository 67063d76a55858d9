"""Options, and what the tests share. See README.md."""
import contextlib
import os
import pathlib
import shutil
import signal

import front
import harness
import pytest
from platforms import Platform
from serving import Daemon, Store

# A shell without job control starts what ends in `&` with SIGINT and SIGQUIT ignored, nohup with SIGHUP. What the tests
# start would inherit that, and not end on ^C.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

# One of each kind: what --quick leaves, and what is also tested in the rarer modes.
SOME = {"c-epoll", "rust-tokio-multi", "python-http", "node-http", "deno-serve"}


def pytest_addoption(parser) -> None:
    parser.addoption("--modes", default="", help="only these, as bare,run,run-e,snaprun-e,snaprun-e-t2")
    parser.addoption("--programs", default="", help="only these, as c-epoll,node-http")
    parser.addoption("--emulated", action="store_true", help="only what scripts/test.sh has the time for in the emulated host")
    parser.addoption("--nightly", action="store_true", help="with --emulated: also what only scripts/nightly.sh has the time for")
    parser.addoption("--quick", action="store_true", help="fewer programs, fewer requests")


def chosen_modes(config) -> list[harness.Mode]:
    default = "bare,run,run-e,snaprun-e,snaprun-e-t2"
    if config.getoption("quick"):
        default = "bare,run,snaprun-e"
    if config.getoption("emulated"):
        default = "run,snaprun-e"
    names = (config.getoption("modes") or default).split(",")
    return [harness.MODES[name] for name in names]


def chosen_programs(config) -> list[dict]:
    every = harness.programs()
    names = config.getoption("programs").split(",") if config.getoption("programs") else list(every)
    unknown = [name for name in names if name not in every]
    if unknown:
        raise pytest.UsageError(f"not built: {' '.join(unknown)}: scripts/functions.sh {' '.join(unknown)}")
    if config.getoption("quick") and not config.getoption("programs"):
        names = [name for name in names if name in SOME]
    return [every[name] for name in names]


def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "bare: needs no kvmserver")
    config.addinivalue_line("markers", "nightly: takes long: only with KVMSERVER_TESTS=all, as in scripts/nightly.sh")
    config.addinivalue_line("markers", "emulated(nightly=False): runs in the emulated hardware host too; by scripts/nightly.sh only")


def params_of(item) -> dict:
    return item.callspec.params if hasattr(item, "callspec") else {}


def deselect(config, items, keep) -> None:
    dropped = [item for item in items if not keep(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if keep(item)]


def pytest_collection_modifyitems(config, items) -> None:
    if config.getoption("programs"):
        unwanted = set(harness.programs()) - set(config.getoption("programs").split(","))
        deselect(config, items, lambda item: params_of(item).get("name") not in unwanted)
    if config.getoption("emulated"):
        nightly = config.getoption("nightly")
        marks = {item: item.get_closest_marker("emulated") for item in items}
        deselect(config, items, lambda item: marks[item] and (nightly or not marks[item].kwargs.get("nightly")))
    if not harness.ALL_TESTS:
        long = pytest.mark.skip(reason="takes long: scripts/nightly.sh e2e")
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(long)
    if harness.KVMSERVER.exists():
        return
    missing = pytest.mark.skip(reason=f"there is no {harness.KVMSERVER}")
    for item in items:
        pool = params_of(item).get("pool")
        if not (pool and pool[1] == harness.BARE) and not item.get_closest_marker("bare"):
            item.add_marker(missing)


def pytest_generate_tests(metafunc) -> None:
    if "pool" not in metafunc.fixturenames:
        return
    pairs = [(p, m) for p in chosen_programs(metafunc.config) for m in chosen_modes(metafunc.config)]
    if not metafunc.config.getoption("modes"):
        pairs = [(p, m) for p, m in pairs if m != harness.SNAPRUN_E2 or p["name"] in SOME]
    ids = [f"{program['name']}-{mode.name}" for program, mode in pairs]
    metafunc.parametrize("pool", pairs, indirect=True, scope="module", ids=ids)


@pytest.fixture(scope="session")
def quick(request) -> bool:
    return request.config.getoption("quick")


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory) -> harness.Snapshots:
    return harness.Snapshots(tmp_path_factory.mktemp("snapshots"))


@pytest.fixture(scope="module")
def pool(request, snapshots):
    program, mode = request.param
    pool = harness.ServerPool(program, mode, snapshots)
    yield pool
    pool.close()


@pytest.fixture
def start(snapshots):
    """start(program, mode, options...): a server that ends with the test."""
    servers = []

    def started(program: dict, mode: harness.Mode, *options: str) -> harness.Server:
        snapshot = snapshots.of(program) if mode.command == "snaprun" else None
        servers.append(harness.Server(program, mode, *options, snapshot=snapshot))
        return servers[-1]

    yield started
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def program():
    """program(name): one of functions/; the test is skipped, saying so, when it is not built."""

    def named(name: str) -> dict:
        every = harness.programs()
        if name not in every:
            pytest.skip(f"{name} is not built: scripts/functions.sh {name}")
        return every[name]

    return named


@pytest.fixture
def folder(tmp_path):
    """A folder whose path holds no symlinks, for tests of paths."""
    path = tmp_path.resolve()
    yield path
    shutil.rmtree(path, ignore_errors=True)
    assert not os.path.exists(path)


@pytest.fixture
def serving():
    """serving(handle, *options): a Front before a Backend; the front must still run at the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(handle, *options: str) -> front.Front:
            backend = front.Backend(handle)
            started = front.Front(backend.port, *options)
            started.backend = backend
            stack.callback(started.close)
            stack.callback(backend.close)
            stack.callback(lambda: still_runs(started))
            return started

        yield start


def still_runs(started: front.Front) -> None:
    if started.popen.returncode != 0:
        assert started.running(), f"the front ended: {started.popen.returncode} {started.err}"


@pytest.fixture
def platform(folder) -> Platform:
    return Platform(folder)


@pytest.fixture
def snap(snapshots, program) -> pathlib.Path:
    return snapshots.of(program("c-epoll"))


@pytest.fixture
def other_snap(snapshots, program) -> pathlib.Path:
    return snapshots.of(program("c-poll"))


@pytest.fixture
def store(folder) -> Store:
    return Store(folder)


@pytest.fixture
def serve(store):
    """serve(*options): a daemon on the test's store, which must still run and end well at the end of the test."""
    daemons = []

    def started(*options: str, **more) -> Daemon:
        daemons.append(Daemon(store, *options, **more))
        return daemons[-1]

    yield started
    try:
        for daemon in daemons:
            if daemon.popen.returncode is None:
                assert daemon.running(), f"the daemon ended during the test: {daemon.err[-2000:]}"
                ended = daemon.stop()
                assert ended.status == 0, ended
    finally:
        for daemon in daemons:
            daemon.close()
