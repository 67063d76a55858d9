"""Every kind of KVM host: what must work on all of them, and what is said on those that refuse."""
import harness
import pytest
from harness import GUESTS, RUN_E, SNAPRUN_E, kvmserver

NO_KVM = 8


@pytest.mark.emulated
@pytest.mark.parametrize("mode", [RUN_E, SNAPRUN_E], ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", ["c-epoll", "rust-tokio-multi"])
def test_serves_from_clean_machines(start, program, name: str, mode: harness.Mode) -> None:
    server = start(program(name), mode, "--check-reset")
    for n in (0, 1, 100, 300_000):
        assert server.count() == 1
        assert server.get(f"/bytes/{n}") == harness.letters(n)
    with server.client() as client:
        assert [int(client.ask("/count")) for _ in range(3)] == [1, 2, 3]
    assert server.count() == 1
    ended = server.stop()
    assert ended.status == 0 and "reset differs" not in ended.err, ended


def refusing(what: str, *words: str) -> harness.Ended:
    return kvmserver(*words, env={"LD_PRELOAD": str(GUESTS / "kvm_refuses.so"), "KVM_REFUSES": what})


CALLS = ["KVM_GET_VCPU_MMAP_SIZE", "KVM_CREATE_VM", "KVM_CREATE_VCPU", "KVM_SET_USER_MEMORY_REGION", "KVM_SET_CPUID2",
         "KVM_GET_SREGS", "KVM_SET_SREGS", "KVM_SET_MSRS", "KVM_RUN"]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_kvm_that_refuses_is_told(call: str) -> None:
    ended = refusing(call, "run", "--allow-all", "/bin/true")
    assert ended.status == NO_KVM, ended
    (line,) = ended.err.splitlines()
    assert line.startswith("kvmserver: /dev/kvm: ") and f"{call}: Invalid argument" in line, line
    doctor = refusing(call, "doctor")
    assert doctor.status == NO_KVM, doctor
    assert any(call in told and "docs/HOSTS.md" in told for told in doctor.out.splitlines()), doctor


def test_snaprun_tells_it_too(snapshots, program) -> None:
    snapshot = snapshots.of(program("c-epoll"))
    for call in ("KVM_CREATE_VM", "KVM_CREATE_VCPU", "KVM_SET_SREGS"):
        ended = refusing(call, "snaprun", "-e", "--listen", f"127.0.0.1:{harness.free_port()}", str(snapshot))
        assert ended.status == NO_KVM and call in ended.err, ended


def test_a_kvm_without_osxsave_works_or_is_told() -> None:
    """As a host without XSAVE refuses it. Where PVM lets programs have AVX all the same, nobody would reset it."""
    ended = refusing("OSXSAVE", "run", "--allow-all", "/bin/true")
    doctor = refusing("OSXSAVE", "doctor")
    if "/dev/kvm ok (pvm" in kvmserver("doctor").out:
        assert ended.status == doctor.status == NO_KVM and "CR4.OSXSAVE" in ended.err, ended
    else:
        assert ended.status == doctor.status == 0 and "without XSAVE" in doctor.out, (ended, doctor)


@pytest.mark.parametrize("options", [("run", "-e"), ("run", "-e", "--http")], ids=lambda words: " ".join(words))
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 4, 5])
def test_a_thread_that_cannot_be_started_is_told(program, options: tuple[str, ...], threads: int) -> None:
    """The machines that have begun are asked to end: nothing aborts, nothing hangs."""
    argv = harness.arguments_of(program("c-epoll"), harness.free_port())
    ended = kvmserver(*options, "--threads", "8", "--allow-all", *argv,
                      env={"LD_PRELOAD": str(GUESTS / "few_threads.so"), "THREADS": str(threads)})  # fmt: skip
    assert ended.status == 1 and "Resource temporarily unavailable" in ended.err, ended
