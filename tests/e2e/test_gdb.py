"""`run --gdb` and `debug`: with gdb itself, and on every kind of host with a client of the protocol."""
import contextlib
import re
import socket

import harness
import pytest
from debugging import Debugged, gdb, remote
from harness import GUESTS, kvmserver

PROGRAM = GUESTS / "debugged"
KILLED = 137
AT_ENTRY = 9
RAX, RIP, XMM0, YMM0H = 0, 16, 40, 60
SIGTRAP, SIGINT = "T05", "T02"
INTERRUPT = b"\x03"


@pytest.fixture
def debugged():
    """debugged(words...): a command that waits for gdb and ends with the test."""
    with contextlib.ExitStack() as all_of_them:

        def started(*words) -> Debugged:
            return all_of_them.enter_context(contextlib.closing(Debugged(*words)))

        yield started


def run(debugged, *arguments: str) -> Debugged:
    return debugged("run", "--gdb", "127.0.0.1:0", "--allow-all", PROGRAM, str(harness.free_port()), *arguments)


def test_breakpoints_steps_threads_variables(debugged) -> None:
    server = run(debugged)
    said = gdb(PROGRAM, server.target, "info registers rip", "break main", "continue", "break waits", "continue", "bt",
               "delete", "break listen_on", "continue", "info threads", "print numbers", "print $ymm0.v8_float", "print add(2, 3)",
               "print counted", "stepi", "next", "thread 2", "bt", "info sharedlibrary", "kill")  # fmt: skip
    assert "<_start>" in said and re.search(r"Breakpoint 1, main \(argc=2", said), said
    assert re.search(r"hit Breakpoint 2, waits \(name=", said) and re.search(r"#1 .* in start_thread", said), said
    assert "hit Breakpoint 3, listen_on" in said, said
    assert "(first)" in said and "(second)" in said, said
    assert "$1 = {1.5, 2.5, 3.5, 4.5}" in said and "$2 = {0" in said and "$3 = 5" in said and "$4 = 5" in said, said
    assert "pthread_cond_wait" in said and "libc.so.6" in said, said
    ended = server.wait()
    assert ended.status == KILLED and "debugged: ended by the debugger" in ended.err, ended


def test_ctrl_c_and_detach(debugged) -> None:
    server = run(debugged, "spin")
    said = gdb(PROGRAM, server.target, "continue", "bt", "break add", "continue", "finish", "delete", "detach",
               interrupt_when=lambda: "spins" in server.out)  # fmt: skip
    assert "received signal SIGINT" in said and "in main (argc=3" in said, said
    assert "hit Breakpoint 1, add (a=1, b=0)" in said.replace("a=a@entry", "a").replace("b=b@entry", "b"), said
    assert "Value returned is" in said and "detached" in said, said
    assert server.running()
    again = gdb(PROGRAM, server.target, "bt", "kill")  # it stops for a new client
    assert "main (argc=3" in again, again
    assert server.wait().status == KILLED


def test_a_fault_stops_and_ends_it(debugged) -> None:
    server = run(debugged, "crash")
    said = gdb(PROGRAM, server.target, "continue", "bt", "continue")
    assert "received signal SIGSEGV" in said and "#0  fault_here" in said and "in main (argc=3" in said, said
    assert "Program terminated with signal SIGSEGV" in said, said
    assert server.wait().status == 139


def test_a_snapshot_stops_at_the_request(debugged, snapshots, folder) -> None:
    snapshot = snapshots.of(harness.guest("debugged", "{port}"))
    request = folder / "request"
    request.write_bytes(b"hello\n")
    session = debugged("debug", snapshot, "--gdb", "0", "--request", request)
    said = gdb(PROGRAM, session.target, "bt", "info threads", "x/4i accept", "break answer", "break write", "continue",
               "print line", "next", "finish", "continue")  # fmt: skip
    assert re.search(r"#0 .*accept \(fd=.*\n#1 .* in serve ", said) and "(second)" in said, said
    assert re.search(r"<__libc_accept\+9>:\s+mov +\$0x2b,%eax", said), said  # where the image has a jump
    assert re.search(r'Breakpoint 1, answer \(line=.*"hello"', said), said
    assert "hit Breakpoint 2" in said and "write (fd=" in said, said  # within code that the image has patched
    ended = session.wait()
    assert ended.status in (0, KILLED), ended


def test_a_reply_is_printed(debugged, snapshots, folder) -> None:
    snapshot = snapshots.of(harness.guest("debugged", "{port}"))
    request = folder / "request"
    request.write_bytes(b"hello\n")
    before = snapshot.read_bytes()
    session = debugged("debug", snapshot, "--request", request)
    said = gdb(PROGRAM, session.target, "break add", "continue", "print a = 40", "delete", "continue")
    ended = session.wait()
    assert "exited normally" in said and ended.status == 0, (said, ended)
    assert ended.out.endswith("\n43\n"), ended.out  # 40 + 0, then 1 and 2
    assert snapshot.read_bytes() == before


def test_a_function_by_its_name(debugged, snapshots, folder, store) -> None:
    store.deploy(snapshots.of(harness.guest("debugged", "{port}")), "added")
    request = folder / "request"
    request.write_bytes(b"hello\n")
    session = debugged("debug", "added@1", "--store", store.path, "--request", request)
    with remote(session) as client:
        assert client.ask("?").startswith(SIGTRAP)
        client.send("c")
        ended = session.wait()
    assert ended.status == 0 and ended.out.endswith("\n3\n"), ended
    done = kvmserver("debug", "other", "--store", store.path)
    assert done.status == 3 and "there is no function other" in done.err, done


def test_a_snapshot_that_listens(debugged, snapshots) -> None:
    port = harness.free_port()
    snapshot = snapshots.of(harness.guest("debugged", "{port}"))
    session = debugged("debug", snapshot, "--gdb", "0", "--listen", f"127.0.0.1:{port}")
    with remote(session) as client:
        assert client.ask("?").startswith(SIGTRAP)
        client.send("c")
        with socket.create_connection(("127.0.0.1", port), harness.PATIENCE) as other:
            other.sendall(b"hello\n")
            assert client.reply().startswith(SIGTRAP)
            assert 2 < client.register(RAX) < 100  # accept has returned a descriptor
            client.send("c")
            assert other.makefile("rb").read() == b"3\n"
        client.raw(INTERRUPT)  # while it waits
        assert client.reply().startswith(SIGINT)
        client.send("k")
    assert session.wait().status == KILLED


@pytest.mark.emulated
def test_on_every_kind_of_host(debugged) -> None:
    """Code of the test's own at the program's entry: a system call and vector instructions, stepped one by one."""
    server = run(debugged, "spin")
    with remote(server) as client:
        assert client.ask("?").startswith(SIGTRAP)
        entry = client.auxiliary(AT_ENTRY)
        assert client.ask(f"Z0,{entry:x},1") == "OK"
        told = client.ask("vCont;c")
        assert told.startswith(SIGTRAP) and "swbreak" in told, told
        assert client.register(RIP) == entry
        thread = int(re.search("thread:([0-9a-f]+)", told)[1], 16)
        own = "b827000000" "0f05" "0f58c0" "90" "90"  # mov $39, %eax; syscall (getpid); addps %xmm0, %xmm0; nop; nop
        before = client.ask(f"m{entry:x},{len(own) // 2:x}")
        registers = client.ask("g")
        assert client.ask(f"M{entry:x},{len(own) // 2:x}:{own}") == "OK"
        assert client.ask(f"m{entry:x},{len(own) // 2:x}") == own  # without the breakpoint, which is still there
        assert client.ask(f"z0,{entry:x},1") == "OK"
        client.set_register(XMM0, 0x40000000_3F800000, 16)  # 1.0 and 2.0
        at = entry
        for bytes_of_it in (5, 2, 3, 1):
            assert client.ask(f"vCont;s:{thread:x}").startswith(SIGTRAP)
            at += bytes_of_it
            assert client.register(RIP) == at
        assert client.register(RAX) == thread  # the first thread's number is the process's
        assert client.register(XMM0) == 0x40800000_40000000
        assert client.ask(f"M{entry:x},{len(before) // 2:x}:{before}") == "OK"
        assert client.ask("G" + registers) == "OK" and client.ask("g") == registers
        client.send("vCont;c")
        client.raw(INTERRUPT)
        assert client.reply().startswith(SIGINT)
        for _ in range(100):
            assert client.ask("vCont;s:-1").startswith(SIGTRAP)
        client.send("vCont;c")
        client.raw(INTERRUPT)
        assert client.reply().startswith(SIGINT)
        client.send("k")
    assert server.wait().status == KILLED


def test_what_is_no_packet_is_survived(debugged) -> None:
    server = run(debugged)
    with remote(server) as client:
        client.raw(b"GET / HTTP/1.1\r\n\r\n$$$#zz" + bytes(range(256)) * 50 + b"$" + b"A" * 100_000 + b"#00")
        assert client.ask("qC").startswith("QC")
        for bad in ("m", "m0,4", "mffffffffffffffff,ffffffffffffffff", "G00", "pffff", "Z0,0,1", "X0,5:a", "vCont;s:ffffffff;", "qXfer:auxv:read::z"):
            assert client.ask(bad).startswith("E"), bad
        client.send("k")
    assert server.wait().status == KILLED


def test_a_unix_socket_is_for_its_user_only(debugged, folder) -> None:
    path = folder / "gdb.socket"
    server = debugged("run", "--gdb", f"unix:{path}", "--allow-all", PROGRAM, str(harness.free_port()))
    assert path.stat().st_mode & 0o777 == 0o600
    assert "main (argc=2" in gdb(PROGRAM, server.target, "break main", "continue", "kill")
    assert server.wait().status == KILLED
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--gdb", "0.0.0.0:1234", PROGRAM), "--gdb: '0.0.0.0:1234' is not an address of this host alone"),
        (("run", "--gdb", "nonsense", PROGRAM), "--gdb: 'nonsense' is not PORT, 127.0.0.1:PORT, [::1]:PORT or unix:PATH"),
        (("run", "-e", "--gdb", "0", PROGRAM), "--gdb excludes -e"),
        (("debug",), "debug takes one snapshot FILE or NAME"),
        (("debug", "/nonexistent.snap"), "/nonexistent.snap"),
    ],
)
def test_bad_words(words, said: str) -> None:
    ended = kvmserver(*words)
    assert ended.status != 0 and said in ended.error, ended


def test_a_request_that_cannot_be_read(snapshots) -> None:
    ended = kvmserver("debug", "--request", "/nonexistent", snapshots.of(harness.guest("debugged", "{port}")))
    assert ended.status == 2 and "--request: /nonexistent" in ended.error, ended
