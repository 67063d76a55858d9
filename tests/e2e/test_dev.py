"""kvmserver dev: serves a folder, follows its changes, and loses no request on the way."""
import os
import pathlib
import re
import shutil
import signal
import socket
import threading

import harness
import pytest
from harness import Process, kvmserver, wait_until

PATIENCE = harness.PATIENCE * 3

MANIFEST = """allow-all = true
[run]
program = "./server"
[function.build]
command = "{build}"
{more}
"""
SERVER = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int count;
int main(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(8080), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *word = getenv("WORD");
    if (bind(s, (void *)&a, sizeof a) < 0 || listen(s, 100) < 0) return 1;
    printf("ready to serve %s\n", ANSWER);
    fflush(stdout);
    for (;;) {
        char request[4096], reply[256], body[64];
        int c = accept(s, NULL, NULL);
        if (read(c, request, sizeof request) <= 0) { close(c); continue; }
        if (strncmp(request, "GET /slow", 9) == 0) usleep(700000);
        if (strncmp(request, "GET /say", 8) == 0) { printf("somebody asked\n"); fflush(stdout); }
        int n = snprintf(body, sizeof body, "%s%s\n", ANSWER, word ? word : "");
        if (strncmp(request, "GET /count", 10) == 0) n = snprintf(body, sizeof body, "%s %d\n", ANSWER, ++count);
        n = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", n, body);
        write(c, reply, n);
        close(c);
    }
}
"""


class Dev:
    """`kvmserver dev` in a folder with a C program that answers one word."""

    def __init__(self, folder: pathlib.Path) -> None:
        if not shutil.which("cc"):
            pytest.skip("cc is not installed")
        self.folder = folder / "app"
        self.folder.mkdir()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.write("main.c", SERVER)
        self.answer("one")
        self.manifest()
        self.process: Process | None = None

    def write(self, name: str, text: str) -> None:
        """As editors do it."""
        new = self.folder / (name + ".tmp")
        new.write_text(text)
        new.rename(self.folder / name)

    def answer(self, word: str) -> None:
        self.write("answer.h", f'#define ANSWER "{word}"\n')

    def manifest(self, more: str = "", build: str = "cc -w -include answer.h -o server main.c") -> None:
        self.write("kvmserver.toml", MANIFEST.format(build=build, more=more))

    def start(self, *words: str) -> "Dev":
        environment = {**harness.BASE_ENVIRONMENT, "TMPDIR": str(self.temporary)}
        argv = [str(harness.KVMSERVER), "dev", "--port", "0", *words]
        self.process = Process(argv, cwd=str(self.folder), env=environment)
        return self

    def ready(self, times: int = 1) -> "Dev":
        wait_until(lambda: self.count() >= times or not self.process.running(), f"ready {times} times", PATIENCE)
        assert self.count() == times, (self.process.out, self.process.err)
        self.port = int(re.search(r"^Ready \w+://127.0.0.1:(\d+)$", self.process.out, re.M)[1])
        return self

    def count(self) -> int:
        return len(re.findall(r"^Ready \w+://", self.process.out, re.M))

    def said(self, text: str) -> None:
        wait_until(lambda: text in self.process.err, f"{text!r} on stderr", PATIENCE)

    def get(self, path: str = "/") -> str:
        with harness.Client(self.port) as client:
            return client.ask(path, None).decode().strip()

    def children(self) -> list[int]:
        pid = self.process.popen.pid
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split()]


@pytest.fixture
def dev(folder):
    dev = Dev(folder)
    yield dev
    if dev.process:
        try:
            dev.process.stop()  # not killed: a build under way would go on, and write into the folder
        finally:
            dev.process.close()


def test_serves_and_ends(dev) -> None:
    dev.start().ready()
    assert dev.get() == "one"
    assert dev.process.out.startswith("ready to serve one\n")
    assert dev.get("/say") == "one"
    wait_until(lambda: "somebody asked\n" in dev.process.out, "what the program prints while it serves")
    assert "Program '" not in dev.process.out and "Snapshot" not in dev.process.out
    dev.answer("two")  # without --watch
    dev.manifest("# changed")
    assert dev.get() == "one"
    children = dev.children()
    assert children
    ended = dev.process.stop(signal.SIGINT)
    assert ended.status == 0, ended
    assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")]
    assert not list(dev.temporary.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", dev.port), 1)
    assert dev.count() == 1


def test_follows_changes(dev) -> None:
    dev.start("--watch").ready()
    for times, word in enumerate(("two", "three"), 2):
        dev.answer(word)
        dev.ready(times)
        assert dev.get() == word
    (dev.folder / "main.c").write_text(SERVER.replace("%s%s", "[%s%s]"))  # in place
    dev.ready(4)
    assert dev.get() == "[three]"
    dev.write("main.c", SERVER.replace("%s%s", "[%s%s]"))  # the same again: nothing to do
    dev.manifest('[function.env]\nWORD = "!"')
    dev.ready(5)
    assert dev.get() == "[three!]"
    assert "main.c changed" in dev.process.err
    assert not list(dev.temporary.iterdir()), "nothing is written to be served"


def test_state_is_kept_until_the_next_build(dev) -> None:
    text = (dev.folder / "kvmserver.toml").read_text()
    dev.write("kvmserver.toml", text.replace("[function.build]", "[function]\nephemeral = false\n[function.scale]\nmachines = 3\n[function.build]"))
    dev.start("--watch").ready()
    assert [dev.get("/count") for _ in range(3)] == ["one 1", "one 2", "one 3"]
    dev.said("it keeps what requests change until the next build ([function] ephemeral = false); here in one machine, "
             "when deployed in 3")
    dev.answer("two")
    dev.ready(2)
    assert [dev.get("/count") for _ in range(2)] == ["two 1", "two 2"]
    dev.said("what the previous version kept is lost")
    dev.write("kvmserver.toml", text)
    dev.ready(3)
    assert [dev.get("/count") for _ in range(2)] == ["two 1", "two 1"]


def test_a_tcp_function_has_a_clean_machine_for_each_connection(dev) -> None:
    """Its bytes need not be HTTP."""
    text = (dev.folder / "kvmserver.toml").read_text()
    dev.write("kvmserver.toml", text.replace("[function.build]", '[function]\nprotocol = "tcp"\nlisten = ["127.0.0.1:1"]\n[function.build]'))
    dev.start("--watch").ready()
    assert f"Ready tcp://127.0.0.1:{dev.port}\n" in dev.process.out

    def said() -> str:
        with socket.create_connection(("127.0.0.1", dev.port), harness.PATIENCE) as client:
            client.sendall(b"GET /count\0")
            return client.makefile().read().splitlines()[-1]

    assert [said(), said()] == ["one 1", "one 1"]
    dev.answer("two")
    dev.ready(2)
    assert [said(), said()] == ["two 1", "two 1"]


def test_a_failed_build_keeps_the_old(dev) -> None:
    dev.start("--watch").ready()
    dev.write("answer.h", "#error not like this\n")
    dev.said("not like this")
    dev.said("[function.build] command ended with status 1; the previous version keeps serving")
    assert dev.get() == "one"
    dev.answer('two" NOT_DEFINED "')
    dev.said("NOT_DEFINED")
    dev.write("main.c", "int main(void) { return 7; }")
    dev.answer("three")
    dev.said("the program does not start; the previous version keeps serving")
    assert dev.get() == "one"
    dev.write("kvmserver.toml", "[run")
    dev.said("kvmserver.toml:1: ")
    assert dev.get() == "one"
    dev.write("main.c", SERVER)
    dev.manifest()
    dev.ready(2)
    assert dev.get() == "three"


def test_what_the_program_lacks_is_the_status(dev) -> None:
    dev.write("main.c", "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    dev.write("kvmserver.toml", "max-boot-time = 0.5\n" + MANIFEST.format(build="cc -w -o server main.c", more=""))
    done = dev.start().process.wait()
    assert done.status == 6 and "does not start" in done.err, done


def test_a_failed_first_build(dev) -> None:
    dev.answer('" NOT_DEFINED "')
    done = dev.start().process.wait()
    assert done.status == 1 and "[function.build] command ended with status 1" in done.error
    dev.process.close()
    dev.start("--watch").said("waiting for a change")
    dev.answer("better")
    assert dev.ready().get() == "better"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ends_during_a_build(dev, how: int) -> None:
    dev.manifest(build="echo building >&2; sleep 1000 & echo $! > pid; wait")
    dev.start().said("building")
    wait_until(lambda: (dev.folder / "pid").exists() and (dev.folder / "pid").read_text().strip(), "the build goes on")
    sleeper = int((dev.folder / "pid").read_text())
    assert dev.process.stop(how).status == 0
    wait_until(lambda: gone(sleeper), "what the build started has ended")
    assert not list(dev.temporary.iterdir())


def gone(pid: int) -> bool:
    """A zombie is, too: its new parent may not care."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z")
    except FileNotFoundError:
        return True


def test_watch_globs(dev) -> None:
    (dev.folder / "parts").mkdir()
    (dev.folder / "parts/deep").mkdir()
    dev.manifest('watch = ["*.h", "parts/**/*.x", "../beyond"]')
    beyond = dev.folder.parent / "beyond"
    beyond.mkdir()
    dev.start("--watch").ready()
    dev.write("main.c", SERVER.replace("%s%s", "<%s%s>"))  # not watched
    dev.write("parts/deep/a.y", "")
    dev.write("parts/deep/a.x", "")
    dev.ready(2)
    assert dev.get() == "<one>"
    assert "kvmserver: parts/deep/a.x changed\n" in dev.process.err
    (dev.folder / "parts/new").mkdir()
    dev.write("parts/new/b.x", "")
    dev.ready(3)
    (beyond / "c").write_text("")
    dev.ready(4)
    assert re.findall(r"kvmserver: (.*) changed", dev.process.err) == ["parts/deep/a.x", "parts/new/b.x", "../beyond/c"]


def test_what_a_build_makes_is_no_change(dev) -> None:
    dev.manifest(build="cc -w -include answer.h -c main.c && cc -o server main.o && mkdir -p build && date +%N > build/stamp")
    dev.start("--watch").ready()
    dev.answer("two")
    dev.ready(2)
    assert dev.process.err.count("changed") == 1


def test_a_build_that_changes_sources_is_named(dev) -> None:
    dev.manifest(build="cc -w -include answer.h -o server main.c && date +%N > stamp.h")
    dev.start("--watch").said("it changes during every build")


def test_no_request_is_lost(dev) -> None:
    """Clients ask all the time, on new and on kept connections, while the program is replaced."""
    dev.write("kvmserver.toml", "threads = 4\n" + (dev.folder / "kvmserver.toml").read_text())
    dev.start("--watch").ready()
    stop, wrong, answers = threading.Event(), [], []

    def ask(path: str) -> None:
        last = 0
        while not stop.is_set():
            try:
                number = ["one", "two", "three", "four"].index(dev.get(path))
                answers.append(number)
                if path == "/" and number < last - 1:  # (both serve for a moment)
                    wrong.append(f"{number} after {last}")
                last = max(last, number)
            except Exception as error:  # noqa: BLE001  every one counts
                wrong.append(f"{path}: {error!r}")

    def keep() -> None:
        """A server may close a kept connection between two requests; a client then asks again on a new one."""
        while not stop.is_set():
            with harness.Client(dev.port) as client:
                for asked in range(50):
                    try:
                        client.ask("/", None)
                    except Exception as error:  # noqa: BLE001
                        if asked == 0:
                            wrong.append(f"kept: {error!r}")
                        break

    threads = [threading.Thread(target=ask, args=(path,)) for path in ("/", "/", "/slow")] + [threading.Thread(target=keep)]
    for thread in threads:
        thread.start()
    try:
        for times, word in enumerate(("two", "three", "four"), 2):
            dev.answer(word)
            dev.ready(times)
            seen = len(answers)
            wait_until(lambda: len(answers) > seen + 10 or wrong, "requests are answered")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
    assert {0, 1, 2, 3} <= set(answers)


def counting() -> str:
    """The server of above, which answers how many requests it has had since its boot."""
    return SERVER.replace("for (;;) {", "for (int asked = 1;; ++asked) {").replace('"%s%s\\n", ANSWER, word ? word : ""', '"%d\\n", asked')


@pytest.mark.parametrize("warmup, first", [("", "1"), ('warmup = "auto"', "1"), ("warmup = 3", "4")])
def test_only_a_number_of_warm_up_requests_counts(dev, warmup: str, first: str) -> None:
    """A person waits: --warmup auto, which takes longer than the start, is for `deploy`."""
    dev.write("main.c", counting())
    dev.write("kvmserver.toml", f"{warmup}\n" + (dev.folder / "kvmserver.toml").read_text())
    dev.start().ready()
    assert [dev.get(), dev.get()] == [first, first]


def test_random_values_that_repeat_are_named(dev) -> None:
    """As by `deploy`, but while it serves."""
    random = SERVER.replace("for (;;) {", "srand(time(NULL)); for (;;) {").replace("<stdio.h>", "<stdio.h>\n#include <time.h>")
    dev.write("main.c", random.replace('"%s%s\\n", ANSWER, word ? word : ""', '"%x%08x%x\\n", rand(), rand(), rand()'))
    dev.start().ready()
    value = dev.get()
    dev.said(f'every request to / answers "{value}" in its body')
    dev.process.stop()
    dev.process.close()
    dev.write("kvmserver.toml", "strict-unique = true\n" + (dev.folder / "kvmserver.toml").read_text())
    done = dev.start().process.wait()
    assert done.status == 1 and "--strict-unique: random values would repeat" in done.err, done


def test_connections_of_the_start_are_lost(dev) -> None:
    """As by `deploy`: a snapshot cannot keep them."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        begin = f"""int t = socket(AF_INET, SOCK_STREAM, 0), s = socket(AF_INET, SOCK_STREAM, 0);
            struct sockaddr_in b = {{.sin_family = AF_INET, .sin_port = htons({port}), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
            if (connect(t, (void *)&b, sizeof b) < 0) return 2;"""
        server = SERVER.replace("int s = socket(AF_INET, SOCK_STREAM, 0);", begin).replace("<stdio.h>", "<stdio.h>\n#include <errno.h>")
        dev.write("main.c", server.replace('"%s%s\\n", ANSWER, word ? word : ""', '"%s\\n", read(t, body, 1) < 0 && errno == ECONNRESET ? "lost" : "kept"'))
        dev.start().ready()
        dev.said("connections do not outlive one")
        assert dev.get() == "lost"


def test_a_second_address_is_not_in_the_way(dev) -> None:
    second = """int s = socket(AF_INET, SOCK_STREAM, 0), t = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in b = {.sin_family = AF_INET, .sin_port = htons(%d), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};""" % harness.free_port()
    server = SERVER.replace("int s = socket(AF_INET, SOCK_STREAM, 0);", second)
    dev.write("main.c", server.replace("listen(s, 100) < 0", "listen(s, 100) < 0 || bind(t, (void *)&b, sizeof b) < 0 || listen(t, 1) < 0"))
    dev.start("--watch").ready()
    dev.said("dev serves the program's first address only, of 2")
    dev.answer("two")
    dev.ready(2)
    assert dev.get() == "two"


def test_a_program_that_takes_any_port(dev) -> None:
    """It sees one, although nobody opens it. In the jail there is no network."""
    server = SERVER.replace("htons(8080)", "0").replace('printf("ready to serve %s\\n", ANSWER);',
                                                        'socklen_t n = sizeof a; getsockname(s, (void *)&a, &n); printf("Program \'mine\' listens\\nport %d\\n", ntohs(a.sin_port));')
    dev.write("main.c", server)
    dev.write("kvmserver.toml", MANIFEST.format(build="cc -w -include answer.h -o server main.c", more="").replace(
        "allow-all = true", 'allow-listen = true\nallow-read = ["."]'))
    dev.start().ready()
    assert dev.get() == "one"
    assert "Program 'mine' listens\n" in dev.process.out, "a line of the program, not taken for one of ours"
    assert int(re.search(r"^port (\d+)$", dev.process.out, re.M)[1]) > 0
    if "walls that this host does not allow" not in dev.process.err:
        (server,) = dev.children()
        assert os.readlink(f"/proc/{server}/ns/net") != os.readlink("/proc/self/ns/net")


def test_bad_input(dev, folder) -> None:
    assert kvmserver("dev", cwd=folder).status == 3
    snap = folder / "x.snap"
    snap.write_text("")
    assert kvmserver("dev", snap).status == 2
    for port in ("65536", "x", "-1"):
        assert kvmserver("dev", f"--port={port}", cwd=dev.folder).status == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = kvmserver("dev", "--port", str(taken.getsockname()[1]), cwd=dev.folder)
        assert used.status == 5 and "--port" in used.error


def test_an_unknown_key_is_told_once_and_strict_waits_for_its_end(dev) -> None:
    known = (dev.folder / "kvmserver.toml").read_text()
    dev.write("kvmserver.toml", "allow-al = true\n" + known)
    dev.start().ready()
    assert dev.process.err.count("unknown key 'allow-al'") == 1, dev.process.err
    dev.process.close()
    dev.start("--watch", "--strict").said("(--strict); waiting for a change")
    dev.write("kvmserver.toml", known)
    dev.ready()
