#!/usr/bin/env python3
"""What fresh random state costs an invocation, for each program of tests/e2e/guests/unique and of functions/.

    bench/unique.py [NAME...]      prints a table in Markdown

Needs build/ with the micro-benchmarks (scripts/bench.sh builds them, or cmake -DKVMSERVER_BENCH=ON and ninja micro_entropy) and
build/functions (scripts/functions.sh, also with `runtimes`).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from common import BUILD, ROOT, need

sys.path.insert(0, str(ROOT / "tests/e2e"))
import harness  # noqa: E402
import test_unique  # noqa: E402

TOOL = BUILD / "bench/micro/micro_entropy"


def all_programs() -> dict[str, dict]:
    found = {}
    for name, case in test_unique.CASES.items():
        try:
            found[name.strip("/").replace("/", "-")] = test_unique.program(case)
        except BaseException as skipped:  # pytest's own exception: what it needs is not installed
            print(f"{name}: {skipped}", file=sys.stderr)
    return found | harness.programs()


def main() -> None:
    need(TOOL, "cmake -DKVMSERVER_BENCH=ON, ninja micro_entropy")
    rows = []
    print("| program | regions | bytes | pages | fill, µs | more to reset, µs | look for them, ms |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, program in all_programs().items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            snapshot = pathlib.Path(folder, "app.snap")
            made = harness.make_snapshot(program, snapshot, "--level", "1", "-v")
            if made.status != 0:
                print(f"{name}: {made.error}", file=sys.stderr)
                continue
            looked = [line.split(" in ")[1].split(" ms")[0] for line in made.err.splitlines() if "looked for random state in" in line]
            done = subprocess.run([TOOL, snapshot], check=True, capture_output=True, text=True)
            row = json.loads(done.stdout) | {"name": name, "looked_ms": float(looked[-1])}
            rows.append(row)
            print("| {name} | {regions} | {bytes} | {pages} | {fill_us:.2f} | {reset_us:.2f} | {looked_ms:.0f} |".format(**row), flush=True)
            snapshot.unlink()
    (BUILD / "bench").mkdir(exist_ok=True)
    (BUILD / "bench/unique.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
