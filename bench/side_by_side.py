#!/usr/bin/env python3
"""What serving from a machine costs: the bare program and kvmserver, side by side and alternating in one run.

    bench/side_by_side.py [--quick] [--programs c-epoll,node-http] [--variants bare,run,run-e,snaprun-e,http]
                          [--connections 1,2,16] [--modes new,keep-alive] [--warmup 0,100,auto] [--threads 1,2]
                          [--rounds 7] [--seconds-per-burst 0.4] [--place auto] [--peer [NAME=]PATH]... [--json FILE]

All servers of one program are started; then, in each round, each has a short burst of requests in turn, in an order that
rotates from round to round. Printed are medians over the rounds; `x bare` is the median of the p50's ratio to the bare
program's within the round. Exits (perf), pages and reset time (--stats) are counted before, with other servers.
docs/PERFORMANCE.md says how to read it. Needs build/ (scripts/bench.sh makes all of it).
"""
import argparse
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import common
from common import Failure, Server

PROGRAMS = ["c-epoll", "rust-tokio", "python-http", "node-http", "deno-serve", "node-react"]
LABELS = {"bare": "bare", "run": "run", "run-e": "run -e", "snaprun-e": "snaprun -e", "http": "snaprun -e --http"}
MODES = {"new": "a new connection each", "keep-alive": "connections kept"}
FIGURES = ["p50_us", "p90_us", "p99_us", "requests_per_second"]


@dataclasses.dataclass(frozen=True)
class Variant:
    kind: str  # of LABELS
    label: str
    warmup: int | str = 0  # str: auto
    threads: int = 1
    binary: str = ""  # none: the bare program
    peer: bool = False

    @property
    def resets(self):
        return self.kind not in ("bare", "run")

    def command(self, argv, port, snapshots):
        threads = ["-t", self.threads] if self.resets else []
        if self.kind == "bare":
            return argv
        if self.kind in ("run", "run-e"):
            ephemeral = ["-e"] if self.resets else []
            return [self.binary, "run", *ephemeral, *threads, "--allow-all", *self.warmups(), *argv]
        http = ["--http"] if self.kind == "http" else []
        return [self.binary, "snaprun", "-e", *http, *threads, "--allow-all", "--listen", f"127.0.0.1:{port}", *snapshots.cache(),
                snapshots.of(self)]

    def warmups(self):
        return ["-w", self.warmup] if self.warmup else []

    def unfit(self, program, mode, connections):
        """Why this cannot be measured, if so."""
        if mode == "new" or connections == 1:
            return None
        if self.kind in ("run-e", "snaprun-e") and connections > self.threads:
            return f"a machine serves a connection to its end: {connections} kept connections need -t {connections}"
        if not self.resets and program["serial"]:
            return "the program serves one connection after the other"
        return None


def variants(options):
    found = []
    peers = [(name if path else pathlib.Path(name).name, path or name) for name, _, path in (p.partition("=") for p in options.peer)]
    for kind in options.variants:
        for name, binary in [("", options.binary)] + (peers if kind in ("run", "run-e") else []):
            resets = kind not in ("bare", "run")
            for warmup in (options.peer_warmup if name and options.peer_warmup else options.warmup) if resets else [0]:
                for threads in options.threads if resets else [1]:
                    label = " ".join([f"{name}:"] * bool(name) + [LABELS[kind]] + [f"-w {warmup}"] * bool(warmup) + [f"-t {threads}"] * (threads > 1))
                    found.append(Variant(kind, label, warmup, threads, "" if kind == "bare" else binary, bool(name)))
    return found


class Snapshots:
    """Those of one program, made when they are first needed; one for each number of warm-up requests."""

    def __init__(self, folder, program, env, argv):
        self.folder, self.program, self.env, self.argv = folder, program, env, argv
        self.made = {}

    def cache(self):
        return ["--cache", f"{self.folder}/cache"]

    def of(self, variant):
        if variant.warmup not in self.made:
            path = f"{self.folder}/{self.program['name']}-{variant.warmup}.snap"
            # Level 1: how it is compressed is no matter once it is restored.
            command = [variant.binary, "snapshot", "--allow-all", *self.cache(), "--level", "1", *variant.warmups(), "-o", path, *self.argv]
            done = subprocess.run([str(word) for word in command], env=self.env, cwd=self.program["cwd"], capture_output=True, text=True)
            if done.returncode != 0:
                raise Failure(f"{self.program['name']}: kvmserver snapshot ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
            self.made[variant.warmup] = path
        return self.made[variant.warmup]


class Bench:
    """One program."""

    def __init__(self, options, program, folder, perf):
        self.options, self.program, self.perf = options, program, perf
        self.env = common.environment(program)
        self.snapshots = Snapshots(folder, program, self.env, common.words(program, common.free_port()))
        self.failures = {}
        self.counts = {}

    def server(self, variant, *more):
        port = common.free_port()
        command = variant.command(common.words(self.program, port), port, self.snapshots)
        command[2:2] = more
        return Server(f"{self.program['name']}, {variant.label},", command, port, self.env, self.program["cwd"])

    @contextlib.contextmanager
    def forgiving(self, variant):
        """A variant that fails is left out from then on; the others are measured."""
        try:
            yield
        except Failure as failure:
            self.failures[variant] = str(failure)
            print(f"side_by_side: {failure}", file=sys.stderr, flush=True)

    def ask(self, server, mode, connections, *how, cpus=None, prefix=()):
        command = [*prefix, self.options.load, str(server.port), "--connections", str(connections), *how] + ["--keep-alive"] * (mode == "keep-alive")
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=cpus and (lambda: os.sched_setaffinity(0, cpus)))
        server.check()
        if not done.stdout.startswith("{"):
            raise Failure(f"{command[0]} failed: {done.stderr.strip()}")
        return json.loads(done.stdout), done.stderr

    def count(self, variant, mode):
        """Exits, pages and reset time of a request."""
        own = variant.resets and not variant.peer
        found = {}
        with self.server(variant, *(["--stats"] if own else [])).wait_ready() as server:
            self.ask(server, mode, 1, "--requests", "20")
            watch = ["perf", "stat", "-x,", "-e", "kvm:kvm_userspace_exit", "-p", str(server.process.pid), "--"] if self.perf else []
            reply, said = self.ask(server, mode, 1, "--requests", str(self.options.count_requests), prefix=watch)
            exits = re.search(r"^(\d+),.*kvm_userspace_exit", said, re.M)
            if exits and reply["requests"]:
                found["exits"] = int(exits[1]) / reply["requests"]
            server.stop()
            stats = re.search(r"per connection: ([\d.]+) exits, ([\d.]+) pages copied back, ([\d.]+) dropped, reset ([\d.]+) us", server.said())
        if stats and (mode == "new" or variant.kind == "http"):  # else its invocations are connections, not requests
            exits, *rest = map(float, stats.groups())
            found.setdefault("exits", exits)
            found.update(zip(["pages_copied_back", "pages_dropped", "reset_us"], rest))
        return found

    def run(self, wanted):
        modes = self.options.modes
        for variant in wanted:
            with self.forgiving(variant):
                for mode in modes if variant.kind != "bare" and self.options.count_requests else []:
                    self.counts[variant, mode] = self.count(variant, mode)
        with contextlib.ExitStack() as stack:
            servers = {}
            for variant in wanted:
                if variant not in self.failures:
                    with self.forgiving(variant):
                        servers[variant] = stack.enter_context(self.server(variant)).wait_ready()
            bursts = self.rounds(servers)
        bare = next((variant for variant in wanted if variant.kind == "bare"), None)
        return [self.result(variant, mode, connections, bursts[variant, mode, connections], bursts[bare, mode, connections])
                for mode in modes for connections in self.options.connections for variant in wanted]

    def rounds(self, servers):
        bursts = collections.defaultdict(list)
        cells = [(mode, connections) for mode in self.options.modes for connections in self.options.connections]
        for number in range(-1, self.options.rounds):  # the first is for warming up
            for mode, connections in cells:
                order = list(servers)
                turn = number % len(order) if order else 0
                for variant in order[turn:] + order[:turn]:
                    if variant in self.failures or variant.unfit(self.program, mode, connections):
                        continue
                    with self.forgiving(variant):
                        burst = self.burst(servers[variant], mode, connections)
                        if number >= 0:
                            bursts[variant, mode, connections].append({"round": number, **burst})
        return bursts

    def burst(self, server, mode, connections):
        client, others = places(self.options.place, connections)
        server.place(others)
        return self.ask(server, mode, connections, "--seconds", str(self.options.seconds_per_burst), cpus=client)[0]

    def result(self, variant, mode, connections, bursts, bare):
        result = {"program": self.program["name"], "variant": variant.label, "kind": variant.kind, "peer": variant.peer, "warmup": variant.warmup,
                  "threads": variant.threads, "mode": mode, "connections": connections,
                  "state_kept": variant.kind in ("run-e", "snaprun-e") and mode == "keep-alive"}
        why = self.failures.get(variant) or variant.unfit(self.program, mode, connections)
        good = [burst for burst in bursts if burst["requests"]]
        if why or not good:
            failed = {} if variant.unfit(self.program, mode, connections) else {"failed": True}
            return {**result, **failed, "not_measured": why or "no request succeeded: " + (bursts[0]["first_error"] if bursts else "no round")}
        for figure in FIGURES:
            result[figure] = statistics.median(burst[figure] for burst in good)
        bare_of = {burst["round"]: burst for burst in bare if burst["requests"]}
        for figure in ("p50_us", "requests_per_second"):
            ratios = [burst[figure] / bare_of[burst["round"]][figure] for burst in good if burst["round"] in bare_of]
            result["ratio_" + figure.removesuffix("_us")] = statistics.median(ratios) if ratios else None
        result.update({what: sum(burst[what] for burst in bursts) for what in ("requests", "errors", "wrong", "reopened")})
        result["first_error"] = next((burst["first_error"] for burst in bursts if burst["first_error"]), "")
        return {**result, **self.counts.get((variant, mode), {}), "rounds": bursts}


def places(how, connections):
    """The processors of the client and of the server."""
    everywhere = os.sched_getaffinity(0)
    if how == "free" or (how == "auto" and connections > 1):
        return everywhere, everywhere
    last = {max(everywhere)}
    return last, last if how in ("auto", "same") else (everywhere - last or last)


COLUMNS = [("p50 us", "p50_us", ".1f"), ("p99 us", "p99_us", ".1f"), ("requests/s", "requests_per_second", ".0f"), ("x bare", "ratio_p50", ".2f"),
           ("exits", "exits", ".2f"), ("pages back", "pages_copied_back", ".1f"), ("reset us", "reset_us", ".1f")]


def print_table(results, lang):
    first = results[0]
    count = first["connections"]
    print(f"\n{first['program']} ({lang}), {count} connection{'s' * (count > 1)}, {MODES[first['mode']]}")
    width = max(24, *(len(result["variant"]) + 4 for result in results))
    print(" " * width + "".join(f"{title:>12}" for title, *_ in COLUMNS))
    notes, left_out = [], collections.defaultdict(list)
    for result in results:
        name = result["variant"] + " *" * result["state_kept"]
        if "not_measured" in result:
            left_out[" ".join(result["not_measured"].split())[:200]].append(result["variant"])
            continue
        cells = [format(result[key], form) if result.get(key) is not None else "-" for _, key, form in COLUMNS]
        print(f"{name:{width}}" + "".join(f"{cell:>12}" for cell in cells))
        if result["errors"] or result["wrong"]:
            notes.append(f"! {name}: {result['errors']} without a reply, {result['wrong']} not 200, of {result['requests']}: {result['first_error']}")
        p50s = [burst["p50_us"] for burst in result["rounds"] if burst["requests"]]
        if max(p50s) > 1.5 * min(p50s):
            notes.append(f"~ {name}: its p50 was {min(p50s):.0f} to {max(p50s):.0f} us from round to round")
    if any(result["state_kept"] and "not_measured" not in result for result in results):
        notes.append("* one invocation a connection: its requests see each other's state, there is no reset between them")
    notes += [f"- {', '.join(names)}: {why}" for why, names in left_out.items()]
    print("".join(f"  {note}\n" for note in notes), end="", flush=True)


def perf_refused():
    """Why perf cannot count exits, if so."""
    try:
        tried = subprocess.run(["perf", "stat", "-x,", "-e", "kvm:kvm_userspace_exit", "--", "true"], capture_output=True, text=True)
    except OSError:
        return "perf is not installed (scripts/setup.sh --tests)"
    lines = tried.stderr.strip().splitlines() or ["no counts"]
    return None if re.search(r"^\d+,", tried.stderr, re.M) else f"perf may not count kvm:kvm_userspace_exit (root may): {lines[0]}"


def parse():
    def warmup(text):
        return text if text == "auto" else int(text)

    def listed(kind, known=None):
        def convert(text):
            items = [kind(item) for item in text.split(",")]
            strange = [item for item in items if (item not in known if known else item != "auto" and item < 0)]
            if strange:
                raise argparse.ArgumentTypeError(f"{strange[0]}" + (f" is none of {', '.join(known)}" if known else " is negative"))
            return items

        return convert

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=PROGRAMS, type=lambda text: text.split(","))
    parser.add_argument("--variants", default=list(LABELS), type=listed(str, LABELS))
    parser.add_argument("--connections", default=[1, 2, 16], type=listed(int))
    parser.add_argument("--modes", default=list(MODES), type=listed(str, MODES))
    parser.add_argument("--warmup", default=[0], type=listed(warmup), help="-w of those that reset, as 0,100,auto")
    parser.add_argument("--peer-warmup", type=listed(warmup), help="the same for peers, where it differs")
    parser.add_argument("--threads", default=[1], type=listed(int), help="-t of those that reset, as 1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds-per-burst", type=float, default=0.4)
    parser.add_argument("--count-requests", type=int, default=300, help="for exits, pages and reset time; 0: do not count")
    parser.add_argument("--place", choices=["auto", "same", "apart", "free"], default="auto",
                        help="processors of client and server; auto: the same one for one connection, free for more")
    parser.add_argument("--quick", action="store_true", help="1 connection, a new one each")
    parser.add_argument("--peer", action="append", default=[], metavar="[NAME=]PATH", help="another kvmserver binary with the same run [-e] [-t N] --allow-all")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--binary", default=str(common.KVMSERVER))
    parser.add_argument("--load", default=str(common.LOAD))
    parser.add_argument("--functions", default=str(common.FUNCTIONS))
    options = parser.parse_args()
    if options.quick:
        options.connections, options.modes = [1], ["new"]
    return options


def measure(options, document, folder):
    built = common.programs(options.functions)
    missing = [name for name in options.programs if name not in built]
    if missing:
        raise Failure(f"not built: {', '.join(missing)}: scripts/functions.sh {' '.join(missing)}")
    common.need(options.binary, "scripts/build.sh builds it")
    common.need(options.load, "scripts/bench.sh builds it, or cmake -S bench/load -B build/bench/load && cmake --build build/bench/load")
    for peer in options.peer:
        common.need(peer.rpartition("=")[2], "--peer names a kvmserver binary")
    options.binary = shutil.copy(options.binary, folder)  # it may be built anew meanwhile
    document["host"] = about = common.host(options.binary)
    refused = perf_refused() if options.count_requests else None
    if refused:
        print(f"exits are those of --stats: {refused}", file=sys.stderr)
    print(f"{about['kvm']} host, {about['cpus']} x {about['cpu']}, Linux {about['kernel']}, load {about['load_before']:.2f}; {about['version']}, {about['commit']}; "
          f"{options.rounds} rounds of {options.seconds_per_burst} s, place {options.place}")
    for name in options.programs:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            results = Bench(options, built[name], own, refused is None).run(variants(options))
        document["results"] += results
        for mode in options.modes:
            for connections in options.connections:
                print_table([r for r in results if (r["mode"], r["connections"]) == (mode, connections)], built[name]["lang"])
        save(options, document)


def save(options, document):
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1, default=str) + "\n")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped
    options = parse()
    document = {"started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "settings": dict(vars(options)), "results": []}
    try:
        with tempfile.TemporaryDirectory(prefix="kvmserver-bench-") as folder:
            measure(options, document, folder)
    except Failure as failure:
        sys.exit(f"side_by_side: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
    broken = [r for r in document["results"] if not r["peer"] and (r.get("errors") or r.get("wrong") or "failed" in r)]
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
