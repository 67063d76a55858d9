"""--warmup auto: requests before the snapshot, until they help no more."""
import json
import pathlib
import re
import shutil
import time

import harness
import pytest
from harness import RUN, RUN_E, SLOWNESS, guest, kvmserver

NODE = shutil.which("node") or "/usr/bin/node"
# Answers which request it is, and who asked for what before. Its first requests take a while.
SERVER = """
let n = 0, asked = new Set();
require('http').createServer((q, r) => {
    const end = performance.now() + (++n <= SLOW ? MS : 0);
    asked.add(`${q.method} ${q.url} ${q.headers['user-agent']}`);
    while (performance.now() < end);
    r.end(JSON.stringify({n, asked: [...asked]}));
}).listen(process.argv[1], '127.0.0.1')
"""


def server_of(slow: int, ms: int) -> dict:
    script = SERVER.replace("SLOW", str(slow)).replace("MS", str(ms))
    return {"name": "warms", "lang": "Node", "argv": [NODE, "-e", script, "{port}"], "cwd": "/", "env": {}, "serial": False}


def snapshot(program: dict, file: pathlib.Path, *options: str) -> harness.Ended:
    made = kvmserver("snapshot", "--allow-all", "--level", "1", "-o", file, *options, *harness.arguments_of(program, harness.free_port()))
    assert made.status == 0, made.error
    return made


def test_it_goes_on_until_requests_are_cheap(start) -> None:
    server = start(server_of(20, 20), RUN_E, "-w", "auto")
    told = json.loads(server.get("/", "Connection: close"))
    assert told["n"] > 20
    assert "GET / kvmserver-warmup" in told["asked"] and len(told["asked"]) == 2, told


def test_a_plateau_of_some_hundred_requests_is_no_end(start) -> None:
    server = start(guest("compiles", "{port}"), RUN_E, "-w", "auto", "--max-warmup-time", str(10 * SLOWNESS))
    assert int(server.get("/", "Connection: close")) > 600


def test_what_it_did_is_told_in_one_line(tmp_path: pathlib.Path) -> None:
    made = snapshot(server_of(20, 20), tmp_path / "app.snap", "-w", "auto", "--warmup-path", "/warm?me")
    lines = [line for line in made.error.splitlines() if "warm" in line]
    assert len(lines) == 1, made.error
    found = re.fullmatch(r"kvmserver: node: warm-up: (\d+) requests to /warm\?me(?:, saved after (\d+))?: "
                         r"an invocation takes ([\d.]+) ms of CPU, ([\d.]+) ms without warm-up", lines[0])  # fmt: skip
    assert found and float(found[3]) < 10 <= float(found[4]), lines  # of CPU: less than 20 where others run
    assert 20 <= int(found[2] or found[1]) <= int(found[1]), lines


# Answers with which sets of headers it was asked.
HEADERS = """
const asked = new Set();
require('http').createServer((q, r) => {
    asked.add(Object.keys(q.headers).sort().join());
    r.end(JSON.stringify([...asked]));
}).listen(process.argv[1], '127.0.0.1')
"""


def test_its_requests_have_different_headers_as_those_of_clients_have(start) -> None:
    """V8 specialises code for up to four sets. After a fifth it is as good for those that it has not seen."""
    program = {"name": "headers", "lang": "Node", "argv": [NODE, "-e", HEADERS, "{port}"], "cwd": "/", "env": {}, "serial": False}
    told = json.loads(start(program, RUN_E, "-w", "14").get("/", "X-Own: 1"))
    warm = [names.split(",") for names in told if "x-own" not in names]
    assert len(warm) > 5, told
    assert all({"connection", "host", "user-agent"} <= set(names) for names in warm), told
    assert any("x-forwarded-for" in names and "accept" in names for names in warm), told


def test_each_path_is_warmed_up(start) -> None:
    server = start(server_of(20, 20), RUN_E, "-w", "auto", "--warmup-path", "/a", "--warmup-path", "/b")
    told = json.loads(server.get("/c", "Connection: close"))
    assert told["n"] > 20
    assert told["asked"] == ["GET /a kvmserver-warmup", "GET /b kvmserver-warmup", "GET /c undefined"]


# Answers how often it was asked for what.
COUNTS = """
let asked = {};
require('http').createServer((q, r) => {
    let body = '';
    q.on('data', part => body += part).on('end', () => {
        const what = `${q.method} ${q.url} ${q.headers['x-kind']} ${body}`;
        asked[what] = (asked[what] ?? 0) + 1;
        r.statusCode = q.url === '/once' && asked[what] > 1 ? 409 : 200;
        if (q.url === '/hangs') return;
        r.end(JSON.stringify(asked));
    });
}).listen(process.argv[1], '127.0.0.1')
"""
ORDERS = """# two kinds of requests
POST /orders HTTP/1.1
X-Kind: json

{"tea": 1}

### the page
GET /page
"""


def counts() -> dict:
    return {"name": "counts", "lang": "Node", "argv": [NODE, "-e", COUNTS, "{port}"], "cwd": "/", "env": {}, "serial": False}


def test_requests_of_a_file_are_sent_with_their_headers_and_bodies(start, tmp_path: pathlib.Path) -> None:
    (tmp_path / "w.http").write_text(ORDERS)
    server = start(counts(), RUN_E, "-w", "5", "--warmup-requests", tmp_path / "w.http")
    told = json.loads(server.get("/", "Connection: close"))
    # Some more are sent where an invocation was expensive just then.
    assert list(told) == ['POST /orders json {"tea": 1}', "GET /page undefined ", "GET / undefined "], told
    assert told['POST /orders json {"tea": 1}'] == told["GET /page undefined "] >= 5


def test_a_request_that_gets_no_answer_is_left_out_of_auto(tmp_path: pathlib.Path) -> None:
    (tmp_path / "w.http").write_text("GET /hangs\n###\nGET /page\n")
    made = snapshot(counts(), tmp_path / "app.snap", "-w", "auto", "--warmup-requests", tmp_path / "w.http")
    assert "kvmserver: node: no warm-up: the trial request GET /hangs got no answer" in made.err
    assert re.search(r"warm-up: \d\d+ requests to /page[:, ].* an invocation", made.error), made.error


def test_a_request_whose_answer_changes_ends_auto_and_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "w.http").write_text("GET /page\n###\nPUT /once\n")
    made = snapshot(counts(), tmp_path / "app.snap", "-w", "auto", "--warmup-requests", tmp_path / "w.http")
    assert re.search(r"the warm-up ends early: after \d+ requests PUT /once is answered with status 409, before with 200", made.err), made.err
    assert re.search(r"warm-up: \d+ requests to 2 targets made an invocation no cheaper \([\d.]+ ms of CPU\); "
                     r"the state before them is saved", made.error), made.error  # fmt: skip


def test_nonsense_in_a_file_of_requests_is_told_with_its_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "w.http"
    file.write_text("GET /page\nPOST /x\n")
    told = kvmserver("snapshot", "-o", tmp_path / "a.snap", "--warmup-requests", file, NODE)
    assert told.status == 2 and told.error.strip() == f"kvmserver: {file}:2: a header is NAME: VALUE; an empty line stands before the body, ### before the next request"
    told = kvmserver("snapshot", "-o", tmp_path / "a.snap", "--warmup-requests", file, "--warmup-path", "/x", NODE)
    assert told.status == 2 and told.error.strip() == "kvmserver: --warmup-requests excludes --warmup-path; write the path into the file"
    told = kvmserver("snapshot", "-o", tmp_path / "a.snap", "--warmup-requests", tmp_path / "none", NODE)
    assert told.status == 3 and told.error.strip() == f"kvmserver: {tmp_path}/none: No such file or directory"


@pytest.mark.nightly
def test_it_takes_no_longer_than_it_may(tmp_path: pathlib.Path) -> None:
    """Requests that take half a second each, for ever."""
    program = server_of(1_000_000, 500)
    begin = time.monotonic()
    snapshot(program, tmp_path / "none.snap")
    without = time.monotonic() - begin
    begin = time.monotonic()
    made = snapshot(program, tmp_path / "some.snap", "-w", "auto", "--max-warmup-time", "3")
    assert re.search(r"warm-up: \d requests? to ", made.error), made.error
    # Measuring an invocation takes some requests, too.
    assert time.monotonic() - begin < without + 3 + 15 * SLOWNESS


def test_a_program_that_does_not_answer_is_left_alone(tmp_path: pathlib.Path) -> None:
    made = snapshot(guest("clocks", "{port}", "3"), tmp_path / "app.snap", "-w", "auto")
    assert "kvmserver: clocks: no warm-up: the trial request GET / got no answer; name a path that gets one (--warmup-path" in made.error


@pytest.mark.parametrize(("top", "function", "expected"), [
    ("", "", "to /"),
    ("", "[function.hooks]\nhealth = '/health'\n", "to /health"),
    ("warmup-path = '/mine'\n", "[function.hooks]\nhealth = '/health'\n", "to /mine"),
    ("warmup-requests = 'w.http'\n", "[function.hooks]\nhealth = '/health'\n", "to /of-file"),
    ("warmup = 'auto'\nmax-warmup-time = 20\n", "", "to /"),
    ("warmup = 0\n", "", None),
    ("warmup = 3\n", "", None),
], ids=["nothing", "health", "path", "file", "auto", "none", "number"])
def test_deploy_warms_up_unless_the_manifest_says_otherwise(tmp_path: pathlib.Path, top: str, function: str, expected: str | None) -> None:
    program = harness.programs()["c-epoll"]
    argv = harness.arguments_of(program, harness.free_port())
    (tmp_path / "kvmserver.toml").write_text(f"allow-all = true\nlevel = 1\n{top}[run]\nprogram = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
                                             f"[function]\nname = 'warms'\n{function}")
    (tmp_path / "w.http").write_text("GET /of-file\n")
    done = kvmserver("deploy", tmp_path, "--store", tmp_path / "store")
    assert done.status == 0, done.error
    told = re.findall(r"warm-up: \d+ requests (to [^\s:,]+)", done.out + done.err)
    assert told == ([expected] if expected else [])


# Says that it boots, and every request that it gets. DYING: the request that ends it.
TALKS = """
let n = 0;
console.log('booting'); console.error('to stderr');
require('http').createServer((q, r) => {
    console.log(`GET ${q.url} ${++n}`);
    if (n === DYING) { console.error('no more of this'); process.exit(3); }
    r.end(`${n}`);
}).listen(process.argv[1], '127.0.0.1')
"""
HIDDEN = re.compile(r"node: ([\d,]+) lines? of output during warm-up not shown \(-v shows (?:them|it)\)")


def talks(dying: int = 0) -> dict:
    return {"name": "talks", "lang": "Node", "argv": [NODE, "-e", TALKS.replace("DYING", str(dying)), "{port}"], "cwd": "/", "env": {},
            "serial": False}  # fmt: skip


def hidden(said: str) -> int:
    (count,) = HIDDEN.findall(said)
    return int(count.replace(",", ""))


def test_what_a_program_prints_in_its_warm_up_is_counted_and_not_shown(tmp_path: pathlib.Path) -> None:
    made = snapshot(talks(), tmp_path / "app.snap", "-w", "auto", "--max-warmup-time", "2")
    assert made.out.splitlines()[0] == "booting" and made.out.splitlines()[1].startswith("Snapshot ") and made.out.count("\n") == 2
    assert "to stderr\n" in made.err
    sent = re.search(r"warm-up: (\d+) requests? to /", made.err)
    assert sent and hidden(made.err) == int(sent[1])
    assert "GET /" not in made.err
    shown = snapshot(talks(), tmp_path / "app.snap", "-w", "5", "-v")
    assert [line for line in shown.out.splitlines() if line.startswith("GET")][:5] == [f"GET / {n}" for n in range(1, 6)]
    assert not HIDDEN.search(shown.err)


def test_the_counts_of_one_warm_up_are_one_count(tmp_path: pathlib.Path) -> None:
    made = snapshot(talks(), tmp_path / "app.snap", "-w", "auto", "--max-warmup-time", "2", "--json")
    events = [json.loads(line) for line in made.out.splitlines()]
    counts = [event["done"] for event in events if event.get("phase") == "warm-up" and "done" in event]
    assert counts == sorted(counts) and all("all" not in event for event in events), counts
    (result,) = [event["text"] for event in events if event["event"] == "message" and ": warm-up: " in event["text"]]
    assert f"warm-up: {counts[-1]} requests to /" in result
    assert not [event for event in events if event["event"] == "output" and "GET" in event["text"]]
    assert hidden("\n".join(event.get("text", "") for event in events)) == counts[-1]


@pytest.mark.parametrize("mode", [RUN, RUN_E], ids=["run", "run-e"])
def test_what_it_prints_for_others_is_shown(start, mode) -> None:
    server = start(talks(), mode, "-w", "3")
    server.get("/mine", "Connection: close")
    harness.wait_until(lambda: "GET /mine 4\n" in server.out, "its output is shown")
    assert "GET / " not in server.out and hidden(server.err) == 3


@pytest.mark.parametrize("count", ["5", "auto"])
def test_the_last_lines_are_shown_if_it_dies_in_its_warm_up(tmp_path: pathlib.Path, count: str) -> None:
    """A number of requests that are not answered is an error; --warmup auto takes what it had before."""
    dying = 5 if count == "5" else 30
    made = kvmserver("snapshot", "--allow-all", "--level", "1", "-o", tmp_path / "app.snap", "-w", count,
                     *harness.arguments_of(talks(dying), harness.free_port()))  # fmt: skip
    assert made.status == (1 if count == "5" else 0), made
    lines = made.err.splitlines()
    shown = min(20, dying + 1)
    at = lines.index(f"kvmserver: node: the last of its output during warm-up, {shown} lines:")
    assert lines[at + shown - 1 : at + shown + 1] == [f"GET / {dying}", "no more of this"]
    assert "the program ended while it answered GET /: exited with status 3" in lines[at + shown + 1]
    assert lines[at + 1] == f"GET / {dying - shown + 2}"


def test_what_a_trial_request_made_it_print_is_shown_if_that_gets_no_answer(tmp_path: pathlib.Path) -> None:
    made = snapshot(talks(1), tmp_path / "app.snap", "-w", "auto")
    assert re.search(r"no warm-up: the trial request GET / got no answer.*\n.*the last of its output.*, 2 lines:\nGET / 1\nno more of this\n",
                     made.err), made.err  # fmt: skip


@pytest.mark.parametrize("option", ["", "-v", "-q"])
def test_deploy_shows_it_with_v_only(tmp_path: pathlib.Path, option: str) -> None:
    argv = harness.arguments_of(talks(), harness.free_port())
    (tmp_path / "kvmserver.toml").write_text(f"allow-all = true\nlevel = 1\nwarmup = 4\n[run]\nprogram = {json.dumps(argv[0])}\n"
                                             f"args = {json.dumps(argv[1:])}\n[function]\nname = 'talks'\n")  # fmt: skip
    done = kvmserver("deploy", tmp_path, "--store", tmp_path / "store", *([option] if option else []))
    assert done.status == 0, done
    assert ("GET / 4" in done.err) == (option == "-v") and "GET" not in done.out
    assert bool(HIDDEN.search(done.err)) == (option == "")
    both = kvmserver("deploy", tmp_path, "--store", tmp_path / "store", "-q", "-v")
    assert both.status == 2 and both.err == "kvmserver: --quiet excludes --verbose\n"
