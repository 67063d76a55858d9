"""What a new user tries in the first hour does what the documents say, and what is said of it is true."""
import contextlib
import json
import os
import pathlib
import pty
import re
import socket
import subprocess
import urllib.request

import admin
import harness
import pytest
from harness import kvmserver

FAILURE, USAGE, NOT_FOUND, NOT_PERMITTED, TIMED_OUT = 1, 2, 3, 4, 6


def manifest(folder: pathlib.Path, program: dict, port: int, more: str = "") -> None:
    argv = [word.replace("{port}", str(port)) for word in program["argv"]]
    (folder / "kvmserver.toml").write_text(f"allow-all = true\n{more}\n[run]\nprogram = '{argv[0]}'\nargs = {argv[1:]}\n")


def test_run_and_snapshot_without_a_program_take_that_of_the_manifest(folder, program) -> None:
    port = harness.free_port()
    manifest(folder, program("c-epoll"), port)
    made = kvmserver("snapshot", "-o", "app.snap", cwd=folder)
    assert made.status == 0 and (folder / "app.snap").exists(), made
    argv = [str(harness.KVMSERVER), "run", "-e", *harness.LIMITS]
    with contextlib.closing(harness.Process(argv, env=harness.BASE_ENVIRONMENT, cwd=folder)) as process:
        harness.wait_until(lambda: "loaded" in process.out or not process.running(), "it serves")
        assert process.running(), process.err
        assert f":{port}" in process.out


def test_a_program_on_the_command_line_replaces_that_of_the_manifest(folder) -> None:
    (folder / "kvmserver.toml").write_text("[run]\nprogram = 7\n")  # not even looked at
    assert kvmserver("run", "--allow-all", "/bin/true", cwd=folder).status == 0
    wrong = kvmserver("run", "--allow-all", cwd=folder)
    assert wrong.status == USAGE and "run.program" in wrong.error


@pytest.mark.emulated(nightly=True)
def test_a_boot_time_that_is_given_limits_also_a_program_that_is_no_server() -> None:
    limit = 1 if harness.SLOWNESS == 1 else 5
    job = [str(harness.GUESTS / "boot"), "sleep"]
    ended = kvmserver("run", "--max-boot-time", f"{limit}", *job)
    assert ended.status == TIMED_OUT and "--no-listen" in ended.error, ended


def test_a_job_takes_as_long_as_it_takes() -> None:
    job = ["--allow-all", "/bin/sleep", "2"]
    assert kvmserver("run", *job).status == 0
    assert kvmserver("run", "--no-listen", "--max-boot-time", "1", *job).status == 0
    assert kvmserver("run", "--max-boot-time", "1", *job).status == TIMED_OUT


def test_a_deploy_without_a_daemon_is_stored_and_not_served(store, snapshots, program, serve) -> None:
    snap = snapshots.of(program("c-epoll"))
    assert store.deploy(snap, "hello") == "hello v1 stored; not served: start kvmserver serve"
    assert "http" not in store.ok("describe", "hello")
    daemon = serve()
    assert store.deploy(snap, "hello") == f"hello v2 live http://hello.localhost:{daemon.port}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_store_that_cannot_be_read_is_no_empty_store(store, snapshots, program, folder) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    os.chmod(store.path, 0o700)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    binary = os.open(harness.KVMSERVER, os.O_RDONLY)
    wrapper = [*nobody, "/bin/sh", "-c", 'shift; exec 9<&0; exec /proc/self/fd/%d "$@"' % binary, "sh"]
    done = subprocess.run([*wrapper, "kvmserver", "list", "--store", str(store.path)], pass_fds=[binary], capture_output=True,
                          text=True, env=harness.BASE_ENVIRONMENT, timeout=harness.PATIENCE)  # fmt: skip
    assert done.returncode == NOT_PERMITTED and done.stdout == "", done
    assert done.stderr == f"kvmserver: the store {store.path} cannot be read: Permission denied\n"
    (folder / "file").touch()
    wrong = kvmserver("list", "--store", folder / "file")
    assert wrong.status == FAILURE and wrong.err == f"kvmserver: the store {folder}/file is not a folder\n", wrong


def test_delete_without_a_terminal_needs_yes(store, snapshots, program) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    refused = store("delete", "hello")
    assert refused.status == USAGE and "-y says yes" in refused.error, refused
    assert store.ok("describe", "hello") == "hello v1 ready"
    assert store.ok("delete", "hello", "-y") == "Deleted hello"


def test_a_name_beside_a_folder_of_that_name(store, snapshots, program, folder) -> None:
    snap = snapshots.of(program("c-epoll"))
    store.deploy(snap, "hello")
    (folder / "hello").mkdir()
    seen = kvmserver("inspect", "hello", "--store", store.path, cwd=folder)
    assert seen.status == 0 and seen.err == "kvmserver: hello is the function; the folder is ./hello\n", seen
    assert kvmserver("inspect", "./hello", "--store", store.path, cwd=folder).error == "kvmserver: ./hello: not a snapshot: it is a folder"
    manifest(folder / "hello", program("c-epoll"), harness.free_port(), "warmup = 0")
    done = kvmserver("deploy", "hello", "--store", store.path, cwd=folder)
    assert done.status == 0 and "kvmserver: hello is the folder ./hello\n" in done.err, done


def test_an_empty_store_is_named(store) -> None:
    listed = kvmserver("list", "--store", store.path)
    assert listed.status == 0 and f"no functions in the store {store.path}, which no daemon serves" in listed.err, listed
    top = kvmserver("top", "--store", store.path)
    assert top.status != 0 and f"no daemon serves {store.path}" in top.error, top


def test_a_function_of_nearly_that_name_is_suggested(store, snapshots, program) -> None:
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    for words in (["describe", "helo"], ["inspect", "helo"], ["env", "list", "helo"], ["delete", "-y", "helo"]):
        assert store(*words).error.endswith("did you mean hello?"), words
    assert "did you mean" not in store("describe", "unlike").error


GREETER = """import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ.get("GREETING", "(none)").encode())
http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""


def test_the_environment_of_the_manifest_is_that_of_run_and_snapshot(folder) -> None:
    port = harness.free_port()
    (folder / "server.py").write_text(GREETER.replace("PORT", str(port)))
    (folder / "kvmserver.toml").write_text("allow-all = true\n[run]\nprogram = '/usr/bin/python3'\nargs = ['server.py']\n"
                                           "[function.env]\nGREETING = 'Hello'\n")  # fmt: skip
    made = kvmserver("snapshot", "-o", "app.snap", cwd=folder)
    assert made.status == 0, made
    for words in (["run"], ["snaprun", "app.snap"]):
        with contextlib.closing(harness.Process([str(harness.KVMSERVER), *words], cwd=folder)) as process:
            harness.wait_until(lambda: "' loaded." in process.out or not process.running(), "it serves")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=harness.PATIENCE) as reply:
                assert reply.read() == b"Hello", words


def test_an_option_below_a_section_is_told_where_it_belongs(store, folder, program) -> None:
    manifest(folder, program("c-epoll"), harness.free_port(), "warmup = 0")
    with (folder / "kvmserver.toml").open("a") as file:
        file.write("\n[function.hooks]\nallow-write = ['.']\n")
    below = kvmserver("deploy", "--name", "hello", "--store", store.path, cwd=folder)
    assert below.status == 0 and "'function.hooks.allow-write'; ignored; options stand first, above the sections" in below.err, below
    refused = kvmserver("deploy", "--name", "hello", "--strict", "--store", store.path, cwd=folder)
    assert refused.status == USAGE and "options stand first, above the sections (--strict)" in refused.error, refused


@pytest.mark.parametrize(("old", "new", "status", "said"), [
    ("warmup = 0", "warmup = 'yes'", USAGE, ":3: warmup: 'yes' is not a whole number"),
    ("/usr/bin/python3", "pyton3", NOT_FOUND, "[run] program: pyton3: not found in PATH"),
    ("app.py", "ap.py", 0, "[run] args: there is no ap.py in "),
])  # fmt: skip
def test_a_dry_run_finds_what_needs_no_boot(store, folder, old: str, new: str, status: int, said: str) -> None:
    (folder / "app.py").touch()
    text = "allow-read = ['.']\n\nwarmup = 0\n[run]\nprogram = '/usr/bin/python3'\nargs = ['app.py']\n"
    (folder / "kvmserver.toml").write_text(text)
    words = ["deploy", "--dry-run", "--name", "x", "--store", store.path]
    right = kvmserver(*words, cwd=folder)
    assert right.status == 0 and right.err == "", right
    (folder / "kvmserver.toml").write_text(text.replace(old, new))
    wrong = kvmserver(*words, cwd=folder)
    assert wrong.status == status and said in wrong.err, wrong


@pytest.mark.parametrize("command", ["run", "snapshot", "deploy"])
def test_an_unknown_key_is_one_warning_and_strict_refuses_it(store, folder, program, command) -> None:
    if command == "run":
        (folder / "kvmserver.toml").write_text("allow-al = true\n[run]\nprogram = '/bin/true'\n")
    else:
        manifest(folder, program("c-epoll"), harness.free_port(), "warmup = 0\nallow-al = true")
    words = {"run": ["run", "--allow-all"], "snapshot": ["snapshot", "-o", "app.snap"],
             "deploy": ["deploy", "--name", "hello", "--store", store.path]}[command]  # fmt: skip
    refused = kvmserver(*words, "--strict", cwd=folder)
    assert refused.status == USAGE and "'allow-al'" in refused.error and "--strict" in refused.error, refused
    done = kvmserver(*words, cwd=folder)
    assert done.status == 0, done
    assert done.err.count("allow-al'") == 1 and "did you mean allow-all?" in done.err, done


def test_what_ended_a_boot_is_told_without_v() -> None:
    ended = kvmserver("run", "-e", "/bin/cat", harness.PROGRAMS_FILE)
    assert f"--allow-read={harness.PROGRAMS_FILE}" in ended.err, ended


def test_a_script_runs_by_its_interpreter(folder) -> None:
    script = folder / "script"
    script.write_text("#!/usr/bin/env python3\nimport sys\nprint('runs', sys.argv[1:])\n")
    script.chmod(0o755)
    ended = kvmserver("run", "--allow-all", script, "a", "b c")
    assert ended.status == 0 and ended.out == "runs ['a', 'b c']\n", ended
    script.write_text("#!/no/such/interpreter\n")
    wrong = kvmserver("run", "--allow-all", script)
    assert wrong.status == NOT_FOUND and "/no/such/interpreter" in wrong.error, wrong


def test_plain_http_to_a_port_of_tls_is_told(folder, store, serve, snapshots, program) -> None:
    certificates = admin.Certificates(folder / "certificates")
    files = [str(certificates.certificate), str(certificates.key)]
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    port = harness.free_port()
    daemon = serve("--tls-certificate", files[0], "--tls-key", files[1],
                   "--admin", f"127.0.0.1:{port}", "--admin-certificate", files[0], "--admin-key", files[1])  # fmt: skip
    for at in (daemon.port, port):
        with socket.create_connection(("127.0.0.1", at), timeout=harness.PATIENCE) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
            reply = client.makefile("rb").read()
        assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"https://" in reply, reply
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["code"] == "tls-required"
    far = kvmserver("list", "--remote", f"http://127.0.0.1:{port}", env={"KVMSERVER_TOKEN": "kvs_x"})
    assert far.status == USAGE and "https://" in far.error, far
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=harness.PATIENCE) as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert b"HTTP" not in client.makefile("rb").read()


def test_doctor_as_json(folder) -> None:
    done = kvmserver("doctor", "--json", "--store", folder / "store")
    report = json.loads(done.out)
    assert done.status == 0 and report["usable"] is True
    states = {check["subject"]: check["state"] for check in report["checks"]}
    assert states["kvm"] == "ok" and set(states.values()) <= {"ok", "advice"}, report
    lines = kvmserver("doctor", "--store", folder / "store").out.splitlines()
    assert [check["detail"].split(" (")[0] for check in report["checks"]] == [line.split(" (")[0] for line in lines]


def test_traffic_shows_the_split(store, snapshots, program) -> None:
    snap = snapshots.of(program("c-epoll"))
    for _ in range(2):
        store.deploy(snap, "hello")
    assert store.ok("traffic", "hello") == "hello v2"
    store.ok("traffic", "hello", "1=25", "2=75")
    assert store.ok("traffic", "hello") == "hello v1:25%,v2:75%"
    assert store.json("traffic", "hello")["live"] == [{"percent": 25, "version": 1}, {"percent": 75, "version": 2}]


def test_serve_listens_on_this_host_only(store, snapshots, program) -> None:
    """The usual port may be taken here, so this has a network of its own."""
    script = f'ip link set lo up; {harness.KVMSERVER} serve --store {store.path} & daemon=$!; for i in $(seq 400); do ss -ltn | grep -q :8080 && break; sleep 0.05; done; ss -Hltn; kill $daemon; wait'  # noqa: E501
    done = subprocess.run(["unshare", "-n", "/bin/sh", "-c", script], capture_output=True, text=True, env=harness.BASE_ENVIRONMENT,
                          timeout=harness.PATIENCE * 3)  # fmt: skip
    listening = [line.split()[3] for line in done.stdout.splitlines() if line.startswith("LISTEN")]
    assert listening == ["127.0.0.1:8080"], done


def test_a_dry_run_boots_nothing_and_says_so(store, folder) -> None:
    (folder / "kvmserver.toml").write_text(
        f"[run]\nprogram = '/bin/true'\n[function]\nname = 'hello'\n[function.build]\ncommand = 'touch {folder}/built'\n"
    )
    said = kvmserver("deploy", "--dry-run", "--store", store.path, cwd=folder)
    assert said.out == "+ route hello.localhost\nhello none -> the new version (dry run: nothing was built, booted or stored)\n", said
    assert not (folder / "built").exists() and not store.path.exists()


def test_a_program_that_cannot_be_snapshot_leads_to_what_to_do(store, folder) -> None:
    (folder / "kvmserver.toml").write_text("[run]\nprogram = '/bin/false'\n[function]\nname = 'hello'\n")
    failed = kvmserver("deploy", "--store", store.path, cwd=folder)
    assert failed.status == FAILURE and f"`kvmserver dev --watch -v {folder}`" in failed.error and "nothing was stored" in failed.error, failed
    assert "false: exited with status 1 before it waited for a connection" in failed.err


def test_how_to_reach_names_below_localhost_is_told_of_a_new_function_only(store, snapshots, program, serve) -> None:
    snap = snapshots.of(program("c-epoll"))
    serve()
    names = pathlib.Path("/etc/nsswitch.conf")
    words = [word for line in (names.read_text().splitlines() if names.exists() else []) if line.startswith("hosts:") for word in line.split()]
    first, second = (store("deploy", snap, "--name", "hello") for _ in range(2))
    assert ("names below .localhost do not resolve here" in first.err) == (not {"myhostname", "resolve"} & set(words)), first
    assert "do not resolve" not in second.err, second


@pytest.mark.parametrize("terminal", [True, False])
def test_the_demo_shows_how_far_its_build_is(terminal: bool) -> None:
    script = (harness.ROOT / "scripts/demo.sh").read_text()
    functions = re.findall(r"^(?:progress|say)\(\) \{.*?\}$", script, re.DOTALL | re.MULTILINE)
    feed = 'echo "ninja: Entering directory"; for i in $(seq 200); do echo "[$i/200] Building"; done'
    ours, theirs = pty.openpty() if terminal else os.pipe()
    subprocess.run(["bash", "-c", "\n".join(functions) + f"\n{{ {feed}; }} | progress"], stdout=theirs, check=True, timeout=harness.PATIENCE)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # of a terminal whose other end is closed
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    if terminal:
        assert said.startswith(b"\r\x1b[K   [1/200]\r\x1b[K   [2/200]") and said.endswith(b"[200/200]\r\x1b[K") and b"\n" not in said
    else:
        assert said.decode() == "".join(f"   [{n}/200]\n" for n in range(20, 201, 20))
