#!/usr/bin/env python3
"""Builds the libFuzzer programs of tests/fuzz and runs each for a while; prints a line for each.

    scripts/fuzz.py [NAME...]         20 seconds each, two at a time
    scripts/fuzz.py --seconds 3600    longer; what is found new stays in build/fuzz/corpus/NAME for the next run
    scripts/fuzz.py --inputs 1000000  as many inputs, however long that takes; with --seconds, whichever comes first
    scripts/fuzz.py --light           without AddressSanitizer (build/fuzz-light): more inputs a second, for targets
                                      that compare with a model; --seconds 0 then runs the new corpus with it
    scripts/fuzz.py --coverage        then which lines of the fuzzed files all inputs reach (builds a second time)
    scripts/fuzz.py --seconds 0       only what is kept: tests/fuzz/seeds/NAME and the corpus
    scripts/fuzz.py --build-all       only builds: kvmserver and all of its tests, too, with the same sanitizers
    scripts/fuzz.py --build-ci        what scripts/test.sh runs with sanitizers, built quickly: the targets and the unit
                                      tests of what reads strangers' bytes
    scripts/fuzz.py --no-build --ci   runs these targets
    scripts/fuzz.py --keep            adds the corpus' best inputs to tests/fuzz/seeds/NAME
    scripts/fuzz.py --xml FILE        also as JUnit's XML

An input that is found to break something is in build/fuzz/found/NAME. Once the fault is mended, it belongs in
tests/fuzz/seeds/NAME, under a name that says what it was. The status is 1 when there was one.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.sax.saxutils

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build"))
SEEDS = ROOT / "tests/fuzz/seeds"
CORPUS = BUILD / "fuzz/corpus"
FOUND = BUILD / "fuzz/found"
MOST_KEPT, MOST_KEPT_BYTES = 60, 4096  # of seeds for a target, of a seed
SLOWEST = 10  # seconds for an input


@dataclasses.dataclass
class Target:
    fuzzed: list[str]  # whose coverage is printed: files, or folders
    longest: int = 4096  # bytes of an input
    ci: bool = False  # scripts/test.sh runs it; the others take long to build


def files(folder: str, names: str) -> list[str]:
    return [f"{folder}/{name}.cpp" for name in names.split()]


TARGETS = {
    "elf": Target(["tinykvm/elf"], 1 << 16, ci=True),
    "http": Target(
        files("src/http", "chunked fields head_end reply_head request_head rewrite cross_check target"),
        ci=True,
    ),
    "snapshot": Target(
        files("src/snapshot", "codec filter format index inspect metadata reader text"),
        1 << 15,
        ci=True,
    ),
    "path_rules": Target(
        ["tinykvm/base/path_text.cpp", *files("tinykvm/linux", "file_tree path_rules policy policy_open policy_walk")],
        512,
        ci=True,
    ),
    "code_sites": Target(files("tinykvm/memory", "code_sites code_stubs"), 384, ci=True),
    "address_space": Target(
        files(
            "tinykvm/memory",
            "address_space address_space_change address_space_code address_space_fault address_space_files "
            "file_windows guest_ram page_tables",
        ),
        1024,
        ci=True,
    ),
    "host_calls": Target(["tinykvm/linux"], 1024, ci=True),
    "worker": Target(
        ["src/protocol", *files("src/daemon", "worker_pool worker_pool_watch process_manager")],
        1024,
    ),
    "admin": Target(
        [
            "src/ops/manifest.cpp",
            "src/daemon/function_settings.cpp",
            *files(
                "src/admin",
                "access api call functions logs problem request snapshots staged table uploads upkeep values versions",
            ),
        ],
        1024,
    ),
    "uploads": Target(
        ["src/admin/assemble.cpp", "src/admin/uploads.cpp", "src/ops/delta.cpp", "src/ops/import.cpp"],
        8192,
    ),
    "cache_files": Target(["src/snapshot/folder_cache.cpp", "src/snapshot/compressed_chunk_cache.cpp"], 512, ci=True),
}


def build(folder: pathlib.Path, targets: list[str], *flags: str, quickly: bool = False) -> None:
    options = ["-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_BUILD_TYPE=Debug"]
    # Without optimisation it is built in half the time, but the unit tests take three times as long.
    options += ["-DCMAKE_CXX_FLAGS_DEBUG=-O1 -gline-tables-only", "-DKVMSERVER_FUZZ=ON", *flags]
    options += [f"-DCMAKE_UNITY_BUILD_BATCH_SIZE={24 if quickly else 8}"]  # larger: quicker for all, slower for a change
    options += [f"-DKVMSERVER_QUICK_BUILD={'ON' if quickly else 'OFF'}"]
    if shutil.which("ccache"):
        options += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "build.log", "w") as log:
        configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options]
        for command in (configure, ["ninja", "-C", folder, *targets]):
            if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode != 0:
                sys.exit(f"fuzz: the build failed; the end of {log.name}:\n{tail(folder / 'build.log')}")


def tail(path: pathlib.Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def targets_of(names: list[str]) -> list[str]:
    return [f"fuzz_{name}" for name in names]


def program(name: str, folder: pathlib.Path) -> str:
    return str(folder / f"tests/fuzz/fuzz_{name}")


def folders(name: str) -> list[str]:
    """The first is written to."""
    for folder in (CORPUS / name, SEEDS / name, FOUND / name):
        folder.mkdir(parents=True, exist_ok=True)
    return [str(CORPUS / name), str(SEEDS / name)]


ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def run(name: str, seconds: int, inputs: int, folder: pathlib.Path) -> tuple[bool, str]:
    """Whether nothing was found, and what there is to say."""
    log = FOUND / f"{name}.log"
    where = folders(name)
    before = set((FOUND / name).iterdir())
    options = [f"-max_len={TARGETS[name].longest}", f"-timeout={SLOWEST}", "-rss_limit_mb=3000", "-print_final_stats=1"]
    options += [f"-artifact_prefix={FOUND / name}/"]
    options += [f"-max_total_time={seconds}"] if seconds else []
    options += [f"-runs={inputs}"] if inputs or not seconds else []
    started = time.monotonic()
    with open(log, "w") as out:
        command = [program(name, folder), *options, *where]
        process = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=ENVIRONMENT)
    text = log.read_text(errors="replace")
    ran = int(match[1]) if (match := re.search(r"stat::number_of_executed_units: *(\d+)", text)) else 0
    edges = re.findall(r"cov: (\d+)", text)
    took = time.monotonic() - started
    line = f"{name:14} {ran:>11,} inputs in {took:.0f} s, {edges[-1] if edges else 0} edges"
    new = sorted(set((FOUND / name).iterdir()) - before)
    if process.returncode == 0 and not new:
        return True, line
    why = re.search(r"(SUMMARY: .*|ERROR: libFuzzer: .*|require: .*|.*runtime error: .*)", text)
    files = " ".join(str(path) for path in new) or "no file"
    return False, f"{line}: FOUND {why[1] if why else f'status {process.returncode}'}: {files}; {log}"


def quietly(command: list, **variables: str) -> None:
    null = subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=null, stderr=null, env={**ENVIRONMENT, **variables})


def keep(name: str) -> None:
    """Adds inputs of the corpus that reach what no seed does to the seeds: few that reach all, by a greedy choice."""
    seeds = SEEDS / name
    control, merged = BUILD / "fuzz/merge-control", BUILD / "fuzz/merged"
    control.unlink(missing_ok=True)
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    options = ["-merge=1", "-use_counters=0", f"-max_len={TARGETS[name].longest}", f"-merge_control_file={control}"]
    quietly([program(name, BUILD / "fuzz"), *options, merged, *reversed(folders(name))])
    lines = control.read_text().splitlines()
    inputs = [pathlib.Path(line) for line in lines[2 : 2 + int(lines[0])]]
    reaches = {inputs[int(words[1])]: set(words[2:]) for line in lines if (words := line.split()) and words[0] == "FT"}
    there = set(seeds.iterdir())
    reached = set().union(*(reaches.get(path, set()) for path in there))
    candidates = [path for path in reaches if path not in there and path.stat().st_size <= MOST_KEPT_BYTES]
    added = 0
    while candidates and len(there) + added < MOST_KEPT:
        best = max(candidates, key=lambda path: (len(reaches[path] - reached), -path.stat().st_size))
        if not reaches[best] - reached:
            break
        reached |= reaches[best]
        candidates.remove(best)
        shutil.copy(best, seeds / best.name[:12])
        added += 1
    everything = set().union(*reaches.values())
    print(f"{name:14} {added} new seeds, {len(there) + added} in all; they reach {len(reached)} of {len(everything)}")


def coverage(names: list[str]) -> None:
    """Prints the lines of each fuzzed file that seeds and corpus reach."""
    folder = BUILD / "fuzz-coverage"
    profile = "-DCMAKE_CXX_FLAGS=-fprofile-instr-generate -fcoverage-mapping"
    build(folder, targets_of(names), "-DKVMSERVER_SANITIZE=fuzzer-no-link", profile)
    for name in names:
        raw, data = folder / f"{name}.profraw", folder / f"{name}.profdata"
        quietly([program(name, folder), "-runs=0", *folders(name)], LLVM_PROFILE_FILE=str(raw))
        subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", data], check=True)
        export = ["llvm-cov", "export", "-summary-only", program(name, folder), f"-instr-profile={data}"]
        report = json.loads(subprocess.run(export, check=True, stdout=subprocess.PIPE).stdout)
        fuzzed = TARGETS[name].fuzzed
        reached = count = 0
        for file in report["data"][0]["files"]:
            path = os.path.relpath(file["filename"], ROOT)
            if path.endswith(".cpp") and any(path == each or path.startswith(each + "/") for each in fuzzed):
                lines = file["summary"]["lines"]
                reached, count = reached + lines["covered"], count + lines["count"]
                print(f"{name:14} {lines['percent']:5.1f}% of {lines['count']:5} lines  {path}")
        print(f"{name:14} {100 * reached / max(count, 1):5.1f}% of {count:5} lines  all of them", flush=True)


def write_xml(path: str, outcomes: dict[str, tuple[bool, str]]) -> None:
    cases = []
    for name, (good, line) in outcomes.items():
        text = xml.sax.saxutils.quoteattr(line)
        failure = "" if good else f"<failure message={text}/>"
        cases.append(f'<testcase classname="fuzz" name="{name}">{failure}</testcase>')
    text = f'<?xml version="1.0"?><testsuite name="fuzz">{"".join(cases)}</testsuite>\n'
    pathlib.Path(path).write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--build-all", action="store_true")
    parser.add_argument("--build-ci", action="store_true")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--xml")
    given = parser.parse_args()
    if unknown := set(given.names) - set(TARGETS):
        parser.error(f"no such target: {' '.join(sorted(unknown))}; there are {' '.join(TARGETS)}")
    in_ci = [name for name, target in TARGETS.items() if target.ci]
    names = given.names or (in_ci if given.ci else list(TARGETS))
    seconds = given.seconds if given.seconds is not None else 0 if given.inputs else 20
    if given.keep and given.light:
        parser.error("--keep chooses by the programs with AddressSanitizer: leave out --light")
    folder = BUILD / ("fuzz-light" if given.light else "fuzz")
    if not given.no_build:
        targets = targets_of(names)
        if given.build_ci:
            targets = [*targets_of(in_ci), "hostile_units"]
        if given.build_all:
            targets = ["all", "units", "fuzz"]
        flags = ["-DKVMSERVER_SANITIZE=undefined,fuzzer-no-link"] if given.light else []
        build(folder, targets, *flags, quickly=given.build_ci)
    if given.build_all or given.build_ci:
        return 0
    if given.keep:
        for name in names:
            keep(name)
        return 0
    FOUND.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(run, name, seconds, given.inputs, folder): name for name in names}
        for done in concurrent.futures.as_completed(running):
            outcomes[running[done]] = done.result()
            print(done.result()[1], flush=True)
    if given.xml:
        write_xml(given.xml, outcomes)
    if given.coverage:
        coverage(names)
    return 0 if all(good for good, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
